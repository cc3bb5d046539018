package diagnose

import (
	"cmp"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/graph"
)

// epsilons looks for other epsilons of norms in an engine that stores 16 bits. An epsilon may change far less than
// that rounding. But where both sides of a norm are tapped the rounding is no chance: an engine has the class's own
// bits, except for few values in the middle of two. Another epsilon turns more bits, and an engine with that
// epsilon has turned exactly these bits. Since a layer may turn only one or two, norms that read their epsilon at
// the same place are judged together: all norms, the norms of a role, the norms of a layer, and each norm.
func (r *search) epsilons() error {
	if r.m.engine.class.step() <= float32Step {
		return nil
	}
	var norms []*turnedNorm
	for _, eq := range r.m.eqs {
		if n := asTurnedNorm(r.m, eq); n != nil && !r.given[eq] {
			norms = append(norms, n)
		}
	}
	found := false
	for _, of := range []func(n *turnedNorm) any{
		func(*turnedNorm) any { return 0 },
		func(n *turnedNorm) any { return role(n.eq.target) },
		func(n *turnedNorm) any { return n.eq.target.Layer },
		func(n *turnedNorm) any { return n },
	} {
		for _, group := range groups(norms, of) {
			group = slices.DeleteFunc(group, func(n *turnedNorm) bool { return isAccused(r, n.h, n.eq.target) })
			some, err := turnedTogether(r, group)
			if err != nil {
				return err
			}
			found = found || some
		}
	}
	if !found {
		return nil
	}
	return r.extend()
}

// groups returns norms of the same key, in their order.
func groups(norms []*turnedNorm, key func(n *turnedNorm) any) (all [][]*turnedNorm) {
	at := map[any]int{}
	for _, n := range norms {
		k := key(n)
		if _, ok := at[k]; !ok {
			at[k], all = len(all), append(all, nil)
		}
		all[at[k]] = append(all[at[k]], n)
	}
	return all
}

// turnedNorm is a norm whose bits another epsilon may have turned.
type turnedNorm struct {
	eq *equation
	h  *hypothesis // of another epsilon
	by map[turn]projection
}

// turn is an epsilon, at some rows of an equation or at all.
type turn struct {
	epsilon float64
	all     bool
}

// asTurnedNorm returns the norm eq consists of, nil if eq has other operations.
func asTurnedNorm(m *measurement, eq *equation) *turnedNorm {
	norm := eq.target.Op == graph.RMSNorm || eq.target.Op == graph.LayerNorm
	if !norm || eq.isFlagged() || eq.isShadowed(m.eqs) ||
		slices.ContainsFunc(eq.span, func(n *graph.Node) bool { return n != eq.target && n.Op != graph.View }) {
		return nil
	}
	p := m.proposer(eq, nil, nil)
	return &turnedNorm{eq, p.of.OfCause("norm_eps", eq.target)[0], map[turn]projection{}}
}

// project projects the engine's error on the change an epsilon makes.
func (n *turnedNorm) project(r *search, t turn) (projection, error) {
	p, ok := n.by[t]
	if ok {
		return p, nil
	}
	at := n.eq.errors
	if !t.all {
		at = screen(n.eq)
	}
	p, err := project(r.m, n.eq, nil, n.h.With(t.epsilon), at)
	n.by[t] = p
	return p, err
}

// turnedTogether accepts the epsilon that turned the bits of some norms, if there is one: the epsilon that leaves
// the least, and of equals the nearest to the right epsilon. A norm whose error grows with the epsilon does not
// join.
func turnedTogether(r *search, norms []*turnedNorm) (bool, error) {
	best, left := 0.0, math.Inf(1)
	if len(norms) == 0 {
		return false, nil
	}
	f := norms[0].h.Fit
	far := func(v float64) float64 { return math.Abs(math.Log(v / f.Right)) }
	for _, v := range slices.SortedFunc(slices.Values(f.Guesses),
		func(a, b float64) int { return cmp.Compare(far(a), far(b)) }) {
		if far(v) < 1e-3 {
			continue
		}
		if l, err := leaves(r, norms, v); err != nil {
			return false, err
		} else if l < min(exact, left) {
			best, left = v, l
		}
	}
	if best == 0 {
		return false, nil
	}
	for _, n := range norms {
		p, err := n.project(r, turn{best, true})
		if err != nil {
			return false, err
		}
		if !(p.remainder() < 1) {
			continue
		}
		if _, err := r.confirm(n.eq, n.h.With(best)); err != nil {
			return false, err
		}
	}
	return true, nil
}

// leaves returns the share of the square of norms' errors an epsilon leaves in all of them, 1 if the norms
// show too little to judge.
func leaves(r *search, norms []*turnedNorm, epsilon float64) (float64, error) {
	sum := projection{}
	for _, all := range []bool{false, true} {
		sum = projection{}
		for _, n := range norms {
			p, err := n.project(r, turn{epsilon, all})
			if err != nil {
				return 1, err
			}
			sum.ee, sum.ed, sum.dd, sum.dd2 = sum.ee+p.ee, sum.ed+p.ed, sum.dd+p.dd, sum.dd2+p.dd2
		}
		if !(sum.remainder() < clearly) {
			return 1, nil
		}
	}
	if sum.dd*sum.dd < leastTurned*sum.dd2 {
		return 1, nil
	}
	change, rows := 0.0, 0
	for _, n := range norms {
		alike := slices.Clone(n.eq.errors)
		for i := range alike {
			alike[i].floor = 1
		}
		d, err := unrounded(r.m, n.eq, n.h.With(epsilon), alike)
		if err != nil {
			return 1, err
		}
		change, rows = change+d, rows+len(alike)
	}
	if change < leastChange*leastChange*float64(rows) {
		return 1, nil
	}
	return sum.remainder(), nil
}
