package mistake

import (
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

// shifts returns positions of one rope node that are all off by a number. Where attention lies between
// the node and its tap only small ones are tried: each costs a run of attention.
func (p *Proposer) shifts(n *graph.Node) []*Hypothesis {
	guesses := []float64{-3, -2, -1, 1, 2, 3, 4}
	wrong := func(v float64) *Hypothesis {
		if v == 0 {
			return nil
		}
		return edit("rope_position", n, fmt.Sprintf("turns %s by positions that are off by %+g", Side(n), v), detail{"shift": v, "side": Side(n)}, func(s *reference.Spec) { s.Shift = int(v) })
	}
	if !slices.ContainsFunc(p.Span, func(x *graph.Node) bool { return x.Op == graph.Attention }) {
		const far = 64
		return []*Hypothesis{unlikely(0.2, fitting("rope_position", n, Fit{Least: -far, Most: far, Integer: true, Guesses: guesses, Make: wrong}))}
	}
	var all []*Hypothesis
	for _, v := range guesses {
		all = append(all, unlikely(0.2, wrong(v)))
	}
	return all
}

// positions returns wrong positions, by no constant: of a slot in a ring, a first token that is
// not counted, and decoded tokens that are counted otherwise.
func (p *Proposer) positions(t turning) []*Hypothesis {
	if Sectioned(t.at) {
		return nil
	}
	var all []*Hypothesis
	wrong := func(name, computed string, at func(e *reference.Eval, row int) int) {
		all = append(all, unlikely(0.1, t.wrong("rope_position", computed, detail{"position": name}, func(s *reference.Spec) { s.Pos = at })))
	}
	for _, w := range p.windowSizes() {
		wrong(fmt.Sprintf("modulo %d", w), fmt.Sprintf("turns by the slot in a ring of %d, not by the position", w), func(_ *reference.Eval, row int) int { return row % w })
	}
	wrong("without the first", "does not count the first token: the second has its position", func(_ *reference.Eval, row int) int { return max(row-1, 0) })
	if !p.Decodes {
		return all
	}
	for _, c := range []struct {
		name, computed string
		at             func(row, start int) int
	}{
		{"decoded from 0", "counts the decoded tokens from 0", func(row, start int) int { return row - start }},
		{"decoded one more", "turns decoded tokens by the position after their own", func(row, _ int) int { return row + 1 }},
		{"decoded one less", "turns decoded tokens by the position before their own", func(row, _ int) int { return max(row-1, 0) }},
	} {
		wrong(c.name, c.computed, func(e *reference.Eval, row int) int {
			if start := p.Prefilled(e); row >= start {
				return c.at(row, start)
			}
			return row
		})
	}
	return all
}

// windowSizes returns the windows of layers that a tapped prompt is longer than.
func (p *Proposer) windowSizes() []int {
	var all []int
	for _, n := range p.g.Nodes {
		a, ok := n.Attr.(graph.AttentionAttr)
		if !ok || a.KV.Window == 0 || p.Longest <= a.KV.Window {
			continue
		}
		all = Union(all, []int{a.KV.Window})
	}
	return all
}
