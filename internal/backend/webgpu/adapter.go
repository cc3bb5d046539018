package webgpu

import (
	"fmt"
	"math"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/graph"
)

// Next to a product two dispatches compute the adapters' sums, for each pair of a row
//
//	low = A x               low.wgsl
//	y   = fma(B low, s, y)  adapt.wgsl
//
// in the order of the row's adapters. Both serve all rows of a step, with any adapters, by a table. Only plans for
// steps with adapters have the two, so that other steps stay unchanged.

// unadaptable names the Fusions left out of plans with adapters: each takes a product further before an addition, or
// hides the row multiplied by A.
var unadaptable = []string{"glu", "gate", "add", "fold"}

// adapters are the buffers of all plans with adapters.
type adapters struct {
	pairs map[*graph.Weight]*pairs // of the adapters of steps so far
	low   gpu.Buffer
	table gpu.Buffer
	grown int // counts the replaced buffers: groups of them are stale
}

// pairs are the pairs next to a weight, A and B one after the other.
type pairs struct {
	buffer gpu.Buffer
	size   int // numbers
	at     map[*backend.Pair]int
}

// adapted is the products of a plan with adapters, and their table for the running step.
type adapted struct {
	nodes  []*graph.Node // by number
	widths []int         // by number: how much of low a row needs at most
	table  []uint32
}

// adapt adds the dispatches of s's adapters, behind its products'.
func (p *planner) adapt(l *lowered, s *stack) {
	a := p.e.adapters
	if a == nil {
		return
	}
	there, first := &p.b.adapters, p.e.tableRows(l.extent)
	low, table := late(func(*cache) (gpu.Buffer, error) { return there.low, nil }),
		late(func(*cache) (gpu.Buffer, error) { return there.table, nil })
	for _, n := range s.nodes {
		i, w := len(a.nodes), n.W[0]
		a.nodes, a.widths = append(a.nodes, n), append(a.widths, 0)
		of := late(func(*cache) (gpu.Buffer, error) { return there.pairs[w].buffer, nil })
		p.add(l, "low", nil, params{"k": w.Shape[1], "node": i, "rows": first},
			func(rows int) (x, y, z int) { return a.widths[i], rows, 1 },
			low, p.values[n.In[0]], of, table)
		p.add(l, "adapt", nil, params{"n": w.Shape[0], "k": w.Shape[1], "node": i, "rows": first},
			func(rows int) (x, y, z int) {
				return (min(a.widths[i], 1)*w.Shape[0] + 63) / 64, rows, 1
			}, p.values[n], low, of, table)
	}
}

// tableRows returns the place in a table of the rows computed by nodes of an extent.
func (e *plan) tableRows(x extent) int { return 1 + int(x)*e.rows }

// tabulate makes the table of the running step, and brings the step's new adapters to the GPU. The table has
//
//   - the numbers of low in a row,
//   - for each row, and then for each row with wanted logits, the place of its adapters, or 0,
//   - for each row's adapters, perhaps shared, the place of each product's list, or 0,
//   - the lists: the number of pairs, and for each pair A's place, its rank and its scale.
func (e *plan) tabulate() error {
	a := e.adapters
	if a == nil {
		return nil
	}
	clear(a.widths)
	a.table = append(a.table[:0], make([]uint32, 1+e.rows+e.results)...)
	at := map[*backend.Blend]uint32{nil: 0}
	for x, s := range e.recording.steps {
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
	for _, x := range []struct {
		to      *gpu.Buffer
		name    string
		numbers int
	}{{&there.low, "low", len(e.recording.steps[every].Tokens) * width}, {&there.table, "adapters", len(a.table)}} {
		grown, err := e.b.memory.renew(x.to, x.name, max(4*x.numbers, 4), 0)
		if err != nil {
			return err
		}
		if grown {
			there.grown++
		}
	}
	e.recording.list.Write(there.table, 0, bytesIn(a.table))
	return nil
}

// lists adds the lists of a row's adapters to the table.
func (e *plan) lists(blend *backend.Blend) error {
	a := e.adapters
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

// place returns the place of p among w's pairs, after adding a new p. Pairs stay until Close: a model's adapters are
// all given at opening, and their bytes were compared with the GPU's memory then.
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
	made, err := b.memory.enlarged(w.Name, s.buffer, 4*at, 4*size)
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
