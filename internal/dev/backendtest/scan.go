package backendtest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// headProducts are products of each head with its own matrix.
func headProducts() (list []operation) {
	for _, d := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F16, tensor.Q8_0, tensor.Q4_0} {
		list = append(list, operation{name: fmt.Sprintf("head linear/%v", d), bound: products(d), heavy: true,
			build: func(k *sketch) *graph.Node {
				in := 2 * max(d.BlockSize(), 11)
				return k.HeadLinear(k.weight(d, 3, 37, in), k.input(3, in), 37)
			}})
	}
	return list
}

// negative is a weight of so many numbers below 0, as decays are.
func (k *sketch) negative(n int) *graph.Weight {
	row := make([]float32, n)
	for i := range row {
		row[i] = -float32(0.05 + 2*k.r.Float64())
	}
	w := ofValues(k.name("decay"), [][]float32{row})
	w.Shape = tensor.Shape{n}
	return w
}

// ssm and delta are scans over random inputs of what x is made from.
func (k *sketch) ssm(heads, dim, groups, n int) *graph.Node {
	unit := func() *graph.Weight { return k.weight(tensor.F32, heads) }
	return k.SSMScan(k.negative(heads), unit(), unit(), k.input(heads, dim), k.input(heads), k.input(groups, n),
		k.input(groups, n))
}

// each returns a scan of heads whose keys' elements have decays of their own: DeltaScan, or SSMScan of heads of 1.
func (k *sketch) each(heads, dim, groups, n int) *graph.Node {
	if dim > 1 {
		unit := func() *graph.Node { return k.L2Norm(k.input(groups, n), 1e-6) }
		return k.DeltaScan(k.negative(heads), k.weight(tensor.F32, heads*n), unit(), unit(), k.input(heads, dim),
			k.input(heads*n), k.input(heads))
	}
	a := k.negative(heads * n)
	a.Shape = tensor.Shape{heads, n}
	return k.SSMScanEach(a, k.weight(tensor.F32, heads), k.weight(tensor.F32, heads), k.input(heads, 1), k.input(heads),
		k.input(1, n), k.input(1, n))
}

func (k *sketch) delta(most float64, heads, dim, groups, n int) *graph.Node {
	unit := func(x *graph.Node) *graph.Node { return k.L2Norm(x, 1e-6) }
	return k.DeltaScanWith(graph.ScanAttr{Most: most}, k.negative(heads), k.weight(tensor.F32, heads),
		unit(k.input(groups, n)), unit(k.input(groups, n)), k.input(heads, dim), k.input(heads), k.input(heads))
}

// scans are the operations with a state.
func scans() (list []operation) {
	add := func(name string, build func(k *sketch) *graph.Node) {
		list = append(list, operation{name: name, bound: float, build: build, heavy: true})
	}
	for _, x := range []struct{ d, kernel int }{{1, 2}, {7, 3}, {150, 4}} {
		add(fmt.Sprintf("conv/%d of %d", x.kernel, x.d), func(k *sketch) *graph.Node {
			return k.Conv(k.weight(tensor.F32, x.d, x.kernel), nil, k.input(x.d), x.kernel)
		})
		add(fmt.Sprintf("conv/bias/%d of %d", x.kernel, x.d), func(k *sketch) *graph.Node {
			return k.Conv(k.weight(tensor.BF16, x.d, x.kernel), k.weight(tensor.F32, x.d), k.input(x.d), x.kernel)
		})
	}
	for _, x := range []struct{ heads, dim, groups, n int }{{1, 1, 1, 1}, {4, 6, 2, 5}, {8, 32, 1, 16},
		{3, 20, 3, 33}} {
		add(fmt.Sprintf("ssm scan/%dx%d/%dx%d", x.heads, x.dim, x.groups, x.n), func(k *sketch) *graph.Node {
			return k.ssm(x.heads, x.dim, x.groups, x.n)
		})
		add(fmt.Sprintf("delta scan/%dx%d/%dx%d", x.heads, x.dim, x.groups, x.n), func(k *sketch) *graph.Node {
			return k.delta(0, x.heads, x.dim, x.groups, x.n)
		})
		add(fmt.Sprintf("delta scan/most 2/%dx%d/%dx%d", x.heads, x.dim, x.groups, x.n), func(k *sketch) *graph.Node {
			return k.delta(2, x.heads, x.dim, x.groups, x.n)
		})
	}
	for _, x := range []struct{ heads, dim, groups, n int }{{1, 1, 1, 1}, {70, 1, 1, 5}, {300, 1, 1, 16},
		{4, 6, 4, 5}, {4, 20, 2, 16}, {3, 70, 3, 33}} {
		add(fmt.Sprintf("scan of elements/%dx%d/%dx%d", x.heads, x.dim, x.groups, x.n), func(k *sketch) *graph.Node {
			return k.each(x.heads, x.dim, x.groups, x.n)
		})
	}
	return list
}

// Hybrid is a small model of random weights, whose tokens are 0 to Vocab-1: with learned
// positions and LayerNorm, four layers that keep states, and one of attention whose heads
// have matrices of their own, are sliced and put together.
func Hybrid(t testing.TB, seed uint64) *graph.Graph {
	t.Helper()
	k := newSketch(seed)
	const hidden, heads, dim, n, kernel = 48, 4, 12, 8, 4
	norm := func(x *graph.Node) *graph.Node {
		return k.LayerNorm(k.weight(tensor.F32, hidden), k.weight(tensor.F32, hidden), x, 1e-5)
	}
	project := func(x *graph.Node, out int) *graph.Node { return k.Scale(k.linear(tensor.F32, x, out), 0.2) }
	whole := k.Builder
	h := k.Add(k.input(hidden), k.EmbedPos(k.weight(tensor.F32, 512, hidden), 512, hidden))
	for i := range 4 {
		k.Builder = whole.Layer(i)
		x := norm(h)
		part := func(groups, size int) *graph.Node { return k.Heads(project(x, groups*size), size) }
		conv := k.Heads(k.Act(graph.SiLU, k.Conv(k.weight(tensor.F32, heads*dim, kernel),
			k.weight(tensor.F32, heads*dim), project(x, heads*dim), kernel)), dim)
		switch i {
		case 0:
			conv = k.SSMScan(k.negative(heads), k.weight(tensor.F32, heads), k.weight(tensor.F32, heads), conv,
				project(x, heads), part(2, n), part(2, n))
		case 1:
			conv = k.DeltaScan(k.negative(heads), k.weight(tensor.F32, heads), k.L2Norm(part(2, n), 1e-6),
				k.L2Norm(part(2, n), 1e-6), conv, project(x, heads), project(x, heads))
		case 2:
			a := k.negative(heads * dim * n)
			a.Shape = tensor.Shape{heads * dim, n}
			conv = k.SSMScanEach(a, k.weight(tensor.F32, heads*dim), k.weight(tensor.F32, heads*dim), k.Heads(conv, 1),
				project(x, heads*dim), part(1, n), part(1, n))
		default:
			conv = k.DeltaScanWith(graph.ScanAttr{Most: 2}, k.negative(heads), k.weight(tensor.F32, heads*n),
				k.L2Norm(part(heads, n), 1e-6), k.L2Norm(part(heads, n), 1e-6), conv, project(x, heads*n),
				project(x, heads))
		}
		h = k.Add(h, project(conv, hidden))
	}
	k.Builder = whole.Layer(4)
	x := norm(h)
	kv := &graph.KV{Layer: 4, Heads: 2, Dim: dim}
	k.StoreKV(kv, k.Heads(project(x, 2*dim), dim), k.Heads(project(x, 2*dim), dim))
	q := k.HeadLinear(k.weight(tensor.F32, heads, dim, 7), k.Heads(project(x, heads*7), 7), dim)
	q = k.Concat(k.Slice(q, 5, dim-5), k.Slice(q, 0, 5))
	y := k.Attention(k.ScalePos(q, graph.ScalePosAttr{Beta: 0.1, Every: 8}), kv, 0.3)
	h = k.Add(h, project(y, hidden))
	k.Builder = whole
	k.Linear(k.weight(tensor.F32, Vocab, hidden), norm(k.Outputs(h)), Vocab)
	return k.graph(t)
}

// states runs sequences of a model that keeps states in common steps, and compares all
// logits with ref's, and bit for bit with other cuts, with rows that come once more behind positions
// that were dropped, and with slots that others had.
func (s *suite) states(t *testing.T) {
	g := Hybrid(t, 20)
	lengths := []int{150, 40, 25}
	m, got := s.together(t, g, lengths, 1, 7, 63, 64, 215)
	size := len(got[0]) / lengths[0]
	ref := wanted(t, g, 64)
	ref.collect(schedule(1, 64, lengths...))
	for _, cut := range []int{149, 135, 128, 142} {
		p := part{seq: 0}
		for pos := cut; pos < lengths[0]; pos++ {
			p.tokens = append(p.tokens, text(0, pos))
		}
		for _, x := range []*machine{m, ref} {
			x.seqs[0].Commit(make([]int32, lengths[0]))
			if n := x.seqs[0].Truncate(cut); n != cut {
				t.Fatalf("%d positions are left of %d", n, cut)
			}
		}
		again, want := m.forward(p), ref.forward(p)
		(&worst{}).compare(t, "behind dropped positions", again, want, s.tol.Layer)
		if s.tol.SameBits && !sameBits(again, got[0][cut*size:]) {
			t.Errorf("behind %d positions, others having been dropped, rows have other bits", cut)
		}
	}
	if !s.tol.SameBits {
		return
	}
	for _, seq := range m.seqs {
		seq.Free()
	}
	m.seqs = nil
	for seq, again := range m.collect(schedule(3, 64, lengths...)) {
		if !sameBits(again, got[seq]) {
			t.Errorf("sequence %d has other bits in used slots", seq)
		}
	}
}

// pools: rows of whole sequences are pooled, and a prompt that was cut is refused.
func (s *suite) pools(t *testing.T) {
	for _, p := range []graph.Pooling{graph.Mean, graph.First} {
		k := newSketch(21)
		x := k.linear(tensor.F32, k.input(16), 24)
		k.linear(tensor.F32, k.Pool(p, x), 10)
		g := k.graph(t)
		parts := []part{{0, []int32{3, 1, 4, 1, 5}}, {1, []int32{9}}, {2, []int32{2, 6}}}
		run := func(m *machine) []float32 {
			step := m.step(parts...)
			step.Outputs = []int32{4, 5, 7}
			return m.run(step)
		}
		m := start(t, s.open(), g, 8, nil)
		got := run(m)
		(&worst{}).compare(t, p.String(), got, run(wanted(t, g, 8)), s.tol.Float)
		alone := start(t, s.open(), g, 8, all)
		step := alone.step(parts[0])
		step.Outputs = []int32{4}
		if y := alone.run(step); s.tol.SameBits && !sameBits(y, got[:10]) {
			t.Errorf("%v: a sequence alone has other bits", p)
		}
		for what, refused := range map[string]struct {
			part    part
			outputs []int32
		}{
			"a prompt that was cut":      {part{0, []int32{7, 7}}, []int32{1}}, // behind the five
			"a row that is not the last": {part{3, []int32{7, 7}}, []int32{0, 1}},
		} {
			step := alone.step(refused.part)
			step.Outputs = refused.outputs
			if _, err := alone.plan.Run(context.Background(), step, nil); err == nil ||
				!strings.Contains(err.Error(), "pool") {
				t.Errorf("%v: %s: %v", p, what, err)
			}
		}
	}
}
