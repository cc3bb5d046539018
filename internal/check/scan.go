package check

import (
	"fmt"
	"hash/maphash"
	"math"
	"runtime"
	"slices"
	"sync"

	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/tensor"
)

// stats is what one pass over a tensor's values gives. Sums are over finite values.
type stats struct {
	elements   int
	rows, cols int
	nan, inf   bad
	mean, rms  float64
	max        float32 // of absolute values
	maxAt      int     // element

	zeroRows  runs
	flatRows  runs // of one value that is not zero
	repeated  int  // rows that are there before
	repeatAt  int
	zeroCols  runs
	zero      zeroBlocks
	values    []float32 // of vectors that are not too long
	rowMax    []float32 // largest absolute value of each row
	hash      uint64    // of the bytes
	parts     []uint64  // likewise, of each matrix of a stack
	scales    scales
	alternate float64 // rms under the other type of two bytes; 0 for all other types
	ones      float64 // share of values from 1 to 2, likewise
}

// bad counts values.
type bad struct{ n, first int }

func (b *bad) add(i int) {
	if b.n == 0 {
		b.first = i
	}
	b.n++
}

// runs counts rows or columns.
type runs struct{ n, first, last int }

func (r *runs) add(i int) {
	if r.n == 0 {
		r.first = i
	}
	r.n++
	r.last = i
}

// zeroBlocks are the blocks without any value, outside rows and before columns
// are known that have none.
type zeroBlocks struct {
	n, first, second int
	rhythm           map[int]int // distances between successive ones
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
	nan, inf  bad
	exponents [512]int // of absolute values, by binary exponent + 256
	negative  bad      // where the format has none
	minimum   bad      // negative minimums, likewise
	largest   float32
	largestAt int // block
}

// cache keeps scans by what was scanned: the tests' files share most tensors.
type cache struct {
	mu    sync.Mutex
	stats map[cacheKey]stats
}

type cacheKey struct {
	dtype tensor.DType
	shape string
	hash  uint64
}

// seed is that of all hashes that are compared with each other.
var seed = maphash.MakeSeed()

// scan reads all tensors, several at once.
func (c *checker) scan() error {
	c.stats = make([]stats, len(c.files.tensors))
	all := c.report.Bytes
	if c.Against != "" {
		all *= 2 // they are read again
	}
	return c.each(len(c.files.tensors), func(i int) error {
		t := c.files.tensors[i]
		return mmap.Guard(func() (err error) {
			c.stats[i], err = c.statsOf(t)
			mmap.Drop(t.Data)
			return err
		})
	}, func(i int) int64 { return int64(len(c.files.tensors[i].Data)) }, 0, all)
}

// each runs work for 0 to n-1 on all cores, and tells how far it is: the bytes of
// what is done, after so many before, of all.
func (c *checker) each(n int, work func(i int) error, size func(i int) int64, before, all int64) error {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var failed error
	done := before
	next := make(chan int)
	for range min(runtime.GOMAXPROCS(0), max(n, 1)) {
		wg.Go(func() {
			for i := range next {
				err := work(i)
				mu.Lock()
				if failed == nil {
					failed = err
				}
				if done += size(i); c.Progress != nil && failed == nil {
					c.Progress(done, all)
				}
				mu.Unlock()
			}
		})
	}
	for i := range n {
		mu.Lock()
		stop := failed != nil || c.ctx.Err() != nil
		mu.Unlock()
		if stop {
			break
		}
		next <- i
	}
	close(next)
	wg.Wait()
	if failed == nil {
		failed = c.ctx.Err()
	}
	return failed
}

func (c *checker) statsOf(t tensor.Tensor) (stats, error) {
	if c.cache == nil {
		return c.read(t)
	}
	key := cacheKey{t.DType, fmt.Sprint(t.Shape), maphash.Bytes(seed, t.Data)}
	c.cache.mu.Lock()
	s, ok := c.cache.stats[key]
	c.cache.mu.Unlock()
	if ok {
		return s, nil
	}
	s, err := c.read(t)
	c.cache.mu.Lock()
	c.cache.stats[key] = s
	c.cache.mu.Unlock()
	return s, err
}

// maxVector is the length up to which a vector's values are kept.
const maxVector = 1 << 16

// segment is how many values are decoded at once: whole blocks of every format.
const segment = 1 << 13

// reader is the pass over one tensor.
type reader struct {
	*stats
	t        tensor.Tensor
	buf      [segment]float32
	cols     []bool // columns that hold something
	seen     map[uint64]bool
	sum, sq  float64
	finite   int
	block    int // elements that are zero together, or not
	holds    bool
	constant bool
	first    float32
	top      float32
}

func (c *checker) read(t tensor.Tensor) (stats, error) {
	s := stats{elements: t.Shape.Size(), rows: t.Rows(), cols: t.Shape.Last(), hash: maphash.Bytes(seed, t.Data)}
	if !t.DType.Quantized() && !t.DType.Float() || s.elements == 0 {
		return s, nil
	}
	r := reader{stats: &s, t: t, block: 32}
	if t.DType.Quantized() {
		r.block = t.DType.BlockSize()
		r.readScales()
	}
	if n := len(t.Shape); n > 2 && t.Shape[0] > 0 {
		size := len(t.Data) / t.Shape[0]
		for i := range t.Shape[0] {
			s.parts = append(s.parts, maphash.Bytes(seed, t.Data[i*size:(i+1)*size]))
		}
	}
	if s.rows > 1 {
		r.cols, s.rowMax = make([]bool, s.cols), make([]float32, 0, s.rows)
		r.seen = make(map[uint64]bool, s.rows)
	}
	for i := range s.rows {
		if i%64 == 0 && c.ctx.Err() != nil {
			return s, c.ctx.Err()
		}
		if err := r.row(i); err != nil {
			return s, fmt.Errorf("check: tensor %s: %w", t.Name, err)
		}
	}
	r.end()
	return s, nil
}

func (r *reader) row(i int) error {
	data := r.t.Row(i)
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
		r.zero = before // they are the row's
		r.zeroRows.add(i)
		return nil
	case r.constant:
		r.flatRows.add(i)
	}
	h := maphash.Bytes(seed, data)
	if r.seen[h] {
		if r.repeated == 0 {
			r.repeatAt = i
		}
		r.repeated++
	}
	r.seen[h] = true
	return nil
}

// segment takes in values x, from element base and column col on.
func (r *reader) segment(base, col int, x []float32) {
	if r.rows == 1 && len(r.values)+len(x) <= maxVector {
		r.values = append(r.values, x...)
	}
	for len(x) > 0 {
		n := min(r.block, len(x))
		if !r.piece(base, col, x[:n]) && r.rows > 1 && n == r.block {
			r.zero.add(base / r.block)
		}
		base, col, x = base+n, col+n, x[n:]
	}
}

// piece reports whether a block holds anything.
func (r *reader) piece(base, col int, x []float32) bool {
	holds := false
	for j, v := range x {
		if v != r.first {
			r.constant = false
		}
		if v == 0 {
			r.finite++
			continue
		}
		holds = true
		if r.cols != nil {
			r.cols[col+j] = true
		}
		f := float64(v)
		switch {
		case v != v:
			r.nan.add(base + j)
			continue
		case math.IsInf(f, 0):
			r.inf.add(base + j)
			continue
		}
		r.sum += f
		r.sq += f * f
		r.finite++
		if a := float32(math.Abs(f)); a > r.top {
			if r.top = a; a > r.max {
				r.max, r.maxAt = a, base+j
			}
		}
	}
	r.holds = r.holds || holds
	return holds
}

func (r *reader) end() {
	n := float64(max(r.finite, 1))
	r.mean, r.rms = r.sum/n, math.Sqrt(r.sq/n)
	for j, holds := range r.cols {
		if !holds {
			r.zeroCols.add(j)
		}
	}
	if r.t.DType == tensor.F16 || r.t.DType == tensor.BF16 {
		r.other()
	}
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
	r.alternate, r.ones = math.Sqrt(sq/float64(n)), float64(ones)/float64(n)
}

// readScales reads the header of each block.
func (r *reader) readScales() {
	d := r.t.DType
	// Formats whose quantizers make no negative scale, and no negative minimum.
	plain := []tensor.DType{tensor.Q8_0, tensor.Q4_1, tensor.Q5_1, tensor.Q2_K, tensor.Q4_K, tensor.Q5_K}
	minimum := []tensor.DType{tensor.Q2_K, tensor.Q4_K, tensor.Q5_K}
	noSign, noMinus := slices.Contains(plain, d), slices.Contains(minimum, d)
	var h quant.Header
	s := &r.scales
	for data := r.t.Data; len(data) >= d.BlockBytes(); data = data[d.BlockBytes():] {
		h.Read(d, data)
		v, m := float16.F16(h.D), float16.F16(h.Min)
		if d == tensor.MXFP4 {
			v, m = float16.BF16(h.D), 0
		}
		if !quant.HasMin(d) {
			m = 0
		}
		s.add(v, m, noSign, noMinus)
	}
}

func (s *scales) add(v, m float32, noSign, noMinus bool) {
	f := math.Abs(float64(v))
	switch {
	case math.IsNaN(f) || m != m:
		s.nan.add(s.n)
	case math.IsInf(f, 0) || math.IsInf(float64(m), 0):
		s.inf.add(s.n)
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

// median is the binary exponent that half of the scales do not exceed, and above
// how many lie by more than so many.
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

// floats are all values of a vector.
func (c *checker) floats(i int) ([]float32, error) {
	t := c.files.tensors[i]
	if t.Shape.Size() > maxVector {
		return nil, fmt.Errorf("check: tensor %s: %d values", t.Name, t.Shape.Size())
	}
	x := make([]float32, t.Shape.Size())
	err := mmap.Guard(func() error { return quant.Dequantize(t.DType, x, t.Data) })
	return x, err
}
