//go:build !amd64 && !arm64

package simd

// Pause tells the processor that a loop waits for another one.
func Pause() {}
