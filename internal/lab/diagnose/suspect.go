package diagnose

import (
	"maps"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab/sim"
)

// suspect is the node of eq's span where a fault without a name most likely is: one that
// open equations have in common, or the last one that is not also in an equation that holds.
func (r *run) suspect(eq *equation) *graph.Node {
	holds := func(n *graph.Node) bool {
		return slices.ContainsFunc(r.byNode[n], func(x *equation) bool { return !x.flagged() })
	}
	var left []*graph.Node
	for _, n := range eq.span {
		if n.Op != graph.View && n.Op != graph.Rows && n.Op != graph.StoreKV && !holds(n) {
			left = append(left, n)
		}
	}
	if len(left) == 0 {
		return eq.target
	}
	// A node that several open equations have in common made them all wrong, unless it is
	// one in which little can be wrong.
	plain := func(n *graph.Node) bool { return n.Op == graph.Scale || n.Op == graph.Add && len(n.W) == 0 }
	for _, n := range left {
		if plain(n) && r.common(n) {
			return n
		}
		if len(r.byNode[n]) > 1 && (!plain(n) || !slices.ContainsFunc(left, func(x *graph.Node) bool { return !plain(x) })) {
			return n
		}
	}
	last := left[len(left)-1]
	if len(last.In) == 0 {
		return last
	}
	switch before := behind(last.In[0]); {
	case last.Op == graph.Add && len(last.W) > 0 && slices.Contains(left, before):
		return before // the product, not its bias
	case last.Op == graph.Mul && len(last.In) == 1 && slices.Contains(left, before) && before.Op == graph.Add && r.branchScaled(eq, before):
		return before
	case last.Op == graph.Linear && slices.Contains(left, before) && r.givenBy(eq, last):
		return before
	case last.Op == graph.Experts && slices.Contains(left, last.In[1]) && r.routedOtherwise(eq, last):
		return last.In[1]
	}
	return last
}

// common reports whether n, a sum without a tap, explains by itself all open equations that
// it is in: with the value that follows from the engine's next sum, the others hold, or nearly so.
func (r *run) common(n *graph.Node) bool {
	if n.Op != graph.Add || len(r.byNode[n]) < 2 {
		return false
	}
	for _, next := range r.byNode[n] {
		if len(next.errors) == 0 {
			continue
		}
		at := next.errors[len(next.errors)-1]
		p := r.prompts[at.prompt]
		value := r.summand(next, p, at.row, n)
		if value == nil {
			continue
		}
		known := maps.Clone(p.known)
		known[n] = oneRow{at.row, value}
		with := r.model.Eval(p.IDs, known, r.class.center()).With(r.edits)
		return !slices.ContainsFunc(r.byNode[n], func(x *equation) bool {
			got, err := with.Compute(x.target, []int{at.row})
			return err != nil || x != next && !(r.distance(x.target, p.read(x.target, []int{at.row}), got) < little*worst(x.errors).residual)
		})
	}
	return false
}

// summand is a row of n as it follows from eq's target, a sum of n and another value, which
// may be scaled; nil if it is not that.
func (r *run) summand(eq *equation, p *prompt, row int, n *graph.Node) []float64 {
	t, scale := eq.target, 1.0
	if t.Op == graph.Mul && len(t.In) == 1 && len(t.W) == 1 && t.W[0].Shape.Size() == 1 {
		if w, err := sim.Vector(t.W[0]); err == nil && w[0] != 0 {
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
	rest, err := p.center.Value(other, []int{row})
	if err != nil {
		return nil
	}
	value := p.read(eq.target, []int{row})
	for i := range value {
		value[i] = value[i]/scale - rest[i]
	}
	return value
}

// little is the share of a residual that may be left of it, where values are differences of sums.
const little = 0.01

// oneRow is a row of a value.
type oneRow struct {
	row   int
	value []float64
}

func (o oneRow) Rows() (first, n int)      { return o.row, 1 }
func (o oneRow) Read(dst []float64, _ int) { copy(dst, o.value) }

// branchScaled reports whether eq's target is a sum of sum's two inputs, each by a factor of its own.
func (r *run) branchScaled(eq *equation, sum *graph.Node) bool {
	var terms, got []float64
	for i, p := range r.prompts {
		rows := eq.rows(i)
		a, b, err := both(p.center, rows, sum.In[0], sum.In[1])
		if err != nil {
			return false
		}
		for j := range a {
			terms = append(terms, a[j], b[j])
		}
		got = append(got, p.read(eq.target, rows)...)
	}
	var s mat.VecDense
	y := mat.NewVecDense(len(got), got)
	x := mat.NewDense(len(got), 2, terms)
	if s.SolveVec(x, y) != nil || math.Abs(s.AtVec(0)/s.AtVec(1)-1) < 1e-3 {
		return false
	}
	return r.fits(eq, x, &s, y)
}

// givenBy reports whether eq's target, a product, is one of something: it has more features
// than it reads, and the engine's have no part that no input could give.
func (r *run) givenBy(eq *equation, n *graph.Node) bool {
	m, k := n.W[0].Rows(), n.W[0].Shape.Last()
	if m < k+k/4 || m > maxFeatures || eq.target != n {
		return false
	}
	w, err := sim.Vector(n.W[0])
	if err != nil {
		return false
	}
	weight := mat.NewDense(m, k, w)
	for _, x := range eq.errors {
		y := mat.NewVecDense(m, r.prompts[x.prompt].read(n, []int{x.row}))
		var s mat.VecDense
		if s.SolveVec(weight, y) != nil || !r.fits(eq, weight, &s, y) {
			return false
		}
	}
	return true
}

// fits reports whether x·s is y, up to some times the floors.
func (r *run) fits(eq *equation, x *mat.Dense, s, y *mat.VecDense) bool {
	var rest mat.VecDense
	rest.MulVec(x, s)
	rest.SubVec(&rest, y)
	return mat.Norm(&rest, 2) <= 4*excess*worst(eq.errors).floor*mat.Norm(y, 2)
}

// rows are those of a prompt at which eq is measured.
func (eq *equation) rows(prompt int) []int {
	var rows []int
	for _, x := range eq.errors {
		if x.prompt == prompt {
			rows = append(rows, x.row)
		}
	}
	return rows
}

// maxExperts bounds the experts that are all run to find who was asked.
const maxExperts = 64

// routedOtherwise reports whether what the experts give is a sum of what each of them should
// give by other weights than the router's, and not by a factor for each expert.
func (r *run) routedOtherwise(eq *equation, n *graph.Node) bool {
	route, count, width := n.In[1], n.W[0].Shape[0], n.Shape.Size()
	if count > maxExperts || eq.target != n {
		return false
	}
	factors, sums := make([]float64, count), 0.0
	for i, p := range r.prompts {
		rows := eq.rows(i)
		weights, err := p.center.Value(route, rows)
		if err != nil {
			return false
		}
		each := make([][]float64, count)
		for e := range each {
			alone := p.center.With(sim.Edits{route: {func(s *sim.Spec) {
				s.Func = func(_ *sim.Eval, _ *sim.Spec, rows []int) ([]float64, error) {
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
			x, y := mat.NewDense(width, count, nil), mat.NewVecDense(width, got[t*width:(t+1)*width])
			for e := range each {
				x.SetCol(e, each[e][t*width:(t+1)*width])
			}
			var s mat.VecDense
			if s.SolveVec(x, y) != nil || !r.fits(eq, x, &s, y) {
				return false
			}
			w := weights[t*route.Shape.Size() : (t+1)*route.Shape.Size()]
			for j := 0; j < len(w); j += 2 {
				e, is := int(w[j]), s.AtVec(int(w[j]))/w[j+1]
				if factors[e] == 0 {
					factors[e] = is
				}
				sums = max(sums, math.Abs(is-factors[e]))
				s.SetVec(e, 0)
			}
			sums = max(sums, mat.Norm(&s, 2)) // experts that were not chosen
		}
	}
	return sums > 1e-2
}
