package mistake

import (
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

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
