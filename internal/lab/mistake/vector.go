package mistake

import (
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

func (p *Proposer) layerNormHypotheses(n *graph.Node) []*Hypothesis {
	eps := float64(n.Attr.(graph.NormAttr).Eps)
	all := []*Hypothesis{
		edit("norm_mean", n, "divides by the root mean square, without subtracting the mean", detail{}, func(s *reference.Spec) { s.KeepMean = true }),
		edit(p.MissingNorm(n), n, "leaves the norm out", detail{}, passes(0)),
		unlikely(0.1, fitting("norm_eps", n, Fit{Right: eps, Least: 1e-12, Most: 1, Guesses: []float64{1e-12, 1e-8, 1e-6, 1e-5, 1e-3},
			Make: func(v float64) *Hypothesis {
				return edit("norm_eps", n, fmt.Sprintf("adds %.3g to the variance, not %.3g", v, eps), detail{"eps": v, "right": eps}, func(s *reference.Spec) { s.Eps = v })
			}})),
	}
	if len(n.W) > 1 {
		all = append(all, edit("bias_missing", n, "adds no bias", detail{}, func(s *reference.Spec) { s.W = s.W[:1] }))
	}
	return append(all, p.postNorms(n)...)
}

func positionHypotheses(n *graph.Node) []*Hypothesis {
	all := []*Hypothesis{edit("position_embedding", n, "adds no positions", detail{}, func(s *reference.Spec) { s.Times = 0 })}
	for _, shift := range []int{1, 2, -1} {
		all = append(all, edit("position_embedding", n, fmt.Sprintf("reads the table at the position plus %d", shift), detail{"shift": float64(shift)},
			func(s *reference.Spec) { s.Shift = shift }))
	}
	return all
}

func temperatureHypotheses(n *graph.Node) []*Hypothesis {
	shift := n.Attr.(graph.ScalePosAttr).Shift
	other := 1 - min(shift, 1)
	return []*Hypothesis{
		edit("position_scale", n, "multiplies by no factor", detail{}, passes(0)),
		edit("position_scale", n, fmt.Sprintf("counts positions from %d", other), detail{"shift": float64(other)}, func(s *reference.Spec) { s.Shift = other - shift }),
	}
}

func concatHypotheses(n *graph.Node) []*Hypothesis {
	if n.In[0] == n.In[1] || !slices.Equal(n.In[0].Shape, n.In[1].Shape) {
		return nil
	}
	return []*Hypothesis{edit("parts_swapped", n, "puts the second part first", detail{}, func(s *reference.Spec) { s.In = []*graph.Node{s.In[1], s.In[0]} })}
}

// meanSquare norms as RMSNorm does.
func meanSquare(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
	x, err := e.Value(s.In[0], rows)
	if err != nil {
		return nil, err
	}
	return s.Norm(e, x)
}

// sliceHypotheses returns hypotheses of the parts before and behind the one that is meant.
func sliceHypotheses(n *graph.Node) (all []*Hypothesis) {
	d, width, right := n.Shape.Last(), n.In[0].Shape.Last(), n.Attr.(graph.SliceAttr).Offset
	for offset := right % d; offset+d <= width; offset += d {
		if offset == right {
			continue
		}
		all = append(all, edit("slice_part", n, fmt.Sprintf("takes the part from %d on, not from %d", offset, right), detail{"offset": float64(offset), "right": float64(right)}, func(s *reference.Spec) {
			s.Func = func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
				x, err := e.Value(s.In[0], rows)
				var y []float64
				for ; len(x) > 0 && err == nil; x = x[width:] {
					y = append(y, x[offset:offset+d]...)
				}
				return y, err
			}
		}))
	}
	return all
}
