package simd

// dotKeysF16Generic sets dst[j] to DotF16(key j, q).
func dotKeysF16Generic(dst, q []float32, keys []uint16) {
	d := len(q)
	for j := range dst {
		dotRows16Generic(dst[j:j+1], keys[j*d:(j+1)*d], q, false)
	}
}

// weighF32Generic adds the rows of v, p of each, to the columns from `from` on
// of acc.
func weighF32Generic(acc, v, p []float32, from int) {
	d := len(acc)
	for j, w := range p {
		addScaledGeneric(acc[from:], v[j*d+from:(j+1)*d], w)
	}
}

func weighF16Generic(acc []float32, v []uint16, p []float32, from int) {
	var buf [256]float32
	d := len(acc)
	for ; from < d; from += len(buf) {
		n := min(len(buf), d-from)
		for j, w := range p {
			loadF16Generic(buf[:n], v[j*d+from:][:n])
			addScaledGeneric(acc[from:], buf[:n], w)
		}
	}
}

func divideGeneric(dst, x []float32, s float32) {
	for i, v := range x {
		dst[i] = v / s
	}
}
