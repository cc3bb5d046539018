// Package mistake is the table of what engines do wrong. An entry has a name, a story,
// a fix, and the edits of the reference that make the mistake. Who builds a mistake into
// an engine and who names it in an engine's dump read the same entry.
//
// Files in reading order: mistake.go (Proposer); fault.go, making.go, inject.go, draw.go, input.go, probe.go, built.go,
// strange.go (building mistakes into engines); norm.go, ple.go, residual.go, rope.go, position.go, attention.go,
// cache.go, steps.go, mlp.go, attribute.go, linear.go, product.go, vector.go, scan.go (operations); hypothesis.go,
// catalogue.go, wiring.go.
package mistake

import (
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

// edit makes a hypothesis of one changed node.
func edit(cause string, n *graph.Node, computed string, d detail, change reference.Edit) *Hypothesis {
	return &Hypothesis{Cause: cause, Node: n, Computed: computed, Detail: d, Edits: reference.Edits{n: {change}}}
}

// unlikely adds a cost to h: another hypothesis that explains as much comes first.
func unlikely(cost float64, h *Hypothesis) *Hypothesis {
	h.Cost += cost
	return h
}

// fitting makes a hypothesis with a number to be found.
func fitting(cause string, n *graph.Node, f Fit) *Hypothesis {
	return &Hypothesis{Cause: cause, Node: n, Fit: &f}
}

// passes makes a node give on its i-th input.
func passes(i int) reference.Edit {
	return func(s *reference.Spec) {
		s.Func = func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
			return e.Value(s.In[i], rows)
		}
	}
}

// reads makes a node read x as its i-th input.
func reads(i int, x *graph.Node) reference.Edit {
	return func(s *reference.Spec) {
		s.In = slices.Clone(s.In)
		s.In[i] = x
	}
}

// Dump is what an engine's dump tells, as far as mistakes are proposed by it. The zero value
// tells nothing: then every mistake is proposed that the graph allows.
type Dump struct {
	Longest   int                                     // tokens of the longest prompt with taps
	Decodes   bool                                    // whether tokens were decoded one by one
	Logits    int                                     // logits in front of those that are always 0; 0 if there are none such
	Tapped    func(n *graph.Node) bool                // whether a value of n is known
	Sizes     func(n *graph.Node) []int               // tokens that a step may compute at once, by attention's errors
	Size      func(n *graph.Node) int                 // the same, the likeliest
	Wrong     func(n *graph.Node) (before, first int) // attention's first wrong position, and the last one looked at before it
	Prefilled func(e *reference.Eval) int             // tokens of a prompt in front of the decoded ones
}

// WholePrompt is the size of a step that computes all of a prompt.
const WholePrompt = 1 << 30

// Proposer lists what an engine may do instead of what a graph says.
type Proposer struct {
	*Wiring
	Dump
	Span []*graph.Node // nodes without taps between; nil if that is not known
}

// small is how many nodes an equation may span, for hypotheses that cost much.
const small = 12

// Of lists what the engine may do instead of node n.
func (p *Proposer) Of(n *graph.Node) []*Hypothesis {
	switch n.Op {
	case graph.Embed:
		return p.embedHypotheses(n)
	case graph.Linear:
		return p.linearHypotheses(n)
	case graph.RMSNorm:
		return p.normHypotheses(n)
	case graph.RoPE:
		return p.ropeHypotheses(n)
	case graph.Attention:
		return p.attentionHypotheses(n)
	case graph.Add:
		return p.addHypotheses(n)
	case graph.Mul:
		return p.mulHypotheses(n)
	case graph.Scale:
		return p.scaleHypotheses(n)
	case graph.GLU, graph.Act:
		return append(gluHypotheses(n), p.upActivated(n)...)
	case graph.Route:
		return append(routeHypotheses(n), p.moreExperts(n)...)
	case graph.Experts:
		return p.expertsHypotheses(n)
	case graph.Softcap:
		return softcapHypotheses(n)
	case graph.LayerNorm:
		return p.layerNormHypotheses(n)
	case graph.EmbedPos:
		return positionHypotheses(n)
	case graph.ScalePos:
		return temperatureHypotheses(n)
	case graph.Concat:
		return concatHypotheses(n)
	case graph.Slice:
		return sliceHypotheses(n)
	case graph.L2Norm:
		return []*Hypothesis{edit("norm_length", n, "divides by the root of the mean square", detail{}, func(s *reference.Spec) { s.Func = meanSquare }), edit("norm_missing", n, "leaves the norm out", detail{}, passes(0))}
	case graph.HeadLinear, graph.Pool:
		return headHypotheses(n)
	case graph.Conv, graph.SSMScan, graph.DeltaScan:
		return p.scanHypotheses(n)
	}
	return nil
}
