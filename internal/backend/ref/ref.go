// Package ref runs a graph in float64, one node after another. It is the
// meaning of every operation: other backends are compared with it. One
// exception, as in the reference library: the cosines and sines of rotary
// positions are float32 numbers, made by package rope.
package ref

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/machine"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/quant"
)

// Backend is the float64 interpreter.
type Backend struct {
	Threads int // 0 is machine.Threads

	// GELU, if set, stands in for the tanh form: another engine's way of
	// computing it, so that its distance can be measured.
	GELU func(float64) float64

	// Kernel, if set, says how nodes are computed that are not to be computed
	// as they are: so is an engine with a fault made. It is asked once a node,
	// and returns nil for the others. All values of a step are kept to its end.
	Kernel func(*graph.Node) Kernel
}

// Close does nothing.
func (Backend) Close() error { return nil }

// Compile implements backend.Backend. Weights are read as they are needed.
func (b Backend) Compile(g *graph.Graph, o backend.Options) (backend.Executable, error) {
	e := &executable{g: g, gelu: b.GELU, threads: b.Threads, rows: max(o.Rows, 1), want: o.Want, last: make([]int, len(g.Nodes))}
	if e.threads == 0 {
		e.threads = machine.Threads()
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
	return e, nil
}

type executable struct {
	g    *graph.Graph
	rows int
	want func(*graph.Node) bool
	last []int // by node: the last node that reads it
	gelu func(float64) float64

	threads int
	kernels []Kernel // by node, nil for those that are computed as they are; nil if all are
}

// Run implements backend.Executable.
func (e *executable) Run(ctx context.Context, s *backend.Step, tap backend.Tap) ([]float32, error) {
	if err := s.Check(e.rows, backend.Vocab(e.g)); err != nil {
		return nil, err
	}
	if _, ok := s.Cache.(*cache); !ok {
		return nil, errors.New("ref: the step's cache is not this backend's")
	}
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
			return nil, fmt.Errorf("ref: %v: %w", n, err)
		}
		if tap != nil && e.want != nil && n.Op != graph.StoreKV && e.want(n) {
			tap(n, narrow(out[n.ID]))
		}
		for _, x := range n.In {
			if e.last[x.ID] == n.ID && e.kernels == nil {
				out[x.ID] = nil
			}
		}
	}
	return narrow(out[len(out)-1]), nil
}

func narrow(x []float64) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = float32(v)
	}
	return y
}

// node computes one node: the operations that need the step, then the others.
func (e *executable) node(n *graph.Node, in [][]float64, s *backend.Step) ([]float64, error) {
	switch n.Op {
	case graph.Embed:
		return embed(n, s.Tokens)
	case graph.RoPE:
		return rotate(n, in[0], s.Pos), nil
	case graph.StoreKV:
		return nil, keep(n.Attr.(*graph.KV), in[0], in[1], s)
	case graph.Attention:
		return attention(n, in[0], s)
	case graph.Rows:
		d := n.Shape.Size()
		y := make([]float64, 0, len(s.Outputs)*d)
		for _, r := range s.Outputs {
			y = append(y, in[0][int(r)*d:][:d]...)
		}
		return y, nil
	}
	if n.Op == graph.Linear {
		return linear(in[0], n.W[0], e.threads)
	}
	if a, ok := n.Attr.(graph.ActAttr); ok && e.gelu != nil && a.Act == graph.GELUTanh && n.Op != graph.Experts {
		return gated(in, e.gelu), nil
	}
	return Eval(n, in)
}

// Eval computes a node that depends on its inputs alone, each [rows, shape...]:
// every operation but Embed, RoPE, StoreKV, Attention and Rows.
func Eval(n *graph.Node, in [][]float64) ([]float64, error) {
	switch n.Op {
	case graph.Linear:
		return linear(in[0], n.W[0], machine.Threads())
	case graph.RMSNorm:
		return rmsNorm(n, in[0])
	case graph.Add, graph.Mul:
		return combine(n, in)
	case graph.Scale:
		return apply(in[0], func(v float64) float64 { return v * n.Attr.(graph.ScaleAttr).By }), nil
	case graph.Softcap:
		c := n.Attr.(graph.ScaleAttr).By
		return apply(in[0], func(v float64) float64 { return c * math.Tanh(v/c) }), nil
	case graph.GLU, graph.Act:
		return gated(in, activation(n.Attr.(graph.ActAttr).Act)), nil
	case graph.View:
		return view(n, in[0]), nil
	case graph.Route:
		return route(n, in[0])
	case graph.Experts:
		return experts(n, in[0], in[1])
	}
	return nil, fmt.Errorf("operation %v has no meaning here", n.Op)
}

// weight is all of w, widened.
func weight(w *graph.Weight) ([]float64, error) {
	y := make([]float64, w.Shape.Size())
	d := w.Shape.Last()
	buf := make([]float32, d)
	for r := range w.Rows() {
		if err := quant.Dequantize(w.DType, buf, w.Row(r)); err != nil {
			return nil, err
		}
		for i, v := range buf {
			y[r*d+i] = float64(v)
		}
	}
	return y, nil
}

// linear is x [T, k] · wᵀ, w being [n, k]. Rows of w are cut among the threads;
// each sum runs along k in order, so the cut does not show.
func linear(x []float64, w *graph.Weight, threads int) ([]float64, error) {
	k, n := w.Shape.Last(), w.Rows()
	t := len(x) / k
	y := make([]float64, t*n)
	errs := make([]error, threads)
	var wg sync.WaitGroup
	for c := range errs {
		wg.Go(func() {
			errs[c] = mmap.Guard(func() error {
				return linearRows(y, x, w, n*c/len(errs), n*(c+1)/len(errs))
			})
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return y, nil
}

func linearRows(y, x []float64, w *graph.Weight, from, to int) error {
	k, n := w.Shape.Last(), w.Rows()
	buf, row := make([]float32, k), make([]float64, k)
	for i := from; i < to; i++ {
		if err := quant.Dequantize(w.DType, buf, w.Row(i)); err != nil {
			return err
		}
		for j, v := range buf {
			row[j] = float64(v)
		}
		for t := range len(x) / k {
			var s float64
			for j, v := range x[t*k : (t+1)*k] {
				s += v * row[j]
			}
			y[t*n+i] = s
		}
	}
	return nil
}
