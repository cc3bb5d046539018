package simd

import "golang.org/x/sys/cpu"

const (
	avx2   = generic + 1 + iota // AVX2, FMA, F16C, BMI2
	avx512                      // those, and AVX-512 F, BW, DQ, VL and VNNI
	amx                         // those, and AMX tiles of 8-bit integers
)

var levels = []string{"generic", "avx2", "avx512", "amx"}

// best is the highest level that the CPU has and whose registers the operating
// system saves, which package cpu has asked XGETBV; the tiles' it must allow.
func best() level {
	x := &cpu.X86
	switch {
	case !(x.HasAVX2 && x.HasFMA && x.HasF16C && x.HasBMI2):
		return generic
	case !(x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasAVX512VNNI):
		return avx2
	case !(x.HasAMXTile && x.HasAMXInt8 && amxAllowed()):
		return avx512
	}
	return amx
}
