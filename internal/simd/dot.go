package simd

// A dot product of rows w and x is taken in 16 partial sums: fma(w[k], x[k], sum) goes to sum k mod 16, for k in order.
// The halves of the sums are added until a single number is left: i and i+8, i and i+4, i and i+2, 0 and 1.

// dotF32 returns the dot product of w and x[:len(w)].
func dotF32(w, x []float32) float32 {
	var dst [1]float32
	dotQuad(dst[:], 0, weights{f32: w}, x[:len(w)])
	return dst[0]
}

// DotsF32 sets dst[r*stride+i] to the dot product of row i of w and row r of x,
// both of k elements, k > 0.
func DotsF32(dst []float32, stride int, w, x []float32, k int) {
	dots(dst, stride, weights{f32: w}, len(w)/k, x, k)
}

// DotsF16 does DotsF32's work for weights as binary16.
func DotsF16(dst []float32, stride int, w []uint16, x []float32, k int) {
	dots(dst, stride, weights{u16: w}, len(w)/k, x, k)
}

// DotsBF16 does DotsF32's work for weights as bfloat16.
func DotsBF16(dst []float32, stride int, w []uint16, x []float32, k int) {
	dots(dst, stride, weights{u16: w, bf16: true}, len(w)/k, x, k)
}

const (
	lanes    = 16   // partial sums of a dot product
	dotRows  = 4    // rows of w in a step
	dotCols  = 6    // rows of x in a block
	dotBatch = 32   // rows of w in a batch of blocks, while rows of x are in the cache
	dotPart  = 1152 // elements in a part of the rows: 18 kB of w, which are read once, and 27 of x
)

// dotSums are the partial sums of dotRows dot products.
type dotSums [dotRows][lanes]float32

// weights are the elements of rows, in f32, in u16, or in eights from element at on.
type weights struct {
	f32    []float32
	u16    []uint16
	bf16   bool
	eights *Eights
	at     int
}

// skip returns the weights after the first n elements.
func (w weights) skip(n int) weights {
	switch {
	case w.eights != nil:
		w.at += n
	case w.u16 != nil:
		w.u16 = w.u16[n:]
	default:
		w.f32 = w.f32[n:]
	}
	return w
}

// dots sets products as DotsF32 for n rows of weights.
func dots(dst []float32, stride int, w weights, n int, x []float32, k int) {
	rows := len(x) / k
	if n == 0 {
		return
	}
	if w.f32 != nil {
		for ; rows >= dotCols; rows -= dotCols {
			i := n &^ (dotRows - 1)
			dotBlocks(dst, stride, w.f32[:i*k], x[:dotCols*k], k)
			for r := range dotCols {
				dotLast(dst[r*stride:], w, i, n, x[r*k:(r+1)*k])
			}
			dst, x = dst[min(dotCols*stride, len(dst)):], x[dotCols*k:]
		}
	}
	last := 0
	for n-last >= dotRows {
		gap := 1
		if tier >= avx2 { // memory is read as so many pieces: from a single place a core reads more slowly
			gap = ((n-last)/dotRows - 1) | 1 // an odd number: powers of two share parts of caches
		}
		for i := last; i < last+gap; i++ {
			for r := range rows {
				dotQuad(dst[r*stride+i:], gap, w.skip(i*k), x[r*k:(r+1)*k])
			}
		}
		last += gap * dotRows
	}
	for r := range rows {
		dotLast(dst[r*stride:], w, last, n, x[r*k:(r+1)*k])
	}
}

// dotLast sets dst[i] to the product of x with row i of w, from i to n.
func dotLast(dst []float32, w weights, i, n int, x []float32) {
	for ; i < n; i++ {
		dotQuad(dst[i:], 0, w.skip(i*len(x)), x)
	}
}

// dotQuad sets dst[i*gap] to the product of x with row i*gap of w, for dotRows rows, or for a single row if gap is 0.
func dotQuad(dst []float32, gap int, w weights, x []float32) {
	n, k, whole := dotRows, len(x), len(x)&^(lanes-1)
	if gap == 0 {
		n = 1 // the same row repeatedly: as fast as once
	}
	var sums dotSums
	addDots(&sums, w, gap*k, x[:whole])
	addTails(sums[:n], w.skip(whole), gap*k, x[whole:])
	var all [dotRows]float32
	sumDots(&all, &sums)
	for i, v := range all[:n] {
		dst[i*gap] = v
	}
}

// dotBlocks multiplies a multiple of dotRows rows with dotCols. Sums of rows of a single part wait for no other part.
func dotBlocks(dst []float32, stride int, w, x []float32, k int) {
	const quads = dotBatch / dotRows
	whole := k &^ (lanes - 1)
	if whole == k && k <= dotPart {
		for i := 0; i*k < len(w); i += dotRows {
			var sums [dotCols]dotSums
			addBlock(&sums, w[i*k:], x, k, k)
			sumBlock(dst[i:], stride, &sums)
		}
		return
	}
	for i := 0; i*k < len(w); i += dotBatch {
		var blocks [quads][dotCols]dotSums
		n := min(quads, (len(w)/k-i)/dotRows)
		for at := 0; at < whole; at += dotPart {
			for q := range n {
				addBlock(&blocks[q], w[(i+q*dotRows)*k+at:], x[at:], k, min(dotPart, whole-at))
			}
		}
		for q := range n {
			j := i + q*dotRows
			for r := 0; r < dotCols && whole < k; r++ {
				addTails(blocks[q][r][:], weights{f32: w[j*k+whole:]}, k, x[r*k+whole:(r+1)*k])
			}
			sumBlock(dst[j:], stride, &blocks[q])
		}
	}
}

// sumBlock sets dotCols rows of dst to the sums of partial sums.
func sumBlock(dst []float32, stride int, sums *[dotCols]dotSums) {
	if dst = dst[:(dotCols-1)*stride+dotRows]; tier >= avx512 {
		sumBlockAVX512(dst, stride, sums)
		return
	}
	for r := range sums {
		sumDots((*[dotRows]float32)(dst[r*stride:]), &sums[r])
	}
}

// addTails adds the tail of x, fewer than 16 elements, times some rows.
func addTails(sums [][lanes]float32, w weights, stride int, x []float32) {
	if len(x) == 0 {
		return
	}
	for i := range sums {
		var row [lanes]float32
		w.skip(i * stride).load(row[:len(x)])
		accumulate(&sums[i], row[:len(x)], x)
	}
}

// addDots adds the products of x, whole blocks of 16, with the rows at multiples of stride.
func addDots(sums *dotSums, w weights, stride int, x []float32) {
	end := (dotRows-1)*stride + len(x)
	switch {
	case tier == generic:
		addDotsGeneric(sums, w, stride, x)
	case w.eights != nil:
		w.eights.addDots(sums, w.at, stride, x)
	case w.u16 == nil:
		addDotsF32Vec(sums, w.f32[:end], stride, x)
	case w.bf16:
		addDotsBF16Vec(sums, w.u16[:end], stride, x)
	default:
		addDotsF16Vec(sums, w.u16[:end], stride, x)
	}
}

func addDotsGeneric(sums *dotSums, w weights, stride int, x []float32) {
	for i := range sums {
		var buf [256]float32
		for at := 0; at < len(x); at += len(buf) {
			part := buf[:min(len(buf), len(x)-at)]
			w.skip(i*stride + at).load(part)
			accumulate(&sums[i], part, x[at:])
		}
	}
}

// addBlock adds the products of k elements, whole blocks of 16, of dotRows rows of w and dotCols of x, all at multiples
// of stride. NEON has no kernel for a block: with one row of x, 16 of its registers are sums.
func addBlock(sums *[dotCols]dotSums, w, x []float32, stride, k int) {
	w, x = w[:(dotRows-1)*stride+k], x[:(dotCols-1)*stride+k]
	if tier >= avx2 {
		addBlockVec(sums, w, x, stride, k)
		return
	}
	for r := range sums {
		addDots(&sums[r], weights{f32: w}, stride, x[r*stride:][:k])
	}
}

// sumDots sets dst to the sums of partial sums.
func sumDots(dst *[dotRows]float32, sums *dotSums) {
	if tier > generic {
		sumDotsVec(dst, sums)
		return
	}
	for i := range dst {
		dst[i] = sumLanes(&sums[i])
	}
}

// load sets dst to the first weights.
func (w weights) load(dst []float32) {
	switch {
	case w.eights != nil:
		w.eights.load(dst, w.at)
	case w.u16 == nil:
		copy(dst, w.f32[:len(dst)])
	case w.bf16:
		loadBF16Generic(dst, w.u16[:len(dst)])
	default:
		loadF16Generic(dst, w.u16[:len(dst)])
	}
}

// accumulate adds w[k]*x[k] to p[k mod 16], fused, for k in order. A dot
// product may be split at any multiple of 16.
func accumulate(p *[lanes]float32, w, x []float32) {
	x = x[:len(w)]
	for len(w) >= lanes {
		a, b := (*[lanes]float32)(w), (*[lanes]float32)(x)
		for i := range p {
			// fma32 by hand: the slow path keeps the compiler from inlining the function
			s := float64(float64(a[i])*float64(b[i])) + float64(p[i])
			if needsRoundOnce(s) {
				p[i] = fma32(a[i], b[i], p[i])
			} else {
				p[i] = float32(s)
			}
		}
		w, x = w[lanes:], x[lanes:]
	}
	for i, v := range w {
		p[i] = fma32(v, x[i], p[i])
	}
}

// sumLanes adds p's halves until a single number is left: i and i+8, i and i+4, i and i+2, 0 and 1.
func sumLanes(p *[lanes]float32) float32 {
	q := *p
	for n := lanes / 2; n >= 1; n /= 2 {
		for i := range n {
			q[i] += q[i+n]
		}
	}
	return q[0]
}

const (
	serialRows = 4  // rows of w in a step of SerialF32
	serialCols = 8  // rows of x in a step
	serialPart = 64 // elements in a part of the rows
)

// SerialF32 sets dst[r*stride+i] to the product of row i of w and row r of x, both of k elements, k > 0. A product of
// elements is rounded and added to a single sum, from the front.
func SerialF32(dst []float32, stride int, w, x []float32, k int) {
	n, rows := len(w)/k, len(x)/k
	if rows == 1 && n > 1 { // rows of w fill the step
		w, x, n, rows, stride = x, w, 1, n, 1
	}
	for r := 0; r < rows; r += serialCols {
		cols := min(serialCols, rows-r)
		for from := 0; from < k; from += serialPart {
			m := min(serialPart, k-from)
			var turned [serialPart * serialCols]float32 // an element of all rows after another
			for c := range cols {
				for j, v := range x[(r+c)*k+from:][:m] {
					turned[j*serialCols+c] = v
				}
			}
			for i := 0; i < n; i += serialRows {
				var sums [serialRows][serialCols]float32
				part, gap, some := w[i*k+from:], k, min(serialRows, n-i)
				if some < serialRows { // a row is taken several times
					var last [serialRows * serialPart]float32
					for q := range serialRows {
						copy(last[q*m:(q+1)*m], w[(i+min(q, some-1))*k+from:])
					}
					part, gap = last[:], m
				}
				for q := range some {
					for c := range cols {
						if from > 0 {
							sums[q][c] = dst[(r+c)*stride+i+q]
						}
					}
				}
				addSerial(&sums, part[:(serialRows-1)*gap+m], gap, turned[:m*serialCols])
				for q := range some {
					for c := range cols {
						dst[(r+c)*stride+i+q] = sums[q][c]
					}
				}
			}
		}
	}
}

// addSerial adds the products of four rows, from w, w[gap], w[2*gap] and w[3*gap] on, with the rows of x.
func addSerial(sums *[serialRows][serialCols]float32, w []float32, gap int, x []float32) {
	if tier >= avx2 {
		addSerialAVX2(sums, w, gap, x)
		return
	}
	for q := range serialRows {
		s := &sums[q]
		for j := range len(x) / serialCols {
			v, col := w[q*gap+j], x[j*serialCols:][:serialCols]
			for c := range s {
				s[c] += float32(v * col[c])
			}
		}
	}
}
