package lab

import (
	"context"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

func loadGraph(t *testing.T, path string) *graph.Graph {
	t.Helper()
	c, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	g, _, err := arch.Load(c)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// runAll is what g's nodes give for a prompt in float64, by node.
func runAll(t *testing.T, g *graph.Graph, ids []int32) map[*graph.Node][]float32 {
	t.Helper()
	seen := map[*graph.Node][]float32{}
	e, err := engine.New(g, reference.Backend{}, engine.Options{Context: 4096,
		Want: func(n *graph.Node) bool { return n.Op != graph.StoreKV },
		Tap:  func(n *graph.Node, out []float32) { seen[n] = append(seen[n], out...) }})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s := e.NewSequence()
	defer s.Close()
	if _, err := s.Feed(context.Background(), ids, len(ids)); err != nil {
		t.Fatal(err)
	}
	return seen
}

// offBy is how far a placed tap lies from what its node gives: the relative error of the worst row.
func offBy(p *Placed, want []float32) float64 {
	worst := 0.
	row := make([]float64, p.Width)
	for i := range p.Rows {
		p.Read(row, i)
		var d, n float64
		for j, v := range want[(p.First+i)*p.Width:][:p.Width] {
			d += (row[j] - float64(v)) * (row[j] - float64(v))
			n += float64(v) * float64(v)
		}
		worst = max(worst, math.Sqrt(d/max(n, 1e-300)))
	}
	return worst
}

// placedWell places a prompt's taps and holds them against what their nodes give.
func placedWell(t *testing.T, g *graph.Graph, names string, p *Prompt, limit float64, unplaced string) *Placement {
	t.Helper()
	l, err := Place(g, NamesAuto, p)
	if err != nil {
		t.Fatal(err)
	}
	if l.Names != names {
		t.Errorf("auto takes %s, want %s (%v)", l.Names, names, l.Inferred)
	}
	allowed := regexp.MustCompile(unplaced)
	for _, u := range l.Unplaced {
		if !allowed.MatchString(u.Name) || u.Why == "" {
			t.Errorf("%s has no place: %s", u.Name, u.Why)
		}
	}
	want := runAll(t, g, p.IDs)
	last := 0
	for i := range l.Taps {
		x := &l.Taps[i]
		if d := offBy(x, want[x.Node]); !(d <= limit) {
			t.Errorf("%s at %s (%s): off by %.2g", x.Name, x.Node.Name, x.Tap, d)
		}
		if x.Node.ID < last || x.First+x.Rows != len(p.IDs) {
			t.Errorf("%s: node %d after %d, rows %d from %d", x.Name, x.Node.ID, last, x.Rows, x.First)
		}
		last = x.Node.ID
	}
	return l
}

// TestPlaceGolden places PyTorch's taps: all but those of modules that depend on
// how they are called, with the values that their nodes give.
func TestPlaceGolden(t *testing.T) {
	for _, name := range records(t) {
		if name == "demo" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			gold := open(t, golden.Record(t, name).Tensors(t))
			g := loadGraph(t, golden.Model(t, name))
			l := placedWell(t, g, NamesHF, gold.Prompt(2), 1e-5, `act_fn\.out$|rotary_emb\.out$|router\.out$`)
			if n := len(l.Taps) + len(l.Unplaced); n < len(gold.Prompt(2).Taps)+1 {
				t.Errorf("%d taps of %d", n, len(gold.Prompt(2).Taps)+1)
			}
			for _, x := range l.Taps {
				if strings.HasSuffix(x.Name, "_proj.in") && x.Tap != x.Name || strings.HasSuffix(x.Name, "norm.out") && x.Tap != x.Name {
					t.Errorf("%s is called %s", x.Name, x.Tap)
				}
			}
			bare := *gold.Prompt(2)
			bare.Taps = nil // logits alone, and hidden states, which the repository's excerpt of the record lacks
			want := 1
			if bare.Hidden != nil {
				want += bare.Hidden.Shape[0]
			}
			if without := placedWell(t, g, NamesHF, &bare, 1e-5, `^$`); len(without.Taps) != want {
				t.Errorf("%d taps, want %d", len(without.Taps), want)
			}
		})
	}
}

// TestPlaceFamilies places every tap of each family's record, but those of modules that depend
// on how they are called.
func TestPlaceFamilies(t *testing.T) {
	for _, name := range golden.Families(t) {
		t.Run(name, func(t *testing.T) {
			gold := open(t, golden.Record(t, name).Tensors(t))
			l := placedWell(t, graphOf(t, golden.Model(t, name), false), NamesHF, gold.Prompt(2), 1e-5, `(rotary_emb|pos_emb|router)\.out$`)
			if n := len(gold.Prompt(2).Taps); n < 8 || len(l.Taps)+len(l.Unplaced) < n+1 {
				t.Errorf("%d taps of %d", len(l.Taps)+len(l.Unplaced), n+1)
			}
		})
	}
}

// TestPlaceLlamaCpp places all that llama.cpp's graph callback saw.
func TestPlaceLlamaCpp(t *testing.T) {
	const inside = `^norm(-\d+)?#|^kq(_soft_max)?-|^ffn_moe_(down_scaled|gate|gate_up|geglu|probs|up|weight.*)-`
	for _, c := range []struct {
		model, gguf string
		limit       float64
		unplaced    string
	}{
		{"tiny-llama", "tiny-llama.bf16", 1e-4, inside},
		{"tiny-gemma4", "tiny-gemma4.bf16", 1e-2, inside + `|^embd#`},
		{"tiny-gemma4-moe", "tiny-gemma4-moe.bf16", 1e-2, inside + `|^embd#`},
		{"tiny-llama", "tiny-llama.Q4_K_M", 0.3, inside},
		{"tiny-gemma4", "tiny-gemma4.Q8_0", 0.5, inside + `|^embd#`},
	} {
		t.Run(c.gguf, func(t *testing.T) {
			gold := open(t, golden.Record(t, c.model).Tensors(t))
			p := open(t, golden.Shared(t, filepath.Join("goldens/llamacpp", c.gguf+".safetensors"))).Prompt(2)
			p.IDs = gold.Prompt(2).IDs
			l := placedWell(t, loadGraph(t, golden.Shared(t, "goldens/gguf/"+c.gguf+".gguf")), NamesLlamaCpp, p, c.limit, c.unplaced)
			t.Log(len(l.Taps), "placed,", len(l.Unplaced), "not")
		})
	}
}

// neighbours orders the rotated pairs of heads in rows of size bytes as llama.cpp has them, or back.
func neighbours(data []byte, rows, size, dim int, back bool) []byte {
	out := make([]byte, len(data))
	for r := range rows {
		h, i := r/dim, r%dim
		to := h*dim + i%(dim/2)*2 + i/(dim/2)
		if back {
			copy(out[r*size:(r+1)*size], data[to*size:])
		} else {
			copy(out[to*size:(to+1)*size], data[r*size:(r+1)*size])
		}
	}
	return out
}

// TestPlaceOrder: an engine whose projections and rotation both have the other order of
// a head's pairs is right; one with the other order in its weights alone is not.
func TestPlaceOrder(t *testing.T) {
	gold := open(t, golden.Record(t, "tiny-llama").Tensors(t)).Prompt(2)
	g := loadGraph(t, golden.Model(t, "tiny-llama"))
	rotated := regexp.MustCompile(`\.[qk]_proj\.out$`)

	p := &Prompt{IDs: gold.IDs, Taps: maps.Clone(gold.Taps)}
	for name, x := range p.Taps {
		if rotated.MatchString(name) {
			p.Taps[name] = &tensor.Tensor{DType: x.DType, Shape: x.Shape, Data: neighbours(x.Data, x.Shape.Size(), 4, 32, false)}
		}
	}
	if l := placedWell(t, g, NamesHF, p, 1e-5, `act_fn|rotary_emb`); len(l.Inferred) != 2 {
		t.Errorf("other order: %v", l.Inferred)
	}

	// One token turns nothing, but another prompt tells.
	one := &Prompt{IDs: p.IDs[:1], Taps: map[string]*tensor.Tensor{}}
	for name, x := range p.Taps {
		size := x.Shape.Size() / len(p.IDs)
		one.Taps[name] = &tensor.Tensor{DType: x.DType, Shape: append(tensor.Shape{1}, x.Shape[1:]...), Data: x.Data[:4*size]}
	}
	values := runAll(t, g, one.IDs)
	for _, others := range [][]*Prompt{nil, {one, p}} {
		l, err := Place(g, NamesHF, one, others...)
		if err != nil || len(l.Inferred) != min(1, len(others)) {
			t.Errorf("one token: %v, %v", l.Inferred, err)
		}
		for i := range l.Taps {
			x := &l.Taps[i]
			if d := offBy(x, values[x.Node]); (d < 1e-5) != (others != nil || !rotated.MatchString(x.Name)) {
				t.Errorf("%d others: %s: off by %v", len(others), x.Name, d)
			}
		}
	}

	// Weights in the other order, turned and named as ever.
	broken := loadGraph(t, golden.Model(t, "tiny-llama"))
	for _, n := range broken.Nodes {
		if w := n.W; rotated.MatchString(n.HF) {
			data := neighbours(w[0].Data, w[0].Shape[0], len(w[0].Data)/w[0].Shape[0], 32, false)
			n.W = []*graph.Weight{{Tensor: tensor.Tensor{DType: w[0].DType, Shape: w[0].Shape, Data: data}}}
		}
	}
	p.Taps = map[string]*tensor.Tensor{}
	for n, out := range runAll(t, broken, p.IDs) {
		p.Taps[n.Name] = newF32(out, len(p.IDs), n.Shape.Size())
	}
	for _, without := range []string{"none", "_rope"} {
		maps.DeleteFunc(p.Taps, func(name string, _ *tensor.Tensor) bool { return strings.HasSuffix(name, without) })
		l, err := Place(g, NamesKarat, p)
		if err != nil || len(l.Inferred) != 0 || l.Taps[len(l.Taps)-1].pairs != 0 {
			t.Errorf("broken weights: %v, %v", l.Inferred, err)
		}
	}

	// An engine that has llama.cpp's names but not its order.
	p = &Prompt{IDs: gold.IDs, Taps: map[string]*tensor.Tensor{}}
	other := open(t, golden.Shared(t, "goldens/llamacpp/tiny-llama.bf16.safetensors")).Prompt(2)
	for name, x := range other.Taps {
		if strings.HasPrefix(name, "Qcur") || strings.HasPrefix(name, "Kcur") {
			x = &tensor.Tensor{DType: x.DType, Shape: x.Shape, Data: neighbours(x.Data, x.Shape.Size(), 4, 32, true)}
		}
		p.Taps[name] = x
	}
	if l := placedWell(t, g, NamesLlamaCpp, p, 1e-4, `.`); len(l.Inferred) != 2 {
		t.Errorf("halves: %v", l.Inferred)
	}
}

// TestPlaceForms: shapes and names that taps of other engines have.
func TestPlaceForms(t *testing.T) {
	gold := open(t, golden.Record(t, "tiny-qwen3").Tensors(t)).Prompt(2)
	g := loadGraph(t, golden.Model(t, "tiny-qwen3"))
	values := runAll(t, g, gold.IDs)
	n := len(gold.IDs)
	value := func(name string) []float32 { return values[g.Node(name)] }
	headsFirst := func(x []float32, heads, size int) []float32 {
		var y []float32
		for h := range heads {
			for i := range n {
				y = append(y, x[(i*heads+h)*size:(i*heads+h+1)*size]...)
			}
		}
		return y
	}
	p := &Prompt{IDs: gold.IDs, Taps: map[string]*tensor.Tensor{
		"language_model.model.layers.0.self_attn.q_norm.out": newF32(headsFirst(value("blk.0.attn_q_norm"), 4, 96), 1, 4, n, 96),
		"model.language_model.layers.0.mlp":                  newF32(value("blk.0.ffn_down"), 1, n, 256),
		"layers.1.self_attn.in":                              newF32(value("blk.1.attn_norm"), n, 256),
		"layers.1.in":                                        newF32(value("blk.0.out")[256:], n-1, 256),
		"model.layers.1.mlp.up_proj.out":                     newF32(value("blk.1.ffn_up")[:64*n], n, 64),
		"model.layers.1.mlp.gate_proj.out":                   newF32(append(value("blk.1.ffn_gate"), value("blk.1.ffn_gate")...), 2*n, 512),
		"lm_head.in":                                         newF32(value("output_norm"), n, 256),
		"blk.0.add":                                          newF32(value("blk.0.add"), n, 256),
		"q_rope.01":                                          newF32(value("blk.1.attn_q_rope"), n, 4, 96),
		"final_norm":                                         newF32(value("output_norm")[256*(n-1):], 256),
		"layers.9.out":                                       newF32(value("blk.0.out"), n, 256),
	}}
	l, err := Place(g, NamesAuto, p)
	if err != nil || l.Names != NamesKarat || len(l.Taps) != 8 {
		t.Fatalf("%d placed as %s, %v", len(l.Taps), l.Names, err)
	}
	for i := range l.Taps {
		x := &l.Taps[i]
		if d := offBy(x, values[x.Node]); d != 0 || x.First != n-x.Rows {
			t.Errorf("%s: off by %v, rows from %d", x.Name, d, x.First)
		}
	}
	why := map[string]string{}
	for _, u := range l.Unplaced {
		why[u.Name] = fmt.Sprintf("%s (%d rows of %d)", u.Why, u.Rows, u.Width)
		if u.Node != nil && u.Name == "model.layers.1.mlp.up_proj.out" {
			x := make([]float64, u.Width)
			if u.Read(x, 0); x[1] != float64(value("blk.1.ffn_up")[1]) {
				t.Errorf("a prefix reads as %v", x[:2])
			}
		}
	}
	want := map[string]string{
		"layers.9.out":                     "the graph has no such layer (6 rows of 256)",
		"model.layers.1.mlp.up_proj.out":   "rows of 64 values, but blk.1.ffn_up has 512 (6 rows of 64)",
		"model.layers.1.mlp.gate_proj.out": "12 rows, but the prompt has 6 positions (12 rows of 512)",
	}
	if !maps.Equal(why, want) {
		t.Errorf("%q", why)
	}
	if _, err := Place(g, "tf", p); err == nil {
		t.Error("names of tf are accepted")
	}
}

// TestPlaceLlamaCppNames: names without uses and operations, and names that depend on the model.
func TestPlaceLlamaCppNames(t *testing.T) {
	for model, names := range map[string]map[string]struct {
		node  string
		shape tensor.Shape // of a row; heads first if it begins with 0
	}{
		"tiny-qwen2": {
			"embd": {"token_embd", tensor.Shape{192}}, "attn_norm-1": {"blk.1.attn_norm", tensor.Shape{192}},
			"Qcur-0": {"blk.0.attn_q_rope", tensor.Shape{6, 32}}, "Kcur-1": {"blk.1.attn_k.bias", tensor.Shape{64}}, "Vcur-0": {"blk.0.attn_v.bias", tensor.Shape{2, 32}},
			"Qcur-1#0.MUL_MAT": {"blk.1.attn_q", tensor.Shape{192}}, "Qcur-1#1.ADD": {"blk.1.attn_q.bias", tensor.Shape{192}},
			"Qcur-1#2.RESHAPE": {"blk.1.attn_q.bias", tensor.Shape{6, 32}}, "Qcur-1#3.ROPE": {"blk.1.attn_q_rope", tensor.Shape{6, 32}},
			"kqv-0#0.MUL_MAT": {"blk.0.attention", tensor.Shape{0, 6, 32}}, "attn_out-0": {"blk.0.attn_output", tensor.Shape{192}},
			"ffn_inp-0": {"blk.0.add", tensor.Shape{192}}, "ffn_gate_par-0": {"blk.0.glu", tensor.Shape{320}}, "ffn_down-1": {"blk.1.ffn_down", tensor.Shape{192}},
			"l_out-0": {"blk.0.out", tensor.Shape{192}}, "result_norm": {"output_norm", tensor.Shape{192}}, "result_output": {"output", tensor.Shape{2048}},
		},
		"tiny-gemma4": {
			"inp_scaled": {"token_embd", tensor.Shape{256}}, "inp_per_layer": {"scale#1", tensor.Shape{8, 32}}, "Qcur-0": {"blk.0.attn_q", tensor.Shape{4, 32}},
			"Qcur_pos-0": {"blk.0.attn_q_rope", tensor.Shape{4, 32}}, "attn_out-0": {"blk.0.add", tensor.Shape{256}}, "pe_in-0": {"blk.0.add#1", tensor.Shape{256}},
			"out_scaled-0": {"blk.0.out", tensor.Shape{256}}, "result_output#0.MUL_MAT": {"output", tensor.Shape{2048}}, "result_output#1.SCALE": {"softcap", tensor.Shape{2048}},
		},
		"tiny-gemma3":     {"sa_out-0": {"blk.0.add", tensor.Shape{160}}, "Qcur_normed-0": {"blk.0.attn_q_norm", tensor.Shape{4, 64}}},
		"tiny-gemma4-moe": {"Vcur-1": {"blk.1.attn_k", tensor.Shape{64}}, "ffn_moe_combined-0": {"blk.0.add#1", tensor.Shape{256}}, "ffn_moe_out-0": {"blk.0.ffn_experts", tensor.Shape{256}}},
	} {
		g := loadGraph(t, golden.Model(t, model))
		p := &Prompt{IDs: []int32{5, 6, 7, 8, 9}, Taps: map[string]*tensor.Tensor{}}
		values := runAll(t, g, p.IDs)
		n := len(p.IDs)
		for name, c := range names {
			x := values[g.Node(c.node)]
			if c.shape[0] == 0 {
				heads, size := c.shape[1], c.shape[2]
				y := newF32(nil, heads, n, size)
				for h := range heads {
					for i := range n {
						y.Data = append(y.Data, newF32(x[(i*heads+h)*size:][:size], size).Data...)
					}
				}
				p.Taps[name] = y
				continue
			}
			p.Taps[name] = newF32(x, append([]int{n}, c.shape...)...)
		}
		l, err := Place(g, NamesLlamaCpp, p)
		if err != nil || len(l.Taps) != len(names) {
			t.Errorf("%s: %d of %d placed, %v: %+v", model, len(l.Taps), len(names), err, l.Unplaced)
		}
		for i := range l.Taps {
			x := &l.Taps[i]
			if d := offBy(x, values[x.Node]); x.Node.Name != names[x.Name].node || d != 0 {
				t.Errorf("%s: %s at %s, want %s; off by %v", model, x.Name, x.Node.Name, names[x.Name].node, d)
			}
		}
	}
}

// FuzzPlace places two taps of any names and shapes: every one has a place, of rows that can be
// read, or a reason why not.
func FuzzPlace(f *testing.F) {
	f.Add("model.layers.0.self_attn.q_norm.out", "blk.1.attn_q_rope", byte(3), byte(4), byte(96), byte(3))
	f.Add("Qcur-0#0.MUL_MAT", "kqv-0", byte(4), byte(3), byte(96), byte(0))
	f.Add("layers.1.in", "q_rope.01", byte(1), byte(3), byte(128), byte(2))
	f.Add("result_output#1.SCALE", "inp_per_layer", byte(1), byte(1), byte(8), byte(8))
	f.Add(".in", "mlp.in", byte(1), byte(2), byte(2), byte(0))
	c, err := checkpoint.Open(golden.Model(f, "tiny-qwen3"))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { c.Close() })
	g, _, err := arch.Load(c)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name, other string, a, b, c, ids byte) {
		shape := func(d ...byte) *tensor.Tensor {
			s := tensor.Shape{}
			for _, n := range d {
				s = append(s, 1+int(n))
			}
			return newF32(make([]float32, s.Size()), s...)
		}
		p := &Prompt{IDs: make([]int32, ids), Taps: map[string]*tensor.Tensor{name: shape(a, b, c), other: shape(b, c)}, Hidden: shape(a, b, c), Logits: shape(a, c)}
		for _, names := range []string{NamesAuto, NamesHF, NamesLlamaCpp, NamesKarat} {
			l, err := Place(g, names, p, &Prompt{Taps: p.Taps})
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range l.Taps {
				if x.Width != x.Node.Shape.Size() || x.First < 0 || x.Tap == "" {
					t.Errorf("%+v", x)
				}
				x.Read(make([]float64, x.Width), x.Rows-1)
			}
			for _, u := range l.Unplaced {
				if u.Why == "" {
					t.Errorf("%+v", u)
				}
				u.Read(make([]float64, u.Width), u.Rows-1)
			}
		}
	})
}

// TestPlaceLens: TransformerLens's hooks have their places, with a batch and heads apart.
func TestPlaceLens(t *testing.T) {
	g := loadGraph(t, golden.Model(t, "tiny-llama"))
	p := &Prompt{IDs: []int32{1, 2, 3}, Taps: map[string]*tensor.Tensor{}}
	want := map[string]*graph.Node{"hook_embed": g.Node("token_embd"),
		"ln_final.hook_normalized": g.Node("output_norm")}
	l := newPlacer(g, p)
	for hook, at := range lens {
		want["blocks.1."+hook] = l.node(1, at)
	}
	for name, n := range want {
		if n == nil {
			t.Fatalf("%s: the model lacks it", name)
		}
		p.Taps[name] = newF32(make([]float32, 3*n.Shape.Size()), append([]int{1, 3}, n.Shape...)...)
	}
	x, err := Place(g, NamesAuto, p)
	if err != nil || len(x.Taps) != len(want) {
		t.Fatalf("%d of %d have places: %v, %v", len(x.Taps), len(want), x.Unplaced, err)
	}
	for _, tap := range x.Taps {
		if tap.Node != want[tap.Name] {
			t.Errorf("%s is at %s, want %s", tap.Name, tap.Node.Name, want[tap.Name].Name)
		}
	}
}
