package diagnose

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab/matrix"
	"github.com/karat-run/karat/internal/lab/mistake"
)

// describeValues says how wrong values come of right values, if the relation is plain: zeros, a factor, another order,
// a sum with other coefficients.
func (r locator) describeValues(eq *equation) string {
	far := &wrongRows{node: eq.target}
	var sites []site
	right := func(s site) []float64 {
		p := r.m.dump.prompts[s.prompt]
		if first, n := eq.checked(p); s.row < first || s.row >= first+n {
			return nil
		}
		want, err := r.m.engine.center[p].Compute(eq.target, []int{s.row})
		if err != nil {
			return nil
		}
		return want
	}
	for _, x := range worstFirst(eq.errors)[:min(len(eq.errors), 8)] {
		if want := right(x.site); want != nil && x.ratio() > excess {
			far.got = append(far.got, r.m.dump.prompts[x.prompt].read(eq.target, []int{x.row}))
			far.want, far.floors, sites = append(far.want, want), append(far.floors, x.floor), append(sites, x.site)
		}
	}
	far.neighbor = func(i, shift int) []float64 { return right(site{sites[i].prompt, sites[i].row + shift}) }
	if words := far.relation(); words != "" {
		return "; " + words
	}
	return r.describeLayout(eq) + r.describeSum(eq)
}

// isFar reports whether a row is too far off for rounding, and its floor is low enough to tell other orders from other
// values of the same distribution.
func (r rowError) isFar() bool { return !(r.residual <= nearEnough) && r.floor < clearFloor }

// isPermuted reports whether got is want in another order, up to some floors.
func isPermuted(got, want []float64, floor float64) bool {
	d := matrix.Minus(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want)))
	return matrix.Norm(d) <= excess*floor*matrix.Norm(want)
}

// describeLayout says that a whole prompt's values are the right ones at other positions.
func (r locator) describeLayout(eq *equation) string {
	for i, p := range r.m.dump.prompts {
		w := worst(slices.DeleteFunc(slices.Clone(eq.errors), func(x rowError) bool { return x.prompt != i }))
		first, count := eq.checked(p)
		if !w.isFar() || first > 0 || count < 2 || count > maxRows || p.decoded() > 0 {
			continue
		}
		rows := upTo(0, count)
		want, err := r.m.engine.center[p].Compute(eq.target, rows)
		if err != nil {
			return ""
		}
		got, floor := p.read(eq.target, rows), w.floor
		if shape := eq.target.Shape; eq.target.Op == graph.Attention || len(shape) == 2 {
			heads := shape[0]
			if eq.target.Op == graph.Attention {
				heads = eq.target.In[0].Shape[0]
			}
			d := shape.Size() / heads
			var turned []float64
			for h := range heads {
				for t := range rows {
					turned = append(turned, want[(t*heads+h)*d:][:d]...)
				}
			}
			if matrix.Norm(matrix.Minus(got, turned)) <= 4*excess*floor*matrix.Norm(want) {
				return "; the values are the right ones in other places: [heads, T, d] read as [T, heads·d]"
			}
		}
		if isPermuted(got, want, floor) {
			return "; the values of a prompt are the right ones at other positions"
		}
		return ""
	}
	return ""
}

// describeSum says of which values of its layer a sum is made, and by which coefficients.
func (r locator) describeSum(eq *equation) string {
	const most = 8
	if !isPlainSum(eq.target) {
		return ""
	}
	terms := summands(eq.target, eq.target.Layer)
	right := len(terms)
	for _, n := range r.m.dump.graph.Nodes[:eq.target.ID] {
		if n.Layer == eq.target.Layer && n.Shape.Size() == eq.target.Shape.Size() && r.m.dump.taps[n] != "" &&
			n.Op != graph.View && !isPlainSum(n) && !slices.Contains(terms, n) && len(terms) < most {
			terms = append(terms, n)
		}
	}
	var x, got []float64
	for i, p := range r.m.dump.prompts {
		rows, _ := errorsOf(eq.errors, i)
		rows = rows[:min(len(rows), most)]
		at := len(got)
		got = append(got, p.read(eq.target, rows)...)
		x = append(x, make([]float64, (len(got)-at)*len(terms))...)
		for k, n := range terms {
			y, err := r.m.engine.center[p].Value(n, rows)
			if err != nil {
				return ""
			}
			for j, v := range y {
				x[(at+j)*len(terms)+k] = v
			}
		}
	}
	of := matrix.Of(len(terms), x)
	by := matrix.Solve(of, got)
	if by == nil || !fits(eq, of, by, got) {
		return ""
	}
	var words []string
	for i, n := range terms {
		v := math.Round(by[i]*1e4) / 1e4
		if i < right || v != 0 {
			words = append(words, fmt.Sprintf("%g·%s", v+0, r.m.dump.tapName(n)))
		}
	}
	return "; it gives " + strings.Join(words, " + ")
}

// isPlainSum reports whether n adds two values.
func isPlainSum(n *graph.Node) bool { return n.Op == graph.Add && len(n.In) == 2 }

// summands returns the values of a layer and before, sums apart, that make a sum.
func summands(n *graph.Node, layer int) []*graph.Node {
	if !isPlainSum(n) || n.Layer != layer {
		return []*graph.Node{n}
	}
	return append(summands(n.In[0], layer), summands(n.In[1], layer)...)
}

// joinUnknown makes a single finding of unknown ones that are at all nodes of an operation in the same layers: one
// function is wrong.
func (r *conclusion) joinUnknown(all []Finding) []Finding {
	for i := 0; i < len(all); i++ {
		f := all[i]
		isLike := func(x Finding) bool {
			return x.Cause == "unknown" && x.Op == f.Op && len(x.Among) == 0 && len(x.Layers) > 0 &&
				slices.Equal(x.Layers, f.Layers)
		}
		var nodes []string
		for _, x := range all {
			if isLike(x) {
				nodes = append(nodes, x.Nodes...)
			}
		}
		isElsewhere := func(n *graph.Node) bool {
			return mistake.OpName(n.Op) == f.Op && slices.Contains(f.Layers, n.Layer) && !slices.Contains(nodes, n.Name)
		}
		if !isLike(f) || len(nodes) == len(f.Nodes) || slices.ContainsFunc(r.m.dump.graph.Nodes, isElsewhere) {
			continue
		}
		all = slices.DeleteFunc(all, isLike)
		f.Nodes = nodes
		all = slices.Insert(all, i, f)
	}
	return all
}
