package diagnose

import (
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/sim"
)

// again looks a second time where the logits lie farther from the reference with the findings
// than rounding takes them: below the floors of all equations, and for what no tapped prompt is
// long enough to show.
func (r *search) again(c *closing) error {
	if r.blackBox || slices.ContainsFunc(r.eqs, func(eq *equation) bool { return eq.given || eq.flagged() }) {
		return nil // what has no known cause is not explained, either
	}
	was := slices.Clone(r.accepted)
	if c.closure.After > max(c.closure.Floor, least) {
		if err := r.below(0); err != nil {
			return err
		}
	}
	if c.unexplained() {
		if err := r.longer(c); err != nil {
			return err
		}
	}
	if slices.Equal(r.accepted, was) {
		return nil
	}
	return c.close()
}

// least is a KL that the rounding of the logits themselves makes.
const least = 1e-13

// longer asks the logits of prompts for the windows of layers, where no tapped prompt is longer
// than a window. It takes only what explains these logits.
func (r *search) longer(c *closing) error {
	f := c.farthest()
	if f == nil || f.p.tapped {
		return nil
	}
	sets, ask, found := r.ofWindows(), c.ask(f), &attempt{}
	from := f.after
	const most = 3
	for range most {
		best, nearest := (*attempt)(nil), from/2
		for _, hs := range sets {
			a := &attempt{hs: slices.Concat(found.hs, hs), edits: found.edits}
			for _, h := range hs {
				a.edits = a.edits.And(h.edits)
			}
			kl, err := ask.with(a.edits)
			if err != nil {
				return err
			}
			if kl < nearest {
				best, nearest = a, kl
			}
			if r.rounds(f, kl) {
				break
			}
		}
		if best == nil {
			return nil
		}
		if found, from = best, nearest; r.rounds(f, from) {
			return r.acceptSeen(found, fmt.Sprintf("no tapped prompt is long enough to show it; with it the logits of prompt %d lie %s from the reference's, and %s without it", f.p.Index, lab.Digits(from), lab.Digits(f.after)))
		}
	}
	return nil
}

// rounds reports whether logits so far from the reference's are as rounding may make them.
func (r *measurement) rounds(f *free, kl float64) bool { return kl <= spread*max(f.floor, least) }

// farthest is the prompt whose logits are explained least, nil if all are.
func (r *closing) farthest() *free {
	var worst *free
	for _, f := range r.frees {
		if !r.rounds(f, f.after) && (worst == nil || f.after > worst.after) {
			worst = f
		}
	}
	return worst
}

// asking is a prompt's logits, and the reference's with the findings.
type asking struct {
	*closing
	f    *free
	rows []int
	base *sim.Eval
}

func (r *closing) ask(f *free) *asking {
	first, n := f.p.known[r.g.Result()].Rows()
	a := &asking{closing: r, f: f, base: f.p.eval(r.model, nil, r.class.center()).With(r.edits)}
	for i := range n {
		a.rows = append(a.rows, first+i)
	}
	return a
}

// with is the KL of the prompt's logits from the reference's with edits besides.
func (r *asking) with(edits sim.Edits) (float64, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	result := r.g.Result()
	want, err := r.base.With(edits).Compute(result, r.rows)
	if err != nil {
		return math.Inf(1), nil // they do not fit the shapes
	}
	return meanKL(want, r.f.p.read(result, r.rows), result.Shape.Size()), nil
}

// ofWindows are sets of other windows: of all layers that can have them, of those in which rope or
// the scale of scores was found to be another's, and of each layer.
func (r *search) ofWindows() (sets [][]*hypothesis) {
	odd := map[int]bool{}
	for _, h := range r.accepted {
		if h.node.Op == graph.RoPE || h.node.Op == graph.Attention {
			odd[h.node.Layer] = true
		}
	}
	var kinds [][]*hypothesis // the same in all layers
	for _, n := range r.g.Nodes {
		if n.Op != graph.Attention || len(r.byNode[n]) == 0 {
			continue
		}
		p := &proposer{r.measurement, &steps{r.prompts, r.byNode, nil}, nil}
		for _, h := range p.windows(n, n.Attr.(graph.AttentionAttr).KV) {
			for _, h := range h.values() {
				at := slices.IndexFunc(kinds, func(k []*hypothesis) bool { return same(k[0], h) })
				if at < 0 {
					at, kinds = len(kinds), append(kinds, nil)
				}
				kinds[at] = append(kinds[at], h)
			}
		}
	}
	add := func(k []*hypothesis, in func(layer int) bool) {
		k = slices.DeleteFunc(slices.Clone(k), func(h *hypothesis) bool { return !in(h.node.Layer) || r.accused(h, h.node) })
		if len(k) > 0 && !slices.ContainsFunc(sets, func(x []*hypothesis) bool { return slices.Equal(x, k) }) {
			sets = append(sets, k)
		}
	}
	for _, k := range kinds {
		add(k, func(layer int) bool { return odd[layer] })
		add(k, func(int) bool { return true })
	}
	for _, k := range kinds {
		for l := range layers(r.g) {
			add(k, func(layer int) bool { return layer == l })
		}
	}
	return sets
}

// values are h, or those of its parameter's values that are tried first.
func (h *hypothesis) values() []*hypothesis {
	if h.fit == nil {
		return []*hypothesis{h}
	}
	var all []*hypothesis
	for _, v := range h.fit.guesses {
		if x := h.fit.make(v); x != nil {
			x.value, x.remake = v, h.fit.make
			all = append(all, x)
		}
	}
	return all
}

// acceptSeen builds in what logits alone show.
func (r *search) acceptSeen(a *attempt, seen string) error {
	for _, h := range a.hs {
		h.seen = seen
		if err := r.accept(r.byNode[h.node][0], &attempt{hs: []*hypothesis{h}, edits: h.edits}); err != nil {
			return err
		}
	}
	return r.kinds()
}
