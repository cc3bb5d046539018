package diagnose

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/matrix"
	"github.com/karat-run/karat/internal/round"
)

// relation is a plain way in which wrong values may come of right ones: words, and a function of the row's number and
// its right values, fitted on all rows.
type relation struct {
	words string
	of    func(i int, want []float64) []float64
}

// wrongRows are rows of a value that are far off, and the right ones.
type wrongRows struct {
	node      *graph.Node // of the value
	got, want [][]float64
	floors    []float64
	// The right row at so many positions behind the i-th, nil if there is none.
	neighbor func(i, shift int) []float64
}

// headsOf returns the number of heads of n's rows, 1 for rows without heads.
func headsOf(n *graph.Node) int {
	switch {
	case n.Op == graph.Attention:
		return n.In[0].Shape[0]
	case len(n.Shape) == 2:
		return n.Shape[0]
	}
	return 1
}

// relation says how the rows come of the right ones, by the first plain relation that holds in all of them.
func (r *wrongRows) relation() string {
	if len(r.got) == 0 {
		return ""
	}
	none := 0
	for i, got := range r.got {
		if slices.ContainsFunc(got, infinite) && !slices.ContainsFunc(r.want[i], infinite) {
			none++
		}
	}
	if none > 0 {
		return fmt.Sprintf("%d of %d wrong rows have NaN or infinities, where the right values are finite", none,
			len(r.got))
	}
	if format := r.format(); format != "" {
		return "its values are the right ones, rounded to " + format
	}
	if !r.areFar() {
		return ""
	}
	for _, x := range r.relations() {
		holds := true
		for i, got := range r.got {
			y := x.of(i, r.want[i])
			holds = holds && y != nil && lab.RelativeL2(y, got) <= excess*r.floors[i]
		}
		if holds {
			return x.words
		}
	}
	if hasOtherInput(r.node, r.got, r.floors) {
		return "it is the product of the right weight with another input"
	}
	return ""
}

// areFar reports whether all rows are far enough off for other relations than rounding.
func (r *wrongRows) areFar() bool {
	for i, got := range r.got {
		if !(rowError{residual: lab.RelativeL2(r.want[i], got), floor: r.floors[i]}).isFar() {
			return false
		}
	}
	return true
}

// format returns the format to which all rows are rounded, "" if there is none.
func (r *wrongRows) format() (format string) {
	for i, got := range r.got {
		f := roundedTo(got, r.want[i])
		if f == "" || i > 0 && f != format {
			return ""
		}
		format = f
	}
	return format
}

// relations lists the relations to try, the simplest first. Numbers fitted to each element need more than two rows.
func (r *wrongRows) relations() []relation {
	var all []relation
	add := func(words string, of func(i int, want []float64) []float64) { all = append(all, relation{words, of}) }
	add("there it gives 0", func(_ int, want []float64) []float64 { return make([]float64, len(want)) })
	by := factor(slices.Concat(r.got...), slices.Concat(r.want...))
	add(fmt.Sprintf("each value is %.6g times the right one", by),
		func(_ int, want []float64) []float64 { return times(want, by) })
	all = append(all, r.headRelations()...)
	add("the values of each position are the right ones in another order",
		func(i int, want []float64) []float64 { return inOrderOf(r.got[i], want) })
	for _, shift := range []int{1, -1} {
		add(fmt.Sprintf("each row has the right values of the position %+d from it", shift),
			func(i int, _ []float64) []float64 { return r.neighbor(i, shift) })
	}
	if len(r.got) > 2 {
		plus, scale := r.byElement()
		add("each element is the right one plus a number of its own, the same in all rows, as of a bias: "+
			firstOf(plus), func(_ int, want []float64) []float64 { return matrix.Minus(want, times(plus, -1)) })
		add("each element is the right one times a number of its own, the same in all rows, as of a weight: "+
			firstOf(scale), func(_ int, want []float64) []float64 {
			y := slices.Clone(want)
			for j := range y {
				y[j] *= scale[j]
			}
			return y
		})
	}
	add("each row is the right one times a number of its own",
		func(i int, want []float64) []float64 { return times(want, factor(r.got[i], want)) })
	add("each row is the right one plus a number of its own", func(i int, want []float64) []float64 {
		y := slices.Clone(want)
		for j := range y {
			y[j] += average(matrix.Minus(r.got[i], want))
		}
		return y
	})
	return all
}

// roundedTo returns the format to which all of got are rounded, bf16 or f16, if got is no farther from want than this
// rounding; else "".
func roundedTo(got, want []float64) string {
	for _, f := range []round.Format{"f16", "bf16"} {
		x := slices.Clone(got)
		f.Round(x)
		if slices.Equal(x, got) && lab.RelativeL2(want, got) <= map[round.Format]float64{"f16": 0x1p-11,
			"bf16": 0x1p-8}[f] {
			return string(f)
		}
	}
	return ""
}

// maxSolve is the most products that the search for another input of a weight may take.
const maxSolve = 2e8

// hasOtherInput reports whether rows are products of n's weight, with other inputs than n's. Weights with fewer rows
// than columns have such an input for all values.
func hasOtherInput(n *graph.Node, got [][]float64, floors []float64) bool {
	if n.Op != graph.Linear || len(n.W) == 0 || len(got) == 0 {
		return false
	}
	out := n.Shape.Size()
	in := n.W[0].Shape.Size() / out
	if in >= out || float64(out)*float64(in)*float64(in) > maxSolve {
		return false
	}
	w := matrix.New(out, in)
	for i := range out {
		row, err := reference.Row(n.W[0], i)
		if err != nil || len(row) != in {
			return false
		}
		copy(w.Row(i), row)
	}
	for i, y := range got[:min(len(got), 3)] {
		x := matrix.Solve(w, y)
		if x == nil || !(matrix.Norm(matrix.Minus(w.Times(x), y)) <= 2*excess*floors[i]*matrix.Norm(y)) {
			return false
		}
	}
	return true
}

// byElement fits a summand and a factor for each element of rows.
func (r *wrongRows) byElement() (plus, scale []float64) {
	for j := range r.want[0] {
		var g, w []float64
		for i := range r.got {
			g, w = append(g, r.got[i][j]), append(w, r.want[i][j])
		}
		plus, scale = append(plus, average(matrix.Minus(g, w))), append(scale, factor(g, w))
	}
	return plus, scale
}

// headRelations lists relations between the heads of rows: heads in another order, each with a factor, each with its
// halves exchanged or its pairs interleaved.
func (r *wrongRows) headRelations() []relation {
	heads := headsOf(r.node)
	if heads < 2 {
		return nil
	}
	d := len(r.want[0]) / heads
	head := func(x []float64, h int) []float64 { return x[h*d : (h+1)*d] }
	from, by := make([]int, heads), make([]float64, heads)
	for h := range heads {
		best := math.Inf(1)
		var g, w []float64
		for k := range heads {
			var far float64
			for i := range r.got {
				far += matrix.Norm(matrix.Minus(head(r.got[i], h), head(r.want[i], k)))
			}
			if far < best {
				best, from[h] = far, k
			}
		}
		for i := range r.got {
			g, w = append(g, head(r.got[i], h)...), append(w, head(r.want[i], h)...)
		}
		by[h] = factor(g, w)
	}
	var all []relation
	add := func(words string, f func(out, want []float64, h int)) {
		all = append(all, relation{words, func(_ int, want []float64) []float64 {
			y := make([]float64, len(want))
			for h := range heads {
				f(head(y, h), want, h)
			}
			return y
		}})
	}
	add(fmt.Sprintf("its heads are the right heads %v", from),
		func(out, want []float64, h int) { copy(out, head(want, from[h])) })
	add("each head is the right one times a number of its own: "+firstOf(by),
		func(out, want []float64, h int) { copy(out, times(head(want, h), by[h])) })
	add("the halves of each head are exchanged", func(out, want []float64, h int) {
		copy(out, head(want, h)[d/2:])
		copy(out[d-d/2:], head(want, h))
	})
	add("the halves of each head are interleaved: element 2i is the right element i",
		func(out, want []float64, h int) {
			for j := range out {
				out[j] = head(want, h)[j/2+j%2*(d/2)]
			}
		})
	add("each head's even elements stand before its odd ones: element i is the right element 2i",
		func(out, want []float64, h int) {
			for j := range out {
				out[j/2+j%2*(d/2)] = head(want, h)[j]
			}
		})
	return all
}

// inOrderOf returns the values of want in the order that the values of got have, by size.
func inOrderOf(got, want []float64) []float64 {
	places := upTo(0, len(got))
	slices.SortFunc(places, func(a, b int) int { return cmp.Compare(got[a], got[b]) })
	sorted, y := slices.Sorted(slices.Values(want)), make([]float64, len(want))
	for i, at := range places {
		y[at] = sorted[i]
	}
	return y
}

// factor returns the number by which want comes nearest to got, 0 if there is none.
func factor(got, want []float64) float64 {
	if square := matrix.Dot(want, want); square > 0 {
		return matrix.Dot(got, want) / square
	}
	return 0
}

func average(x []float64) float64 {
	var sum float64
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

// firstOf prints the first numbers of a list.
func firstOf(x []float64) string {
	const most = 6
	text := ""
	for i, v := range x[:min(len(x), most)] {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%.4g", v)
	}
	if len(x) > most {
		text += " …"
	}
	return text
}
