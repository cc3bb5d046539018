package simd

import (
	"math"

	"golang.org/x/sys/cpu"
)

const (
	neon = generic + 1 + iota // Advanced SIMD, part of every processor
	sdot                      // Advanced SIMD, and FEAT_DotProd
)

const avx2, avx512, amx, wasm = never, never, never, never

const hasVBMI = false

var levels = []string{"generic", "neon", "sdot"}

// hasLevel reports whether the CPU has a level.
func hasLevel(l level) bool {
	if l == sdot {
		return cpu.ARM64.HasASIMDDP
	}
	return true
}

// expConst has the constants in the order in which the kernels load them.
var expConst = [...]float32{
	log2e, -ln2hi, -ln2lo, geluG3,
	-104, 89, 3 << 22, expC6, expC5, expC4, expC3, expC2, 1, geluG1,
	tanhT4, tanhT3, tanhT2, tanhT1, tanhT0, 0.625, 2, float32(math.Copysign(0, -1)),
}

var limitKernels = [...]limitKernel{
	generic: limitGeneric,
	neon:    {limitIntsNEON, limitFloatsNEON, 2 * 16 * 4, 2 * 16 * 4, "SMLAL", "FMLA"},
	// two for the halves of an activation
	sdot: {limitIntsSDOT, limitFloatsNEON, 16 * 16, 2 * 16 * 4, "SDOT twice", "FMLA"},
}
