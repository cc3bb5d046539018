package diagnose

import (
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab/mistake"
	"github.com/karat-run/karat/internal/tensor"
)

// observed is what the engine's taps say of a product alone: what it read and what it gave.
type observed struct {
	n    *graph.Node // Linear
	bias *graph.Node // that is added before the tap, nil if none is
	x    *matrix     // [rows, columns of the weight]
	got  *matrix     // [rows, rows of the weight], less the bias
	want *matrix
}

// maxObserved bounds the rows and the features of a product that is looked into.
const maxObserved, maxFeatures = 128, 1 << 10

// observe returns eq as a product alone, nil if it is not one, or holds. What comes before it has to have a tap, or
// a known fault.
func (r *proposer) observe(eq *equation) (*observed, error) {
	o := &observed{n: eq.target}
	if len(eq.target.W) > 0 && eq.target.Op == graph.Add {
		o.n, o.bias = eq.target.In[0], eq.target
	}
	assumed := func(x *graph.Node) bool { return r.base != nil && r.base.edits[x] != nil }
	between := func(x *graph.Node) bool {
		return x != o.n && x != o.bias && (len(x.W) > 0 || x.Op == graph.Attention) && r.m.engine.edits[x] == nil &&
			!assumed(x)
	}
	if o.n.Op != graph.Linear || !eq.isFlagged() || !slices.Contains(eq.span, o.n) ||
		slices.ContainsFunc(eq.span, between) {
		return nil, nil
	}
	k, m := o.n.W[0].Shape.Last(), o.n.W[0].Rows()
	if max(k, m) > maxFeatures && o.n != r.m.dump.wiring.Head() || r.m.engine.edits[o.n] != nil ||
		r.m.engine.edits[eq.target] != nil {
		return nil, nil
	}
	if assumed(o.n) {
		return nil, nil
	}
	if o.bias != nil && assumed(o.bias) { // without its bias it is the product itself
		if slices.ContainsFunc(r.base.hs, func(h *hypothesis) bool { return h.node == o.bias && h.cause != "bias_missing" }) {
			return nil, nil
		}
		o.bias = nil
	}
	var x, got, want []float64
	for i, p := range r.m.dump.prompts {
		rows, _ := errorsOf(eq.errors, i)
		rows = rows[:min(len(rows), max(0, maxObserved-len(x)/k))]
		e := r.base.on(r.m.engine.center[p])
		in, err := e.Value(o.n.In[0], rows)
		if err != nil {
			return nil, err
		}
		y, err := e.Compute(o.n, rows)
		if err != nil {
			return nil, err
		}
		x, want, got = append(x, in...), append(want, y...), append(got, p.read(eq.target, rows)...)
	}
	if o.bias != nil {
		b, err := reference.Vector(o.bias.W[0])
		if err != nil {
			return nil, err
		}
		for i := range got {
			got[i] -= b[i%m]
		}
	}
	if len(x) < 3*k || slices.ContainsFunc(got, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }) {
		return nil, nil
	}
	o.x, o.got, o.want = wide(k, x), wide(m, got), wide(m, want)
	return o, nil
}

// measured returns hypotheses about the weight of a product that its own inputs and outputs
// suggest: its rows or columns in another order, or each block of it with another scale and minimum.
func (r *proposer) measured(eq *equation) ([]*hypothesis, error) {
	o, err := r.observe(eq)
	if o == nil || err != nil {
		return nil, err
	}
	var all []*hypothesis
	if h := r.rowsPermuted(eq, o); h != nil {
		return append(all, h), nil
	}
	if o.n == r.m.dump.wiring.Head() {
		return nil, nil
	}
	w, err := reference.Vector(o.n.W[0])
	if err != nil {
		return nil, err
	}
	weight := wide(o.n.W[0].Shape.Last(), w)
	if h := columnsPermuted(o, weight); h != nil {
		all = append(all, h)
	}
	if h := blocksScaled(o, weight); h != nil {
		all = append(all, h)
	}
	return all, nil
}

// rowsPermuted returns the hypothesis that a product gives its features in another order.
func (r *proposer) rowsPermuted(eq *equation, o *observed) *hypothesis {
	cause := "weight_permuted"
	if o.n == r.m.dump.wiring.Head() {
		cause = "head_wrong"
	}
	order := matching(o.got.data, o.want.data, o.got.rows, eq.tolerance())
	withBias := order == nil && o.bias != nil
	if withBias { // which is in that order, too
		order = r.withBias(eq, o)
	}
	if order == nil {
		return nil
	}
	h := made(cause, o.n, "gives the rows of the weight in another order"+mistake.DescribeOrder(order,
		r.m.dump.wiring.HeadDim(eq.target)), detail{"order": "permuted"}, mistake.Reordered(order))
	if withBias {
		h.edits[o.bias] = []reference.Edit{mistake.Reordered(order)}
		h.edits[o.n] = []reference.Edit{func(*reference.Spec) {}}
	}
	return h
}

// withBias returns the order in which a product's features lie together with its bias.
func (r *proposer) withBias(eq *equation, o *observed) []int {
	b, err := reference.Vector(o.bias.W[0])
	if err != nil {
		return nil
	}
	plus := func(y *matrix) []float64 {
		z := slices.Clone(y.data)
		for i := range z {
			z[i] += b[i%len(b)]
		}
		return z
	}
	return matching(plus(o.got), plus(o.want), o.got.rows, eq.tolerance())
}

// columnsPermuted returns the hypothesis that a product reads its input in another order. What it
// must have read follows from what it gave, if it gives no fewer features than it reads; what
// it multiplied by, if there are enough rows; and else some orders are tried.
func columnsPermuted(o *observed, weight *matrix) *hypothesis {
	var order []int
	if read := leastSquares(weight, o.got.transpose()); read != nil { // [k, n]
		order = nearest(read, o.x.transpose())
	} else if by := o.multiplier(); by != nil { // [k, m]
		order = nearest(by, weight.transpose())
	} else {
		order = usualOrder(o, weight)
	}
	if order == nil {
		return nil
	}
	return made("weight_permuted", o.n, "reads its input's features in another order", detail{"order": "of columns"},
		func(s *reference.Spec) {
			s.Alter = func(w []float64, rows, cols int) []float64 {
				y := make([]float64, len(w))
				for i := range w {
					y[i/cols*cols+order[i%cols]] = w[i]
				}
				return y
			}
		})
}

// multiplier returns what the product's input must have been multiplied by to give what it gave,
// [columns, rows of the weight]; nil if there are too few rows to tell.
func (o *observed) multiplier() *matrix {
	if k := o.x.cols; o.x.rows < k+k/8 {
		return nil
	}
	return leastSquares(o.x, o.got)
}

// usualOrder returns the one of the orders that loaders and kernels have by mistake in which a
// product seems to read its input, nil if it is none of them: in groups of a power of two, or
// all together, backwards, halves exchanged, or woven.
func usualOrder(o *observed, weight *matrix) []int {
	k := o.x.cols
	if k < 4 {
		return nil
	}
	x, got := o.x.row(0), o.got.row(0)
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
			if norm(minus(weight.times(read), got)) <= 0.1*norm(got) {
				return order
			}
		}
		if group == k {
			return nil
		}
	}
}

// nearest finds for each row of a the row of b that points the same way, nil unless that is
// a permutation other than the identity.
func nearest(a, b *matrix) []int {
	order, used, moved := make([]int, a.rows), make([]bool, a.rows), false
	norms := make([]float64, b.rows)
	for j := range norms {
		norms[j] = norm(b.row(j))
	}
	for i := range order {
		best, products := 0, b.times(a.row(i))
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

// blocksScaled returns the hypothesis that each block of a quantized weight's rows has another scale
// and another minimum: w is read as s·w + o, and every row of the product is the sum of
// what its blocks give. Both are fitted, for each row by itself if there are many more
// positions than it has blocks, else for all rows by a block's place in its mistake.Superblock.
func blocksScaled(o *observed, weight *matrix) *hypothesis {
	n, k, m := o.x.rows, o.x.cols, weight.rows
	size := gcd(k, 32)
	if d := o.n.W[0].DType; d == tensor.Q2_K || d == tensor.Q3_K || d == tensor.Q6_K {
		size = 16
	}
	if size < 16 {
		return nil
	}
	places, together, place := k/size, 1, func(_, c int) int { return c / size }
	if n < 4*places {
		places, together, place = mistake.Superblock/size, m, func(i, c int) int {
			return (i*k + c) % mistake.Superblock / size
		}
	}
	fitted := make([]float64, 0, m*k)
	for first := 0; first < m; first += together {
		s := fitBlocks(o, weight, first, together, places, place)
		if s == nil {
			return nil
		}
		for i := first; i < first+together; i++ {
			for c := range k {
				at := place(i, c)
				fitted = append(fitted, s[at]*weight.row(i)[c]+s[places+at])
			}
		}
	}
	h := made("weight_scale", o.n, "decodes the weight's blocks with other scales or minimums",
		detail{"scales": "of blocks"}, func(s *reference.Spec) {
			s.Alter = func([]float64, int, int) []float64 { return fitted }
		})
	h.cost = 1
	return h
}

// fitBlocks returns the scales of places, and then the offsets, under which some rows of a
// weight give what was observed; nil if there are none, or one would not be read at all.
func fitBlocks(o *observed, weight *matrix, first, rows, places int, place func(i, c int) int) []float64 {
	n := o.x.rows
	if n*rows < 4*places {
		return nil
	}
	terms, got := newMatrix(n*rows, 2*places), make([]float64, n*rows)
	for r := range rows {
		for t := range n {
			row := terms.row(r*n + t)
			for c, x := range o.x.row(t) {
				at := place(first+r, c)
				row[at] += x * weight.row(first + r)[c]
				row[places+at] += x
			}
			got[r*n+t] = o.got.row(t)[first+r]
		}
	}
	s := solve(terms, got)
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

// matching finds for each column of got [rows, w] the one of want that it is equal to,
// nil unless that is a permutation other than the identity.
func matching(got, want []float64, rows int, tolerance float64) []int {
	w := len(got) / rows
	if w > 1<<13 {
		return nil
	}
	limit := tolerance * tolerance * dot(want, want) / float64(w)
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
