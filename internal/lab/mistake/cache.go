package mistake

import (
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

// otherPlaces lists keys and values at other positions, new in each step, or stored elsewhere once tokens are decoded
// singly.
func otherPlaces(p *Proposer, n *graph.Node) (all []*Hypothesis) {
	for _, by := range []int{1, 2, -1} {
		all = append(all, edit(n, fmt.Sprintf("reads the keys and values of position p%+d for p", -by),
			detail{"shift": float64(by)},
			stored(func(_ *reference.Eval, k, v []float64, count, _ int) (_, _ []float64) {
				return displaced(k, len(k)/count, by), displaced(v, len(v)/count, by)
			})))
	}
	// A cache that is new in each step has steps of the size that the errors tell, and, since another mistake may tell
	// another size, of whole prompts.
	for _, size := range slices.Compact([]int{p.Size(n), WholePrompt}) {
		d := detail{"decode": "new in each step"}
		if size < WholePrompt {
			d["step"] = float64(size)
		} else if !p.Decodes {
			continue
		}
		all = append(all, edit(n, "sees its own step's keys and values alone", d, since(p.ownStep(size))))
	}
	if p.Decodes {
		all = append(all, overwritten(p, n)...)
	}
	return all
}

// stored changes the keys and values that attention finds stored, after other changes of them.
func stored(change func(e *reference.Eval, k, v []float64, count, at int) (keys, values []float64)) reference.Edit {
	return func(s *reference.Spec) {
		before := s.Attention.Read
		s.Attention.Read = func(e *reference.Eval, k, v []float64, count, at int) ([]float64, []float64) {
			if before != nil {
				k, v = before(e, k, v, count, at)
			}
			return change(e, k, v, count, at)
		}
	}
}

// displaced returns rows of which row i is the one by rows before it, within the ends.
func displaced(x []float64, width, by int) []float64 {
	n := len(x) / width
	y := make([]float64, 0, len(x))
	for i := range n {
		from := min(max(i-by, 0), n-1)
		y = append(y, x[from*width:(from+1)*width]...)
	}
	return y
}

// overwritten lists wrong places of decoded keys and values.
func overwritten(p *Proposer, n *graph.Node) (all []*Hypothesis) {
	only := func(what, computed string, change func(k []float64, width, at, start int)) {
		all = append(all, edit(n, computed, detail{"decode": what},
			stored(func(e *reference.Eval, k, v []float64, count, at int) ([]float64, []float64) {
				if at < p.Prefilled(e) {
					return k, v
				}
				k, v = slices.Clone(k), slices.Clone(v)
				change(k, len(k)/count, at, p.Prefilled(e))
				change(v, len(v)/count, at, p.Prefilled(e))
				return k, v
			})))
	}
	only("one early", "stores each decoded position over the one before it", func(k []float64, width, at, start int) {
		copy(k[max(start-1, 0)*width:], k[start*width:(at+1)*width])
		clear(k[at*width : (at+1)*width])
	})
	only("previous", "reads what the step before stored, not its own", func(k []float64, width, at, start int) {
		if at > 0 {
			copy(k[at*width:(at+1)*width], k[(at-1)*width:])
		}
	})
	only("not stored", "finds zeros in its own position",
		func(k []float64, width, at, start int) { clear(k[at*width : (at+1)*width]) })
	hides := func(what, computed string, hidden func(pos, at, start int) bool) {
		all = append(all, edit(n, computed, detail{"decode": what}, func(s *reference.Spec) {
			s.Attention.Hides = func(e *reference.Eval, at, pos int) bool {
				return at >= p.Prefilled(e) && hidden(pos, at, p.Prefilled(e))
			}
		}))
	}
	hides("one place", "stores each decoded position over the one that was decoded before",
		func(pos, at, start int) bool { return pos >= start && pos < at })
	hides("over the last", "stores the first decoded position over the last one of the prompt",
		func(pos, at, start int) bool { return pos == start-1 })
	return all
}

// lostStates lists states of convolutions and scans that each step begins anew.
func lostStates(p *Proposer, n *graph.Node) []*Hypothesis {
	size := p.Size(n)
	return []*Hypothesis{edit(n, "begins each step without a state", detail{},
		since(p.ownStep(size)))}
}

// stepEnds returns the last positions of the steps that computed rows, as they may be: a mask that
// hides nothing shows nothing of later positions.
func (p *Proposer) stepEnds(n *graph.Node) []func(e *reference.Eval, at int) int {
	var all []func(e *reference.Eval, at int) int
	for _, size := range p.Sizes(n) {
		all = append(all, func(e *reference.Eval, at int) int {
			if _, last, ok := e.Step(at); ok {
				return last
			}
			if end := p.Prefilled(e); at < end {
				return min(at/size*size+size, end) - 1
			}
			return at
		})
	}
	return all
}

// ownStep returns the first position of a row's own step, for steps of size rows and decoded ones.
func (p *Proposer) ownStep(size int) func(e *reference.Eval, at int) int {
	return func(e *reference.Eval, at int) int {
		if first, _, ok := e.Step(at); ok {
			return first
		}
		if at >= p.Prefilled(e) {
			return at
		}
		return at / size * size
	}
}
