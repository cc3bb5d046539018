package check

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/checkpoint/packing"
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/mmap"
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
	if math.Abs(s.mean) > s.rms/2 && !strings.Contains(t.Name, "router") && !c.isRate(t.Name) && s.elements >= 1024 {
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

// sibling is a tensor among the tensors of its kind.
type sibling struct{ layer, tensor int }

// tensorKinds groups tensors by kind, in order of layers.
func tensorKinds(c *checker) map[string][]sibling {
	all := map[string][]sibling{}
	for i, t := range c.files.tensors {
		if kind, layer := kindOf(t.Name); layer >= 0 {
			all[kind] = append(all[kind], sibling{layer, i})
		}
	}
	for _, s := range all {
		slices.SortFunc(s, func(a, b sibling) int { return cmp.Compare(a.layer, b.layer) })
	}
	return all
}

// judgeSiblings compares tensors with each other.
func judgeSiblings(c *checker) {
	judgeDuplicates(c)
	all := tensorKinds(c)
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		if s := all[kind]; len(s) >= 3 && c.stats[s[0].tensor].rows > 1 {
			judgeSizes(c, kind, s)
			judgeTurned(c, s)
		}
	}
}

// far is the maximal difference in size between a tensor and its siblings, in binary orders.
const far = 3

// judgeSizes finds a tensor whose values are larger or smaller than in other layers.
func judgeSizes(c *checker, kind string, s []sibling) {
	size := make([]float64, len(s))
	for i, x := range s {
		if c.stats[x.tensor].rms == 0 || c.touched(x.tensor) {
			return // was told of
		}
		size[i] = math.Log2(c.stats[x.tensor].rms)
	}
	all := slices.Sorted(slices.Values(size))
	for i, x := range s {
		low, middle, high := spreadWithout(all, size[i])
		spread := max(high-middle, middle-low)
		if d := size[i] - middle; math.Abs(d) > far+2*spread {
			name := c.files.tensors[x.tensor].Name
			c.addAt("layer-outlier", name, "its size is %.3g, that of its siblings about %.3g", c.stats[x.tensor].rms,
				math.Exp2(middle))
		}
	}
}

// spreadWithout returns the least, the middle and the largest of at least two sorted numbers, without x, an element.
func spreadWithout(sorted []float64, x float64) (low, middle, high float64) {
	at, _ := slices.BinarySearch(sorted, x)
	rest := func(i int) float64 {
		if i >= at {
			i++
		}
		return sorted[i]
	}
	n := len(sorted) - 1
	return rest(0), rest(n / 2), rest(n - 1)
}

// judgeTurned finds a square matrix whose columns look like its siblings' rows. In trained models the features of the
// residual stream differ in size: matrices writing the stream show the sizes in their rows, matrices reading the stream
// in their columns.
func judgeTurned(c *checker, s []sibling) {
	n := len(c.stats[s[0].tensor].square.outputs)
	for _, x := range s {
		if len(c.stats[x.tensor].square.outputs) != n || n == 0 || c.touched(x.tensor) {
			return
		}
	}
	rest := func(i int, of func(*stats) []float64) []float64 {
		sum := make([]float64, n)
		for j, x := range s {
			for k, v := range of(&c.stats[x.tensor]) {
				if j != i {
					sum[k] += v
				}
			}
		}
		return sum
	}
	outputs, inputs := func(s *stats) []float64 { return s.square.outputs }, func(s *stats) []float64 {
		return s.square.inputs
	}
	least := max(0.25, 5/math.Sqrt(float64(n)))
	for i, x := range s {
		own := &c.stats[x.tensor]
		straight := max(correlation(own.square.outputs, rest(i, outputs)),
			correlation(own.square.inputs, rest(i, inputs)))
		across := max(correlation(own.square.inputs, rest(i, outputs)),
			correlation(own.square.outputs, rest(i, inputs)))
		if across > least && across > straight+least {
			name := c.files.tensors[x.tensor].Name
			c.addAt("transposed", name,
				"its columns resemble the rows of its siblings (correlation %.2f), its rows do not (%.2f)", across,
				straight)
		}
	}
}

// correlation returns Pearson's correlation, 0 if x or y is constant.
func correlation(x, y []float64) float64 {
	var mx, my, xx, yy, xy float64
	for i := range x {
		mx += x[i] / float64(len(x))
		my += y[i] / float64(len(x))
	}
	for i := range x {
		a, b := x[i]-mx, y[i]-my
		xx, yy, xy = xx+a*a, yy+b*b, xy+a*b
	}
	if xx*yy == 0 {
		return 0
	}
	return xy / math.Sqrt(xx*yy)
}

// touched reports whether something was found in a tensor's values.
func (c *checker) touched(i int) bool { return c.spoiled[c.files.tensors[i].Name] }

// judgeDuplicates finds tensors with the bytes of another, and matrices of a stack with the bytes of another.
func judgeDuplicates(c *checker) {
	type key struct {
		hash uint64
		size int
	}
	first := map[key]int{}
	for i, t := range c.files.tensors {
		s := &c.stats[i]
		if s.elements < 16 || c.touched(i) || s.rows == 1 && isFlat(s.values) {
			continue
		}
		if stacked(s) {
			judgeExperts(c, i)
		}
		k := key{s.hashes.whole, t.Size()}
		j, ok := first[k]
		if !ok {
			first[k] = i
			continue
		}
		same := false
		err := mmap.Guard(func() error { same = bytes.Equal(t.Data, c.files.tensors[j].Data); return nil })
		if err != nil || !same {
			continue
		}
		a, b := c.files.tensors[j].Name, t.Name
		if head(a) && embedding(b) || head(b) && embedding(a) {
			c.addAs(Note, "tied-head", []string{a, b},
				"the head repeats the embedding: the model is tied, and the file larger than it need be")
			continue
		}
		c.add("tensor-duplicate", []string{b, a}, "%s has the bytes of %s", b, a)
	}
}

func head(name string) bool { return name == "output.weight" || name == "lm_head.weight" }

// isFlat reports whether all values are equal.
func isFlat(x []float32) bool {
	return !slices.ContainsFunc(x, func(v float32) bool { return v != x[0] })
}

// stacked reports whether matrices of a stack are equal.
func stacked(s *stats) bool {
	parts := slices.Clone(s.hashes.parts)
	slices.Sort(parts)
	return len(slices.Compact(parts)) < len(s.hashes.parts)
}

// judgeExperts reports equal matrices of a stack.
func judgeExperts(c *checker, i int) {
	first := map[uint64]int{}
	for j, h := range c.stats[i].hashes.parts {
		if k, ok := first[h]; ok {
			name := c.files.tensors[i].Name
			c.addAt("tensor-duplicate", name, "matrix %d of the stack has the bytes of matrix %d", j, k)
			return
		}
		first[h] = j
	}
}

// normKinds lists the norms whose gains are known to lie around 1, by kind: the norms before attention and MLP, and the
// norms of queries and keys. (In some families' Hugging Face files post_attention_layernorm is before the MLP.)
var normKinds = []struct {
	what  string
	names []string
	least float64 // upper bound of the smallest gain
}{
	{"before attention and MLP", []string{"attn_norm.weight", "ffn_norm.weight", "input_layernorm.weight",
		"pre_feedforward_layernorm.weight"}, 1},
	{"of queries and keys", []string{"attn_q_norm.weight", "attn_k_norm.weight", "q_norm.weight", "k_norm.weight"},
		1.25},
}

// judgeNorms judges the norms' gains, the factors of a row.
func judgeNorms(c *checker) {
	if c.hasFinding("arch-key") {
		return
	}
	plus, offset := c.normOffset(), float32(0)
	if c.files.dir != "" {
		offset = plus
	}
	for _, k := range normKinds {
		var gains []float32
		var where []string
		var norms []int // of c.files.tensors
		for i, t := range c.files.tensors {
			if _, layer := kindOf(t.Name); layer < 0 || c.touched(i) ||
				!slices.ContainsFunc(k.names, func(n string) bool {
					return strings.HasSuffix(t.Name, "."+n)
				}) {
				continue
			}
			where, norms = append(where, t.Name), append(norms, i)
			for _, v := range c.stats[i].values {
				gains = append(gains, v+offset)
			}
		}
		if len(gains) < 64 {
			continue
		}
		slices.Sort(gains)
		below, _ := slices.BinarySearch(gains, 0)
		least, half := gains[0], gains[len(gains)/2]
		facts := fmt.Sprintf("the gains of the %d norms %s: half are above %.3g, the least is %.3g, "+
			"%.1f %% are negative",
			len(where), k.what, half, least, 100*float64(below)/float64(len(gains)))
		switch {
		case float64(below) > 0.03*float64(len(gains)), plus != 0 && k.least > 1 && half < 0.6:
			c.add("norm-offset", where, "%s: the 1 was not added, or taken off", facts)
		case float64(least) >= k.least && least < gains[len(gains)-1]: // all 1 is an untrained model
			c.add("norm-offset", where, "%s: the 1 was added once too often", facts)
		default:
			judgeShifted(c, norms)
		}
	}
}

// isRate reports whether a tensor has a scan's rates of decay, numbers of one sign, or another of a scan's own weights.
func (c *checker) isRate(name string) bool {
	return slices.ContainsFunc(c.family().Habits, func(h family.Habit) bool { return h.NegExp }) &&
		slices.ContainsFunc(c.family().Bare, func(end string) bool { return strings.HasSuffix(name, end) })
}

// normOffset returns the number that the family's converter adds to norms.
func (c *checker) normOffset() float32 {
	for _, h := range c.family().Habits {
		if h.Plus != 0 {
			return h.Plus
		}
	}
	return 0
}

// judgeShifted finds a single norm that lies 1 above or below its siblings.
func judgeShifted(c *checker, norms []int) {
	byKind := map[string][]int{}
	for _, i := range norms {
		kind, _ := kindOf(c.files.tensors[i].Name)
		byKind[kind] = append(byKind[kind], i)
	}
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		s := byKind[kind]
		if len(s) < 3 {
			continue
		}
		means := make([]float64, len(s))
		for j, i := range s {
			means[j] = c.stats[i].mean
		}
		slices.Sort(means)
		for _, i := range s {
			low, middle, high := spreadWithout(means, c.stats[i].mean)
			d := c.stats[i].mean - middle
			back := c.stats[i].mean - math.Copysign(1, d)
			margin := max(high-low, 0.1)
			if math.Abs(d) > 0.7 && high-low < 0.6 && back > low-margin && back < high+margin {
				name := c.files.tensors[i].Name
				c.addAt("norm-offset", name, "its mean is %.3g, that of its siblings %.3g to %.3g: it lies 1 apart",
					c.stats[i].mean, low, high)
			}
		}
	}
}
