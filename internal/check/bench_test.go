package check

import (
	"testing"

	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/tensor"
)

// BenchmarkScan reads a matrix of four million weights.
func BenchmarkScan(b *testing.B) {
	m := &model{t: b}
	shape := tensor.Shape{2048, 2048}
	source := tensor.Tensor{DType: tensor.BF16, Shape: shape, Data: noise(m, shape.Size())}
	v := values(b, &source)
	for _, d := range []tensor.DType{tensor.BF16, tensor.Q8_0, tensor.Q4_K} {
		x := tensor.Tensor{Name: "blk.0.ffn_up.weight", DType: d, Shape: shape, Data: make([]byte, d.RowBytes(shape.Size()))}
		if err := quant.Quantize(d, x.Data, v, 2048, nil); err != nil {
			b.Fatal(err)
		}
		b.Run(d.String(), func(b *testing.B) {
			b.SetBytes(int64(len(x.Data)))
			for b.Loop() {
				c := &checker{ctx: b.Context()}
				if _, err := c.read(x); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
