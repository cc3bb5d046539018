package simd

// DotF32 returns the dot product of w and x[:len(w)] in 16 partial sums by
// fma(w[k], x[k], sum).
func DotF32(w, x []float32) float32 {
	var dst [1]float32
	dotRowsF32(dst[:], w, x)
	return dst[0]
}

// DotF16 is DotF32 over w's values as binary16.
func DotF16(w []uint16, x []float32) float32 {
	var dst [1]float32
	dotRowsF16(dst[:], w, x)
	return dst[0]
}

// DotBF16 is DotF32 over w's values as bfloat16.
func DotBF16(w []uint16, x []float32) float32 {
	var dst [1]float32
	dotRowsBF16(dst[:], w, x)
	return dst[0]
}

// DotRowsF32 sets each dst[r] to DotF32(w, row r of x), x being rows of len(w).
func DotRowsF32(dst, w, x []float32) { dotRowsF32(dst, w, x) }

// DotRowsF16 sets each dst[r] to DotF16(w, row r of x), x being rows of len(w).
func DotRowsF16(dst []float32, w []uint16, x []float32) { dotRowsF16(dst, w, x) }

// DotRowsBF16 sets each dst[r] to DotBF16(w, row r of x), x being rows of len(w).
func DotRowsBF16(dst []float32, w []uint16, x []float32) { dotRowsBF16(dst, w, x) }

// LoadF16 sets dst to the values of src as binary16. Exact.
func LoadF16(dst []float32, src []uint16) { loadF16(dst, src) }

// StoreF16 sets dst to src rounded to binary16, to nearest even; values of
// 65520 and beyond become infinities.
func StoreF16(dst []uint16, src []float32) { storeF16(dst, src) }

// LoadBF16 sets dst to the values of src as bfloat16. Exact.
func LoadBF16(dst []float32, src []uint16) { loadBF16(dst, src) }
