//go:build karat_wasmsimd

package simd

// The tier wasm is a module beside the program: kernels of WebAssembly's vectors, in the program's memory. What starts
// the program gives it the module's functions (js/simd.js), so that a build asks for the tier by its
// tag: other programs start as Go's own script has them.

const wasm = generic + 1

const avx2, avx512, amx, neon, sdot = never, never, never, never, never

const hasVBMI = false

var levels = []string{"generic", "wasm"}

//go:wasmimport gojs simd.call
func callImport()

// hasLevel reports whether the program was given kernels, and not functions that do nothing.
func hasLevel(l level) bool {
	var there int32
	if l == wasm {
		hasKernels(&there)
	}
	return l == generic || there > 0
}

var limitKernels = [...]limitKernel{limitGeneric, limitGeneric}
