package lab

import (
	"bytes"
	"context"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/tensor"
)

// sources are the unquantized forms in which a model lies in the goldens.
func sources(t *testing.T, name string) map[string]string {
	s := map[string]string{"hf": golden.Model(t, name)}
	for _, path := range golden.Files(t) {
		if filepath.Base(path) == name+".bf16.gguf" {
			s["gguf"] = path
		}
	}
	return s
}

// take records a model's golden prompts, with taps where the golden has them.
func take(t *testing.T, path string, b backend.Backend, gold *Record) *Record {
	t.Helper()
	c, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	g, _, err := arch.LoadFor(c, Longest(gold.Prompts))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	r, err := NewRecorder(t.Context(), g, b, 4096, 8)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	out := filepath.Join(t.TempDir(), "record.safetensors")
	w, err := Create(out)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, p := range gold.Prompts {
		q := &Prompt{Index: p.Index, Input: p.Input, Text: p.Text, IDs: p.IDs}
		if err := r.Record(context.Background(), q, len(p.Taps) > 0); err != nil {
			t.Fatal(err)
		}
		if err := w.Add(q); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(nil); err != nil {
		t.Fatal(err)
	}
	return open(t, out)
}

// TestParity compares our records with PyTorch's float64 ones: logits within
// 5e-6 at the last position and 1e-5 at any in float64, four times PyTorch's
// own float32 distance in float32, and every tap within 1e-5.
func TestParity(t *testing.T) {
	for _, name := range golden.Sample(records(t)) {
		if name == "demo" {
			continue // there is no unquantized demo
		}
		gold := open(t, golden.Record(t, name).Tensors(t))
		for source, path := range sources(t, name) {
			t.Run(name+"/"+source+"/f64", func(t *testing.T) {
				parity(t, gold, take(t, path, reference.Backend{}, gold), "f64", 21)
			})
			t.Run(name+"/"+source+"/f32", func(t *testing.T) {
				parity(t, gold, take(t, path, cpu.New(cpu.Options{Precision: cpu.F32, KV: cpu.KVF32}), gold), "f32", 21)
			})
		}
	}
}

// TestFamilies is TestParity for the model of each family, from its folder and from the
// GGUF file that convert makes of it. The file's longest prompt is computed in float32 alone.
func TestFamilies(t *testing.T) {
	for _, name := range golden.Sample(golden.Families(t)) {
		gold, folder := open(t, golden.Record(t, name).Tensors(t)), golden.Model(t, name)
		file := filepath.Join(t.TempDir(), name+".gguf")
		o, own, first, least := convert.Options{}, gold, 15, 15
		if name == folded { // BF16 has not the products of weights and multipliers
			o.Type, own, least = "F32", unfolded(gold), 6
		}
		if golden.Architecture(t, name) == "falcon" { // an MLP's taps have attention's output as well
			first, least = 8, 8
		}
		if _, err := convert.Convert(t.Context(), folder, file, o); err != nil {
			t.Fatal(err)
		}
		t.Run(name+"/f64", func(t *testing.T) {
			parity(t, gold, greedy(t, folder, gold), "f64", first)
		})
		short := shorter(own, 100)
		t.Run(name+".gguf/f64", func(t *testing.T) {
			parity(t, short, take(t, file, reference.Backend{}, short), "f64", least)
		})
		for path, gold := range map[string]*Record{folder: gold, file: own} {
			t.Run(filepath.Base(path)+"/f32", func(t *testing.T) {
				parity(t, gold, take(t, path, cpu.New(cpu.Options{Precision: cpu.F32, KV: cpu.KVF32}), gold), "f32", least)
			})
		}
	}
}

// folded is the family whose multipliers are in the weights of GGUF's files.
const folded = "falconh1"

// unfolded is a record without the values that such files' products do not have.
func unfolded(gold *Record) *Record {
	own := regexp.MustCompile(`(q|k|v|o|in|out|gate|down)_proj\.|embed_tokens|\.(self_attn|mamba|feed_forward)\.out$`)
	r := &Record{}
	for _, p := range gold.Prompts {
		q := *p
		q.Taps = maps.Clone(p.Taps)
		maps.DeleteFunc(q.Taps, func(name string, _ *tensor.Tensor) bool { return own.MatchString(name) })
		r.Prompts = append(r.Prompts, &q)
	}
	return r
}

// greedy records a model's golden prompts in float64, each in one pass with PyTorch's
// continuation, whose tokens are to be the likeliest but where two logits lie within the
// record's own float32 distance. It returns the record of the prompts alone.
func greedy(t *testing.T, path string, gold *Record) *Record {
	t.Helper()
	r, err := NewRecorder(t.Context(), graphOf(t, path, false), reference.Backend{}, 4096, 24)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, steps := &Record{}, 0
	for _, p := range gold.Prompts {
		more := len(p.GreedyIDs) - 1
		q := &Prompt{Index: p.Index, Input: p.Input, Text: p.Text, IDs: slices.Concat(p.IDs, p.GreedyIDs[:more])}
		if err := r.Record(t.Context(), q, len(p.Taps) > 0); err != nil {
			t.Fatal(err)
		}
		logits := rowsOf(q.Logits)
		row := make([]float64, logits.width)
		for i, want := range p.GreedyIDs {
			logits.read(row, logits.n-len(p.GreedyIDs)+i)
			best := slices.Index(row, slices.Max(row))
			if best != int(want) && row[best]-row[want] > float64(p.Float32.MaxAbsDiff) {
				t.Errorf("prompt %d: token %d is %d, want %d", p.Index, i, best, want)
			}
			steps++
		}
		q.IDs, q.Hidden, q.PositionsKept = p.IDs, nil, logits.n-more
		q.Logits = head(q.Logits, q.PositionsKept)
		for name, x := range q.Taps {
			q.Taps[name] = head(x, len(p.IDs))
		}
		got.Prompts = append(got.Prompts, q)
	}
	if steps < 15*len(gold.Prompts) {
		t.Errorf("%d tokens", steps)
	}
	return got
}

// head is the first n rows of x.
func head(x *tensor.Tensor, n int) *tensor.Tensor {
	return &tensor.Tensor{DType: x.DType, Shape: append(tensor.Shape{n}, x.Shape[1:]...), Data: x.Data[:len(x.Data)/x.Shape[0]*n]}
}

// parity wants got inside the floor, with at least so many taps to compare.
func parity(t *testing.T, gold, got *Record, precision string, least int) {
	o := Options{}
	if precision == "f64" {
		o.MaxDiff = new(1e-5)
	}
	c, err := Compare(gold, got, o)
	if err != nil {
		t.Fatal(err)
	}
	if !c.Inside() || len(c.Prompts) != len(gold.Prompts) {
		t.Errorf("outside the floor, or %d of %d prompts", len(c.Prompts), len(gold.Prompts))
	}
	var worst, last, tap float64
	taps, want := 0, 0
	for _, p := range c.Prompts {
		worst = max(worst, float64(p.MaxAbsDiff))
		last = max(last, lastDiff(gold.Prompt(p.Index), got.Prompt(p.Index)))
		for _, x := range p.Taps {
			if x.NeedNotMatch {
				continue
			}
			taps++
			if tap = max(tap, float64(x.Whole)); x.Broken() || !(x.Whole <= 1e-5) {
				t.Errorf("prompt %d: tap %s: relative error %.3g %s", p.Index, x.Name, float64(x.Whole), x.Problem)
			}
		}
		for name := range gold.Prompt(p.Index).rows() {
			if !needNotMatch(name) {
				want++
			}
		}
	}
	if precision == "f64" && !(last <= 5e-6) {
		t.Errorf("|Δlogit| %.3g at a last position", last)
	}
	if taps != want || taps < least {
		t.Errorf("%d taps compared of %d", taps, want)
	}
	t.Logf("max |Δlogit| %.2g (last positions %.2g), mean KL %.2g; %d taps, worst %.2g", worst, last, float64(c.All.KLMean), taps, tap)
}

// lastDiff is the largest difference of logits at a prompt's last position.
func lastDiff(gold, got *Prompt) float64 {
	a, b := rowsOf(gold.Logits), rowsOf(got.Logits)
	g, r := make([]float64, a.width), make([]float64, b.width)
	a.read(g, a.n-1)
	b.read(r, b.n-1)
	d, _ := AbsDiff(g, r)
	return d
}

// TestDecode wants a prompt whose last tokens are decoded one by one to have the
// numbers of one that is computed at once: logits, hidden states and taps.
func TestDecode(t *testing.T) {
	g := graphOf(t, golden.Model(t, "tiny-gemma4"), false)
	gold := open(t, golden.Record(t, "tiny-gemma4").Tensors(t))
	r, err := NewRecorder(t.Context(), g, reference.Backend{}, 512, 5)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ids := gold.Prompt(7).IDs
	record := func(decode int, taps bool) map[string]rows {
		p := &Prompt{IDs: ids, Decode: decode}
		if err := r.Record(t.Context(), p, taps); err != nil {
			t.Fatal(err)
		}
		all := p.rows()
		all["logits"] = rowsOf(p.Logits)
		return all
	}
	for _, taps := range []bool{false, true} {
		want := record(0, taps)
		if len(want) < 10 || taps && len(want) < 100 {
			t.Errorf("%d tensors", len(want))
		}
		for _, decode := range []int{1, 4, 5, 7, len(ids)} {
			got := record(decode, taps)
			for name, x := range want {
				if y := got[name]; y.n != x.n || y.width != x.width || !bytes.Equal(x.data, y.data) {
					t.Errorf("the last %d decoded, taps %v: %s: %d rows, other values than %d rows at once", decode, taps, name, y.n, x.n)
				}
			}
		}
	}
	for _, p := range []*Prompt{{}, {IDs: []int32{5, 6}, Decode: 3}, {IDs: []int32{5, 6}, Decode: -1}} {
		if err := r.Record(t.Context(), p, false); err == nil {
			t.Errorf("%v, the last %d decoded: no error", p.IDs, p.Decode)
		}
	}
}
