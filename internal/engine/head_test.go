package engine_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/draft"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

// openHead opens a family's model with a head.
func openHead(t testing.TB, name string) (plain *graph.Graph, g arch.Graphs) {
	t.Helper()
	c, err := checkpoint.Open(golden.WithHead(t, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if plain, _, err = arch.LoadFor(c, 512); err == nil {
		g, _, err = arch.LoadHead(c, 512)
	}
	if err != nil || g.Draft == nil {
		t.Fatalf("%v, a head: %v", err, g.Draft != nil)
	}
	return plain, g
}

// TestHeadsTogether: answers of several sequences, some with adapters or pictures, whose drafts the head makes in common
// passes, are the same as alone.
func TestHeadsTogether(t *testing.T) {
	plainGraph, g := openHead(t, "qwen35moe")
	o := engine.Options{Context: 512, Budget: 1 << 28, Tokens: 12}
	plain := newEngine(t, plainGraph, cpu.New(cpu.Options{}), o)
	o.Head = g.Draft
	heading := newEngine(t, g.Fed, cpu.New(cpu.Options{}), o)
	heading.Pace(func(int) time.Duration { return time.Second })
	heading.Meet()
	var wg sync.WaitGroup
	for i, r := range requests(prompt(t, "qwen35moe", 7, 30), 8) {
		wg.Go(func() {
			one, other := plain.NewSequence(), heading.NewSequence()
			defer one.Close()
			defer other.Close()
			if i%3 == 0 {
				one.Adapt(blendOf(t, plainGraph, 0.25, -0.125))
				other.Adapt(blendOf(t, g.Model, 0.25, -0.125))
			}
			if i%2 == 1 { // a picture of 3x4 rows
				for k := range int32(12) {
					r.Parts = append(r.Parts, [3]int32{0, k / 4, k % 4})
				}
			}
			want := answer(t, one, r)
			d := draft.New(r.Prompt, nil)
			r.Draft, r.Head = func() *draft.Drafter { return d }, true
			if got := answer(t, other, r); got != want {
				t.Errorf("request %d: %s, without drafts %s", i, got, want)
			}
		})
	}
	wg.Wait()
	if n := heading.MostGuessed(); n < 2 {
		t.Errorf("a pass had the drafts of at most %d sequences", n)
	}
}

func printed(t testing.TB, g *graph.Graph) string {
	var b strings.Builder
	if err := graph.Print(&b, g); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestHeadDrafts: answers have the same ids, texts and logits with drafts by the model's head as without, alone and
// under load, of few tokens, so that some drafts are right.
func TestHeadDrafts(t *testing.T) {
	for _, name := range golden.Sample(golden.Headed) {
		t.Run(name, func(t *testing.T) {
			plainGraph, g := openHead(t, name)
			o := engine.Options{Context: 512, Budget: 1 << 28, Tokens: 12}
			plain := newEngine(t, plainGraph, cpu.New(cpu.Options{}), o)
			o.Head = g.Draft
			if a, b := printed(t, plainGraph), printed(t, g.Model); a != b {
				t.Errorf("the model's graph has other nodes with a head:\n%s\nwant\n%s", b, a)
			}
			at, n := longPrompt(t, name)
			all := requests(prompt(t, name, at, n), 6)
			var counts draft.Counts
			for i, r := range all {
				s := plain.NewSequence()
				want := answer(t, s, r)
				s.Close()
				heading := newEngine(t, g.Fed, cpu.New(cpu.Options{}), o)
				heading.Pace(func(int) time.Duration { return time.Second })
				var before draft.Counts
				// the third knows the pace of all rows; the fourth finds pages of the third, and the head's keys there
				for again, salt := range []string{"a", "b", "c", "c"} {
					s := heading.NewSequence()
					s.Prefix(nil, salt)
					d := draft.New(r.Prompt, nil)
					d.Restrict()
					r.Draft, r.Head = func() *draft.Drafter { return d }, true
					if got := answer(t, s, r); got != want {
						t.Errorf("request %d: %s, without drafts %s", i, got, want)
					}
					s.Close()
					if again == 3 && d.Counts() != before {
						t.Errorf("request %d: drafts of %v, and %v behind pages found", i, before, d.Counts())
					}
					before = d.Counts()
					for k, c := range before {
						counts[k].Accepted += c.Accepted
						counts[k].Rejected += c.Rejected
					}
				}
			}
			if c := counts[draft.MTP]; c.Accepted == 0 || c.Rejected == 0 {
				t.Errorf("of the head's tokens %d were right and %d wrong", c.Accepted, c.Rejected)
			} else {
				t.Logf("of the head's tokens %d were right and %d wrong", c.Accepted, c.Rejected)
			}
		})
	}
}

// ran computes rows of tokens from a position on, with embeddings if not nil, and returns the logits and the values of
// a node.
func (x *traced) ran(t testing.TB, from int, tokens []int32, embeddings [][]float32) (logits, values [][]float32) {
	t.Helper()
	s := &backend.Step{Tokens: tokens, Embeddings: embeddings, Cache: x.cache}
	for i := range tokens {
		s.Pos, s.Seqs = append(s.Pos, int32(from+i)), append(s.Seqs, x.seq)
		s.Outputs = append(s.Outputs, int32(i))
		values = append(values, make([]float32, x.node.Shape.Size()))
		s.Values = append(s.Values, backend.Value{Node: x.node, Row: int32(i), Out: values[i]})
	}
	if n := from + len(tokens) - x.seq.Len(); n > 0 {
		if err := x.seq.Grow(n); err != nil {
			t.Fatal(err)
		}
	}
	all, err := x.run.Run(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	for part := range slices.Chunk(all, len(all)/len(tokens)) {
		logits = append(logits, slices.Clone(part))
	}
	return logits, values
}

// traced is a plan with the values of a node, over a sequence.
type traced struct {
	run   backend.Executable
	node  *graph.Node
	cache backend.Cache
	seq   *kv.Sequence
}

// trace compiles g, for a cache of its own or the one of other.
func trace(t testing.TB, b backend.Backend, g *graph.Graph, node string, other *traced) *traced {
	t.Helper()
	x := &traced{node: g.Node(node)}
	var err error
	x.run, err = b.Compile(g, backend.Options{Rows: 64, Keep: func(n *graph.Node) bool { return n == x.node }})
	if err == nil && other == nil {
		pool := kv.NewPool(kv.Options{Classes: backend.Classes(g, b), Context: 128, Chunk: 64})
		x.cache, err = b.NewCache(g, pool)
		x.seq = pool.NewSequence()
	} else if other != nil {
		x.cache, x.seq = other.cache, other.seq
	}
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestHead compares the head with a computation of its own, by the publishers' rules and at their positions: the
// projection of [norm(embedding); norm(state)], here in float64, is the embedding of a model of one layer, the head's,
// whose family's layers are held to PyTorch's records. A second draft continues the head's own normed state.
func TestHead(t *testing.T) {
	for _, name := range golden.Headed {
		t.Run(name, func(t *testing.T) {
			dir := golden.WithHead(t, name)
			w := readHead(t, dir)
			c, err := checkpoint.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			plain, _, err := arch.Load(c)
			g, _, err2 := arch.LoadHead(c, 0)
			if err = errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
			at, n := longPrompt(t, name)
			ids := prompt(t, name, at, n)
			b := reference.Backend{}
			_, states := trace(t, b, plain, "output_norm", nil).ran(t, 0, ids, nil)
			fed := trace(t, b, g.Fed, family.StateName, nil)
			if _, same := fed.ran(t, 0, ids, nil); !reflect.DeepEqual(states, same) {
				t.Error("the head is not fed the states after the last norm")
			}
			drafted := trace(t, b, g.Draft, family.StateName, fed)
			lab, _, err := arch.Drafter(c, 0)
			if err != nil {
				t.Fatal(err)
			}
			whole := trace(t, reference.Backend{Edits: reference.Edits{}}, lab, "nextn_previous", nil)
			labs, _ := whole.ran(t, 0, append(slices.Clip(ids), 7), nil)
			x := make([][]float32, 0, len(ids)+1)
			for i, id := range ids[1:] {
				x = append(x, w.project(id, states[i]))
			}
			state := states[len(ids)-1]
			for i, id := range []int32{7, 11, 5} {
				got, own := drafted.ran(t, len(ids)+i, []int32{id}, [][]float32{state})
				x = append(x, w.project(id, state))
				alone := w.alone(t, dir, x)
				want, after := alone.ran(t, 0, rangeOf(len(x)), nil)
				last := len(x) - 1
				if d := apart(got[0], want[last]); d > 1e-5 {
					t.Errorf("draft %d: logits are %.1e off", i, d)
				}
				if i > 0 {
					labs, _ = whole.ran(t, len(ids)+i, []int32{id}, nil)
				}
				if d := apart(labs[len(labs)-1], want[last]); d > 1e-5 {
					t.Errorf("draft %d: the lab's logits are %.1e off", i, d)
				}
				if d := apart(own[0], after[last]); d > 1e-5 {
					t.Errorf("draft %d: the state is %.1e off", i, d)
				}
				state = own[0]
			}
		})
	}
}

func rangeOf(n int) (ids []int32) {
	for i := range n {
		ids = append(ids, int32(i))
	}
	return ids
}

// apart returns the largest difference, in units of the largest number.
func apart(a, b []float32) (d float64) {
	var most float64
	for i, v := range b {
		d, most = max(d, math.Abs(float64(v)-float64(a[i]))), max(most, math.Abs(float64(v)))
	}
	return d / most
}

// headWeights are a folder's tensors, by name.
type headWeights struct {
	tensors map[string]tensor.Tensor
	config  map[string]any
	prefix  string // of the head's own tensors
	parts   [4]string
	plus    float64 // of the weights of norms
}

func readHead(t testing.TB, dir string) *headWeights {
	t.Helper()
	f, err := safetensors.Open(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	b, err := os.ReadFile(filepath.Join(dir, "config.json"))
	w := &headWeights{tensors: map[string]tensor.Tensor{}, prefix: "mtp.", plus: 1,
		parts: [4]string{"fc", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"}}
	if err := errors.Join(err, json.Unmarshal(b, &w.config)); err != nil {
		t.Fatal(err)
	}
	if w.config["num_nextn_predict_layers"] != nil {
		w.prefix, w.plus = fmt.Sprintf("model.layers.%v.", w.config["num_hidden_layers"]), 0
		w.parts = [4]string{"eh_proj", "enorm", "hnorm", "shared_head.norm"}
	}
	for _, x := range f.Tensors {
		w.tensors[x.Name] = x
	}
	return w
}

func (w *headWeights) values(name string) []float64 {
	x := w.tensors[name+".weight"]
	v := make([]float32, x.Shape.Size())
	if err := quant.Dequantize(x.DType, v, x.Data); err != nil {
		panic(err)
	}
	all := make([]float64, len(v))
	for i, x := range v {
		all[i] = float64(x)
	}
	return all
}

// project returns the input of the head's layer.
func (w *headWeights) project(id int32, state []float32) []float32 {
	n := len(state)
	embedded, h := w.values("model.embed_tokens")[int(id)*n:][:n], make([]float64, n)
	for i, v := range state {
		h[i] = float64(v)
	}
	norm := func(x []float64, part string) []float64 {
		var squares float64
		for _, v := range x {
			squares += v * v
		}
		by, y := math.Sqrt(squares/float64(n)+w.config["rms_norm_eps"].(float64)), make([]float64, n)
		for i, g := range w.values(w.prefix + part) {
			y[i] = x[i] / by * (g + w.plus)
		}
		return y
	}
	both := append(norm(embedded, w.parts[1]), norm(h, w.parts[2])...)
	y := make([]float32, n)
	matrix := w.values(w.prefix + w.parts[0])
	for i := range y {
		var sum float64
		for j, v := range both {
			sum += v * matrix[i*2*n+j]
		}
		y[i] = float32(sum)
	}
	return y
}

// alone is the model of the head's layer, norm and output, whose first tokens have the embeddings x.
func (w *headWeights) alone(t testing.TB, dir string, x [][]float32) *traced {
	t.Helper()
	to := filepath.Join(t.TempDir(), "alone")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	config := maps.Clone(w.config)
	config["num_hidden_layers"], config["first_k_dense_replace"], config["layer_types"] = 1, 0, []any{"full_attention"}
	delete(config, "num_nextn_predict_layers")
	delete(config, "mtp_num_hidden_layers")
	delete(config, "mlp_layer_types")
	delete(config, "indexer_types")
	own, layer := []string{}, w.prefix
	for _, part := range w.parts {
		own = append(own, w.prefix+part+".weight")
	}
	if layer == "mtp." {
		layer = "mtp.layers.0."
	}
	norm := w.tensors[own[3]]
	norm.Name = "model.norm.weight"
	embed := w.tensors["model.embed_tokens.weight"]
	embed.DType, embed.Data = tensor.F32, nil
	for i := range embed.Shape[0] {
		row := make([]float32, embed.Shape[1])
		if i < len(x) {
			row = x[i]
		}
		for _, v := range row {
			embed.Data = binary.LittleEndian.AppendUint32(embed.Data, math.Float32bits(v))
		}
	}
	all := []tensor.Tensor{norm, embed, w.tensors["lm_head.weight"]}
	for name, x := range w.tensors {
		if rest, ok := strings.CutPrefix(name, layer); ok && !slices.Contains(own, name) {
			x.Name = "model.layers.0." + rest
			all = append(all, x)
		}
	}
	b, err := json.Marshal(config)
	if err == nil {
		err = errors.Join(os.Remove(filepath.Join(to, "model.safetensors")), os.WriteFile(filepath.Join(to, "config.json"), b, 0o666),
			safetensors.WriteFile(filepath.Join(to, "model.safetensors"), all, nil))
	}
	if err != nil {
		t.Fatal(err)
	}
	_, g := openFor(t, to, 0)
	return trace(t, reference.Backend{}, g, "output_norm", nil)
}
