// Package mistake is the table of engines' mistakes. An entry has a name, a story, a fix, and the edits by which the
// reference makes the mistake. Building a mistake into an engine and naming a mistake in a dump read the same entry.
//
// Files in reading order: draw.go (choosing mistakes for tests); table.go and strange.go (the mistakes); ple.go,
// norm.go, residual.go, rope.go, attention.go, cache.go, mlp.go, product.go, weight.go, experts.go, route.go, sight.go
// (their forms at an operation); probe.go, input.go, picture.go, picture_resize.go (preparing pictures), making.go,
// fault.go, inject.go (building mistakes into engines); entry.go, mistake.go (Proposer), edit.go, hypothesis.go,
// catalogue.go, wiring.go.
package mistake

import (
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

// Dump is the facts of an engine's dump by which mistakes are proposed. The zero value has no facts: then every
// mistake possible in the graph is proposed.
type Dump struct {
	Longest   int                                     // tokens of the longest prompt with taps
	Decodes   bool                                    // whether tokens were decoded singly
	Logits    int                                     // logits in front of last logits of 0; else 0
	Tapped    func(n *graph.Node) bool                // whether a value of n is known
	Sizes     func(n *graph.Node) []int               // possible tokens of a step, by attention's errors
	Size      func(n *graph.Node) int                 // the same, the likeliest
	Wrong     func(n *graph.Node) (before, first int) // attention's first wrong position, and the last before
	Prefilled func(e *reference.Eval) int             // tokens of a prompt in front of decoded tokens

	// Lacks reports whether rows of n, the wrong or the lost ones, may be zeros.
	Lacks func(n *graph.Node, lost func(e *reference.Eval, at int) bool) bool
}

// WholePrompt is the size of a step over all of a prompt.
const WholePrompt = 1 << 30

// Proposer lists an engine's possible mistakes at the nodes of a graph.
type Proposer struct {
	*Wiring
	Dump
	Span  []*graph.Node // nodes without taps between; nil if unknown
	Alone bool          // whether ropes of queries and of keys are asked apart in long spans
}

// small is the number of nodes up to which an equation has costly hypotheses.
const small = 12

// Of lists the engine's possible mistakes at node n.
func (p *Proposer) Of(n *graph.Node) []*Hypothesis {
	return p.take(n, func(*entry) bool { return true })
}

// OfCause lists the forms of a mistake at n.
func (p *Proposer) OfCause(id string, n *graph.Node) []*Hypothesis {
	return p.take(n, func(e *entry) bool { return e.id == id })
}

// OfErrors lists the mistakes at attention n read off the errors of its rows.
func (p *Proposer) OfErrors(n *graph.Node) []*Hypothesis {
	return p.take(n, func(e *entry) bool { return e.byErrors })
}

// OfWindows lists the mistakes at attention n in prompts longer than the window.
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

// OfSpan lists the engine's possible mistakes at the nodes of p's span.
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
