package simd

import "math"

// expTable are constants that kernels read, each eight times over.
type expTable = [23][8]float32

// expConst has the constants in the order of exp_amd64.h.
var expConst = func() *expTable {
	var t expTable
	for i, v := range [len(t)]float32{
		-104, 89, log2e, 3 << 22, -ln2hi, -ln2lo, expC6, expC5, expC4, expC3, expC2, 1,
		float32(math.Copysign(0, -1)), math.Float32frombits(1<<31 - 1), geluG1, geluG3,
		tanhT4, tanhT3, tanhT2, tanhT1, tanhT0, 0.625, 2,
	} {
		for j := range t[i] {
			t[i][j] = v
		}
	}
	return &t
}()

//go:noescape
func siluAVX2(dst, x []float32, c *expTable)

//go:noescape
func geluAVX2(dst, x []float32, c *expTable)

//go:noescape
func swigluAVX2(dst, gate, up []float32, c *expTable)

//go:noescape
func gegluAVX2(dst, gate, up []float32, c *expTable)

//go:noescape
func softcapAVX2(dst, x []float32, by float32, c *expTable)

//go:noescape
func expSumAVX2(sums *[lanes]float32, dst, x []float32, top float32, c *expTable)

//go:noescape
func siluAVX512(dst, x []float32, c *expTable)

//go:noescape
func geluAVX512(dst, x []float32, c *expTable)

//go:noescape
func swigluAVX512(dst, gate, up []float32, c *expTable)

//go:noescape
func gegluAVX512(dst, gate, up []float32, c *expTable)

//go:noescape
func softcapAVX512(dst, x []float32, by float32, c *expTable)

//go:noescape
func expSumAVX512(sums *[lanes]float32, dst, x []float32, top float32, c *expTable)

func silu(dst, x []float32) {
	n := len(x) &^ (lanes - 1)
	switch {
	case tier >= avx512:
		siluAVX512(dst[:n], x[:n], expConst)
	case tier >= avx2:
		siluAVX2(dst[:n], x[:n], expConst)
	default:
		n = 0
	}
	siluGeneric(dst[n:], x[n:])
}

func gelu(dst, x []float32) {
	n := len(x) &^ (lanes - 1)
	switch {
	case tier >= avx512:
		geluAVX512(dst[:n], x[:n], expConst)
	case tier >= avx2:
		geluAVX2(dst[:n], x[:n], expConst)
	default:
		n = 0
	}
	geluGeneric(dst[n:], x[n:])
}

func swiglu(dst, gate, up []float32) {
	n := len(gate) &^ (lanes - 1)
	switch {
	case tier >= avx512:
		swigluAVX512(dst[:n], gate[:n], up[:n], expConst)
	case tier >= avx2:
		swigluAVX2(dst[:n], gate[:n], up[:n], expConst)
	default:
		n = 0
	}
	swigluGeneric(dst[n:], gate[n:], up[n:])
}

func geglu(dst, gate, up []float32) {
	n := len(gate) &^ (lanes - 1)
	switch {
	case tier >= avx512:
		gegluAVX512(dst[:n], gate[:n], up[:n], expConst)
	case tier >= avx2:
		gegluAVX2(dst[:n], gate[:n], up[:n], expConst)
	default:
		n = 0
	}
	gegluGeneric(dst[n:], gate[n:], up[n:])
}

func softcap(dst, x []float32, c float32) {
	n := len(x) &^ (lanes - 1)
	switch {
	case tier >= avx512:
		softcapAVX512(dst[:n], x[:n], c, expConst)
	case tier >= avx2:
		softcapAVX2(dst[:n], x[:n], c, expConst)
	default:
		n = 0
	}
	softcapGeneric(dst[n:], x[n:], c)
}

func expSum(dst, x []float32, top float32) (sums [lanes]float32) {
	n := len(x) &^ (lanes - 1)
	switch {
	case tier >= avx512:
		expSumAVX512(&sums, dst[:n], x[:n], top, expConst)
	case tier >= avx2:
		expSumAVX2(&sums, dst[:n], x[:n], top, expConst)
	default:
		n = 0
	}
	expSumGeneric(&sums, dst[n:], x[n:], top)
	return sums
}
