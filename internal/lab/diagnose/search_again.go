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

// askLogits looks a second time where the logits lie farther from the reference with the findings than rounding
// takes them: below the floors of all equations, and for windows no tapped prompt is long enough to show. The
// result reports whether the search found more.
func (r *search) askLogits(c *closing) (bool, error) {
	if r.m.dump.blackBox || slices.ContainsFunc(r.m.eqs, func(eq *equation) bool {
		return r.given[eq] || eq.isFlagged()
	}) {
		return false, nil // what has no known cause is not explained, either
	}
	was := slices.Clone(r.accepted)
	if c.closure.After > max(c.closure.Floor, leastKL) {
		if err := r.searchBelow(0); err != nil {
			return false, err
		}
	}
	if c.isUnexplained() {
		if err := r.searchWindows(c); err != nil {
			return false, err
		}
	}
	return !slices.Equal(r.accepted, was), nil
}

// searchWindows asks the logits of prompts for the windows of layers, where no tapped prompt is longer than a
// window. Only hypotheses that explain these logits are accepted.
func (r *search) searchWindows(c *closing) error {
	f := c.farthest()
	if f == nil || f.p.tapped {
		return nil
	}
	sets, ask, found := listWindows(r), r.ask(f), &attempt{score: f.after}
	const most = 3
	for range most {
		next, err := ask.nearer(found, sets)
		if len(next) == 0 || err != nil {
			return err
		}
		best, equal := likeliest(next, f.least())
		if found = best; isRounding(f, found.score) {
			return acceptSeen(r, found, fmt.Sprintf("no tapped prompt is long enough to show it; with it the "+
				"logits of prompt %d lie %s from the reference's, and %s without it%s",
				f.p.Index, lab.Digits(found.score), lab.Digits(f.after), equal))
		}
	}
	return nil
}

// nearer returns the sets that, with the hypotheses of found, come much nearer than found alone. The likelier sets
// stand in front; the rest is not tried if a likely set comes as near as rounding allows. An attempt's score is its
// KL divergence.
func (r *asking) nearer(found *attempt, sets [][][]*hypothesis) (next []*attempt, err error) {
	for _, likely := range sets {
		for _, hs := range likely {
			a := &attempt{hs: slices.Concat(found.hs, hs), edits: found.edits, cost: found.cost + hs[0].Cost}
			for _, h := range hs {
				a.edits = a.edits.And(h.Edits)
			}
			if a.score, err = r.divergence(a.edits); err != nil {
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

// likeliest returns the attempt that comes nearest, and describes the attempts that are as likely. All attempts
// within the floor are equally near. Among equals the attempt in the fewest layers wins, then the attempt of the
// least cost.
func likeliest(all []*attempt, floor float64) (best *attempt, equal string) {
	order := func(a, b *attempt) int {
		return cmp.Or(cmp.Compare(max(a.score, floor), max(b.score, floor)), cmp.Compare(len(a.hs), len(b.hs)),
			cmp.Compare(a.cost, b.cost))
	}
	best = slices.MinFunc(all, order)
	for _, a := range all {
		if a != best && order(a, best) == 0 {
			h := a.hs[len(a.hs)-1]
			equal += fmt.Sprintf("; as near if layer %d %s", h.Node.Layer, h.Computed)
		}
	}
	return best, equal
}

// isRounding reports whether rounding may take logits so far from the reference's logits.
func isRounding(f *free, kl float64) bool { return kl <= spread*f.least() }

// least returns the KL divergence rounding alone makes.
func (f *free) least() float64 { return max(f.floor, leastKL) }

// farthest returns the prompt whose logits are explained least, nil if the logits of all prompts are explained.
func (r *closing) farthest() *free {
	var worst *free
	for _, f := range r.frees {
		if !isRounding(f, f.after) && (worst == nil || f.after > worst.after) {
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
	edits := r.m.engine.edits.And(r.m.engine.choices[f.p])
	base := f.p.eval(r.m.dump.model, nil, r.m.engine.class.center()).With(edits)
	return &asking{m: r.m, f: f, rows: f.p.rows(r.m.dump.graph.Result()), base: base}
}

// divergence returns the KL divergence of the prompt's logits from the reference's logits, with more edits.
func (r *asking) divergence(edits reference.Edits) (float64, error) {
	if err := r.m.dump.ctx.Err(); err != nil {
		return 0, err
	}
	result := r.m.dump.graph.Result()
	want, err := r.base.With(edits).Compute(result, r.rows)
	if err != nil {
		return math.Inf(1), nil // the edits do not fit the shapes
	}
	return meanKL(want, r.f.p.read(result, r.rows), result.Shape.Size()), nil
}

// listWindows returns sets of other windows, the likelier sets in front: of the layers with a finding in rope or the
// scale of scores, and of all layers that can have the windows; then of each layer.
func listWindows(r *search) (sets [][][]*hypothesis) {
	odd := map[int]bool{}
	for _, h := range r.accepted {
		if h.Node.Op == graph.RoPE || h.Node.Op == graph.Attention {
			odd[h.Node.Layer] = true
		}
	}
	var kinds [][]*hypothesis // the same in all layers
	for _, n := range r.m.dump.graph.Nodes {
		if n.Op != graph.Attention || len(r.m.byNode[n]) == 0 {
			continue
		}
		p := r.m.proposer(&equation{}, nil, nil)
		for _, h := range p.of.OfWindows(n) {
			for _, h := range h.Guesses() {
				at := slices.IndexFunc(kinds, func(k []*hypothesis) bool { return same(k[0], h) })
				if at < 0 {
					at, kinds = len(kinds), append(kinds, nil)
				}
				kinds[at] = append(kinds[at], h)
			}
		}
	}
	in := func(k []*hypothesis, takes func(layer int) bool) []*hypothesis {
		return slices.DeleteFunc(slices.Clone(k), func(h *hypothesis) bool {
			return !takes(h.Node.Layer) || isAccused(r, h, h.Node)
		})
	}
	var likely, single [][]*hypothesis
	for _, k := range kinds {
		likely = append(likely,
			in(k, func(layer int) bool { return odd[layer] }), in(k, func(int) bool { return true }))
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

// acceptSeen accepts causes logits alone show.
func acceptSeen(r *search, a *attempt, seen string) error {
	for _, h := range a.hs {
		r.show(h).seen = seen
		if err := r.accept(r.m.byNode[h.Node][0], alone(h)); err != nil {
			return err
		}
	}
	return r.kinds()
}
