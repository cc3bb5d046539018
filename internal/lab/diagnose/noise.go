package diagnose

import (
	"cmp"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

// noise returns the floors of rows. Where got, the engine's rows if there are any, lies above the floors, but not far,
// more arms measure the floors again. A few arms may all miss the rounding of a row in which large terms cancel, as in
// scans and in norms of scans. Wherever got lies above, experts may have changed places.
func (m *measurement) noise(p *prompt, n *graph.Node, edits reference.Edits, rows []int,
	want, got []float64) ([]float64, error) {
	noise, err := m.floors(p, n, edits, rows, want, m.engine.arms[p])
	if err != nil || got == nil {
		return noise, err
	}
	w := n.Shape.Size()
	ratio := func(k int) float64 {
		return rowError{residual: m.distance(n, got[k*w:(k+1)*w], want[k*w:(k+1)*w]), floor: noise[k]}.ratio()
	}
	raise := func(places []int, arms []*reference.Eval) {
		if len(places) == 0 {
			return
		}
		var some []int
		var values []float64
		for _, k := range places {
			some, values = append(some, rows[k]), append(values, want[k*w:(k+1)*w]...)
		}
		if more, err := m.floors(p, n, edits, some, values, arms); err == nil {
			for i, k := range places {
				noise[k] = max(noise[k], more[i])
			}
		}
	}
	var off, close []int
	for k := range rows {
		if r := ratio(k); r > excess {
			if off = append(off, k); r < borderline {
				close = append(close, k)
			}
		}
	}
	if len(close) > 0 {
		var arms []*reference.Eval
		for _, num := range m.engine.class.extraArms() {
			arms = append(arms, p.eval(m.dump.model, p.known, num).With(m.engine.edits))
		}
		raise(close, arms)
	}
	if off = slices.DeleteFunc(off, func(k int) bool { return ratio(k) <= excess }); len(off) > 0 {
		raise(tied(m, p, n, edits, rows, off))
	}
	if off = slices.DeleteFunc(off, func(k int) bool { return ratio(k) <= excess }); len(off) > 0 && len(edits) == 0 {
		raise(m.exchange(p, n, m.engine.center[p], m.engine.arms[p], rows, off, got, noise))
	}
	return noise, nil
}

// exchange returns the places in rows that are right in an engine that chose other experts at near ties, and
// an arm with these choices. The ties are at rows that no tap shows, as of earlier positions.
func (m *measurement) exchange(p *prompt, n *graph.Node, center *reference.Eval, arms []*reference.Eval, rows,
	places []int, got, noise []float64) (at []int, all []*reference.Eval) {
	w, slack := n.Shape.Size(), map[*graph.Node][]float64{}
	choices := m.engine.choices[p]
	lie := func(e *reference.Eval) (sum float64, right []int) {
		for _, k := range places {
			y, err := e.Compute(n, rows[k:k+1])
			if err != nil {
				return math.Inf(1), nil
			}
			r := rowError{residual: m.distance(n, got[k*w:(k+1)*w], y), floor: noise[k]}.ratio()
			if sum += max(r, excess); r <= excess {
				right = append(right, k)
			}
		}
		return sum, right
	}
	if len(p.IDs) > m.perScan {
		return nil, nil
	}
	best := center.With(choices)
	least, at := lie(best)
	for range maxExchanged {
		if len(at) == len(places) {
			break
		}
		var found *tie
		for _, t := range m.ties(p, n, best, arms, slack) {
			if sum, right := lie(best.With(t.edits)); sum < least*exchanged {
				least, found, at = sum/exchanged, &t, right
			}
		}
		if found == nil {
			break
		}
		least, best, choices = least*exchanged, best.With(found.edits), choices.And(found.edits)
	}
	if len(at) > 0 {
		m.engine.choices[p] = choices
	}
	return at, []*reference.Eval{best}
}

// tie is two experts of a row of which rounding may choose either one.
type tie struct {
	edits reference.Edits // choose the other one
	gap   float64         // between the scores, in slacks
}

// ties returns near ties of e on the way to n, the nearest in front. The slack of a router's scores is how far the arms
// lie from the center.
func (m *measurement) ties(p *prompt, n *graph.Node, e *reference.Eval, arms []*reference.Eval,
	slack map[*graph.Node][]float64) (all []tie) {
	span, sources := e.Span(n)
	behind, rows := e.Behind(span), upTo(0, len(p.IDs))
	for _, x := range m.dump.graph.Nodes {
		if x.Op != graph.Route || !behind[x] && !slices.Contains(span, x) {
			continue
		}
		count, k := x.In[0].Shape.Size(), x.Shape[0]
		if slack[x] == nil {
			scores, err := e.Value(x.In[0], rows)
			if err != nil || k == count {
				continue
			}
			slack[x] = make([]float64, len(scores))
			for _, arm := range arms {
				got, err := arm.Value(x.In[0], rows)
				for i := 0; err == nil && i < len(got); i++ {
					slack[x][i] = max(slack[x][i], math.Abs(got[i]-scores[i]))
				}
			}
		}
		pairs := make([][2]int, len(rows)) // the last chosen expert, and the next one
		gaps := make([]float64, len(rows))
		lean := func(row int, pair [2]int, scores []float64) float64 {
			a, b, of := pair[0], pair[1], slack[x][row*count:][:count]
			gap := (scores[a] - scores[b]) / (of[a] + of[b])
			scores[a], scores[b] = scores[a]-excess*of[a], scores[b]+excess*of[b]
			return gap
		}
		chosen, err := e.With(leaning(x, func(row int, order []int, scores []float64) {
			pairs[row] = [2]int{order[k-1], order[k]}
			gaps[row] = lean(row, pairs[row], scores)
		})).Compute(x, rows)
		if err != nil {
			continue
		}
		for _, r := range rows {
			if behind[x] && !slices.ContainsFunc(sources, func(s *graph.Node) bool { return !e.Known(s, r) }) {
				continue
			}
			for i := range k {
				if int(chosen[(r*k+i)*2]) == pairs[r][1] {
					all = append(all, tie{leaning(x, func(row int, _ []int, scores []float64) {
						if row == r {
							lean(r, pairs[r], scores)
						}
					}), gaps[r]})
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b tie) int { return cmp.Compare(a.gap, b.gap) })
	return all[:min(len(all), maxTies)]
}

// leaning returns the edits that move a router's scores before experts are chosen by them, after earlier moves.
func leaning(x *graph.Node, move func(row int, order []int, scores []float64)) reference.Edits {
	return reference.Edits{x: {func(s *reference.Spec) {
		before := s.Route.Leans
		s.Route.Leans = func(row int, order []int, scores []float64) {
			if before != nil {
				before(row, order, scores)
			}
			move(row, order, scores)
		}
	}}}
}

// tied returns those of the places in rows at which rounding may exchange experts of a router before n, and arms in
// which it does: neighbours in a router's order change places if the arms' scores lie so far apart.
func tied(m *measurement, p *prompt, n *graph.Node, edits reference.Edits, rows, places []int) (at []int,
	all []*reference.Eval) {
	center := m.engine.center[p].With(edits)
	span, _ := center.Span(n)
	var some []int
	for _, k := range places {
		some = append(some, rows[k])
	}
	slices.Sort(some)
	changed := map[int]bool{}
	const patterns = 4 // by the last two bits of the place in the order: neighbours, and next neighbours
	leans := make([]reference.Edits, patterns)
	for _, x := range span {
		if x.Op != graph.Route {
			continue
		}
		count := x.In[0].Shape.Size()
		scores, err := center.Value(x.In[0], some)
		if err != nil {
			return nil, nil
		}
		slack := make([]float64, len(scores))
		for _, arm := range m.engine.arms[p] {
			got, err := arm.With(edits).Value(x.In[0], some)
			for i := 0; err == nil && i < len(got); i++ {
				slack[i] = max(slack[i], math.Abs(got[i]-scores[i]))
			}
		}
		chosen, err := center.Compute(x, some)
		if err != nil {
			return nil, nil
		}
		for k := range patterns {
			lean := leaning(x, func(row int, order []int, scores []float64) {
				i, ok := slices.BinarySearch(some, row)
				for rank, e := range order {
					if sign := 1 - 2*float64((rank>>(k/2)^k)&1); ok {
						scores[e] += sign * excess * slack[i*count+e]
					}
				}
			})
			leans[k] = leans[k].And(lean)
			got, err := center.With(lean).Compute(x, some)
			for i := 0; err == nil && i < len(got); i += 2 {
				if got[i] != chosen[i] {
					changed[some[i/x.Shape.Size()]] = true
				}
			}
		}
	}
	for _, k := range places {
		if changed[rows[k]] {
			at = append(at, k)
		}
	}
	for _, lean := range leans {
		all = append(all, m.engine.center[p].With(lean))
	}
	return at, all
}

// floors returns the distance rounding alone may put between rows of want, n's values by its equation, and an
// engine's rows: the worst of the arms, and no less than most rows have. A row whose rounding happens to be small
// in all arms may have more.
func (m *measurement) floors(p *prompt, n *graph.Node, edits reference.Edits, rows []int, want []float64,
	arms []*reference.Eval) ([]float64, error) {
	noise := make([]float64, len(rows))
	w := n.Shape.Size()
	for _, arm := range arms {
		if len(edits) > 0 {
			arm = arm.With(edits)
		}
		got, err := arm.Compute(n, rows)
		if err != nil {
			return nil, err
		}
		for k := range rows {
			// An arm that overflows tells nothing.
			if d := m.distance(n, got[k*w:(k+1)*w], want[k*w:(k+1)*w]); !infinite(d) {
				noise[k] = max(noise[k], d)
			}
		}
	}
	least := max(ninthDecile(noise), float32Step)
	for k := range noise {
		noise[k] = max(noise[k], least)
	}
	return noise, nil
}
