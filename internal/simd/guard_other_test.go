//go:build !linux

package simd

import "testing"

// guarded lends slices of the heap where there are no guard pages to be had.
func guarded(*testing.T) func(n int) []float32 {
	return func(n int) []float32 { return make([]float32, n) }
}
