package mistake

import (
	"fmt"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

// expertPart is some of the weights of Experts, and how they are changed; nil if no loader has them apart.
type expertPart struct {
	what  string
	which []int
	alter func(c reference.Change) reference.Edit
}

// scale multiplies what the part gives.
func (p expertPart) scale(by float64) reference.Edit {
	return func(s *reference.Spec) {
		for _, i := range p.which {
			s.Experts.Gains[i] *= by
		}
	}
}

// expertParts returns all of the weights of Experts, with their biases, and the separately stored ones.
func expertParts(n *graph.Node) []expertPart {
	matrices, _ := n.ExpertWeights()
	last := len(matrices) - 1
	every, firsts := make([]int, len(n.W)), make([]int, last)
	for i := range every {
		every[i] = i
	}
	copy(firsts, every)
	alter := func(which ...int) func(c reference.Change) reference.Edit {
		return func(c reference.Change) reference.Edit {
			return func(s *reference.Spec) {
				for _, i := range which {
					s.Alter[i] = c
				}
			}
		}
	}
	parts := []expertPart{{"all of the experts' weights", every, nil}}
	if last < 2 {
		return append(parts, expertPart{"the experts' first weight", firsts, alter(0)},
			expertPart{"the experts' second weight", []int{last}, alter(last)})
	}
	return append(parts, expertPart{"the experts' gate", []int{0}, alter(0)},
		expertPart{"the experts' up", []int{1}, alter(1)}, expertPart{"the experts' gate and up", firsts, alter(0, 1)},
		expertPart{"the experts' down", []int{last}, alter(last)})
}

// otherExperts lists experts that run in the place of others: those moved by one, those counted from the last, and two
// that are exchanged.
func otherExperts(_ *Proposer, n *graph.Node) (all []*Hypothesis) {
	count := n.W[0].Shape[0]
	runs := func(cost float64, computed, order string, expert func(e int) int) {
		all = append(all, unlikely(cost, edit(n, computed, detail{"order": order},
			routed(func(e *reference.Eval, s *reference.Spec, rows []int, routes forRows) ([]float64, error) {
				y, err := routes(e, s, rows)
				for i := 0; i < len(y); i += 2 {
					if id := int(y[i]); id >= 0 && id < count { // as a tap says
						y[i] = float64(expert(id))
					}
				}
				return y, err
			}))))
	}
	for _, shift := range []int{1, count - 1} {
		runs(0, fmt.Sprintf("runs expert (e + %d) mod %d for e", shift, count), fmt.Sprintf("+%d", shift),
			func(e int) int { return (e + shift) % count })
	}
	runs(0, "counts the experts from the last", "reversed", func(e int) int { return count - 1 - e })
	runs(0, "exchanges neighbouring experts", "neighbours", func(e int) int { return min(e^1, count-1) })
	for i := range min(count, 16) {
		for j := range i {
			runs(0.2, fmt.Sprintf("exchanges experts %d and %d", j, i), fmt.Sprintf("%d<->%d", j, i), func(e int) int {
				switch e {
				case i:
					return j
				case j:
					return i
				}
				return e
			})
		}
	}
	return all
}

// routed makes Experts read other routes, given the routes of before.
func routed(change func(e *reference.Eval, s *reference.Spec, rows []int, routes forRows) ([]float64,
	error)) reference.Edit {
	return func(s *reference.Spec) {
		before := s.Experts.Routes
		if before == nil {
			before = func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
				return e.Value(s.In[1], rows)
			}
		}
		s.Experts.Routes = func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
			return change(e, s, rows, before)
		}
	}
}

// otherLayouts lists other ways in which gate and up lie in a weight of experts.
func otherLayouts(_ *Proposer, n *graph.Node) []*Hypothesis {
	form := func(computed, layout string, f graph.Form) []*Hypothesis {
		return []*Hypothesis{edit(n, computed, detail{"layout": layout},
			func(s *reference.Spec) { s.Experts.Form = f })}
	}
	switch n.Attr.(graph.ExpertsAttr).Form {
	case graph.Interleaved:
		return form("reads gate and up as halves of a weight that interleaves their rows", "halves", graph.Fused)
	case graph.Fused:
		return form("reads gate and up from alternate rows instead of halves", "interleaved", graph.Interleaved)
	}
	return nil
}

// biasesApart lists experts whose last bias is added without the router's weight.
func biasesApart(_ *Proposer, n *graph.Node) []*Hypothesis {
	if a := n.Attr.(graph.ExpertsAttr); !a.Biased || a.OnInput {
		return nil
	}
	return []*Hypothesis{edit(n, "adds the bias of an expert's result without the router's weight", detail{},
		after(func(e *reference.Eval, s *reference.Spec, at int, row []float64) error {
			routes, err := e.Value(s.In[1], []int{at})
			if err != nil {
				return err
			}
			bias, err := reference.Vector(s.W[len(s.W)-1])
			for i := 0; i < len(routes) && err == nil; i += 2 {
				for j := range row {
					if at := int(routes[i])*len(row) + j; at >= 0 && at < len(bias) { // as a tap says
						row[j] += (1 - routes[i+1]) * bias[at]
					}
				}
			}
			return err
		}))}
}

// otherInputs lists the weight of an expert on its input in the place of its output, or the reverse.
func otherInputs(_ *Proposer, n *graph.Node) []*Hypothesis {
	side, right := "what an expert gives", n.Attr.(graph.ExpertsAttr).OnInput
	if !right {
		side = "what an expert reads"
	}
	return []*Hypothesis{edit(n, "multiplies "+side+" by its weight", detail{"weight": side},
		func(s *reference.Spec) { s.Experts.OnInput = !right })}
}
