package check

import (
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/tensor"
)

// suspect is a tensor that differs from its source, decoded to find the kind of difference: at most its first rows.
type suspect struct {
	pair  *pair
	d     *difference
	limit float64
	a, b  []float32 // values of the tensor and of its source, rows · cols
	rows  int
	cols  int
	dim   int // size of a head
}

// guess is a possible difference of a tensor from its source.
type guess struct {
	id, what string
	value    func(i int) float32 // returns the tensor's expected value i; nil for a guess already confirmed
}

// maxSuspect bounds the values decoded of a tensor that differs.
const maxSuspect = 1 << 25

// nameDifference reports the kind of a tensor's difference from its source, if there is any.
func nameDifference(c *checker, p *pair, d *difference, pairs []pair) {
	where, k := []string{p.name()}, costOf(c, p)
	if !slices.Equal(p.model.Shape, p.source.Shape) {
		if !c.hasFinding("tensor-shape") {
			c.addAt("source-shape", p.name(), "shape %v, its source has %v", []int(p.model.Shape),
				[]int(p.source.Shape))
		}
		return
	}
	// blocks of least squares shrink a weight by the square of their error
	off := math.Abs(d.factor-1) > 0.03+math.Pow(max(k.usual, min(d.relative, k.limit)), 2)
	if d.relative <= k.limit && d.far.n == 0 && !(off && d.relative < 1) || c.spoiled[p.name()] {
		return
	}
	s, err := newSuspect(c, restorePair(c, p), d)
	if err != nil {
		return
	}
	guesses := []func(*suspect, []pair) []guess{guessRetyped, scaled, guessOffset, guessTransposed, guessSwapped,
		reordered, moved, guessPartial}
	if s.hasValues(func(i int) float32 { return s.b[i] }) { // as a whole the tensor equals its source
		if guesses = guesses[len(guesses)-1:]; off {
			guesses = []func(*suspect, []pair) []guess{scaled, guessPartial}
		}
	}
	for _, list := range guesses {
		for _, g := range list(s, pairs) {
			if g.value == nil || s.hasValues(g.value) {
				c.add(g.id, where, "%s %s", p.name(), g.what)
				return
			}
		}
	}
	of, bits := p.model.DType.String(), packedBits(&p.model)
	if bits > 0 {
		of = fmt.Sprintf("packing with %d bits", bits)
	}
	facts := fmt.Sprintf("the relative error is %.3g, %s costs about %.2g; cosine %.4f", d.relative, of, k.usual,
		d.cosine)
	switch {
	case (p.model.DType.Quantized() || bits > 0) && d.relative < 2.5*k.limit && d.cosine > 0.9:
		c.addAt("source-precision", p.name(), "%s", facts)
	case d.cosine > 0.5:
		c.add("source-stale", where, "%s resembles its source: %s", p.name(), facts)
	default:
		c.add("source-differs", where, "%s has nothing of its source: %s", p.name(), facts)
	}
}

func newSuspect(c *checker, p *pair, d *difference) (*suspect, error) {
	cols := p.source.Shape.Last()
	s := &suspect{pair: p, d: d, limit: max(1.5*costOf(c, p).limit, 0.005),
		rows: min(p.source.Rows(), max(maxSuspect/cols, 1)), cols: cols, dim: int(c.number("head_dim"))}
	var err error
	if s.a, err = decode(p.model, s.rows); err == nil {
		s.b, err = decode(p.source, s.rows)
	}
	return s, err
}

// decode returns the first rows of a tensor.
func decode(t tensor.Tensor, rows int) ([]float32, error) {
	var buf []byte
	x := make([]float32, rows*t.Shape.Last())
	return x, quant.Dequantize(t.DType, x, t.Span(0, rows, &buf))
}

// hasValues reports whether the tensor has the values of b, within the loss of its type, judged by at most some ten
// thousand values.
func (s *suspect) hasValues(b func(i int) float32) bool {
	step := max(len(s.a)/20000, 1)
	if step > 1 {
		step |= 1 // odd, to meet all columns
	}
	var ee, bb float64
	for i := 0; i < len(s.a); i += step {
		x, y := float64(s.a[i]), float64(b(i))
		ee += (x - y) * (x - y)
		bb += y * y
	}
	return ee/bb < s.limit*s.limit
}

// guessRetyped guesses that F16 bytes are called BF16, or the reverse.
func guessRetyped(s *suspect, _ []pair) []guess {
	t := s.pair.model
	switch t.DType {
	case tensor.F16:
		t.DType = tensor.BF16
	case tensor.BF16:
		t.DType = tensor.F16
	default:
		return nil
	}
	x, err := decode(t, s.rows)
	if err != nil {
		return nil
	}
	own := s.a
	s.a = x
	defer func() { s.a = own }()
	if s.limit = max(s.limit, 0.01); !s.hasValues(func(i int) float32 { return s.b[i] }) {
		return nil
	}
	return []guess{{"source-type",
		fmt.Sprintf("is its source if its bytes are %v, but is typed %v", t.DType, s.pair.model.DType), nil}}
}

// scaled guesses the source times a constant.
func scaled(s *suspect, _ []pair) []guess {
	f := float32(s.d.factor)
	if f == 0 || math.Abs(s.d.factor-1) < 0.01 || math.IsNaN(s.d.factor) {
		return nil
	}
	what := fmt.Sprintf("is its source times %.4g", s.d.factor)
	if s.d.factor < 0 && math.Abs(s.d.factor+1) < 0.05 {
		what = "is its source with the sign turned"
	}
	return []guess{{"source-scaled", what, func(i int) float32 { return f * s.b[i] }}}
}

// guessOffset guesses that a constant was added, to all or to each block.
func guessOffset(s *suspect, _ []pair) (list []guess) {
	var sum, ee float64
	for i := range s.a {
		e := float64(s.a[i]) - float64(s.b[i])
		sum += e
		ee += e * e
	}
	rms := math.Sqrt(ee / float64(len(s.a)))
	if d := float32(sum / float64(len(s.a))); math.Abs(float64(d)) > rms/4 {
		list = append(list, guess{"source-offset", fmt.Sprintf("is its source plus %.4g", d),
			func(i int) float32 { return s.b[i] + d }})
	}
	if s.cols%groupSize != 0 || s.rows < 2 {
		return list
	}
	for _, size := range []int{groupSize, groupSize / 2} {
		mean := make([]float32, len(s.a)/size)
		spread := 0.
		for g := range mean {
			var m float64
			for i := g * size; i < (g+1)*size; i++ {
				m += float64(s.a[i]) - float64(s.b[i])
			}
			mean[g] = float32(m / float64(size))
			spread += math.Abs(m / float64(size))
		}
		if spread > float64(len(mean))*rms/4 {
			list = append(list, guess{"source-offset",
				fmt.Sprintf("is its source plus a constant for each %d values: minimums have the wrong sign", size),
				func(i int) float32 { return s.b[i] + mean[i/size] }})
		}
	}
	return list
}

// guessTransposed guesses that the matrix is transposed.
func guessTransposed(s *suspect, _ []pair) []guess {
	if len(s.pair.source.Shape) != 2 || s.rows != s.pair.source.Rows() || s.rows < 2 {
		return nil
	}
	return []guess{{"source-transposed", "is its source transposed",
		func(i int) float32 { return s.b[i%s.rows*s.cols+i/s.rows] }}}
}

// guessSwapped finds another tensor's source. Only sources whose first rows, or first head, are the tensor's are
// decoded as a whole: there are many.
func guessSwapped(s *suspect, pairs []pair) []guess {
	const few = 16
	begin := *s
	begin.rows = min(s.rows, few)
	if s.dim > 0 && s.rows%s.dim == 0 {
		begin.rows = s.dim
	}
	begin.a = s.a[:begin.rows*s.cols]
	for i := range pairs {
		p := &pairs[i]
		if p.hf != s.pair.hf && slices.Equal(p.source.Shape, s.pair.source.Shape) && begin.isFrom(p.source) &&
			s.isFrom(p.source) {
			return []guess{{"source-swapped", "is the source's " + p.source.Name, nil}}
		}
	}
	return nil
}

// isFrom reports whether the rows are the first rows of t, plain or in another container's order of heads.
func (s *suspect) isFrom(t tensor.Tensor) bool {
	x, err := decode(t, s.rows)
	if err != nil {
		return false
	}
	orders := append([]func(int) int{func(r int) int { return r }}, headOrders(s.dim, s.rows)...)
	return slices.ContainsFunc(orders, func(from func(r int) int) bool { return s.hasValues(s.byRow(x, from)) })
}

// byRow returns the values of x in rows of another order.
func (s *suspect) byRow(x []float32, from func(r int) int) func(i int) float32 {
	return func(i int) float32 { return x[from(i/s.cols)*s.cols+i%s.cols] }
}

// byColumn returns the source's values in columns of another order.
func (s *suspect) byColumn(from func(j int) int) func(i int) float32 {
	return func(i int) float32 { return s.b[i/s.cols*s.cols+from(i%s.cols)] }
}

// guessPartial finds that most of the tensor is right.
func guessPartial(s *suspect, _ []pair) []guess {
	d := s.d
	if d.far.n == 0 || 2*d.far.n > d.groups {
		return nil
	}
	what := fmt.Sprintf("is not its source in %d of %d groups of %d values, from element %d on", d.far.n, d.groups,
		groupSize, d.far.first*groupSize)
	if n := s.pair.source.Rows(); n > 1 {
		what = fmt.Sprintf("is not its source in %d of %d rows, from %d to %d (%.2g %% of the values)", len(d.rows), n,
			d.rows[0], d.rows[len(d.rows)-1], 100*float64(d.far.n)/float64(d.groups))
	}
	return []guess{{"source-part", what, nil}}
}

// blockOrders lists orders of the values of a block of 32 that converters confuse.
var blockOrders = []struct {
	what string
	from func(i int) int
}{
	{"the halves of each block of 32 exchanged", func(i int) int { return (i + groupSize/2) % groupSize }},
	{"the values of each block of 32 in pairs instead of halves",
		func(i int) int { return i%2*groupSize/2 + i/2 }},
	{"the values of each block of 32 in halves instead of pairs",
		func(i int) int { return i%(groupSize/2)*2 + i/(groupSize/2) }},
}

// reordered guesses rows or columns in the order of another container or format.
func reordered(s *suspect, _ []pair) (list []guess) {
	if s.rows < 2 || s.rows != s.pair.source.Rows() {
		return nil
	}
	for _, dim := range []int{s.dim, 2 * s.dim, 64, 128, 256, 32, 96, 512} {
		what := []string{"in halves, where its source has pairs", "in pairs, where its source has halves"}
		for k, from := range headOrders(dim, s.rows) {
			list = append(list, guess{"source-permuted", fmt.Sprintf(
				"has the rows of each head of %d %s: what turns together was permuted once too often", dim, what[k]),
				s.byRow(s.b, from)})
		}
	}
	for _, order := range blockOrders {
		if s.cols%groupSize == 0 {
			list = append(list, guess{"source-permuted", "has " + order.what + ": nibbles in the wrong order",
				s.byColumn(func(j int) int { return j - j%groupSize + order.from(j%groupSize) })})
		}
	}
	return list
}

// headOrders returns the two orders of a head's rows into which the halves and pairs of rotation are turned; none if
// the rows do not divide into heads of dim.
func headOrders(dim, rows int) []func(r int) int {
	if dim < 4 || rows%dim != 0 {
		return nil
	}
	half := dim / 2
	return []func(r int) int{
		func(r int) int { h, i := r/dim, r%dim; return h*dim + i%half*2 + i/half },
		func(r int) int { h, i := r/dim, r%dim; return h*dim + i%2*half + i/2 },
	}
}

// maxMatched bounds the number of rows in a search for each row's source.
const maxMatched = 2048

// moved guesses any order of rows, or of columns: each is looked for among the source's.
func moved(s *suspect, _ []pair) (list []guess) {
	if s.rows < 2 || s.rows != s.pair.source.Rows() {
		return nil
	}
	rows, ok := s.match(s.rows, s.cols, func(line, k int) int { return line*s.cols + k })
	if ok {
		list = append(list, guess{"source-permuted", "has the rows of its source in another order" + s.order(rows),
			s.byRow(s.b, func(r int) int { return rows[r] })})
	}
	columns, ok := s.match(s.cols, s.rows, func(line, k int) int { return k*s.cols + line })
	if ok {
		list = append(list, guess{"source-permuted", "has the columns of its source in another order" +
			s.order(columns),
			s.byColumn(func(j int) int { return columns[j] })})
	}
	return list
}

// match finds for each of the tensor's n lines the source's most similar line, by some of their size values. The result
// is true if lines have moved and no two have the same source.
func (s *suspect) match(n, size int, at func(line, k int) int) (from []int, ok bool) {
	if n > maxMatched || n < 2 || size < 4 {
		return nil, false
	}
	m := min(size, 16)
	sample := func(x []float32) []float32 {
		y := make([]float32, 0, n*m)
		for line := range n {
			for k := range m {
				y = append(y, x[at(line, k*size/m)])
			}
		}
		return y
	}
	a, b := sample(s.a), sample(s.b)
	from, used := make([]int, n), make([]bool, n)
	for i := range n {
		least := math.Inf(1)
		for j := range n {
			var ee float64
			for k := range m {
				e := float64(a[i*m+k]) - float64(b[j*m+k])
				ee += e * e
			}
			if ee < least {
				from[i], least = j, ee
			}
		}
		used[from[i]] = true
	}
	return from, !slices.Contains(used, false) && !slices.IsSorted(from)
}

// order describes a permutation.
func (s *suspect) order(from []int) string {
	n, dim := len(from), max(s.dim, 1)
	shift, moved := (from[0]+n)%n, 0
	shifted, heads := true, s.dim > 0 && n%dim == 0
	for i, f := range from {
		if f != i {
			moved++
		}
		shifted = shifted && f == (i+shift)%n
		heads = heads && f%dim == i%dim
	}
	switch {
	case shifted:
		return fmt.Sprintf(": shifted by %d", min(shift, n-shift))
	case heads:
		return fmt.Sprintf(": heads of %d are exchanged", s.dim)
	}
	return fmt.Sprintf(": %d of %d have moved", moved, n)
}
