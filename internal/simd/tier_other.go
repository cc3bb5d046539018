//go:build !amd64 && !arm64 && !(js && karat_wasmsimd)

package simd

const avx2, avx512, amx, neon, sdot, wasm = never, never, never, never, never, never

const hasVBMI = false

var levels = []string{"generic"}

// hasLevel returns true for the only level with kernels.
func hasLevel(level) bool { return true }

var limitKernels = [...]limitKernel{limitGeneric}
