package simd

import "golang.org/x/sys/cpu"

const (
	neon = generic + 1 + iota // Advanced SIMD, which every processor has
	sdot                      // that, and FEAT_DotProd
)

var levels = []string{"generic", "neon", "sdot"}

// best is the highest level that the CPU has.
func best() level {
	if !cpu.ARM64.HasASIMDDP {
		return neon
	}
	return sdot
}
