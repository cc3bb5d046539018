//go:build !amd64 && !arm64

package simd

const avx2, avx512, amx, neon, sdot = never, never, never, never, never

var levels = []string{"generic"}

// has is true of the only level there are kernels for.
func has(level) bool { return true }

var limitKernels = [...]limitKernel{limitGeneric}
