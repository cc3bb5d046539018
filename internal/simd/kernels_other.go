//go:build !amd64 && !arm64

package simd

func rowsApart() bool { return false }

func addDots(sums *dotSums, w weights, stride int, x []float32) { addDotsGeneric(sums, w, stride, x) }

func addBlock(sums *[dotCols]dotSums, w, x []float32, stride, k int) {
	addBlockGeneric(sums, w, x, stride, k)
}

func sumDots(dst *[dotRows]float32, sums *dotSums) { sumDotsGeneric(dst, sums) }

func silu(dst, x []float32) { siluGeneric(dst, x) }

func gelu(dst, x []float32) { geluGeneric(dst, x) }

func swiglu(dst, gate, up []float32) { swigluGeneric(dst, gate, up) }

func geglu(dst, gate, up []float32) { gegluGeneric(dst, gate, up) }

func softcap(dst, x []float32, c float32) { softcapGeneric(dst, x, c) }

func expSum(dst, x []float32, top float32) (sums [lanes]float32) {
	expSumGeneric(&sums, dst, x, top)
	return sums
}

func norm(dst, x, w []float32, r, offset float32) { normGeneric(dst, x, w, r, offset) }

func turn(lo, hi, cos, sin []float32) { turnGeneric(lo, hi, cos, sin) }

func add(dst, a, b []float32) { addGeneric(dst, a, b) }

func mul(dst, a, b []float32) { mulGeneric(dst, a, b) }

func scale(dst, x []float32, s float32) { scaleGeneric(dst, x, s) }

func divide(dst, x []float32, s float32) { divideGeneric(dst, x, s) }

func addScaled(dst, x []float32, s float32) { addScaledGeneric(dst, x, s) }

func maximum(x []float32) float32 { return maxGeneric(x) }

func loadF16(dst []float32, src []uint16) { loadF16Generic(dst, src) }

func loadBF16(dst []float32, src []uint16) { loadBF16Generic(dst, src) }

func storeF16(dst []uint16, src []float32) { storeF16Generic(dst, src) }
