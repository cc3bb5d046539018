package backendtest

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
)

// Tolerances bound how far a backend's values may lie from package ref's: the
// norm of the difference of a node's outputs in a step, divided by the norm of
// ref's. Where ref has a NaN or an infinity, the backend must have it, too. The
// zero value wants the same bits.
type Tolerances struct {
	Float     float64 // the backend's plain arithmetic
	Quantized float64 // products with quantized weights
	Attention float64 // over keys and values as the backend keeps them
	Layer     float64 // a decoder layer of quantized weights, of which all the above are part

	// Short leaves out what -short leaves out.
	Short bool

	// Stores leaves out what does not depend on how keys and values are kept: for options
	// that differ in that alone from others.
	Stores bool

	// SameBits tells that a row's bits do not depend on the step that computes it.
	SameBits bool
}

// suite is what the tests of one backend share.
type suite struct {
	open func() backend.Backend
	tol  Tolerances
}

// machine runs a graph on one backend, with a cache and its sequences.
type machine struct {
	t     *testing.T
	g     *graph.Graph
	b     backend.Backend
	plan  backend.Executable
	pool  *kv.Pool
	cache backend.Cache
	seqs  []*kv.Sequence

	blends []*backend.Blend // by sequence; nil for none

	taps map[*graph.Node][]float32 // of the last step
}

// all wants every node.
func all(*graph.Node) bool { return true }

// start compiles g for steps of at most rows rows.
func start(t *testing.T, b backend.Backend, g *graph.Graph, rows int, want func(*graph.Node) bool) *machine {
	t.Helper()
	m := &machine{t: t, g: g, b: b, pool: kv.NewPool(kv.Options{Classes: backend.Classes(g, b), Context: 16384,
		Chunk: rows})}
	m.compile(backend.Options{Rows: rows, Want: want})
	return m
}

// compile makes m's plan, and its cache.
func (m *machine) compile(o backend.Options) {
	m.t.Helper()
	t, b := m.t, m.b
	var err error
	if m.plan, err = b.Compile(m.g, o); err != nil {
		t.Fatal(err)
	}
	if m.cache, err = b.NewCache(m.g, m.pool); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.cache.Close(); err != nil {
			t.Error(err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// again compiles m's graph once more, on the same backend, and begins with new sequences in the
// same cache.
func (m *machine) again(rows int, want func(*graph.Node) bool) {
	m.t.Helper()
	for _, seq := range m.seqs {
		seq.Free()
	}
	m.seqs = nil
	var err error
	if m.plan, err = m.b.Compile(m.g, backend.Options{Rows: rows, Want: want}); err != nil {
		m.t.Fatal(err)
	}
}

// part is one sequence's share of a step: the next tokens of the seq-th.
type part struct {
	seq    int
	tokens []int32
}

// step makes room for parts and is the step that computes them, with all logits.
func (m *machine) step(parts ...part) *backend.Step {
	m.t.Helper()
	s := &backend.Step{Cache: m.cache}
	for _, p := range parts {
		for p.seq >= len(m.seqs) {
			m.seqs = append(m.seqs, m.pool.NewSequence())
		}
		seq := m.seqs[p.seq]
		at := seq.Len()
		seq.Commit(make([]int32, at)) // by the steps before
		if err := seq.Grow(len(p.tokens)); err != nil {
			m.t.Fatal(err)
		}
		for i, id := range p.tokens {
			s.Outputs = append(s.Outputs, int32(len(s.Tokens)))
			s.Tokens = append(s.Tokens, id)
			s.Pos = append(s.Pos, int32(at+i))
			s.Seqs = append(s.Seqs, seq)
			if m.blends != nil {
				s.Adapters = append(s.Adapters, m.blends[p.seq])
			}
		}
	}
	return s
}

// run computes a step and keeps its taps.
func (m *machine) run(s *backend.Step) []float32 {
	m.t.Helper()
	m.taps = map[*graph.Node][]float32{}
	logits, err := m.plan.Run(context.Background(), s, func(n *graph.Node, out []float32) {
		if m.taps[n] != nil {
			m.t.Errorf("%v was tapped twice", n)
		}
		m.taps[n] = slices.Clone(out)
	})
	if err != nil {
		m.t.Fatal(err)
	}
	if want := len(s.Outputs) * m.g.Result().Shape.Size(); len(logits) != want {
		m.t.Fatalf("%d logits, want %d", len(logits), want)
	}
	return slices.Clone(logits)
}

// forward is the logits of parts.
func (m *machine) forward(parts ...part) []float32 {
	m.t.Helper()
	return m.run(m.step(parts...))
}

// worst remembers the largest distance that a test saw.
type worst struct{ d float64 }

// compare wants got to lie within bound of want.
func (w *worst) compare(t *testing.T, what string, got, want []float32, bound float64) {
	t.Helper()
	d := distance(got, want)
	w.d = max(w.d, d)
	if !(d <= bound) {
		t.Errorf("%s: relative error %.3g, at most %.3g", what, d, bound)
	}
}

// distance is the norm of a-b over that of b; infinite if they have different
// lengths, NaNs or infinities. Two equal slices have 0.
func distance(a, b []float32) float64 {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	var diff, norm float64
	for i, x := range a {
		x, y := float64(x), float64(b[i])
		if x == y || x != x && y != y {
			if !math.IsInf(y, 0) && y == y {
				norm += y * y
			}
			continue
		}
		if math.IsInf(x-y, 0) || x != x || y != y {
			return math.Inf(1)
		}
		diff, norm = diff+(x-y)*(x-y), norm+y*y
	}
	if diff == 0 {
		return 0
	}
	return math.Sqrt(diff / norm)
}

// sameBits tells whether a and b are equal, any two NaNs being so.
func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool {
		return math.Float32bits(x) == math.Float32bits(y) || x != x && y != y
	})
}

// wanted runs g in float64.
func wanted(t *testing.T, g *graph.Graph, rows int) *machine {
	t.Helper()
	return start(t, reference.Backend{}, g, rows, all)
}
