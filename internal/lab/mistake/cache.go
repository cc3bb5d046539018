package mistake

import (
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

// decoded returns faults of where keys and values are kept: at other positions, or in
// the ones decoded one by one.
func (p *Proposer) decoded(n *graph.Node) []*Hypothesis {
	var all []*Hypothesis
	for _, by := range []int{1, 2, -1} {
		all = append(all, edit("kv_cache_position", n, fmt.Sprintf("reads the keys and values of position p%+d for p", -by), detail{"shift": float64(by)}, func(s *reference.Spec) {
			s.Only = func(e *reference.Eval, k, v []float64, widths [2]int, at int) ([]float64, []float64) {
				return displaced(k, widths[0], by), displaced(v, widths[1], by)
			}
		}))
	}
	all = append(all, p.anew(n)...)
	if p.Decodes {
		all = append(all, p.overwritten(n)...)
	}
	return all
}

// anew returns caches that are new in each step: of the size that the errors tell, and, since what
// else is wrong may tell another, of whole prompts.
func (p *Proposer) anew(n *graph.Node) []*Hypothesis {
	var all []*Hypothesis
	size := p.Size(n)
	for _, size := range slices.Compact([]int{size, WholePrompt}) {
		if size < WholePrompt || p.Decodes {
			all = append(all, edit("kv_cache_position", n, "sees its own step's keys and values alone", detail{"decode": "new in each step"}, func(s *reference.Spec) { s.First = p.ownStep(size) }))
		}
	}
	return all
}

// overwritten returns faults of where decoded keys and values are stored.
func (p *Proposer) overwritten(n *graph.Node) []*Hypothesis {
	var all []*Hypothesis
	only := func(what, computed string, change func(k []float64, width, at, start int)) {
		all = append(all, edit("kv_cache_position", n, computed, detail{"decode": what}, func(s *reference.Spec) {
			s.Only = func(e *reference.Eval, k, v []float64, widths [2]int, at int) ([]float64, []float64) {
				if at < p.Prefilled(e) {
					return k, v
				}
				k, v = slices.Clone(k), slices.Clone(v)
				change(k, widths[0], at, p.Prefilled(e))
				change(v, widths[1], at, p.Prefilled(e))
				return k, v
			}
		}))
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
	only("not stored", "finds zeros in its own position", func(k []float64, width, at, start int) { clear(k[at*width : (at+1)*width]) })
	hides := func(what, computed string, hidden func(pos, at, start int) bool) {
		all = append(all, edit("kv_cache_position", n, computed, detail{"decode": what}, func(s *reference.Spec) {
			s.Hides = func(e *reference.Eval, at, pos int) bool {
				return at >= p.Prefilled(e) && hidden(pos, at, p.Prefilled(e))
			}
		}))
	}
	hides("one place", "stores each decoded position over the one that was decoded before", func(pos, at, start int) bool { return pos >= start && pos < at })
	hides("over the last", "stores the first decoded position over the last one of the prompt", func(pos, at, start int) bool { return pos == start-1 })
	return all
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
