// Package mistake is the table of what engines do wrong. An entry has a name, a story,
// a fix, and the edits of the reference that make the mistake. Who builds a mistake into
// an engine and who names it in an engine's dump read the same entry.
//
// Files in reading order: draw.go (choosing mistakes for tests); table.go and strange.go (the mistakes); ple.go, norm.go,
// residual.go, rope.go, attention.go, cache.go, mlp.go, product.go, weight.go, experts.go, route.go (their forms at an
// operation); probe.go, input.go, making.go, fault.go, inject.go (building mistakes into engines); entry.go, mistake.go
// (Proposer), edit.go, hypothesis.go, catalogue.go, wiring.go.
package mistake

import (
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

// Dump is what an engine's dump tells, as far as mistakes are proposed by it. The zero value
// tells nothing: then every mistake is proposed that the graph allows.
type Dump struct {
	Longest   int                                     // tokens of the longest prompt with taps
	Decodes   bool                                    // whether tokens were decoded one by one
	Logits    int                                     // logits in front of the last, where these are always 0; else 0
	Tapped    func(n *graph.Node) bool                // whether a value of n is known
	Sizes     func(n *graph.Node) []int               // tokens that a step may compute at once, by attention's errors
	Size      func(n *graph.Node) int                 // the same, the likeliest
	Wrong     func(n *graph.Node) (before, first int) // attention's first wrong position, and the last before
	Prefilled func(e *reference.Eval) int             // tokens of a prompt in front of the decoded ones
}

// WholePrompt is the size of a step that computes all of a prompt.
const WholePrompt = 1 << 30

// Proposer lists what an engine may do instead of what a graph says.
type Proposer struct {
	*Wiring
	Dump
	Span  []*graph.Node // nodes without taps between; nil if unknown
	Alone bool          // whether ropes of queries and of keys are asked apart in long spans
}

// small is how many nodes an equation may span, for hypotheses that cost much.
const small = 12

// Of lists what the engine may do instead of node n.
func (p *Proposer) Of(n *graph.Node) []*Hypothesis {
	return p.take(n, func(*entry) bool { return true })
}

// OfCause lists the forms of a mistake at n.
func (p *Proposer) OfCause(id string, n *graph.Node) []*Hypothesis {
	return p.take(n, func(e *entry) bool { return e.id == id })
}

// OfErrors lists what the engine may do instead of attention n, as far as the errors of its rows tell it.
func (p *Proposer) OfErrors(n *graph.Node) []*Hypothesis {
	return p.take(n, func(e *entry) bool { return e.byErrors })
}

// OfWindows lists what the engine may do instead of attention n that only a prompt longer than the window shows.
func (p *Proposer) OfWindows(n *graph.Node) []*Hypothesis {
	return p.take(n, func(e *entry) bool { return e.windows })
}

// take walks the table.
func (p *Proposer) take(n *graph.Node, takes func(e *entry) bool) (all []*Hypothesis) {
	for _, e := range table {
		if takes(e) {
			all = append(all, e.list(e.forms, p, n)...)
		}
	}
	return all
}

// OfSpan lists what the engine may do instead of the nodes of p's span.
func (p *Proposer) OfSpan() (all []*Hypothesis) {
	for _, e := range table {
		for _, n := range p.Span {
			for _, h := range e.list(e.forms, p, n) {
				again := func(x *Hypothesis) bool { return x.Node == h.Node && Same(x, h) }
				if !e.elsewhere || !slices.ContainsFunc(all, again) {
					all = append(all, h)
				}
			}
		}
	}
	return all
}
