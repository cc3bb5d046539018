package simd

import (
	"testing"
	"unsafe"
)

// TestLimits runs the loops over memory that ends where reading must end.
func TestLimits(t *testing.T) {
	guard := guarded(t)
	eachTier(t, func(t *testing.T) {
		for _, n := range []int{0, 1, 127, 128, 129, 1000} {
			f := guard(n + 1)[1:]
			for form := range LimitForms {
				LimitRead(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(f))), 4*n), form)
			}
		}
		for _, f := range []func(int) float64{LimitInts, LimitFloats} {
			if one, ten := f(1), f(10); one <= 0 || ten != 10*one {
				t.Errorf("%g operations in a round, %g in ten", one, ten)
			}
		}
		if ints, floats := LimitNames(); ints == "" || floats == "" {
			t.Error("no names")
		}
	})
}
