//go:build !linux

package simd

// amxAllowed returns false: no way to ask for tiles has been tried on other systems.
func amxAllowed() bool { return false }
