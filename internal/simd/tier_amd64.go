//lint:file-ignore U1000 assembly reads expConst

package simd

import (
	"math"

	"golang.org/x/sys/cpu"
)

const (
	avx2   = generic + 1 + iota // AVX2, FMA, F16C, BMI2
	avx512                      // 2 in tier_amd64.h: AVX2, and AVX-512 F, BW, DQ, VL and VNNI
	amx                         // AVX-512, GFNI, and AMX tiles of bfloat16 numbers and bytes
)

const neon, sdot, wasm = never, never, never

var levels = []string{"generic", "avx2", "avx512", "amx"}

// hasLevel reports whether the CPU has a level and the operating system saves its registers, as package cpu has learnt
// from XGETBV; tiles need permission.
func hasLevel(l level) bool {
	x := &cpu.X86
	switch l {
	case avx2:
		return x.HasAVX2 && x.HasFMA && x.HasF16C && x.HasBMI2
	case avx512:
		return hasLevel(avx2) && x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasAVX512VNNI
	case amx:
		return hasLevel(avx512) && x.HasAVX512GFNI && x.HasAMXTile && x.HasAMXBF16 && x.HasAMXInt8 && amxAllowed()
	}
	return true
}

// hasVBMI reports whether the CPU has the instructions of grids.
var hasVBMI = cpu.X86.HasAVX512VBMI && cpu.X86.HasAVX512GFNI

// An expTable is constants read by kernels, each eight times over.
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

// limitTiles makes all tiles 16 rows of 64 bytes (LDTILECFG's palette 1).
var limitTiles = func() (c [64]byte) {
	c[0] = 1
	for i := range 8 {
		c[16+2*i], c[48+i] = 64, 16
	}
	return c
}()

var limitKernels = [...]limitKernel{
	generic: limitGeneric,
	avx2:    {limitIntsAVX2, limitFloatsAVX2, 2 * 8 * 16, 2 * 12 * 8, "VPMADDWD+VPADDD", "VFMADD"},
	avx512:  {limitIntsAVX512, limitFloatsAVX512, 2 * 12 * 32, 2 * 12 * 16, "VPDPWSSD", "VFMADD"},
	// 4 instructions of 16·16·32 products, two for the halves of an activation
	amx: {func(rounds int) { limitIntsAMX(rounds, &limitTiles) }, limitFloatsAVX512, 4 * 16 * 16 * 32, 2 * 12 * 16,
		"TDPBF16PS twice", "VFMADD"},
}
