package simd

import "math"

// expConst has the constants in the order in which the kernels load them.
var expConst = [...]float32{
	log2e, -ln2hi, -ln2lo, geluG3,
	-104, 89, 3 << 22, expC6, expC5, expC4, expC3, expC2, 1, geluG1,
	tanhT4, tanhT3, tanhT2, tanhT1, tanhT0, 0.625, 2, float32(math.Copysign(0, -1)),
}

//go:noescape
func siluNEON(dst, x []float32)

//go:noescape
func geluNEON(dst, x []float32)

//go:noescape
func swigluNEON(dst, gate, up []float32)

//go:noescape
func gegluNEON(dst, gate, up []float32)

//go:noescape
func softcapNEON(dst, x []float32, by float32)

//go:noescape
func expSumNEON(sums *[lanes]float32, dst, x []float32, top float32)

func silu(dst, x []float32) {
	n := wide(len(x))
	if n > 0 {
		siluNEON(dst[:n], x[:n])
	}
	siluGeneric(dst[n:], x[n:])
}

func gelu(dst, x []float32) {
	n := wide(len(x))
	if n > 0 {
		geluNEON(dst[:n], x[:n])
	}
	geluGeneric(dst[n:], x[n:])
}

func swiglu(dst, gate, up []float32) {
	n := wide(len(gate))
	if n > 0 {
		swigluNEON(dst[:n], gate[:n], up[:n])
	}
	swigluGeneric(dst[n:], gate[n:], up[n:])
}

func geglu(dst, gate, up []float32) {
	n := wide(len(gate))
	if n > 0 {
		gegluNEON(dst[:n], gate[:n], up[:n])
	}
	gegluGeneric(dst[n:], gate[n:], up[n:])
}

func softcap(dst, x []float32, c float32) {
	n := wide(len(x))
	if n > 0 {
		softcapNEON(dst[:n], x[:n], c)
	}
	softcapGeneric(dst[n:], x[n:], c)
}

func expSum(dst, x []float32, top float32) (sums [lanes]float32) {
	n := wide(len(x))
	if n > 0 {
		expSumNEON(&sums, dst[:n], x[:n], top)
	}
	expSumGeneric(&sums, dst[n:], x[n:], top)
	return sums
}
