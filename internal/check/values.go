package check

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/checkpoint/packing"
	"github.com/karat-run/karat/internal/tensor"
)

// spread is the maximal distance, in binary exponents, of a block's scale, or a value of a float matrix, from the
// tensor's median: single weights of published models lie some 2^5 above.
const spread = 8

// judgeValues judges each tensor by itself, the gravest reason first: a single kind of damage shows in several figures.
func judgeValues(c *checker) {
	for i, t := range c.files.tensors {
		s := &c.stats[i]
		switch {
		case s.elements == 0, !t.DType.Quantized() && !t.DType.Float(): // parts of packed weights that are refused
		case judgeTag(c, t, s), judgeLayout(c, t, s), judgeFinite(c, t, s):
		case s.rows > 1:
			judgeMatrix(c, t, s)
		default:
			judgeVector(c, t, s)
		}
	}
}

// judgeScales finds scales of packed weights that are 0, or negative where publishers' programs write none.
func judgeScales(c *checker) {
	for _, t := range c.files.scales {
		if n, first := packing.CountOdd(t); n > 0 {
			c.addAt("packed-scales", t.Name, "%d of %d scales are zero or of a wrong sign, the first is %d", n,
				t.Shape.Size(), first)
		}
	}
}

// place describes the place of an element in words.
func place(s *stats, i int) string {
	if s.rows == 1 {
		return fmt.Sprintf("element %d", i)
	}
	return fmt.Sprintf("row %d, column %d", i/s.cols, i%s.cols)
}

// isPlausible reports whether weights may have such a root mean square.
func isPlausible(rms float64) bool { return rms > 1e-6 && rms < 1e3 }

// judgeTag finds types of two bytes that were mistaken for each other.
func judgeTag(c *checker, t tensor.Tensor, s *stats) bool {
	if s.elements < 16 || s.twin.rms == 0 || !isPlausible(s.twin.rms) {
		return false
	}
	most := s.rowMax
	if s.rows == 1 {
		most = s.values
	}
	own := isPlausible(median(most)) && s.odd.n() < 4
	// BF16 weights that are read as F16 lie between 1 and 2
	if s.rows == 1 && s.max == 0 || own && (t.DType == tensor.BF16 || s.twin.ones < 0.75) {
		return false
	}
	other := tensor.F16
	if t.DType == tensor.F16 {
		other = tensor.BF16
	}
	c.addAt("dtype-tag", t.Name, "as %v its values have the size %.2g, as %v %.2g", t.DType, s.rms, other, s.twin.rms)
	return true
}

// judgeLayout finds data that is no blocks of its type, and rows that are not laid out in their width.
func judgeLayout(c *checker, t tensor.Tensor, s *stats) bool {
	n := s.scales.n
	if n == 0 {
		return false
	}
	_, above := s.scales.median(spread)
	if odd := s.scales.odd.n() + above; odd > 3 && odd*50 > n {
		c.addAt("block-layout", t.Name, "%d of %d blocks of %v have scales that are not finite or far off", odd,
			n, t.DType)
		return true
	}
	if odd := s.scales.negative.n + s.scales.minimum.n; odd > 0 {
		first := s.scales.negative.first
		if m := s.scales.minimum; s.scales.negative.n == 0 || m.n > 0 && m.first < first {
			first = m.first
		}
		c.addAt("scale-sign", t.Name, "%d of %d blocks of %v have a negative scale or minimum, the first is block %d",
			odd, n,
			t.DType, first)
		return true
	}
	return false
}

func judgeFinite(c *checker, t tensor.Tensor, s *stats) bool {
	switch {
	case s.scales.odd.inf.n > 0 && s.scales.odd.nan.n == 0:
		c.addAt("inf", t.Name, "%d of %d blocks of %v have an infinite scale, the first in %s", s.scales.odd.inf.n,
			s.scales.n, t.DType, place(s, s.scales.odd.inf.first*t.DType.BlockSize()))
	case s.odd.nan.n > 0:
		c.addAt("nan", t.Name, "%d of %d values are not a number, the first in %s", s.odd.nan.n, s.elements,
			place(s, s.odd.nan.first))
	case s.odd.inf.n > 0:
		c.addAt("inf", t.Name, "%d of %d values are infinite, the first in %s", s.odd.inf.n, s.elements,
			place(s, s.odd.inf.first))
	}
	return s.odd.n() > 0
}

// paddedRows returns the number of zero rows of no token: publishers fill the embedding and the head up to a round
// number of rows.
func paddedRows(c *checker, t tensor.Tensor, s *stats) int {
	head := strings.HasPrefix(t.Name, "output.") || strings.HasPrefix(t.Name, "lm_head")
	if s.zeroRows.n == 0 || c.model == nil || !embedding(t.Name) && !head {
		return 0
	}
	tokens, err := c.model.Tokenizer()
	if err != nil {
		return 0
	}
	return min(s.zeroRows.n, max(0, s.zeroRows.last-tokens.LastToken()))
}

func judgeMatrix(c *checker, t tensor.Tensor, s *stats) {
	tokens := embedding(t.Name)
	zeroRows := s.zeroRows.n - paddedRows(c, t, s)
	few := tokens && zeroRows*100 < s.rows
	switch {
	case s.zeroRows.n == s.rows:
		c.addAt("zero-tensor", t.Name, "all %d values are zero", s.elements)
		return
	case zeroRows > 0 && !few:
		c.addAt("zero-rows", t.Name, "%d of %d rows are zero, from %d to %d", s.zeroRows.n, s.rows, s.zeroRows.first,
			s.zeroRows.last)
		return
	case judgeRhythm(c, t, s):
		return
	case s.zeroCols.n > 0 && (!s.rounded || s.zeroCols.longest >= 32): // as many as the smallest block has
		c.addAt("zero-columns", t.Name, "%d of %d columns are zero, from %d to %d", s.zeroCols.n, s.cols,
			s.zeroCols.first,
			s.zeroCols.last)
		return
	case s.zero.n > 0 && s.zero.n*20 < s.elements/blockOf(t) && !tokens:
		c.addAt("zero-blocks", t.Name, "%d blocks of %d values are zero, the first in %s", s.zero.n, blockOf(t),
			place(s, s.zero.first*blockOf(t)))
		return
	case s.flatRows.n > 0 && !few && s.cols > 8:
		c.addAt("constant-rows", t.Name, "%d of %d rows have one value throughout, from %d to %d", s.flatRows.n, s.rows,
			s.flatRows.first, s.flatRows.last)
		return
	}
	judgeOutliers(c, t, s)
	if s.repeats.n > 0 && !tokens && s.cols > 8 && !stacked(s) {
		c.addAt("repeated-rows", t.Name, "%d of %d rows are there before, the first is row %d", s.repeats.n, s.rows,
			s.repeats.first)
	}
	if math.Abs(s.mean) > s.rms/2 && !strings.Contains(t.Name, "router") && s.elements >= 1024 {
		c.addAt("value-shift", t.Name, "the mean is %.3g, and the root mean square %.3g", s.mean, s.rms)
	}
}

// blockOf returns the number of values that are zero together, or not.
func blockOf(t tensor.Tensor) int { return max(t.DType.BlockSize(), 32) }

// judgeRhythm finds rows that were padded to another width: zero blocks recur at a distance other than the rows'.
func judgeRhythm(c *checker, t tensor.Tensor, s *stats) bool {
	if s.zero.n < 8 || s.cols%blockOf(t) != 0 {
		return false
	}
	row := s.cols / blockOf(t)
	common, times := 0, 0 // commonest distance after runs of zero blocks
	for d, n := range s.zero.rhythm {
		if d > 1 && n > times {
			common, times = d, n
		}
	}
	run := 1 // successive zero blocks
	if n := s.zero.rhythm[1]; times > 0 {
		run += (n + times/2) / times
	}
	period := common + run - 1
	if common == 0 || period == row || times*run*2 < s.zero.n {
		return false
	}
	c.addAt("row-layout", t.Name,
		"of every %d blocks %d are zero, but a row has %d: rows of %d values were padded to %d",
		period, run, row, (period-run)*blockOf(t), period*blockOf(t))
	return true
}

// judgeOutliers finds unexplained outliers among scales of blocks, and among values.
func judgeOutliers(c *checker, t tensor.Tensor, s *stats) {
	if s.scales.n > 0 {
		e, above := s.scales.median(spread)
		if above > 0 {
			at := s.scales.largestAt * t.DType.BlockSize()
			c.addAt("scale-implausible", t.Name,
				"%d of %d blocks of %v have scales far above the others, the largest %.3g in %s (half are "+
					"below %.2g)", above,
				s.scales.n, t.DType, s.scales.largest, place(s, at), math.Ldexp(1, e))
			return
		}
	}
	if half := median(s.rowMax); half > 0 && float64(s.max) > math.Ldexp(half, spread) {
		c.addAt("value-implausible", t.Name, "%.3g in %s, while half of the rows stay below %.3g", s.max,
			place(s, s.maxAt),
			half)
	}
}

// median returns the middle of x by size; 1 where there is nothing.
func median(x []float32) float64 {
	if len(x) == 0 {
		return 1
	}
	m := make([]float32, len(x))
	for i, v := range x {
		m[i] = float32(math.Abs(float64(v)))
	}
	slices.Sort(m)
	return float64(m[len(m)/2])
}

func judgeVector(c *checker, t tensor.Tensor, s *stats) {
	bias := strings.HasSuffix(t.Name, "bias") // zero at the start of training, and often afterwards
	if s.max == 0 && (bias || s.elements > 1 || strings.Contains(t.Name, "scal")) {
		severity := Error
		if bias {
			severity = Note
		}
		c.addAs(severity, "zero-tensor", []string{t.Name}, "%s: all %d values are zero", t.Name, s.elements)
		return
	}
	if len(s.values) < 16 || strings.Contains(t.Name, "rope_freqs") {
		return
	}
	if half := median(s.values); half > 0 && float64(s.max) > 1e4*half {
		c.addAt("value-implausible", t.Name, "%.3g in %s, while half of the values are below %.3g", s.max,
			place(s, s.maxAt),
			half)
	}
}
