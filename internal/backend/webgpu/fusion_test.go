package webgpu

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// fusible is two layers in which every fusion has its place: one with norms in front of
// products only, and one with norms behind them, of heads and of values, and a gate of what
// is known before.
func fusible(t *testing.T) *graph.Graph {
	t.Helper()
	const hidden, heads, dim, ff, known = 1024, 2, 64, 64, 32
	return made(t, hidden, func(b graph.Builder, r *rand.Rand, x *graph.Node) *graph.Node {
		linear := func(x *graph.Node, n int) *graph.Node {
			return b.Linear(weightOf(r, tensor.Q4_0, 0x1c00, []int{0}, n, x.Shape.Size()), x, n)
		}
		norm := func(x *graph.Node) *graph.Node { return b.RMSNorm(floats(r, x.Shape.Last()), x, 1e-6, 0.5) }
		freqs := []float64{1, 0.3, 0.1, 0.03}
		side := norm(b.Heads(linear(x, 2*known), known))
		for layer := range 2 {
			kv := &graph.KV{Layer: layer, Heads: 1, Dim: dim}
			h := norm(x)
			q, k, v := b.Heads(linear(h, heads*dim), dim), b.Heads(linear(h, dim), dim), b.Heads(linear(h, dim), dim)
			if layer == 1 {
				q, v, k = norm(q), b.Normalize(v, 1e-6), norm(k)
			}
			q, k = b.RoPE("q", q, graph.RoPEAttr{Freqs: freqs}), b.RoPE("k", k, graph.RoPEAttr{Freqs: freqs})
			b.StoreKV(kv, k, v)
			y := linear(b.Attention(q, kv, 0.3), hidden)
			if layer == 1 {
				y = norm(y)
			}
			x = b.Add(x, y)
			h = norm(x)
			y = linear(b.GLU(graph.SiLU, linear(h, ff), linear(h, ff)), hidden)
			if layer == 1 {
				y = norm(y)
			}
			if x = b.Add(y, x); layer == 1 {
				y = linear(b.GLU(graph.GELUTanh, linear(x, known), b.Head(side, 1)), hidden)
				x = b.MulWeight(floats(r, 1), b.Add(x, norm(y)), 1)
			}
		}
		return linear(norm(x), 40)
	})
}

// TestFusions: without each fusion, and without all, more is dispatched and no bit is
// another; nor where all nodes are wanted, which then are seen as they are without.
func TestFusions(t *testing.T) {
	d := device(t)
	g := fusible(t)
	steps := [][]int32{{3, 1, 4}, {1}, {5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6}, {2}}
	type result struct {
		logits, taps [][]float32
		dispatches   int
	}
	compute := func(want func(*graph.Node) bool, without ...string) (got result) {
		r := start(t, New(d, Options{F32KV: true, NoFuse: without}), g, 17, want)
		for _, tokens := range steps {
			y, err := r.plan.Run(t.Context(), r.step(tokens), func(_ *graph.Node, out []float32) { got.taps = append(got.taps, slices.Clone(out)) })
			if err != nil {
				t.Fatal(err)
			}
			got.logits = append(got.logits, slices.Clone(y))
		}
		for _, l := range r.plan.(*executable).whole.nodes {
			for _, x := range l.dispatches {
				if x.from <= 1 && !x.long && l.node.Op != graph.Embed {
					got.dispatches++ // of a step of one row
				}
			}
		}
		return got
	}
	all, none := compute(nil), compute(nil, Fusions...)
	t.Logf("%d dispatches a row, without fusions %d", all.dispatches, none.dispatches)
	if all.dispatches != 17 || none.dispatches < 40 {
		t.Errorf("%d dispatches, want 17; without fusions %d", all.dispatches, none.dispatches)
	}
	check := func(name string, got result) {
		if got.dispatches <= all.dispatches || !slices.EqualFunc(got.logits, all.logits, same) {
			t.Errorf("without %s: %d dispatches, of %d; same bits: %v", name, got.dispatches, all.dispatches, slices.EqualFunc(got.logits, all.logits, same))
		}
	}
	check("all", none)
	for _, name := range Fusions {
		check(name, compute(nil, name))
	}
	every := func(*graph.Node) bool { return true }
	tapped, plain := compute(every), compute(every, Fusions...)
	check("what is hidden", tapped)
	if len(tapped.taps) < 100 || !slices.EqualFunc(tapped.taps, plain.taps, same) {
		t.Errorf("%d taps, and %d without fusions, which are not the same", len(tapped.taps), len(plain.taps))
	}
	r := start(t, reference.Backend{}, g, 17, nil)
	for i, tokens := range steps {
		near(t, all.logits[i], r.run(tokens...), 1e-5)
	}
	b := New(d, Options{NoFuse: []string{"glue"}})
	defer b.Close()
	if _, err := b.Compile(g, backend.Options{}); err == nil {
		t.Error("a fusion that there is not passes")
	}
}

// TestFolded: what products compute in front of them for a row, with readers of other types
// and in other orders than models have.
func TestFolded(t *testing.T) {
	d := device(t)
	const hidden, ff = 1024, 32
	type build func(x *graph.Node, dt tensor.DType, n int) *graph.Node
	for name, tail := range map[string]func(b graph.Builder, linear build, norm func(x *graph.Node) *graph.Node, x, y *graph.Node) *graph.Node{
		"a gate behind its up, of another type": func(b graph.Builder, linear build, norm func(x *graph.Node) *graph.Node, x, _ *graph.Node) *graph.Node {
			h := norm(x)
			up := linear(h, tensor.Q8_0, ff)
			return b.Add(x, linear(b.GLU(graph.SiLU, linear(h, tensor.Q4_0, ff), up), tensor.Q4_0, hidden))
		},
		"two products of a norm behind a sum": func(b graph.Builder, linear build, norm func(x *graph.Node) *graph.Node, x, y *graph.Node) *graph.Node {
			x = b.Add(x, norm(y))
			h := norm(x)
			return b.Add(x, b.Add(linear(h, tensor.Q8_0, hidden), linear(h, tensor.Q4_0, hidden)))
		},
		"two products of a sum": func(b graph.Builder, linear build, norm func(x *graph.Node) *graph.Node, x, y *graph.Node) *graph.Node {
			x = b.Add(x, norm(y))
			return b.Add(x, b.Add(linear(x, tensor.Q8_0, hidden), linear(x, tensor.Q4_0, hidden)))
		},
		"a sum that something else reads before a product": func(b graph.Builder, linear build, norm func(x *graph.Node) *graph.Node, x, y *graph.Node) *graph.Node {
			x = b.Add(x, norm(y))
			z := b.Scale(x, 0.5)
			return b.Add(z, linear(x, tensor.Q8_0, hidden))
		},
		"a sum that something else reads before a norm's product": func(b graph.Builder, linear build, norm func(x *graph.Node) *graph.Node, x, y *graph.Node) *graph.Node {
			x = b.Add(x, norm(y))
			h := norm(x)
			z := b.Scale(x, 0.5)
			return b.Add(z, linear(h, tensor.Q8_0, hidden))
		},
		"a sum that is added to a product before a norm's product": func(b graph.Builder, linear build, norm func(x *graph.Node) *graph.Node, x, y *graph.Node) *graph.Node {
			x = b.Add(x, norm(y))
			h, z := norm(x), linear(y, tensor.Q8_0, hidden)
			w := linear(h, tensor.Q8_0, hidden)
			return b.Add(b.Add(x, z), w)
		},
		"a sum that a product gates before a norm's product": func(b graph.Builder, linear build, norm func(x *graph.Node) *graph.Node, x, y *graph.Node) *graph.Node {
			x = b.Add(x, norm(y))
			h, z := norm(x), linear(y, tensor.Q8_0, hidden)
			w := linear(h, tensor.Q8_0, hidden)
			return b.Add(b.GLU(graph.SiLU, z, x), w)
		},
		"a row that is needed no more before the last product of its norm": func(b graph.Builder, linear build, norm func(x *graph.Node) *graph.Node, x, y *graph.Node) *graph.Node {
			h := norm(y)
			z := b.Scale(b.Add(linear(h, tensor.Q8_0, hidden), b.Scale(y, 0.5)), 0.25)
			return b.Add(b.Scale(z, 2), b.Add(x, b.Scale(linear(h, tensor.Q4_0, hidden), 0.5)))
		},
		"a sum that goes into another norm's before a product": func(b graph.Builder, linear build, norm func(x *graph.Node) *graph.Node, x, y *graph.Node) *graph.Node {
			x = b.Add(x, norm(y))
			h, z := norm(x), norm(b.Scale(y, 0.5))
			w := linear(h, tensor.Q8_0, hidden)
			return b.Add(b.Add(x, z), w)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := made(t, hidden, func(b graph.Builder, r *rand.Rand, x *graph.Node) *graph.Node {
				linear := func(x *graph.Node, dt tensor.DType, n int) *graph.Node {
					return b.Linear(weightOf(r, dt, 0x1c00, []int{0}, n, x.Shape.Size()), x, n)
				}
				norm := func(x *graph.Node) *graph.Node { return b.RMSNorm(floats(r, hidden), x, 1e-6, 0) }
				return tail(b, linear, norm, x, linear(x, tensor.Q4_0, hidden))
			})
			if !same(start(t, New(d, Options{}), g, 1, nil).run(3), start(t, New(d, Options{NoFuse: Fusions}), g, 1, nil).run(3)) {
				t.Error("other bits than without fusions")
			}
		})
	}
}

// kind is what a kernel of Llama's graph computes.
func kind(kernel string) string {
	for _, k := range [][2]string{{"Outs:3", "queries, keys and values"}, {"GLU:silu", "gate and up"}, {"Gate: Add:true", "product and sum"}} {
		if strings.Contains(kernel, k[0]) {
			return k[1]
		}
	}
	return kernel[:strings.IndexAny(kernel, "{[")]
}

// TestDispatches counts what a token of Llama's layers takes by kind, as a table of docs/webgpu.md does.
func TestDispatches(t *testing.T) {
	d := device(t)
	const hidden, heads, kvHeads, dim, ff, vocab = 1024, 4, 2, 64, 64, 1<<15 + 32
	count := func(layers int) map[string]int {
		g := made(t, hidden, func(b graph.Builder, r *rand.Rand, x *graph.Node) *graph.Node {
			linear := func(x *graph.Node, n int) *graph.Node {
				return b.Linear(weightOf(r, tensor.Q4_0, 0x1c00, []int{0}, n, x.Shape.Size()), x, n)
			}
			norm := func(x *graph.Node) *graph.Node { return b.RMSNorm(floats(r, hidden), x, 1e-6, 0) }
			freqs := make([]float64, dim/2)
			for i := range freqs {
				freqs[i] = 1 / float64(1+i)
			}
			for layer := range layers {
				kv := &graph.KV{Layer: layer, Heads: kvHeads, Dim: dim}
				h := norm(x)
				q, k, v := b.Heads(linear(h, heads*dim), dim), b.Heads(linear(h, kvHeads*dim), dim), b.Heads(linear(h, kvHeads*dim), dim)
				q, k = b.RoPE("q", q, graph.RoPEAttr{Freqs: freqs}), b.RoPE("k", k, graph.RoPEAttr{Freqs: freqs})
				b.StoreKV(kv, k, v)
				x = b.Add(x, linear(b.Attention(q, kv, 0.125), hidden))
				h = norm(x)
				x = b.Add(x, linear(b.GLU(graph.SiLU, linear(h, ff), linear(h, ff)), hidden))
			}
			return linear(norm(x), vocab)
		})
		b := New(d, Options{})
		defer b.Close()
		plan, err := b.Compile(g, backend.Options{Rows: 1})
		if err != nil {
			t.Fatal(err)
		}
		kinds := map[string]int{}
		e := plan.(*executable).whole
		for _, l := range e.nodes {
			for _, x := range l.dispatches {
				if x.from <= 1 && !x.long {
					kinds[kind(x.pipe.name)]++
				}
			}
		}
		kinds["top"] = len(e.chooser.slices(1))
		return kinds
	}
	one, two := count(1), count(2)
	if want := map[string]int{"queries, keys and values": 1, "attention": 1, "gate and up": 1, "product and sum": 2, "embed": 1, "pick": 1, "norm": 1, "linear": 1, "top": 2}; !maps.Equal(one, want) {
		t.Errorf("a layer and what lies around it: %v, want %v", one, want)
	}
	for k, n := range map[string]int{"queries, keys and values": 1, "attention": 1, "gate and up": 1, "product and sum": 2} {
		one[k] += n
	}
	if !maps.Equal(one, two) {
		t.Errorf("two layers: %v, want %v", two, one)
	}
}
