package quant

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/tensor"
)

// TestGrouped writes blocks of each grouped type, and reads the formula's values, from GGUF's type as well.
func TestGrouped(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 9))
	for _, d := range tensor.QuantizedTypes() {
		bits, zero := d.Groups()
		if bits == 0 {
			continue
		}
		const rows, blocks = 3, 2
		size, n := d.BlockBytes(), d.BlockSize()
		x := tensor.Tensor{DType: d, Shape: tensor.Shape{rows, blocks * n}, Data: make([]byte, rows*blocks*size)}
		most := 1<<min(bits, 7) - 1
		var want []float32
		for b := x.Data; len(b) > 0; b = b[size:] {
			q, scale, m := make([]byte, n), float16.ToF16(r.Float32()-0.5), float16.ToF16(r.Float32()-0.5)
			for i := range q {
				q[i] = byte(r.IntN(most + 1))
			}
			z := byte(r.IntN(most + 1))
			binary.LittleEndian.PutUint16(b, scale)
			if !zero {
				binary.LittleEndian.PutUint16(b[2:], m)
			}
			PutGrouped(d, b, q, z)
			for _, c := range q {
				v := float16.F16(scale) * float32(int(c)-int(z))
				if !zero {
					v = float32(float16.F16(scale)*float32(c)) + float16.F16(m)
				}
				want = append(want, v)
			}
		}
		y := ToGGUF(x)
		if y.DType == d || y.Stored() != len(x.Data) {
			t.Errorf("%v: %v of %d bytes", d, y.DType, y.Stored())
		}
		y, err := y.Whole()
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range []tensor.Tensor{x, y} {
			got := make([]float32, len(want))
			if err := Dequantize(x.DType, got, x.Data); err != nil || !slices.Equal(got, want) {
				t.Errorf("%v as %v: other values (%v)", d, x.DType, err)
			}
		}
	}
}
