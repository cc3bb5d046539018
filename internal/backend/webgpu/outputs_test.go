package webgpu

import (
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/dev/backendtest"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// cut is a step of so many tokens, of which some rows' logits are wanted.
type cut struct {
	tokens  int
	outputs []int32
}

// behind is g and a node behind its Rows node.
func behind(g *graph.Graph) *graph.Graph {
	last := g.Result()
	n := &graph.Node{ID: len(g.Nodes), Op: graph.Scale, Name: "scaled", Layer: -1, Shape: last.Shape, In: []*graph.Node{last}, Attr: graph.ScaleAttr{By: 0.5}}
	return &graph.Graph{Nodes: append(slices.Clip(g.Nodes), n)}
}

// upTo is the rows before n.
func upTo(n int) (rows []int32) {
	for i := range n {
		rows = append(rows, int32(i))
	}
	return rows
}

// some computes tokens in pieces, and returns what logits are wanted.
func (r *runner) some(tokens []int32, pieces []cut) (all []float32) {
	r.t.Helper()
	for _, p := range pieces {
		s := r.step(tokens[:p.tokens])
		s.Outputs, tokens = p.outputs, tokens[p.tokens:]
		y, err := r.plan.Run(r.t.Context(), s, nil)
		if err != nil {
			r.t.Fatal(err)
		}
		all = append(all, y...)
	}
	return all
}

// of is the part of all rows' logits that pieces want.
func of(all []float32, tokens int, pieces []cut) (some []float32) {
	width, at := len(all)/tokens, 0
	for _, p := range pieces {
		for _, row := range p.outputs {
			some = append(some, all[(at+int(row))*width:][:width]...)
		}
		at += p.tokens
	}
	return some
}

// repeat is n tokens.
func repeat(n int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(i * 7 % 16)
	}
	return tokens
}

// TestOutputs: logits have the same bits whichever of a step's rows are wanted, with taps, too,
// over pages that attention is divided by; and no weight is there twice.
func TestOutputs(t *testing.T) {
	d := device(t)
	pieces := []cut{{16, nil}, {200, []int32{199}}, {1, nil}, {2, upTo(1)}, {60, append(upTo(19), 40, 59)}, {1, upTo(1)}, {50, []int32{7, 20, 49}}}
	tokens := repeat(330)
	for name, g := range map[string]*graph.Graph{
		"heads that are not normed": behind(attentive(t, 64, 4, &graph.KV{Heads: 2, Dim: 64})),
		"windows":                   behind(block(t, tensor.Q4_0, 64, 300)),
		"keys that are shared":      backendtest.Decoder(t, 3, tensor.Q8_0, 0, 41),
		"gates":                     behind(fusible(t)),
	} {
		if !golden.Slow() && (name == "windows" || name == "heads that are not normed") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			all := start(t, New(d, Options{}), g, len(tokens), nil).run(tokens...)
			b := New(d, Options{})
			b.poison = true
			r := start(t, b, g, 200, nil)
			if !same(r.some(tokens, pieces), of(all, len(tokens), pieces)) {
				t.Error("other bits where some rows are wanted")
			}
			if e := r.plan.(*executable); e.part == e.whole || r.c.(*cache).parts == nil {
				t.Error("there is one plan, or attention was not divided by pages")
			}
			tapped := New(d, Options{})
			if !same(start(t, tapped, g, 200, func(*graph.Node) bool { return true }).some(tokens, pieces), of(all, len(tokens), pieces)) {
				t.Error("other bits with taps")
			}
			if len(b.weights) != len(tapped.weights) {
				t.Errorf("%d weights on the GPU, with taps %d", len(b.weights), len(tapped.weights))
			}
			software := start(t, New(d, Options{Software: true}), g, 200, nil)
			if !same(software.some(tokens, pieces), of(all, len(tokens), pieces)) {
				t.Error("other bits from the kernels for a program that stands in for a GPU")
			}
		})
	}
}

// TestOutputsDispatches: what only logits need is computed of the rows that are wanted, and
// takes a row's kernels if that is one.
func TestOutputsDispatches(t *testing.T) {
	r := start(t, New(device(t), Options{}), behind(fusible(t)), 40, nil)
	e := r.plan.(*executable)
	dispatches := func(p cut) int {
		e.whole.b.Meter()
		r.some(repeat(p.tokens), []cut{p})
		return e.whole.b.Meter().Dispatches
	}
	var got []int
	for _, p := range []cut{{40, nil}, {40, []int32{39}}, {40, []int32{0, 39}}, {40, upTo(40)}, {1, upTo(1)}} {
		got = append(got, dispatches(p))
	}
	if want := []int{12, 27, 31, 27, 19}; !slices.Equal(got, want) {
		t.Errorf("%d dispatches, want %d", got, want)
	}
}

// TestMatrixOutputs: on matrix units, too, taps change no bit, and keys and values do not
// depend on what is wanted. Of fewer than 16 rows logits are computed in float32.
func TestMatrixOutputs(t *testing.T) {
	d := matrices(t)
	const rows = 60
	tokens := append(repeat(rows), 3)
	for i, g := range []*graph.Graph{behind(fusible(t)), behind(block(t, tensor.Q4_0, 64, 41)), backendtest.Decoder(t, 3, tensor.Q8_0, 0, 41)} {
		compute := func(want func(*graph.Node) bool, outputs []int32) (some, next []float32) {
			r := start(t, New(d, Options{Matrices: true}), g, rows, want)
			some = r.some(tokens, []cut{{rows, outputs}})
			return some, r.run(tokens[rows:]...)
		}
		all, after := compute(nil, upTo(rows))
		for _, outputs := range [][]int32{nil, {rows - 1}, {0, 17, 40}, append(upTo(19), rows-1)} {
			some, next := compute(nil, outputs)
			if !same(next, after) {
				t.Errorf("graph %d, outputs %v: keys and values have other bits", i, outputs)
			}
			if is := same(some, of(all, rows, []cut{{rows, outputs}})); is != (len(outputs) == 0 || len(outputs) >= many) {
				t.Errorf("graph %d, outputs %v: the bits of all outputs: %v", i, outputs, is)
			}
			if tapped, _ := compute(func(*graph.Node) bool { return true }, outputs); !same(tapped, some) {
				t.Errorf("graph %d, outputs %v: other bits with taps", i, outputs)
			}
		}
	}
}
