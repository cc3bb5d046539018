package check

import (
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/tensor"
)

// suspect is a tensor that is not its source, decoded for the question what it is: at most the first rows of it.
type suspect struct {
	*pair
	d     *difference
	limit float64
	a, b  []float32 // rows · cols
	rows  int
	cols  int
	dim   int // of a head
}

// maxSuspect bounds the values that are decoded of a tensor that differs.
const maxSuspect = 1 << 25

// nameDifference says how a tensor differs from its source, if it does.
func nameDifference(c *checker, p *pair, d *difference, pairs []pair) {
	where, k := []string{p.name()}, costOf(c, p)
	if !slices.Equal(p.model.Shape, p.source.Shape) {
		if !c.found("tensor-shape") {
			c.add("source-shape", where, "%s: shape %v, its source has %v", p.name(), []int(p.model.Shape),
				[]int(p.source.Shape))
		}
		return
	}
	off := math.Abs(d.factor-1) > 0.03+k.usual*k.usual
	if d.relative <= k.limit && d.far.n == 0 && !(off && d.relative < 1) || c.spoiled[p.name()] {
		return
	}
	s, err := newSuspect(c, restored(c, p), d)
	if err != nil {
		return
	}
	asks := []func(*suspect, []pair) (id, what string){retyped, scaled, offset, turned, swapped, permuted, partial}
	if s.is(func(i int) float32 { return s.b[i] }) { // as a whole it is its source
		if asks = asks[len(asks)-1:]; off {
			asks = []func(*suspect, []pair) (id, what string){scaled, partial}
		}
	}
	for _, ask := range asks {
		if id, what := ask(s, pairs); id != "" {
			c.add(id, where, "%s %s", p.name(), what)
			return
		}
	}
	facts := fmt.Sprintf("the relative error is %.3g, %v costs about %.2g; cosine %.4f", d.relative, p.model.DType,
		k.usual, d.cosine)
	switch {
	case p.model.DType.Quantized() && d.relative < 2.5*k.limit && d.cosine > 0.9:
		c.add("source-precision", where, "%s: %s", p.name(), facts)
	case d.cosine > 0.5:
		c.add("source-stale", where, "%s resembles its source: %s", p.name(), facts)
	default:
		c.add("source-differs", where, "%s has nothing of its source: %s", p.name(), facts)
	}
}

func newSuspect(c *checker, p *pair, d *difference) (*suspect, error) {
	cols := p.source.Shape.Last()
	s := &suspect{pair: p, d: d, limit: max(1.5*costOf(c, p).limit, 0.005),
		rows: min(p.source.Rows(), max(maxSuspect/cols, 1)), cols: cols}
	if dim, ok := c.model.Setting("head_dim").(float64); ok {
		s.dim = int(dim)
	}
	var err error
	if s.a, err = decode(p.model, s.rows); err == nil {
		s.b, err = decode(p.source, s.rows)
	}
	return s, err
}

// decode returns the first rows of t.
func decode(t tensor.Tensor, rows int) ([]float32, error) {
	var buf []byte
	x := make([]float32, rows*t.Shape.Last())
	return x, quant.Dequantize(t.DType, x, t.Span(0, rows, &buf))
}

// error2 returns ‖a−b‖²/‖b‖² over at most some ten thousand values, b being given by the element that belongs to a's
// i-th.
func (s *suspect) error2(b func(i int) float32) float64 {
	step := max(len(s.a)/20000, 1)
	if step > 1 {
		step |= 1 // odd, so that it meets all columns
	}
	var ee, bb float64
	for i := 0; i < len(s.a); i += step {
		x, y := float64(s.a[i]), float64(b(i))
		ee += (x - y) * (x - y)
		bb += y * y
	}
	return ee / bb
}

// is reports whether the tensor is b, within what its type costs.
func (s *suspect) is(b func(i int) float32) bool { return s.error2(b) < s.limit*s.limit }

// retyped asks whether F16 bytes are called BF16, or the reverse.
func retyped(s *suspect, _ []pair) (id, what string) {
	t := s.model
	switch t.DType {
	case tensor.F16:
		t.DType = tensor.BF16
	case tensor.BF16:
		t.DType = tensor.F16
	default:
		return "", ""
	}
	x, err := decode(t, s.rows)
	if err != nil {
		return "", ""
	}
	own := s.a
	s.a = x
	defer func() { s.a = own }()
	s.limit = max(s.limit, 0.01)
	if s.is(func(i int) float32 { return s.b[i] }) {
		return "source-type", fmt.Sprintf("is its source if its bytes are %v, but is typed %v", t.DType, s.model.DType)
	}
	return "", ""
}

// scaled asks whether it is the source times a constant.
func scaled(s *suspect, _ []pair) (id, what string) {
	f := float32(s.d.factor)
	if f == 0 || math.Abs(s.d.factor-1) < 0.01 || math.IsNaN(s.d.factor) {
		return "", ""
	}
	if s.is(func(i int) float32 { return f * s.b[i] }) {
		if s.d.factor < 0 && math.Abs(s.d.factor+1) < 0.05 {
			return "source-scaled", "is its source with the sign turned"
		}
		return "source-scaled", fmt.Sprintf("is its source times %.4g", s.d.factor)
	}
	return "", ""
}

// rms returns the root mean square of the difference.
func (s *suspect) rms() float64 {
	var ee float64
	for i := range s.a {
		e := float64(s.a[i]) - float64(s.b[i])
		ee += e * e
	}
	return math.Sqrt(ee / float64(len(s.a)))
}

// offset asks whether a constant was added, to all or to each block.
func offset(s *suspect, _ []pair) (id, what string) {
	var sum float64
	for i := range s.a {
		sum += float64(s.a[i]) - float64(s.b[i])
	}
	d := float32(sum / float64(len(s.a)))
	if math.Abs(float64(d)) > s.rms()/4 && s.is(func(i int) float32 { return s.b[i] + d }) {
		return "source-offset", fmt.Sprintf("is its source plus %.4g", d)
	}
	if s.cols%groupSize != 0 || s.rows < 2 {
		return "", ""
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
		if spread > float64(len(mean))*s.rms()/4 && s.is(func(i int) float32 { return s.b[i] + mean[i/size] }) {
			return "source-offset",
				fmt.Sprintf("is its source plus a constant for each %d values: minimums have the wrong sign", size)
		}
	}
	return "", ""
}

// turned asks whether the matrix is transposed.
func turned(s *suspect, _ []pair) (id, what string) {
	if len(s.source.Shape) != 2 || s.rows != s.source.Rows() || s.rows < 2 {
		return "", ""
	}
	if s.is(func(i int) float32 { return s.b[i%s.rows*s.cols+i/s.rows] }) {
		return "source-transposed", "is its source transposed"
	}
	return "", ""
}

// swapped asks whether it is another tensor's source. Only one whose first rows, or first head, are the tensor's is
// decoded as a whole: there are many.
func swapped(s *suspect, pairs []pair) (id, what string) {
	const few = 16
	begin := *s
	begin.rows = min(s.rows, few)
	if s.dim > 0 && s.rows%s.dim == 0 {
		begin.rows = s.dim
	}
	begin.a = s.a[:begin.rows*s.cols]
	for i := range pairs {
		p := &pairs[i]
		if p.hf != s.hf && slices.Equal(p.source.Shape, s.source.Shape) && begin.from(p.source) && s.from(p.source) {
			return "source-swapped", "is the source's " + p.source.Name
		}
	}
	return "", ""
}

// from reports whether the rows are the first ones of t, as they are or as heads have them in another container.
func (s *suspect) from(t tensor.Tensor) bool {
	x, err := decode(t, s.rows)
	if err != nil {
		return false
	}
	orders := append([]func(int) int{func(r int) int { return r }}, halves(s.dim, s.rows)...)
	return slices.ContainsFunc(orders, func(from func(r int) int) bool {
		return s.is(func(i int) float32 { return x[from(i/s.cols)*s.cols+i%s.cols] })
	})
}

// partial asks whether most of it is right.
func partial(s *suspect, _ []pair) (id, what string) {
	d := s.d
	if d.far.n == 0 || 2*d.far.n > d.groups {
		return "", ""
	}
	if s.source.Rows() == 1 {
		return "source-part", fmt.Sprintf("is not its source in %d of %d groups of %d values, from element %d on", d.far.n,
			d.groups, groupSize, d.far.first*groupSize)
	}
	return "source-part", fmt.Sprintf("is not its source in %d of %d rows, from %d to %d (%.2g %% of the values)",
		len(d.rows), s.source.Rows(), d.rows[0], d.rows[len(d.rows)-1], 100*float64(d.far.n)/float64(d.groups))
}
