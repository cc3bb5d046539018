package backendtest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// operation is a graph around one operation.
type operation struct {
	name  string
	bound func(Tolerances) float64
	build func(k *sketch) *graph.Node
	heavy bool // leave out the largest step

	entire bool // steps have all rows of a sequence
}

func float(t Tolerances) float64     { return t.Float }
func quantized(t Tolerances) float64 { return t.Quantized }
func attention(t Tolerances) float64 { return t.Attention }

// products is the bound for products with weights of type d.
func products(d tensor.DType) func(Tolerances) float64 {
	if d.Quantized() {
		return quantized
	}
	return float
}

// operations computes each operation over steps of several sizes and starting
// positions, and compares every node with ref's: with taps, and bit for bit
// without them and, if rows do not depend on their step, some rows alone.
func (s *suite) operations(t *testing.T) {
	lists := [][]operation{slices.Concat(attentions(), attends(), choices()), embeds(), linears(), rowwise(), ropes(),
		views(), mixtures(), layerNorms(), parts(), positions(), headProducts(), scans(), streams(), gates(),
		routings(), expertForms()}
	if s.tol.Stores {
		lists = lists[:1]
	}
	for _, list := range lists {
		for i, op := range list {
			t.Run(op.name, func(t *testing.T) { s.operation(t, op, uint64(i)) })
		}
	}
}

// sizes are the rows of steps: one, few, a full vector and tails.
var sizes = []int{1, 2, 7, 64, 513}

func (s *suite) operation(t *testing.T, op operation, seed uint64) {
	k := newSketch(seed)
	g := k.end(t, op.build(k))
	sizes := sizes
	switch {
	case s.tol.Short:
		sizes = sizes[:3]
	case op.heavy:
		sizes = sizes[:4]
	}
	most := sizes[len(sizes)-1]
	want, tapped, bare := wanted(t, g, most), start(t, s.open(), g, most, all), start(t, s.open(), g, most, nil)
	one := start(t, s.open(), g, 1, nil)
	var w worst
	for i, n := range sizes {
		p := part{i, make([]int32, n)}
		for j := range p.tokens {
			p.tokens[j] = int32(k.r.IntN(Vocab))
		}
		logits := tapped.forward(p)
		w.compare(t, fmt.Sprintf("%d rows", n), logits, want.forward(p), op.bound(s.tol))
		for _, node := range g.Nodes {
			w.compare(t, fmt.Sprintf("%d rows: %v", n, node), tapped.taps[node], want.taps[node], op.bound(s.tol))
		}
		if !sameBits(bare.forward(p), logits) {
			t.Errorf("%d rows: taps change the bits", n)
		}
		if len(bare.taps) > 0 {
			t.Errorf("%d rows: a tap of what is not wanted", n)
		}
		if s.tol.SameBits && !op.entire {
			width := len(logits) / n
			for j, id := range p.tokens[:min(n, 9)] {
				if !sameBits(one.forward(part{i, []int32{id}}), logits[j*width:(j+1)*width]) {
					t.Fatalf("row %d of %d has other bits alone", j, n)
				}
			}
		}
	}
	t.Logf("relative error at most %.2g", w.d)
}

func embeds() (list []operation) {
	for _, d := range append(append([]tensor.DType{tensor.F64}, plain...), blocks...) {
		for _, scale := range []float32{1, 12.649111} {
			list = append(list, operation{name: fmt.Sprintf("embed/%v/%v", d, scale), bound: float,
				build: func(k *sketch) *graph.Node {
					n := 3 * max(d.BlockSize(), 11)
					return k.Embed(k.weight(d, Vocab, n), Vocab, n, scale)
				}})
		}
	}
	return list
}

func linears() (list []operation) {
	add := func(name string, bound func(Tolerances) float64, build func(k *sketch) *graph.Node) {
		list = append(list, operation{name: "linear/" + name, bound: bound, build: build})
	}
	for _, d := range append(append([]tensor.DType{}, plain...), blocks...) {
		sizes := [][2]int{{1, 1}, {37, 5}, {300, 33}} // in, out
		if d.Quantized() {
			sizes = [][2]int{{d.BlockSize(), 7}, {3 * d.BlockSize(), 33}}
		}
		for _, size := range sizes {
			add(fmt.Sprintf("%v/%dx%d", d, size[1], size[0]), products(d), func(k *sketch) *graph.Node {
				return k.linear(d, k.input(size[0]), size[1])
			})
		}
	}
	add("F64", float, func(k *sketch) *graph.Node { return k.linear(tensor.F64, k.input(19), 3) })
	add("Q8_0/of heads", quantized, func(k *sketch) *graph.Node { return k.linear(tensor.Q8_0, k.input(4, 24), 7) })
	add("bias", float, func(k *sketch) *graph.Node {
		return k.Bias(k.weight(tensor.BF16, 21), k.linear(tensor.F16, k.input(45), 21))
	})
	// Formats with groups of 16 and 32, with and without minima, over one value
	// and over two in turn: what a backend keeps of a value must not go stale.
	add("shared", quantized, func(k *sketch) *graph.Node {
		x, y := k.input(256), k.input(256)
		sum := k.linear(tensor.Q5_K, x, 9)
		for _, d := range []tensor.DType{tensor.Q2_K, tensor.Q4_K, tensor.Q8_0, tensor.F32, tensor.Q4_1, tensor.Q6_K,
			tensor.Q2_K} {
			sum = k.Add(sum, k.linear(d, x, 9))
		}
		for _, z := range []*graph.Node{y, x, y} {
			sum = k.Add(sum, k.linear(tensor.Q2_K, z, 9))
		}
		return sum
	})
	// Values of several widths, the widest first: what a backend has room for is not what a product reads.
	add("widths", quantized, func(k *sketch) *graph.Node {
		var sum *graph.Node
		for _, in := range []int{1056, 512, 288} {
			x := k.input(in)
			for _, d := range []tensor.DType{tensor.Q4_0, tensor.Q5_1, tensor.Q8_0} {
				y := k.linear(d, x, 33)
				if sum != nil {
					y = k.Add(sum, y)
				}
				sum = y
			}
		}
		return sum
	})
	return list
}

// rowwise are the operations on each row alone.
func rowwise() (list []operation) {
	add := func(name string, build func(k *sketch) *graph.Node) {
		list = append(list, operation{name: name, bound: float, build: build})
	}
	for _, n := range []int{1, 3, 37, 160} {
		add(fmt.Sprintf("norm/%d", n), func(k *sketch) *graph.Node {
			return k.RMSNorm(k.weight(tensor.F32, n), k.input(n), 1e-6, 0)
		})
		add(fmt.Sprintf("norm/offset/%d", n), func(k *sketch) *graph.Node {
			return k.RMSNorm(k.weight(tensor.BF16, n), k.input(3, n), 1e-5, 1)
		})
		add(fmt.Sprintf("normalize/%d", n), func(k *sketch) *graph.Node { return k.Normalize(k.input(5, n), 1e-6) })
		add(fmt.Sprintf("add/%d", n), func(k *sketch) *graph.Node { return k.Add(k.input(n), k.input(n)) })
		add(fmt.Sprintf("add/shapes/%d", n), func(k *sketch) *graph.Node { return k.Add(k.input(3, n), k.input(3*n)) })
		add(fmt.Sprintf("double/%d", n), func(k *sketch) *graph.Node { x := k.input(n); return k.Add(x, x) })
		add(fmt.Sprintf("mul/%d", n), func(k *sketch) *graph.Node {
			return k.node(graph.Mul, tensor.Shape{n}, nil, k.input(n), k.input(n))
		})
		add(fmt.Sprintf("mul/weight/%d", n), func(k *sketch) *graph.Node {
			return k.MulWeight(k.weight(tensor.F16, n), k.input(n), n)
		})
		add(fmt.Sprintf("mul/scalar/%d", n), func(k *sketch) *graph.Node {
			return k.MulWeight(k.weight(tensor.F32, 1), k.input(n), 1)
		})
		add(fmt.Sprintf("scale/%d", n), func(k *sketch) *graph.Node { return k.Scale(k.input(n), -0.7071067811865476) })
		add(fmt.Sprintf("softcap/%d", n), func(k *sketch) *graph.Node { return k.Softcap(k.Scale(k.input(n), 20), 30) })
		for _, a := range graph.Activations() {
			add(fmt.Sprintf("act/%v/%d", a, n), func(k *sketch) *graph.Node {
				return k.node(graph.Act, tensor.Shape{n}, graph.ActAttr{Act: a}, k.input(n))
			})
			add(fmt.Sprintf("glu/%v/%d", a, n), func(k *sketch) *graph.Node { return k.GLU(a, k.input(n), k.input(n)) })
		}
	}
	return list
}

func ropes() (list []operation) {
	freqs := []float64{1, 0.56, 0.3162, 0.178, 0.1, 0, 0.0316, 1e-3, 1e-4}
	for _, x := range []struct{ heads, dim, turning int }{{1, 2, 1}, {3, 6, 3}, {5, 18, 9}, {2, 64, 5}, {2, 10, 0}} {
		list = append(list, operation{name: fmt.Sprintf("rope/%dx%d/%d", x.heads, x.dim, x.turning), bound: float,
			build: func(k *sketch) *graph.Node {
				return k.RoPE("q", k.input(x.heads, x.dim), graph.RoPEAttr{Freqs: freqs[:x.turning]})
			}})
	}
	for _, x := range []struct {
		heads, dim, turning int
		graph.RoPEAttr
	}{
		{3, 6, 2, graph.RoPEAttr{Dim: 4}}, {5, 18, 9, graph.RoPEAttr{Interleaved: true}},
		{2, 64, 5, graph.RoPEAttr{Dim: 16, Interleaved: true}},
		{1, 2, 1, graph.RoPEAttr{Interleaved: true, Magnitude: 1.19}}, {4, 32, 8, graph.RoPEAttr{Magnitude: 0.6}},
		{2, 300, 9, graph.RoPEAttr{Dim: 150, Magnitude: 1.4}},
	} {
		x.Freqs = freqs[:x.turning]
		list = append(list, operation{name: fmt.Sprintf("rope/%dx%d/dim %d interleaved %v magnitude %v", x.heads, x.dim,
			x.Dim, x.Interleaved, x.Magnitude), bound: float, build: func(k *sketch) *graph.Node {
			// one array, two tables
			return k.Add(k.RoPE("q", k.input(x.heads, x.dim), x.RoPEAttr),
				k.RoPE("k", k.input(x.heads, x.dim), graph.RoPEAttr{Freqs: x.Freqs}))
		}})
	}
	list = append(list, operation{name: "rope/prefixes", bound: float, build: func(k *sketch) *graph.Node {
		x := k.input(2, 18)
		return k.Add(k.RoPE("q", x, graph.RoPEAttr{Freqs: freqs}),
			k.RoPE("k", x, graph.RoPEAttr{Freqs: freqs[:4]})) // one array, two tables
	}})
	return list
}

func views() (list []operation) {
	add := func(name string, build func(k *sketch) *graph.Node) {
		list = append(list, operation{name: "view/" + name, bound: float, build: build})
	}
	add("heads", func(k *sketch) *graph.Node { return k.Heads(k.input(36), 9) })
	for i := range 3 {
		add(fmt.Sprintf("head %d", i), func(k *sketch) *graph.Node { return k.Head(k.input(3, 11), i) })
	}
	add("part", func(k *sketch) *graph.Node {
		return k.node(graph.View, tensor.Shape{2, 4}, graph.ViewAttr{Offset: 5}, k.input(21))
	})
	add("of a part", func(k *sketch) *graph.Node {
		x := k.node(graph.View, tensor.Shape{2, 4}, graph.ViewAttr{Offset: 5}, k.input(21))
		return k.Add(k.Head(x, 1), k.Head(k.Heads(x, 4), 0))
	})
	// A view keeps its input's value alive for as long as it is read itself.
	add("outlives", func(k *sketch) *graph.Node {
		x := k.Scale(k.input(12), 2)
		v := k.Heads(x, 4)
		y := k.Scale(k.Scale(k.Add(x, x), 3), 5)
		return k.Add(v, y)
	})
	return list
}

// attentions see short sequences here; sequences has the long ones.
func attentions() (list []operation) {
	for _, x := range []struct {
		heads, kv, dim, window int
		scale                  float64
	}{{1, 1, 2, 0, 1}, {4, 2, 30, 0, 0.18}, {6, 2, 16, 0, 4}, {3, 3, 64, 0, 0.125}, {4, 1, 8, 1, 0.35}, {4, 2, 16, 65,
		0.25}, {2, 1, 8, 4096, 0.35}} {
		name := fmt.Sprintf("attention/%d on %dx%d/window %d", x.heads, x.kv, x.dim, x.window)
		list = append(list, operation{name: name, bound: attention, heavy: x.dim > 8,
			build: func(k *sketch) *graph.Node {
				store := &graph.KV{Heads: x.kv, Dim: x.dim, Window: x.window}
				k.StoreKV(store, k.input(x.kv, x.dim), k.input(x.kv, x.dim))
				return k.Attention(k.input(x.heads, x.dim), store, x.scale)
			}})
	}
	return list
}

func mixtures() (list []operation) {
	for _, x := range []struct{ experts, k int }{{1, 1}, {4, 2}, {7, 7}} {
		list = append(list, operation{name: fmt.Sprintf("route/%d of %d", x.k, x.experts), bound: float,
			build: func(k *sketch) *graph.Node {
				return k.Route(k.input(x.experts), k.weight(tensor.F32, x.experts), x.k)
			}})
	}
	for _, d := range []tensor.DType{tensor.F32, tensor.F16, tensor.BF16, tensor.Q8_0, tensor.Q4_K, tensor.MXFP4} {
		for _, a := range []graph.Activation{graph.SiLU, graph.GELUTanh} {
			list = append(list, operation{name: fmt.Sprintf("experts/%v/%v", d, a), bound: products(d),
				heavy: d.Quantized(), build: func(k *sketch) *graph.Node {
					in, ff := max(19, d.BlockSize()), max(23, d.BlockSize())
					route := k.Route(k.input(3), k.weight(tensor.BF16, 3), 2)
					return k.Experts(a, k.weight(d, 3, 2*ff, in), k.weight(d, 3, in, ff), k.input(in), route, 3, ff)
				}})
		}
	}
	list = append(list, operation{name: "experts/Q4_0/wide", bound: quantized, heavy: true,
		build: func(k *sketch) *graph.Node {
			const in, ff = 544, 288
			route := k.Route(k.input(3), k.weight(tensor.BF16, 3), 2)
			return k.Experts(graph.SiLU, k.weight(tensor.Q4_0, 3, 2*ff, in), k.weight(tensor.Q4_0, 3, in, ff),
				k.input(in), route, 3, ff)
		}})
	return list
}
