package diagnose

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab/matrix"
)

// locator says where a fault is that nothing explains.
type locator struct{ m *measurement }

// suspect returns the node of eq's span where a fault without a name most likely is: a node that open equations
// have in common, or the last node that is not also in an equation that holds. In the latter case nothing separates
// the node from among.
func (r locator) suspect(eq *equation) (n *graph.Node, among []*graph.Node) {
	holds := func(n *graph.Node) bool {
		return slices.ContainsFunc(r.m.byNode[n], func(x *equation) bool { return !x.isFlagged() })
	}
	var left []*graph.Node
	for _, n := range eq.span {
		if n.Op != graph.View && n.Op != graph.Rows && n.Op != graph.StoreKV && !holds(n) {
			left = append(left, n)
		}
	}
	if len(left) == 0 {
		return eq.target, nil
	}
	// A node several open equations have in common made them all wrong, except in an
	// operation without much that can be wrong.
	plain := func(n *graph.Node) bool { return n.Op == graph.Scale || n.Op == graph.Add && len(n.W) == 0 }
	for _, n := range left {
		if plain(n) && r.isCommon(n) {
			return n, nil
		}
		if len(r.m.byNode[n]) > 1 && !r.isShared(eq, n) && !r.isEverywhere(n) &&
			(!plain(n) || !slices.ContainsFunc(left, func(x *graph.Node) bool { return !plain(x) })) {
			return n, nil
		}
	}
	last := left[len(left)-1]
	if len(last.In) == 0 {
		return last, left
	}
	switch before := behind(last.In[0]); {
	case last.Op == graph.Add && len(last.W) > 0 && slices.Contains(left, before):
		return before, left // the product, not its bias
	case last.Op == graph.Mul && len(last.In) == 1 && slices.Contains(left, before) && before.Op == graph.Add &&
		r.isBranchScaled(eq, before):
		return before, nil
	case last.Op == graph.Linear && slices.Contains(left, before) && r.isGiven(eq, last):
		return before, nil
	case last.Op == graph.Experts && slices.Contains(left, last.In[1]) && r.isRerouted(eq, last):
		return last.In[1], nil
	}
	return last, left
}

// isShared reports whether n lies before keys and values several layers read, and layers that read other keys
// are as wrong: then n did not make all of them wrong.
func (r locator) isShared(eq *equation, n *graph.Node) bool {
	return slices.ContainsFunc(eq.span, func(x *graph.Node) bool {
		store := r.m.dump.model.Store(x)
		return store != nil && store.Layer == n.Layer && len(r.m.dump.wiring.ReadingFrom(store)) > 1
	}) && slices.ContainsFunc(r.m.eqs, func(x *equation) bool {
		return x.isFlagged() && role(x.target) == role(eq.target) && !slices.Contains(r.m.byNode[n], x)
	})
}

// isEverywhere reports whether n lies outside the layers and all layers read it, each a part of its own, as Gemma
// 4's inputs of layers do. Then the layers' errors say nothing of n, and the layers have more that can be wrong.
func (r locator) isEverywhere(n *graph.Node) bool {
	eqs := r.m.byNode[n]
	return n.Layer < 0 && slices.ContainsFunc(eqs, func(x *equation) bool {
		return x.target.Layer > eqs[0].target.Layer
	})
}

// isCommon reports whether n, a sum without a tap, explains by itself all open equations that contain n: with the
// value that follows from the engine's next sum, the others hold, or nearly so.
func (r locator) isCommon(n *graph.Node) bool {
	if n.Op != graph.Add || len(r.m.byNode[n]) < 2 {
		return false
	}
	for _, next := range r.m.byNode[n] {
		if len(next.errors) == 0 {
			continue
		}
		at := next.errors[len(next.errors)-1]
		p := r.m.dump.prompts[at.prompt]
		value := r.summand(next, p, at.row, n)
		if value == nil {
			continue
		}
		known := maps.Clone(p.known)
		known[n] = rowsOf{len(value), at.row, value}
		with := p.eval(r.m.dump.model, known, r.m.engine.class.center()).With(r.m.engine.edits)
		return !slices.ContainsFunc(r.m.byNode[n], func(x *equation) bool {
			got, err := with.Compute(x.target, []int{at.row})
			return err != nil || x != next && !(r.m.distance(x.target, p.read(x.target, []int{at.row}),
				got) < little*worst(x.errors).residual)
		})
	}
	return false
}

// summand returns a row of n that follows from eq's target, a sum of n and another value, which may be scaled. The
// result is nil if the target is no such sum.
func (r locator) summand(eq *equation, p *prompt, row int, n *graph.Node) []float64 {
	t, scale := eq.target, 1.0
	if t.Op == graph.Mul && len(t.In) == 1 && len(t.W) == 1 && t.W[0].Shape.Size() == 1 {
		if w, err := reference.Vector(t.W[0]); err == nil && w[0] != 0 {
			t, scale = t.In[0], w[0]
		}
	}
	if t.Op != graph.Add || len(t.In) != 2 || t.In[0] != n && t.In[1] != n {
		return nil
	}
	other := t.In[0]
	if other == n {
		other = t.In[1]
	}
	rest, err := r.m.engine.center[p].Value(other, []int{row})
	if err != nil {
		return nil
	}
	value := p.read(eq.target, []int{row})
	for i := range value {
		value[i] = value[i]/scale - rest[i]
	}
	return value
}

// isBranchScaled reports whether eq's target is a sum of sum's two inputs, each by a factor of its own.
func (r locator) isBranchScaled(eq *equation, sum *graph.Node) bool {
	var terms, got []float64
	for i, p := range r.m.dump.prompts {
		rows, _ := errorsOf(eq.errors, i)
		a, b, err := reference.Both(r.m.engine.center[p], rows, sum.In[0], sum.In[1])
		if err != nil {
			return false
		}
		for j := range a {
			terms = append(terms, a[j], b[j])
		}
		got = append(got, p.read(eq.target, rows)...)
	}
	x := matrix.Of(2, terms)
	s := matrix.Solve(x, got)
	return s != nil && !(math.Abs(s[0]/s[1]-1) < 1e-3) && fits(eq, x, s, got)
}

// isGiven reports whether eq's target, a product, is a product of some input: the target has more features than the
// input, and the engine's features have no part no input could give.
func (r locator) isGiven(eq *equation, n *graph.Node) bool {
	m, k := n.W[0].Rows(), n.W[0].Shape.Last()
	if m < k+k/4 || m > maxFeatures || eq.target != n {
		return false
	}
	w, err := reference.Vector(n.W[0])
	if err != nil {
		return false
	}
	weight := matrix.Of(k, w)
	for _, x := range eq.errors {
		y := r.m.dump.prompts[x.prompt].read(n, []int{x.row})
		if s := matrix.Solve(weight, y); s == nil || !fits(eq, weight, s, y) {
			return false
		}
	}
	return true
}

// fits reports whether x·s is y, up to some times the floors.
func fits(eq *equation, x *matrix.Matrix, s, y []float64) bool {
	return matrix.Norm(matrix.Minus(x.Times(s), y)) <= 4*excess*worst(eq.errors).floor*matrix.Norm(y)
}

// isRerouted reports whether the experts' output is a sum of the right outputs of the experts by other weights than
// the router's, and not by a factor for each expert.
func (r locator) isRerouted(eq *equation, n *graph.Node) bool {
	route, count, width := n.In[1], n.W[0].Shape[0], n.Shape.Size()
	if count > maxExperts || eq.target != n {
		return false
	}
	factors, sums := make([]float64, count), 0.0
	for i, p := range r.m.dump.prompts {
		rows, _ := errorsOf(eq.errors, i)
		weights, err := r.m.engine.center[p].Value(route, rows)
		if err != nil {
			return false
		}
		each := make([][]float64, count)
		for e := range each {
			alone := r.m.engine.center[p].With(reference.Edits{route: {func(s *reference.Spec) {
				s.Func = func(_ *reference.Eval, _ *reference.Spec, rows []int) ([]float64, error) {
					y := make([]float64, len(rows)*route.Shape.Size())
					for t := range rows {
						y[t*route.Shape.Size()], y[t*route.Shape.Size()+1] = float64(e), 1
					}
					return y, nil
				}
			}}})
			if each[e], err = alone.Compute(n, rows); err != nil {
				return false
			}
		}
		got := p.read(n, rows)
		for t := range rows {
			x, y := matrix.New(width, count), got[t*width:(t+1)*width]
			for e := range each {
				x.SetColumn(e, each[e][t*width:(t+1)*width])
			}
			s := matrix.Solve(x, y)
			if s == nil || !fits(eq, x, s, y) {
				return false
			}
			w := weights[t*route.Shape.Size() : (t+1)*route.Shape.Size()]
			for j := 0; j < len(w); j += 2 {
				e, is := int(w[j]), s[int(w[j])]/w[j+1]
				if factors[e] == 0 {
					factors[e] = is
				}
				sums = max(sums, math.Abs(is-factors[e]))
				s[e] = 0
			}
			sums = max(sums, matrix.Norm(s)) // experts that were not chosen
		}
	}
	return sums > 1e-2
}

// describePlace describes the rows and features at which an equation fails, if some hold.
func (r locator) describePlace(eq *equation) string {
	var first, last, bad int
	for _, x := range eq.errors {
		if x.ratio() > excess {
			if bad == 0 || x.row < first {
				first = x.row
			}
			bad, last = bad+1, max(last, x.row)
		}
	}
	s := fmt.Sprintf(" at %d of %d positions", bad, len(eq.errors))
	if bad < len(eq.errors) {
		s += fmt.Sprintf(", from %d to %d", first, last)
	}
	if w := narrowest(eq); bad > 0 && w > 0 && first >= w {
		s += fmt.Sprintf(", only beyond sliding_window = %d", w)
	}
	if slices.ContainsFunc(eq.errors, func(x rowError) bool { return math.IsNaN(x.residual - x.residual) }) {
		s += ", with NaN or infinities"
	}
	return s + r.features(eq)
}

// wrongHeads lists the heads of attention that are wrong at any row, "" if all are wrong: a fault in other heads is
// another fault.
func (r locator) wrongHeads(eq *equation) string {
	if eq.target.Op != graph.Attention {
		return ""
	}
	count := eq.target.In[0].Shape[0]
	dim := eq.target.Shape.Size() / count
	wrong := make([]bool, count)
	for _, x := range eq.errors {
		p := r.m.dump.prompts[x.prompt]
		want, err := r.m.engine.center[p].Compute(eq.target, []int{x.row})
		if err != nil || x.ratio() <= excess {
			continue
		}
		limit, got := excess*x.floor*matrix.Norm(want), p.read(eq.target, []int{x.row})
		for h := range wrong {
			wrong[h] = wrong[h] || !(matrix.Norm(matrix.Minus(got[h*dim:(h+1)*dim], want[h*dim:(h+1)*dim])) <= limit)
		}
	}
	var heads []string
	for h, bad := range wrong {
		if bad {
			heads = append(heads, fmt.Sprint(h))
		}
	}
	if len(heads) == count {
		return ""
	}
	return strings.Join(heads, ", ")
}

// features describes the wrong features of an equation's target, if they are few.
func (r locator) features(eq *equation) string {
	w := worst(eq.errors)
	p, n := r.m.dump.prompts[w.prompt], eq.target
	want, err := r.m.engine.center[p].Compute(n, []int{w.row})
	if err != nil {
		return ""
	}
	got, limit := p.read(n, []int{w.row}), excess*w.floor*matrix.Norm(want)
	var bad []int
	for i := range got {
		if math.Abs(got[i]-want[i]) > limit {
			bad = append(bad, i)
		}
	}
	if len(bad) == 0 || len(bad) > len(got)/2 {
		return ""
	}
	if len(bad) == 1 {
		return fmt.Sprintf(", in feature %d alone", bad[0])
	}
	return fmt.Sprintf(", in %d of %d features (%d to %d)", len(bad), len(got), bad[0], bad[len(bad)-1])
}
