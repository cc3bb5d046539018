package mistake

import (
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

// edit makes a hypothesis of a changed node.
func edit(n *graph.Node, computed string, d detail, change reference.Edit) *Hypothesis {
	return edited(n, computed, d, reference.Edits{n: {change}})
}

// edited makes a hypothesis at n of several changed nodes.
func edited(n *graph.Node, computed string, d detail, edits reference.Edits) *Hypothesis {
	return &Hypothesis{Node: n, Computed: computed, Detail: d, Edits: edits}
}

// built makes a form of a mistake for building alone: a search reads the form off the engine's values, or lists more
// forms.
func built(n *graph.Node, form, computed string, change reference.Edit) *Hypothesis {
	return edit(n, computed, detail{"built": form}, change)
}

// unlikely adds a cost to h: another hypothesis with the same effect comes first.
func unlikely(cost float64, h *Hypothesis) *Hypothesis {
	h.Cost += cost
	return h
}

// fitting makes a hypothesis with a number to be found.
func fitting(n *graph.Node, f Fit) *Hypothesis { return &Hypothesis{Node: n, Fit: &f} }

// forRows computes rows of a node.
type forRows = func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error)

// computes makes a node compute its rows by a function.
func computes(f forRows) reference.Edit { return func(s *reference.Spec) { s.Func = f } }

// ofInputs makes a node compute rows by a function of its inputs' values.
func ofInputs(f func(e *reference.Eval, s *reference.Spec, rows []int, in [][]float64) ([]float64,
	error)) reference.Edit {
	return computes(func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
		var in [][]float64
		for _, n := range s.In {
			x, err := e.Value(n, rows)
			if err != nil {
				return nil, err
			}
			in = append(in, x)
		}
		return f(e, s, rows, in)
	})
}

// passes makes a node give on the i-th input.
func passes(i int) reference.Edit {
	return computes(func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
		return e.Value(s.In[i], rows)
	})
}

// reads makes a node read x as the i-th input.
func reads(i int, x *graph.Node) reference.Edit {
	return func(s *reference.Spec) {
		s.In = slices.Clone(s.In)
		s.In[i] = x
	}
}

// plain computes rows of a node by its operation.
func plain(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
	return s.Plain(e, rows)
}

// then changes each row of a node's result.
func then(change func(row []float64)) reference.Edit {
	return after(func(_ *reference.Eval, _ *reference.Spec, _ int, row []float64) error {
		change(row)
		return nil
	})
}

// after changes each row of a node's result, by position.
func after(change func(e *reference.Eval, s *reference.Spec, at int, row []float64) error) reference.Edit {
	return func(s *reference.Spec) {
		before := s.Func
		if before == nil {
			before = plain
		}
		s.Func = func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
			y, err := before(e, s, rows)
			y = slices.Clone(y)
			width := len(y) / max(len(rows), 1)
			for i, at := range rows {
				if err == nil {
					err = change(e, s, at, y[i*width:(i+1)*width])
				}
			}
			return y, err
		}
	}
}
