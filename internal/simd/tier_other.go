//go:build !amd64 && !arm64

package simd

var levels = []string{"generic"}

// best is the only level there are kernels for.
func best() level { return generic }
