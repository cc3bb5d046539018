package diagnose

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
)

// again looks a second time where the logits lie farther from the reference with the findings than rounding takes them:
// below the floors of all equations, and for what no tapped prompt is long enough to show. It reports whether it found more.
func (r *search) again(c *closing) (bool, error) {
	if r.m.dump.blackBox || slices.ContainsFunc(r.m.eqs, func(eq *equation) bool { return r.given[eq] || eq.flagged() }) {
		return false, nil // what has no known cause is not explained, either
	}
	was := slices.Clone(r.accepted)
	if c.closure.After > max(c.closure.Floor, leastKL) {
		if err := r.below(0); err != nil {
			return false, err
		}
	}
	if c.isUnexplained() {
		if err := r.longer(c); err != nil {
			return false, err
		}
	}
	return !slices.Equal(r.accepted, was), nil
}

// longer asks the logits of prompts for the windows of layers, where no tapped prompt is longer
// than a window. It takes only what explains these logits.
func (r *search) longer(c *closing) error {
	f := c.farthest()
	if f == nil || f.p.tapped {
		return nil
	}
	sets, ask, found := r.ofWindows(), r.ask(f), &attempt{score: f.after}
	const most = 3
	for range most {
		next, err := ask.nearer(found, sets)
		if len(next) == 0 || err != nil {
			return err
		}
		best, equal := likeliest(next, f.least())
		if found = best; rounds(f, found.score) {
			return r.acceptSeen(found, fmt.Sprintf("no tapped prompt is long enough to show it; with it the logits of prompt %d lie %s from the reference's, and %s without it%s",
				f.p.Index, lab.Digits(found.score), lab.Digits(f.after), equal))
		}
	}
	return nil
}

// nearer are the sets that, with those found, come much nearer than these alone. The likelier sets stand before the others, which
// are not tried if the likelier ones come as near as rounding can tell. An attempt's score is its KL.
func (r *asking) nearer(found *attempt, sets [][][]*hypothesis) (next []*attempt, err error) {
	for _, likely := range sets {
		for _, hs := range likely {
			a := &attempt{hs: slices.Concat(found.hs, hs), edits: found.edits, cost: found.cost + hs[0].cost}
			for _, h := range hs {
				a.edits = a.edits.And(h.edits)
			}
			if a.score, err = r.with(a.edits); err != nil {
				return nil, err
			}
			if a.score < found.score/2 {
				next = append(next, a)
			}
		}
		if slices.ContainsFunc(next, func(a *attempt) bool { return a.score <= r.f.least() }) {
			break
		}
	}
	return next, nil
}

// likeliest is the attempt that comes nearest, and in words the others that are as likely. All that come within the
// floor are as near. Among equals the one in the fewest layers is taken, then the one that costs least.
func likeliest(all []*attempt, floor float64) (best *attempt, equal string) {
	order := func(a, b *attempt) int {
		return cmp.Or(cmp.Compare(max(a.score, floor), max(b.score, floor)), cmp.Compare(len(a.hs), len(b.hs)), cmp.Compare(a.cost, b.cost))
	}
	best = slices.MinFunc(all, order)
	for _, a := range all {
		if a != best && order(a, best) == 0 {
			h := a.hs[len(a.hs)-1]
			equal += fmt.Sprintf("; as near if layer %d %s", h.node.Layer, h.computed)
		}
	}
	return best, equal
}

// rounds reports whether logits so far from the reference's are as rounding may make them.
func rounds(f *free, kl float64) bool { return kl <= spread*f.least() }

// least is the KL that rounding alone makes.
func (f *free) least() float64 { return max(f.floor, leastKL) }

// farthest is the prompt whose logits are explained least, nil if all are.
func (r *closing) farthest() *free {
	var worst *free
	for _, f := range r.frees {
		if !rounds(f, f.after) && (worst == nil || f.after > worst.after) {
			worst = f
		}
	}
	return worst
}

// asking is a prompt's logits, and the reference's with the findings.
type asking struct {
	m    *measurement
	f    *free
	rows []int
	base *reference.Eval
}

func (r *search) ask(f *free) *asking {
	first, n := f.p.known[r.m.dump.graph.Result()].Rows()
	a := &asking{m: r.m, f: f, base: f.p.eval(r.m.dump.model, nil, r.m.engine.class.center()).With(r.m.engine.edits)}
	for i := range n {
		a.rows = append(a.rows, first+i)
	}
	return a
}

// with is the KL of the prompt's logits from the reference's with edits besides.
func (r *asking) with(edits reference.Edits) (float64, error) {
	if err := r.m.dump.ctx.Err(); err != nil {
		return 0, err
	}
	result := r.m.dump.graph.Result()
	want, err := r.base.With(edits).Compute(result, r.rows)
	if err != nil {
		return math.Inf(1), nil // they do not fit the shapes
	}
	return meanKL(want, r.f.p.read(result, r.rows), result.Shape.Size()), nil
}

// ofWindows are sets of other windows, the likelier ones in front: of the layers in which rope or the scale of scores was found
// to be another's, and of all layers that can have them; then of each layer.
func (r *search) ofWindows() (sets [][][]*hypothesis) {
	odd := map[int]bool{}
	for _, h := range r.accepted {
		if h.node.Op == graph.RoPE || h.node.Op == graph.Attention {
			odd[h.node.Layer] = true
		}
	}
	var kinds [][]*hypothesis // the same in all layers
	for _, n := range r.m.dump.graph.Nodes {
		if n.Op != graph.Attention || len(r.m.byNode[n]) == 0 {
			continue
		}
		p := r.m.proposer(&equation{}, nil, nil)
		for _, h := range tried(p.of.Windows(n)) {
			for _, h := range h.values() {
				at := slices.IndexFunc(kinds, func(k []*hypothesis) bool { return same(k[0], h) })
				if at < 0 {
					at, kinds = len(kinds), append(kinds, nil)
				}
				kinds[at] = append(kinds[at], h)
			}
		}
	}
	in := func(k []*hypothesis, takes func(layer int) bool) []*hypothesis {
		return slices.DeleteFunc(slices.Clone(k), func(h *hypothesis) bool { return !takes(h.node.Layer) || r.accused(h, h.node) })
	}
	var likely, single [][]*hypothesis
	for _, k := range kinds {
		likely = append(likely, in(k, func(layer int) bool { return odd[layer] }), in(k, func(int) bool { return true }))
		for l := range layers(r.m.dump.graph) {
			single = append(single, in(k, func(layer int) bool { return layer == l }))
		}
	}
	var seen [][]*hypothesis
	for _, list := range [][][]*hypothesis{likely, single} {
		list = slices.DeleteFunc(list, func(k []*hypothesis) bool {
			again := slices.ContainsFunc(seen, func(x []*hypothesis) bool { return slices.Equal(x, k) })
			seen = append(seen, k)
			return again || len(k) == 0
		})
		sets = append(sets, list)
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
		if x := h.of(v); x != nil {
			all = append(all, x)
		}
	}
	return all
}

// acceptSeen builds in what logits alone show.
func (r *search) acceptSeen(a *attempt, seen string) error {
	for _, h := range a.hs {
		h.seen = seen
		if err := r.accept(r.m.byNode[h.node][0], &attempt{hs: []*hypothesis{h}, edits: h.edits}); err != nil {
			return err
		}
	}
	return r.kinds()
}
