package simd

import "testing"

// TestUnpackGridNoVBMI does TestUnpackGrid's work as on processors with AVX-512 and without VBMI.
func TestUnpackGridNoVBMI(t *testing.T) {
	defer func(has bool) { hasVBMI = has }(hasVBMI)
	hasVBMI = false
	testUnpackGrid(t)
}
