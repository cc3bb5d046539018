package lab

import (
	"math"
	"testing"

	"github.com/karat-run/karat/internal/tensor"
)

// TestHeld: a NaN, which all forms have, says nothing of the form of the other values.
func TestHeld(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{1.0078125, nan, 0x1p66, 2}, 0x1p-8}, {[]float64{1.0009765625, nan, 3, 2}, 0x1p-11},
		{[]float64{1.0000001, nan, 3, 2}, 0x1p-24}, {[]float64{nan, nan, nan, nan}, 0x1p-24}, {[]float64{nan, 0, 0, 0}, 0x1p-24},
	} {
		x := floats(tensor.F32, nil, c.values...)
		x.Shape = tensor.Shape{1, 4}
		if got := (&Placed{Rows: 1, Width: 4, data: rowsOf(x)}).Held(); got != c.want {
			t.Errorf("%v: %g, want %g", c.values, got, c.want)
		}
	}
}
