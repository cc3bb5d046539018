package simd

const (
	doubleRows = 2 // rows of w in a kernel of float64
	doubleQuad = 4 // rows of w in the kernel for AVX-512
)

// DotsF64 sets dst[r*stride+i] to the dot product of row i of w and row r of x, both of k elements, k > 0. A product is
// rounded and added to partial sum k mod 16, for k in order: nothing is fused. The partial sums are added as in
// DotsF32.
func DotsF64(dst []float64, stride int, w, x []float64, k int) {
	n, i := len(w)/k, 0
	for ; tier >= avx512 && i+doubleQuad <= n; i += doubleQuad {
		for r := range len(x) / k {
			dotDoublesAVX512(dst[r*stride+i:][:doubleQuad], w[i*k:(i+doubleQuad)*k], x[r*k:(r+1)*k])
		}
	}
	for ; i < n; i += doubleRows {
		rows := min(doubleRows, n-i)
		part := w[i*k : (i+rows)*k]
		for r := range len(x) / k {
			a, b := dotDoubles(part, (rows-1)*k, x[r*k:(r+1)*k]) // a single row is taken twice
			if dst[r*stride+i] = a; rows > 1 {
				dst[r*stride+i+1] = b
			}
		}
	}
}

// dotDoubles returns the products of x with two rows, at w[0] and w[stride].
func dotDoubles(w []float64, stride int, x []float64) (a, b float64) {
	if tier >= avx2 {
		return dotDoublesAVX2(w[:stride+len(x)], stride, x)
	}
	return dotDouble(w[:len(x)], x), dotDouble(w[stride:][:len(x)], x)
}

func dotDouble(w, x []float64) float64 {
	var sums [lanes]float64
	for i, v := range w {
		sums[i%lanes] += float64(v * x[i])
	}
	for n := lanes / 2; n > 0; n /= 2 {
		for i := range n {
			sums[i] += sums[i+n]
		}
	}
	return sums[0]
}
