package webgpu

import (
	"fmt"
	"math"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/graph"
)

// Beside a product two dispatches compute the adapters' sums: of each pair of a row
//
//	low = A x               low.wgsl
//	y   = fma(B low, s, y)  adapt.wgsl
//
// in the order of the row's adapters. They serve all rows of a step, whatever adapters these have:
// a table tells them. Only plans for steps with adapters have them, so that other steps stay
// as they are.

// apart are the Fusions that plans with adapters do without: they take a product further
// before something can be added to it, or keep the row that A multiplies to themselves.
var apart = []string{"glu", "gate", "add", "fold"}

// adapters are the buffers of all plans with adapters.
type adapters struct {
	pairs map[*graph.Weight]*pairs // of the adapters of steps so far
	low   gpu.Buffer
	table gpu.Buffer
	grown int // counts the buffers that were replaced: groups of them are stale
}

// pairs are those beside a weight, A and B one after the other.
type pairs struct {
	buffer gpu.Buffer
	size   int // numbers
	at     map[*backend.Pair]int
}

// beside is the products of a plan with adapters, and their table for the running step.
type beside struct {
	nodes  []*graph.Node // by number
	widths []int         // by number: how much of low a row needs at most
	table  []uint32
}

// The Params of the kernels.
type (
	lowParams   struct{ k, node, rows int }
	adaptParams struct{ n, k, node, rows int }
)

// adapt adds the dispatches of s's adapters, behind its products'.
func (p *planner) adapt(l *lowered, s *stack) error {
	a := p.e.beside
	if a == nil {
		return nil
	}
	there, x, first := &p.e.b.adapters, p.values[l.node.In[0]], p.e.tableRows(l.extent)
	for _, n := range s.nodes {
		i, w, out := len(a.nodes), n.W[0], p.values[n]
		a.nodes, a.widths = append(a.nodes, n), append(a.widths, 0)
		down, err := p.dispatch(n, "low", nil, lowParams{w.Shape[1], i, first}, func(rows int) (x, y, z int) { return a.widths[i], rows, 1 })
		if err != nil {
			return err
		}
		up, err := p.dispatch(n, "adapt", nil, adaptParams{w.Shape[0], w.Shape[1], i, first}, func(rows int) (x, y, z int) {
			return (min(a.widths[i], 1)*w.Shape[0] + 63) / 64, rows, 1
		})
		if err != nil {
			return err
		}
		down.ranges = func(*cache) []gpu.Range {
			return append(down.head, gpu.Range{Buffer: there.low}, gpu.Range{Buffer: x}, gpu.Range{Buffer: there.pairs[w].buffer}, gpu.Range{Buffer: there.table})
		}
		up.ranges = func(*cache) []gpu.Range {
			return append(up.head, gpu.Range{Buffer: out}, gpu.Range{Buffer: there.low}, gpu.Range{Buffer: there.pairs[w].buffer}, gpu.Range{Buffer: there.table})
		}
		l.dispatches = append(l.dispatches, down.dispatch, up.dispatch)
	}
	return nil
}

// tableRows is where a table has the rows that nodes of an extent compute.
func (e *plan) tableRows(x extent) int { return 1 + int(x)*e.rows }

// tabulate makes the table of the step that runs, and brings the step's adapters to the GPU where
// they are new. The table has
//
//   - how many numbers of low a row has,
//   - for each row, and behind them for each whose logits are wanted, where its adapters are, or 0,
//   - for each row's adapters, which others may share, where the list of each product is, or 0,
//   - the lists: how many pairs there are, and of each where A begins, its rank and its scale.
func (e *plan) tabulate() error {
	a := e.beside
	if a == nil {
		return nil
	}
	clear(a.widths)
	a.table = append(a.table[:0], make([]uint32, 1+e.rows+e.results)...)
	at := map[*backend.Blend]uint32{nil: 0}
	for x, s := range e.steps {
		for row, blend := range s.Adapters {
			if _, ok := at[blend]; !ok {
				at[blend] = uint32(len(a.table))
				if err := e.lists(blend); err != nil {
					return fmt.Errorf("adapters: %w", err)
				}
			}
			a.table[e.tableRows(extent(x))+row] = at[blend]
		}
	}
	width := 0
	for _, w := range a.widths {
		width = max(width, w)
	}
	a.table[0] = uint32(width)
	there := &e.b.adapters
	if err := e.b.room(&there.low, "low", len(e.steps[every].Tokens)*width); err != nil {
		return err
	}
	if err := e.b.room(&there.table, "adapters", len(a.table)); err != nil {
		return err
	}
	e.list.Write(there.table, 0, bytesIn(a.table))
	return nil
}

// lists adds the lists of a row's adapters to the table.
func (e *plan) lists(blend *backend.Blend) error {
	a := e.beside
	first := len(a.table)
	a.table = append(a.table, make([]uint32, len(a.nodes))...)
	for i, n := range a.nodes {
		list, width := len(a.table), 0
		for _, part := range blend.Parts {
			p := part.Pairs[n.W[0]]
			if p == nil {
				continue
			}
			at, err := e.b.place(n.W[0], p)
			if err != nil {
				return fmt.Errorf("%s of %v: %w", part.Name, n, err)
			}
			if width == 0 {
				a.table[first+i] = uint32(list)
				a.table = append(a.table, 0)
			}
			a.table[list]++
			a.table = append(a.table, uint32(at), uint32(p.Rank), math.Float32bits(float32(part.By*p.Scale)))
			width += p.Rank
		}
		if limit := e.b.d.Adapter().Limits.Groups; width > limit {
			return fmt.Errorf("%v: ranks of %d together, this GPU computes at most %d", n, width, limit)
		}
		a.widths[i] = max(a.widths[i], width)
	}
	return nil
}

// place is where p lies among w's pairs, which it joins if it is new. They stay until Close: a model's adapters are those
// that it was opened with, whose bytes were compared with the GPU's memory then.
func (b *Backend) place(w *graph.Weight, p *backend.Pair) (int, error) {
	s := b.adapters.pairs[w]
	if s == nil {
		s = &pairs{at: map[*backend.Pair]int{}}
		b.adapters.pairs[w] = s
	}
	if at, ok := s.at[p]; ok {
		return at, nil
	}
	at, size := s.size, s.size+len(p.A)+len(p.B)
	made, err := b.enlarged(w.Name, s.buffer, 4*at, 4*size)
	if err != nil {
		return 0, err
	}
	s.buffer = made
	b.adapters.grown++
	var l gpu.List
	l.Write(made, 4*at, bytesIn(p.A))
	l.Write(made, 4*(at+len(p.A)), bytesIn(p.B))
	if err := b.d.gpu.Run(&l); err != nil {
		return 0, err
	}
	s.size, s.at[p] = size, at
	return at, nil
}

// room gives a buffer whose contents are not needed so many numbers at least.
func (b *Backend) room(to *gpu.Buffer, name string, numbers int) error {
	if *to != nil && (*to).Size() >= 4*numbers {
		return nil
	}
	made, err := b.empty(name, 4*numbers)
	if err != nil {
		return err
	}
	b.release(*to)
	*to = made
	b.adapters.grown++
	return nil
}
