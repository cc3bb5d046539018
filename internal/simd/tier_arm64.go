package simd

import "golang.org/x/sys/cpu"

const (
	neon = generic + 1 + iota // Advanced SIMD, which every processor has
	sdot                      // that, and FEAT_DotProd
)

var levels = []string{"generic", "neon", "sdot"}

// has reports whether the CPU has a level.
func has(l level) bool {
	if l == sdot {
		return cpu.ARM64.HasASIMDDP
	}
	return true
}
