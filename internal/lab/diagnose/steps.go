package diagnose

import (
	"math/bits"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab/mistake"
)

// steps is what tells how many tokens the engine computed at once.
type steps struct {
	prompts []*prompt
	byNode  map[*graph.Node][]*equation
	under   []rowError // of attention's equation with the assumptions so far; nil where nothing is
}

// prefilled returns how many of a prompt's first tokens were not decoded one by one.
func (r *steps) prefilled(e *reference.Eval) int {
	for _, p := range r.prompts {
		if slices.Equal(p.IDs, e.IDs()) {
			return len(p.IDs) - p.decoded()
		}
	}
	return e.Len()
}

// stepSizes returns how many tokens the engine may compute at once, if its steps' last rows
// hold and others do not: the roundest number that all rows looked at allow.
func (r *steps) stepSizes(n *graph.Node) []int {
	const most = 3
	sizes := []int{}
	rows := r.prefilledRows(n)
	for _, x := range rows {
		size := x.row + 1
		ends := func(y rowError) bool { return (y.row+1)%size != 0 || y.ratio() <= excess }
		if size > 1 && !slices.Contains(sizes, size) && !slices.ContainsFunc(rows,
			func(y rowError) bool { return !ends(y) }) {
			sizes = append(sizes, size)
		}
	}
	slices.SortStableFunc(sizes, func(a, b int) int {
		return bits.TrailingZeros(uint(b)) - bits.TrailingZeros(uint(a))
	})
	return append([]int{mistake.WholePrompt}, sizes[:min(len(sizes), most)]...)
}

// prefilledRows returns the errors of the rows of attention n that were computed with others.
func (r *steps) prefilledRows(n *graph.Node) []rowError {
	if len(r.byNode[n]) == 0 || !r.byNode[n][0].isFlagged() {
		return nil
	}
	errors := r.under
	if errors == nil {
		errors = r.byNode[n][0].errors
	}
	return slices.DeleteFunc(slices.Clone(errors), func(x rowError) bool {
		p := r.prompts[x.prompt]
		return x.row == 0 || x.row >= len(p.IDs)-p.decoded()
	})
}

// firstWrong returns the first position of a prompt, computed with others, at which attention n is wrong,
// mistake.WholePrompt if there is none, and the last one before it that was looked at.
func (r *steps) firstWrong(n *graph.Node) (before, first int) {
	first = mistake.WholePrompt
	rows := r.prefilledRows(n)
	for _, x := range rows {
		if x.ratio() > excess {
			first = min(first, x.row)
		}
	}
	for _, x := range rows {
		if x.row < first {
			before = max(before, x.row)
		}
	}
	return before, first
}

// stepSize returns after how many positions of a prompt attention begins to be wrong: the
// tokens that the engine computes at once, if the fault depends on that. Not all
// rows are looked at: of what may be, it is the roundest.
func (r *steps) stepSize(n *graph.Node) int {
	before, size := r.firstWrong(n)
	if size == mistake.WholePrompt {
		return mistake.WholePrompt
	}
	for round := 1; ; round *= 2 {
		if size/(2*round)*(2*round) <= before {
			return size / round * round
		}
	}
}
