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
