package mistake

import (
	"cmp"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab/matrix"
	"github.com/karat-run/karat/internal/quant"
)

// Product is an engine's product alone: rows read and rows given.
type Product struct {
	Node      *graph.Node    // Linear
	Bias      *graph.Node    // sum with a bias before the tap; nil for none
	X         *matrix.Matrix // [rows, columns of the weight]
	Got       *matrix.Matrix // [rows, rows of the weight], less the bias
	Want      *matrix.Matrix
	Tolerance float64 // relative error of single values beyond any rounding

	head   bool           // whether the product makes the logits
	dim    int            // size of a head
	order  []int          // order of rows, nil for the right order
	biased bool           // whether the bias lies in the same order
	weight *matrix.Matrix // nil for a head
}

// Measured lists mistakes of a product by its own inputs and outputs. Where the rows lie in another order, nothing else
// is asked.
func (w *Wiring) Measured(o *Product) (all []*Hypothesis, err error) {
	o.head, o.dim = o.Node == w.Head(), w.HeadDim(cmp.Or(o.Bias, o.Node))
	o.order = Matching(o.Got.Data, o.Want.Data, o.Got.Rows, o.Tolerance)
	if o.order == nil && o.Bias != nil {
		o.order = matchingBiased(o)
		o.biased = o.order != nil
	}
	if !o.head {
		values, err := reference.Vector(o.Node.W[0])
		if err != nil {
			return nil, err
		}
		o.weight = matrix.Of(o.Node.W[0].Shape.Last(), values)
	}
	for _, e := range table {
		if e.read == nil {
			continue
		}
		if h := e.read(o); h != nil {
			h.Cause = e.id
			all = append(all, h)
		}
	}
	return all, nil
}

// readOrder returns a product with rows or columns in another order.
func readOrder(o *Product) *Hypothesis {
	switch {
	case o.head:
		return nil
	case o.order != nil:
		return rowsPermuted(o)
	}
	return columnsPermuted(o)
}

// readHead returns a head with rows in another order.
func readHead(o *Product) *Hypothesis {
	if !o.head || o.order == nil {
		return nil
	}
	return rowsPermuted(o)
}

// rowsPermuted returns a product with its features in another order.
func rowsPermuted(o *Product) *Hypothesis {
	h := edit(o.Node, "gives the rows of the weight in another order"+describeOrder(o.order, o.dim),
		detail{"order": "permuted"}, reordered(o.order))
	if o.biased { // the bias lies in the same order
		h.Edits = reference.Edits{o.Bias: {reordered(o.order)}, o.Node: {func(*reference.Spec) {}}}
	}
	return h
}

// matchingBiased returns the order in which a product's features lie together with its bias.
func matchingBiased(o *Product) []int {
	b, err := reference.Vector(o.Bias.W[0])
	if err != nil {
		return nil
	}
	plus := func(y *matrix.Matrix) []float64 {
		z := slices.Clone(y.Data)
		for i := range z {
			z[i] += b[i%len(b)]
		}
		return z
	}
	return Matching(plus(o.Got), plus(o.Want), o.Got.Rows, o.Tolerance)
}

// columnsPermuted returns a product with its input in another order. With no fewer features than inputs, the output
// tells the input; with enough rows, the output tells the weight; else some orders are tried.
func columnsPermuted(o *Product) *Hypothesis {
	var order []int
	if read := matrix.LeastSquares(o.weight, o.Got.Transpose()); read != nil { // [k, n]
		order = nearest(read, o.X.Transpose())
	} else if by := o.multiplier(); by != nil { // [k, m]
		order = nearest(by, o.weight.Transpose())
	} else {
		order = usualOrder(o)
	}
	if order == nil {
		return nil
	}
	return edit(o.Node, "reads its input's features in another order", detail{"order": "of columns"},
		func(s *reference.Spec) {
			s.Alter[0] = func(w []float64, rows, cols int) []float64 {
				y := make([]float64, len(w))
				for i := range w {
					y[i/cols*cols+order[i%cols]] = w[i]
				}
				return y
			}
		})
}

// multiplier returns the matrix between the product's input and its output,
// [columns, rows of the weight]; nil if there are too few rows to tell.
func (o *Product) multiplier() *matrix.Matrix {
	if k := o.X.Cols; o.X.Rows < k+k/8 {
		return nil
	}
	return matrix.LeastSquares(o.X, o.Got)
}

// usualOrder returns the order in which a product seems to read its input, of the usual mistakes of loaders and
// kernels; nil for none: in groups of a power of two, or
// all together, backwards, halves exchanged, or woven.
func usualOrder(o *Product) []int {
	k := o.X.Cols
	if k < 4 {
		return nil
	}
	x, got := o.X.Row(0), o.Got.Row(0)
	for group := 2; ; group *= 2 {
		if group >= k || k%group != 0 {
			group = k
		}
		for _, within := range []func(i int) int{
			func(i int) int { return group - 1 - i },
			func(i int) int { return (i + group/2) % group },
			func(i int) int { return i/2 + i%2*(group/2) },
			func(i int) int { return i%(group/2)*2 + i/(group/2) },
		} {
			order, read := make([]int, k), make([]float64, k)
			for i := range order {
				order[i] = i/group*group + within(i%group)
				read[i] = x[order[i]]
			}
			if matrix.Norm(matrix.Minus(o.weight.Times(read), got)) <= 0.1*matrix.Norm(got) {
				return order
			}
		}
		if group == k {
			return nil
		}
	}
}

// nearest finds for each row of a the row of b in the same direction, nil unless the rows are
// a permutation other than the identity.
func nearest(a, b *matrix.Matrix) []int {
	order, used, moved := make([]int, a.Rows), make([]bool, a.Rows), false
	norms := make([]float64, b.Rows)
	for j := range norms {
		norms[j] = matrix.Norm(b.Row(j))
	}
	for i := range order {
		best, products := 0, b.Times(a.Row(i))
		for j, p := range products {
			if p*norms[best] > products[best]*norms[j] {
				best = j
			}
		}
		if used[best] {
			return nil
		}
		order[i], used[best] = best, true
		moved = moved || i != best
	}
	if !moved {
		return nil
	}
	return order
}

// readBlocks returns a weight whose quantized blocks each have another scale
// and another minimum: w is read as s·w + o, and every row of the product is the sum of
// what its blocks give. Both are fitted, for each row by itself if there are many more
// positions than it has blocks, else for all rows by a block's place in its superblock.
func readBlocks(o *Product) *Hypothesis {
	if o.head || o.order != nil {
		return nil
	}
	n, k, m := o.X.Rows, o.X.Cols, o.weight.Rows
	size := gcd(k, 32)
	if quant.GroupSize(o.Node.W[0].DType) == 16 {
		size = 16
	}
	if size < 16 {
		return nil
	}
	places, together, place := k/size, 1, func(_, c int) int { return c / size }
	if n < 4*places {
		places, together, place = superblock/size, m, func(i, c int) int {
			return (i*k + c) % superblock / size
		}
	}
	fitted := make([]float64, 0, m*k)
	for first := 0; first < m; first += together {
		s := fitBlocks(o, first, together, places, place)
		if s == nil {
			return nil
		}
		for i := first; i < first+together; i++ {
			for c := range k {
				at := place(i, c)
				fitted = append(fitted, s[at]*o.weight.Row(i)[c]+s[places+at])
			}
		}
	}
	h := edit(o.Node, "decodes the weight's blocks with other scales or minimums",
		detail{"scales": "of blocks"}, func(s *reference.Spec) {
			s.Alter[0] = func([]float64, int, int) []float64 { return fitted }
		})
	h.Cost = 1
	return h
}

// fitBlocks returns the scales of places, and then the offsets, under which some rows of a weight give the observed
// values; nil for none, and for a scale of nearly 0.
func fitBlocks(o *Product, first, rows, places int, place func(i, c int) int) []float64 {
	n := o.X.Rows
	if n*rows < 4*places {
		return nil
	}
	terms, got := matrix.New(n*rows, 2*places), make([]float64, n*rows)
	for r := range rows {
		for t := range n {
			row := terms.Row(r*n + t)
			for c, x := range o.X.Row(t) {
				at := place(first+r, c)
				row[at] += x * o.weight.Row(first + r)[c]
				row[places+at] += x
			}
			got[r*n+t] = o.Got.Row(t)[first+r]
		}
	}
	s := matrix.Solve(terms, got)
	if s == nil || slices.ContainsFunc(s[:places], func(scale float64) bool { return math.Abs(scale) < 1e-2 }) {
		return nil
	}
	return s
}

func gcd(a, b int) int {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}

// Matching finds for each column of got [rows, w] the equal column of want, nil unless the columns are a permutation
// other than the identity.
func Matching(got, want []float64, rows int, tolerance float64) []int {
	w := len(got) / rows
	if w > 1<<13 {
		return nil
	}
	limit := tolerance * tolerance * matrix.Dot(want, want) / float64(w)
	order, used, moved := make([]int, w), make([]bool, w), false
	for i := range w {
		order[i] = -1
		for k := range w {
			j := (i + k) % w
			if used[j] {
				continue
			}
			var diff float64
			for t := 0; t < rows && diff <= limit; t++ {
				d := got[t*w+i] - want[t*w+j]
				diff += d * d
			}
			if diff <= limit {
				order[i], used[j] = j, true
				moved = moved || i != j
				break
			}
		}
		if order[i] < 0 {
			return nil
		}
	}
	if !moved {
		return nil
	}
	return order
}
