package simd

import "golang.org/x/sys/cpu"

// best is the highest level that the CPU has and whose registers the operating
// system saves, which package cpu has asked XGETBV.
func best() level {
	x := &cpu.X86
	switch {
	case !(x.HasAVX2 && x.HasFMA && x.HasF16C && x.HasBMI2):
		return generic
	case !(x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasAVX512VNNI):
		return avx2
	}
	return avx512
}
