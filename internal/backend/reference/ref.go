// Package reference computes a graph in float64: it is the meaning of every
// operation, and other backends are compared with it. One exception, as in the
// reference library: the cosines and sines of rotary positions are float32
// numbers, made by package rope.
//
// Backend runs it over a step, one node after another. It also stands in for
// other engines: it rounds where they round (Backend.Class), and computes what
// they compute instead (Backend.Kernel).
//
// Eval computes values for one whole prompt from the known values of other
// nodes. If an engine gave the known values, Eval's value of a node can be
// compared with the engine's: together they are an equation. An Edit changes how
// a node is computed: it says what an engine may do instead.
package reference

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/round"
	"github.com/karat-run/karat/internal/sysinfo"
)

// Backend is the float64 interpreter.
type Backend struct {
	Threads int // 0 is sysinfo.Threads

	// Class is another engine's arithmetic, to be stood in for: values are rounded
	// where it rounds them. The zero value is float64 throughout.
	Class round.Class

	// Edits, if not nil, are how nodes are computed otherwise: so is an engine with mistakes made.
	Edits Edits

	// Kernel, if set, says how nodes are computed that are not to be computed
	// as they are: so is an engine with a fault made. It is asked once a node,
	// and returns nil for the others. All values of a step are kept to its end.
	Kernel func(*graph.Node) Kernel
}

// Close does nothing.
func (Backend) Close() error { return nil }

// Compile implements backend.Backend. Weights are read as they are needed.
func (b Backend) Compile(g *graph.Graph, o backend.Options) (backend.Executable, error) {
	if err := b.Class.Check(); err != nil {
		return nil, err
	}
	if b.Edits != nil {
		return &edited{g: g, rows: max(o.Rows, 1), want: o.Want, after: g.Live().After}, nil
	}
	e := &executable{g: g, arith: newArith(b.Class), threads: b.Threads, rows: max(o.Rows, 1), want: o.Want, kept: backend.NewKept(g, o.Keep), expert: o.Expert, last: make([]int, len(g.Nodes)), after: g.Live().After}
	if e.threads == 0 {
		e.threads = sysinfo.Threads()
	}
	if b.Kernel != nil {
		e.kernels = make([]Kernel, len(g.Nodes))
	}
	for _, n := range g.Nodes {
		if b.Kernel != nil {
			e.kernels[n.ID] = b.Kernel(n)
		}
		for _, in := range n.In {
			e.last[in.ID] = n.ID
		}
	}
	for n := range e.kept {
		e.last[n.ID] = len(g.Nodes)
	}
	return e, nil
}

type executable struct {
	g      *graph.Graph
	rows   int
	want   func(*graph.Node) bool
	kept   backend.Kept
	expert backend.Expert
	last   []int                // by node: the last node that reads it
	after  map[*graph.Node]bool // nodes behind Rows: they have a row for each output
	arith  *arith

	threads int
	kernels []Kernel // by node, nil for an unchanged node; nil if all are unchanged
}

// Run implements backend.Executable.
func (e *executable) Run(ctx context.Context, s *backend.Step, tap backend.Tap) ([]float32, error) {
	if err := s.Check(e.rows, backend.Vocab(e.g)); err != nil {
		return nil, err
	}
	if e.g.Bidirectional() {
		if err := s.Entire(); err != nil {
			return nil, err
		}
	}
	if err := s.CheckEmbeddings(backend.Input(e.g)); err != nil {
		return nil, err
	}
	if err := e.kept.Check(s); err != nil {
		return nil, err
	}
	c, ok := s.Cache.(*cache)
	if !ok {
		return nil, errors.New("the step's cache is not this backend's")
	}
	c.begin(s)
	out := make([][]float64, len(e.g.Nodes))
	for _, n := range e.g.Nodes {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		in := make([][]float64, len(n.In))
		for i, x := range n.In {
			in[i] = out[x.ID]
		}
		err := mmap.Guard(func() (err error) {
			if e.kernels != nil && e.kernels[n.ID] != nil {
				out[n.ID], err = e.call(e.kernels[n.ID], n, in, s, out)
			} else {
				out[n.ID], err = e.node(n, in, s)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("%v: %w", n, err)
		}
		if tap != nil && e.want != nil && n.Op != graph.StoreKV && e.want(n) && s.Sees(n) {
			show(tap, n, out[n.ID], s.Write)
		}
		for _, x := range n.In {
			if e.last[x.ID] == n.ID && e.kernels == nil {
				out[x.ID] = nil
			}
		}
	}
	for _, v := range s.Values {
		from, to := e.kept.Range(s, v)
		copy(v.Out, narrow(out[v.Node.ID][from:to]))
	}
	if s.NoLogits {
		return nil, nil
	}
	return narrow(out[len(out)-1]), nil
}

// show calls tap, and takes over what it writes, if it may.
func show(tap backend.Tap, n *graph.Node, x []float64, write bool) {
	seen := narrow(x)
	tap(n, seen)
	for i, v := range seen {
		if write && math.Float32bits(v) != math.Float32bits(float32(x[i])) {
			x[i] = float64(v)
		}
	}
}

// node computes one node: the operations that need the step, then the others.
func (e *executable) node(n *graph.Node, in [][]float64, s *backend.Step) ([]float64, error) {
	switch n.Op {
	case graph.Linear:
		y, err := e.arith.linear(in[0], n.W[0], e.threads)
		if err == nil && len(s.Adapters) > 0 {
			e.adapt(n, y, in[0], s)
		}
		return y, err
	case graph.Embed:
		y, err := e.arith.embed(n, s.Tokens)
		if err == nil && n == backend.Input(e.g) {
			e.arith.replace(y, s.Embeddings)
		}
		return y, err
	case graph.RoPE:
		return e.arith.rotate(n, in[0], s), nil
	case graph.StoreKV:
		return nil, e.arith.keep(n.Attr.(*graph.KV), in, s)
	case graph.Attention:
		return e.arith.attention(n, in[0], s)
	case graph.Rows:
		d := n.Shape.Size()
		y := make([]float64, 0, len(s.Outputs)*d)
		for _, r := range s.Outputs {
			y = append(y, in[0][int(r)*d:][:d]...)
		}
		return y, nil
	case graph.Experts:
		return e.arith.experts(n, in[0], in[1], e.expert)
	case graph.Pool:
		return e.arith.pool(n, in[0], s)
	case graph.Conv, graph.SSMScan, graph.DeltaScan:
		c := s.Cache.(*cache)
		return e.arith.stateful(n, in, func(row int) []float64 { return c.state(n.State, s.Seqs[row]) })
	case graph.EmbedPos:
		return e.arith.embedPos(n, s.Pos)
	case graph.ScalePos:
		return e.arith.scalePos(n, in[0], s.Pos), nil
	}
	return e.arith.eval(n, in, e.threads)
}

// compute computes a node that depends on its inputs alone, each [rows, shape...], in
// float64 and one thread: every operation that reads no tokens, positions or keys.
// The rows of one with a state are a sequence's, from its first on.
func compute(n *graph.Node, in [][]float64) ([]float64, error) {
	return newArith(round.Class{}).eval(n, in, 1)
}

func (a *arith) eval(n *graph.Node, in [][]float64, threads int) ([]float64, error) {
	switch n.Op {
	case graph.Linear:
		return a.linear(in[0], n.W[0], threads)
	case graph.RMSNorm:
		return a.rmsNorm(n, in[0])
	case graph.Add, graph.Mul:
		return a.combine(n, in)
	case graph.Scale:
		by := n.Attr.(graph.ScaleAttr).By
		return a.apply(in[0], func(v float64) float64 { return v * by }), nil
	case graph.Softcap:
		c := n.Attr.(graph.ScaleAttr).By
		return a.apply(in[0], func(v float64) float64 { return c * a.store(math.Tanh(a.store(v/c))) }), nil
	case graph.GLU, graph.Act:
		return a.gated(in, n.Attr.(graph.ActAttr)), nil
	case graph.View:
		return view(n, in[0]), nil
	case graph.Route:
		return a.route(n, in[0])
	case graph.Experts:
		return a.experts(n, in[0], in[1], nil)
	case graph.LayerNorm:
		return a.layerNorm(n, in[0])
	case graph.L2Norm:
		return a.l2Norm(n, in[0]), nil
	case graph.Concat:
		return concat(n, in[0], in[1]), nil
	case graph.Slice:
		return slice(n, in[0]), nil
	case graph.HeadLinear:
		return a.headLinear(n, in[0])
	case graph.Conv, graph.SSMScan, graph.DeltaScan:
		state := make([]float64, n.State.Size)
		return a.stateful(n, in, func(int) []float64 { return state })
	}
	return nil, fmt.Errorf("operation %v has no meaning here", n.Op)
}
