package simd

import "golang.org/x/sys/cpu"

const (
	avx2   = generic + 1 + iota // AVX2, FMA, F16C, BMI2
	avx512                      // which tier_amd64.h knows as 2: those, and AVX-512 F, BW, DQ, VL and VNNI
	amx                         // those, and AMX tiles of bfloat16 numbers and bytes
)

var levels = []string{"generic", "avx2", "avx512", "amx"}

// has reports whether the CPU has a level and the operating system saves its
// registers, which package cpu has asked XGETBV; the tiles' it must allow.
func has(l level) bool {
	x := &cpu.X86
	switch l {
	case avx2:
		return x.HasAVX2 && x.HasFMA && x.HasF16C && x.HasBMI2
	case avx512:
		return has(avx2) && x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasAVX512VNNI
	case amx:
		return has(avx512) && x.HasAMXTile && x.HasAMXBF16 && x.HasAMXInt8 && amxAllowed()
	}
	return true
}
