// Package reference computes a graph in float64: the meaning of every operation, for comparison with other backends. An
// exception, as in the reference library: the cosines and sines of rotary positions are float32 numbers, made by
// package rope.
//
// Backend runs a graph over a step, node after node. Backend also stands in for
// other engines, with their roundings (Backend.Class) and their mistakes
// (Backend.Edits).
//
// Eval computes values for a whole prompt from the known values of other nodes. If an engine gave the known values,
// Eval's value of a node can be compared with the engine's: the two are an equation. An Edit changes the computation of
// a node, as an engine may.
//
// Files in reading order: ref.go, step.go, cache.go (Backend), edited.go (an engine with mistakes), node.go (a node),
// route.go, choose.go, attend.go, position.go, sequence.go, scan.go, experts.go, weight.go (operations), spec.go,
// matrix.go, eval.go, rounding.go.
package reference

import (
	"cmp"
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

	// Edits, if not nil, change nodes: an engine with mistakes.
	Edits Edits

	// See, if set, sees the values of each node of a step before the values are narrowed for taps.
	See func(*graph.Node, []float64)
}

// Close does nothing.
func (Backend) Close() error { return nil }

// Compile implements backend.Backend. Weights are read when needed.
func (b Backend) Compile(g *graph.Graph, o backend.Options) (backend.Executable, error) {
	if err := b.Class.Check(); err != nil {
		return nil, err
	}
	if b.Edits != nil {
		return &edited{g: g, rows: max(o.Rows, 1), want: o.Want, after: g.Live().After}, nil
	}
	x := &executable{g: g, rows: max(o.Rows, 1), want: o.Want, kept: backend.NewKept(g, o.Keep),
		last: make([]int, len(g.Nodes)), after: g.Live().After, see: b.See}
	m := Of(g)
	m.threads = cmp.Or(b.Threads, sysinfo.Threads())
	x.e = m.Eval(nil, nil, Rounds(b.Class))
	x.e.routing, x.e.expert, x.e.stepwise = x.e.num, o.Expert, true
	for _, n := range g.Nodes {
		for _, in := range n.In {
			x.last[in.ID] = n.ID
		}
	}
	for n := range x.kept {
		x.last[n.ID] = len(g.Nodes)
	}
	return x, nil
}

// executable computes a graph's nodes in order, for the rows of a step.
type executable struct {
	g         *graph.Graph
	e         *Eval // how nodes are computed
	rows      int
	want      func(*graph.Node) bool
	kept      backend.Kept
	last      []int                // by node: the last reader
	after     map[*graph.Node]bool // nodes behind Rows, with a row for each output
	positions []int                // of the step's rows
	see       func(*graph.Node, []float64)
}

// Run implements backend.Executable.
func (x *executable) Run(ctx context.Context, s *backend.Step, tap backend.Tap) ([]float32, error) {
	if err := s.Check(x.rows, backend.Vocab(x.g)); err != nil {
		return nil, err
	}
	if x.g.Bidirectional() {
		if err := s.Entire(); err != nil {
			return nil, err
		}
	}
	if err := s.CheckEmbeddings(backend.EntryOf(x.g)); err != nil {
		return nil, err
	}
	if err := x.kept.Check(s); err != nil {
		return nil, err
	}
	if _, ok := s.Cache.(*cache); !ok {
		return nil, errors.New("the step's cache is not this backend's")
	}
	x.positions = x.positions[:0]
	for _, p := range s.Pos {
		x.positions = append(x.positions, int(p))
	}
	x.e.parts = s.Parts
	out := make([][]float64, len(x.g.Nodes))
	for _, n := range x.g.Nodes {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		in := make([][]float64, len(n.In))
		for i, from := range n.In {
			in[i] = out[from.ID]
		}
		err := mmap.Guard(func() (err error) {
			out[n.ID], err = x.node(n, in, s)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("%v: %w", n, err)
		}
		if tap != nil && x.want != nil && n.Op != graph.StoreKV && x.want(n) && s.Sees(n) {
			show(tap, n, out[n.ID], s.Write)
		}
		if x.see != nil && n.Op != graph.StoreKV {
			x.see(n, out[n.ID])
		}
		for _, from := range n.In {
			if x.last[from.ID] == n.ID {
				out[from.ID] = nil
			}
		}
	}
	for _, v := range s.Values {
		from, to := x.kept.Range(s, v)
		copy(v.Out, narrow(out[v.Node.ID][from:to]))
	}
	if s.NoLogits {
		return nil, nil
	}
	return narrow(out[len(out)-1]), nil
}

// show calls tap, and takes over values written by tap, if permitted.
func show(tap backend.Tap, n *graph.Node, x []float64, write bool) {
	seen := narrow(x)
	tap(n, seen)
	for i, v := range seen {
		if write && math.Float32bits(v) != math.Float32bits(float32(x[i])) {
			x[i] = float64(v)
		}
	}
}
