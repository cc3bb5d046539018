package simd

import "math"

// expConst has the constants in the order in which the kernels load them.
var expConst = [...]float32{
	log2e, -ln2hi, -ln2lo, geluG3,
	-104, 89, 3 << 22, expC6, expC5, expC4, expC3, expC2, 1, geluG1,
	tanhT4, tanhT3, tanhT2, tanhT1, tanhT0, 0.625, 2, float32(math.Copysign(0, -1)),
}
