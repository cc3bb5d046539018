package check

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/tensor"
)

// stats is the result of a pass over a tensor's values. Sums are over finite values.
type stats struct {
	elements   int
	rows, cols int
	odd        notFinite
	mean, rms  float64
	max        float32 // of absolute values
	maxAt      int     // element

	zeroRows spots
	flatRows spots // rows of equal values other than zero
	repeats  spots // rows with the bytes of an earlier row
	zeroCols spots
	rounded  bool // single values are also zero: a quantizer's, or pruned
	zero     zeroBlocks
	values   []float32                           // values of vectors up to maxVector
	rowMax   []float32                           // largest absolute value of each row
	square   struct{ outputs, inputs []float64 } // logarithms of the sizes of a square matrix's rows and columns
	hashes   struct {
		whole uint64   // hash of the tensor's bytes
		parts []uint64 // hashes of the matrices of a stack
	}
	scales scales
	twin   struct { // the tensor as the other type of two bytes; zero for all other types
		rms  float64
		ones float64 // share of the tensor's own values from 1 to 2
	}
}

// notFinite counts values or blocks that are no finite number.
type notFinite struct{ nan, inf spots }

func (o *notFinite) n() int { return o.nan.n + o.inf.n }

// spots counts values, blocks, rows or columns.
type spots struct {
	n, first, last int
	run, longest   int // numbers of successive spots
}

func (s *spots) add(i int) {
	if s.n == 0 {
		s.first = i
	}
	if s.run++; i != s.last+1 {
		s.run = 1
	}
	s.n++
	s.last, s.longest = i, max(s.longest, s.run)
}

// zeroBlocks describes the blocks of zeros, outside rows of zeros and before columns of zeros are known.
type zeroBlocks struct {
	n, first, second int
	rhythm           map[int]int // distances between successive blocks
	before           int
}

func (z *zeroBlocks) add(i int) {
	switch z.n {
	case 0:
		z.first, z.rhythm = i, map[int]int{}
	case 1:
		z.second = i
		fallthrough
	default:
		if len(z.rhythm) < 1000 {
			z.rhythm[i-z.before]++
		}
	}
	z.before = i
	z.n++
}

// scales are the scales of a quantized tensor's blocks.
type scales struct {
	n         int
	odd       notFinite
	exponents [512]int // of absolute values, by binary exponent + 256
	negative  spots    // where the format has none
	minimum   spots    // negative minimums, likewise
	largest   float32
	largestAt int // block
}

// seed is shared by all hashes compared with each other.
var seed = maphash.MakeSeed()

// scan reads all tensors, several at once.
func (c *checker) scan() error {
	c.stats = make([]stats, len(c.files.tensors))
	c.total = c.report.Bytes
	if c.Against != "" {
		c.total *= 2 // the tensors are read again
	}
	return c.forEach(len(c.files.tensors), func(i int) error {
		return mmap.Guard(func() (err error) {
			c.stats[i], err = readTensor(c, c.files.tensors[i])
			return err
		})
	})
}

// forEach calls work for 0 to n-1 on all cores, until a call fails. Progress is called on the caller's goroutine: a
// panic there reaches the caller, once the workers have ended.
func (c *checker) forEach(n int, work func(i int) error) error {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var failed error
	next, ended := make(chan int), make(chan struct{})
	stop := sync.OnceFunc(func() { close(next) })
	defer wg.Wait()
	defer stop()
	c.told = make(chan struct{}, 1)
	for range min(runtime.GOMAXPROCS(0), max(n, 1)) {
		wg.Go(func() {
			for i := range next {
				if err := work(i); err != nil {
					mu.Lock()
					failed = cmp.Or(failed, err)
					mu.Unlock()
				}
			}
		})
	}
	for i := 0; i < n; {
		mu.Lock()
		over := failed != nil || c.ctx.Err() != nil
		mu.Unlock()
		if over {
			break
		}
		select {
		case next <- i:
			i++
		case <-c.told:
			c.tell()
		}
	}
	stop()
	go func() { wg.Wait(); close(ended) }()
	for {
		select {
		case <-c.told:
			c.tell()
		case <-ended:
			c.tell()
			return cmp.Or(failed, c.ctx.Err())
		}
	}
}

// advance notes that data and n bytes are done, and drops data from memory.
func (c *checker) advance(data []byte, n int) {
	mmap.Drop(data)
	c.mu.Lock()
	c.done += int64(n)
	c.mu.Unlock()
	select {
	case c.told <- struct{}{}:
	default: // a signal is pending
	}
}

// tell calls Progress.
func (c *checker) tell() {
	c.mu.Lock()
	done := c.done
	c.mu.Unlock()
	if c.Progress != nil && c.ctx.Err() == nil {
		c.Progress(done, c.total)
	}
}

// maxVector is the length up to which a vector's values are kept.
const maxVector = 1 << 16

// segment is how many values are decoded at once: whole blocks of every format.
const segment = 1 << 13

// reader is the pass over a tensor.
type reader struct {
	*stats
	t        tensor.Tensor
	buf      [segment]float32
	cols     []bool // columns with values other than zero
	empty    int    // how many do not, yet
	seen     map[uint64]bool
	sum, sq  float64
	finite   int
	block    int // elements that are zero together, or not
	holds    bool
	constant bool
	first    float32
	top      float32
}

// readTensor is checker.read; tests keep its results.
var readTensor = (*checker).read

// read passes once over a tensor.
func (c *checker) read(t tensor.Tensor) (stats, error) {
	s := stats{elements: t.Shape.Size(), rows: t.Rows(), cols: t.Shape.Last()}
	if !t.DType.Quantized() && !t.DType.Float() || s.elements == 0 {
		c.advance(nil, t.Stored())
		return s, nil
	}
	r := reader{stats: &s, t: t, block: 32}
	if t.DType.Quantized() {
		r.block = t.DType.BlockSize()
	}
	if s.rows > 1 {
		r.cols, r.empty, s.rowMax = make([]bool, s.cols), s.cols, make([]float32, 0, s.rows)
	}
	if len(t.Shape) == 2 && s.rows == s.cols && s.rows >= 64 {
		s.square.outputs, s.square.inputs = make([]float64, s.rows), make([]float64, s.cols)
	}
	if s.rows > 1 && !embedding(t.Name) {
		r.seen = make(map[uint64]bool, s.rows)
	}
	done := 0
	for i := range s.rows {
		if i%64 == 0 && c.ctx.Err() != nil {
			return s, c.ctx.Err()
		}
		if err := r.row(i); err != nil {
			return s, fmt.Errorf("tensor %s: %w", t.Name, err)
		}
		if end := (i + 1) * t.DType.RowBytes(s.cols); end-done > keep && t.Source == nil {
			c.advance(t.Data[done:end], end-done)
			done = end
		}
	}
	c.advance(t.Data[done:], t.Stored()-done)
	r.end()
	return s, nil
}

// keep is the number of finished bytes of a file kept in memory.
const keep = 16 << 20

func (r *reader) row(i int) error {
	data := r.t.Row(i)
	h := r.digest(i, data)
	if r.t.DType.Quantized() {
		r.readScales(data)
	}
	r.holds, r.constant, r.top = false, true, 0
	before := r.zero
	for at := 0; at < r.stats.cols; at += segment {
		n := min(segment, r.stats.cols-at)
		from := r.t.DType.RowBytes(at)
		if err := quant.Dequantize(r.t.DType, r.buf[:n], data[from:from+r.t.DType.RowBytes(n)]); err != nil {
			return err
		}
		if at == 0 {
			r.first = r.buf[0]
		}
		r.segment(i*r.stats.cols+at, at, r.buf[:n])
	}
	if r.rows == 1 {
		return nil
	}
	r.rowMax = append(r.rowMax, r.top)
	switch {
	case !r.holds:
		r.zero = before // the zeros count as the row's
		r.zeroRows.add(i)
		return nil
	case r.constant:
		r.flatRows.add(i)
	}
	if r.seen == nil {
		return nil
	}
	if r.seen[h] {
		r.repeats.add(i)
	}
	r.seen[h] = true
	return nil
}

// digest hashes a row, and adds the hash to the tensor's and to its matrix's in a stack.
func (r *reader) digest(i int, data []byte) uint64 {
	h := maphash.Bytes(seed, data)
	mix := func(to *uint64) { *to = bits.RotateLeft64(*to, 5)*0x9e3779b97f4a7c15 ^ h }
	mix(&r.hashes.whole)
	if len(r.t.Shape) > 2 {
		if i%r.t.Shape[len(r.t.Shape)-2] == 0 {
			r.hashes.parts = append(r.hashes.parts, 0)
		}
		mix(&r.hashes.parts[len(r.hashes.parts)-1])
	}
	return h
}

// segment takes in values x, from element base and column col on.
func (r *reader) segment(base, col int, x []float32) {
	if r.rows == 1 && len(r.values)+len(x) <= maxVector {
		r.values = append(r.values, x...)
	}
	for len(x) > 0 {
		n := min(r.block, len(x))
		if !r.addBlock(base, col, x[:n]) && r.rows > 1 && n == r.block {
			r.zero.add(base / r.block)
		}
		base, col, x = base+n, col+n, x[n:]
	}
}

// addBlock adds a block and reports whether the block has values other than zero.
func (r *reader) addBlock(base, col int, x []float32) bool {
	sum, sq, size := sums(x)
	top := math.Float32frombits(size)
	if size >= infinity {
		sum, sq, top = r.addBroken(base, x)
	} else {
		r.finite += len(x)
	}
	r.sum += sum
	r.sq += sq
	if top > r.max {
		r.max = top
		r.maxAt = base + slices.IndexFunc(x, func(v float32) bool { return v == top || v == -top })
	}
	r.top = max(r.top, top)
	if r.square.inputs != nil {
		r.square.outputs[base/r.stats.cols] += sq
		for j, v := range x {
			r.square.inputs[col+j] += float64(v) * float64(v)
		}
	}
	holds := size > 0
	r.constant = r.constant && !slices.ContainsFunc(x, func(v float32) bool { return v != r.first })
	if r.empty > 0 {
		for j, v := range x {
			if v != 0 && !r.cols[col+j] {
				r.cols[col+j] = true
				r.empty--
			}
		}
	}
	r.holds = r.holds || holds
	return holds
}

// infinity has the bits of the least float32 that is not finite, by size.
const infinity = 0x7f800000

// sums returns the sum of x, the sum of its squares, and the bits of the largest size, which are ordered like sizes.
// Two sums go side by side: a single sum would wait for itself.
func sums(x []float32) (sum, sq float64, size uint32) {
	var s0, s1, q0, q1 float64
	for len(x) >= 2 {
		f, g := float64(x[0]), float64(x[1])
		s0 += f
		s1 += g
		q0 += f * f
		q1 += g * g
		size = max(size, math.Float32bits(x[0])&^(1<<31), math.Float32bits(x[1])&^(1<<31))
		x = x[2:]
	}
	for _, v := range x {
		f := float64(v)
		s0 += f
		q0 += f * f
		size = max(size, math.Float32bits(v)&^(1<<31))
	}
	return s0 + s1, q0 + q1, size
}

// addBroken adds a block with values that are not finite: these are counted, and the sums and the largest of the others
// returned.
func (r *reader) addBroken(base int, x []float32) (sum, sq float64, top float32) {
	for j, v := range x {
		f := float64(v)
		switch {
		case v != v:
			r.odd.nan.add(base + j)
		case math.IsInf(f, 0):
			r.odd.inf.add(base + j)
		default:
			sum += f
			sq += f * f
			top = max(top, float32(math.Abs(f)))
			r.finite++
		}
	}
	return sum, sq, top
}

func (r *reader) end() {
	n := float64(max(r.finite, 1))
	r.mean, r.rms = r.sum/n, math.Sqrt(r.sq/n)
	for j, holds := range r.cols {
		if !holds {
			r.zeroCols.add(j)
		}
	}
	if r.zeroCols.n > 0 {
		r.rounded = r.t.DType.BlockSize() > 1 || r.isSparse()
	}
	for _, x := range [][]float64{r.square.outputs, r.square.inputs} {
		for i, v := range x {
			x[i] = math.Log(v + 1e-30)
		}
	}
	if r.t.Data != nil && (r.t.DType == tensor.F16 || r.t.DType == tensor.BF16) {
		r.other()
	}
}

// isSparse reports whether more than a hundredth of the first few thousand values is zero, besides columns of zeros.
// Values of trained models are hardly ever zero; values made of blocks of four bits often are.
func (r *reader) isSparse() bool {
	x := r.buf[:min(r.elements, segment)]
	var decoded []byte
	rows := r.t.Span(0, (len(x)+r.stats.cols-1)/r.stats.cols, &decoded)
	if quant.Dequantize(r.t.DType, x, rows[:r.t.DType.RowBytes(len(x))]) != nil {
		return false
	}
	zeros := 0
	for i, v := range x {
		if v == 0 && r.cols[i%r.stats.cols] {
			zeros++
		}
	}
	return zeros*100 > len(x)
}

// other reads a few thousand values under the other type of two bytes.
func (r *reader) other() {
	n, ones, sq := min(len(r.t.Data)/2, 4096), 0, 0.
	for i := range n {
		b := uint16(r.t.Data[2*i]) | uint16(r.t.Data[2*i+1])<<8
		own, v := float64(float16.BF16(b)), float64(float16.F16(b))
		if r.t.DType == tensor.F16 {
			own, v = v, own
		}
		if a := math.Abs(own); a >= 1 && a < 2 {
			ones++
		}
		sq += v * v
	}
	r.twin.rms, r.twin.ones = math.Sqrt(sq/float64(n)), float64(ones)/float64(n)
}

// readScales reads the header of each block of a row.
func (r *reader) readScales(data []byte) {
	d := r.t.DType
	// Quantizers make no negative scale or minimum of larger blocks, and no negative scale of Q8_0. MLX makes both,
	// which its own types and files of Q4_1 and Q5_1 may have. judgeScales judges packed weights.
	hasMin := quant.HasMin(d)
	noMinus := hasMin && d.BlockSize() == 256
	noSign := noMinus || d == tensor.Q8_0 && r.t.Source == nil
	var h quant.Header
	s := &r.scales
	for ; len(data) >= d.BlockBytes(); data = data[d.BlockBytes():] {
		h.Read(d, data)
		v, m := float16.F16(h.D), float16.F16(h.Min)
		if d == tensor.MXFP4 {
			v, m = float16.BF16(h.D), 0
		}
		if !hasMin {
			m = 0
		}
		s.add(v, m, noSign, noMinus)
	}
}

func (s *scales) add(v, m float32, noSign, noMinus bool) {
	f := math.Abs(float64(v))
	switch {
	case math.IsNaN(f) || m != m:
		s.odd.nan.add(s.n)
	case math.IsInf(f, 0) || math.IsInf(float64(m), 0):
		s.odd.inf.add(s.n)
	case f > 0:
		_, e := math.Frexp(f)
		s.exponents[min(max(e+256, 0), 511)]++
		if float32(f) > s.largest {
			s.largest, s.largestAt = float32(f), s.n
		}
	}
	if noSign && v < 0 {
		s.negative.add(s.n)
	}
	if noMinus && m < 0 {
		s.minimum.add(s.n)
	}
	s.n++
}

// median returns the median of the scales' binary exponents, and the number of scales above by more than beyond.
func (s *scales) median(beyond int) (exponent, above int) {
	total := 0
	for _, n := range s.exponents {
		total += n
	}
	sum := 0
	for i, n := range s.exponents {
		if sum += n; 2*sum >= total {
			exponent = i
			break
		}
	}
	for _, n := range s.exponents[min(exponent+beyond+1, len(s.exponents)):] {
		above += n
	}
	return exponent - 256, above
}

// embedding reports whether a matrix's rows are tokens, of which unused tokens may be zero, or alike.
func embedding(name string) bool {
	return strings.Contains(name, "token_embd") || strings.Contains(name, "embed_tokens")
}
