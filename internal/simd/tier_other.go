//go:build !amd64 && !arm64

package simd

var levels = []string{"generic"}

// has is true of the only level there are kernels for.
func has(level) bool { return true }

var limitKernels = [...]limitKernel{limitGeneric}
