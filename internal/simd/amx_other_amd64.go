//go:build !linux

package simd

// amxAllowed is false where nobody has tried how tiles are asked for.
func amxAllowed() bool { return false }
