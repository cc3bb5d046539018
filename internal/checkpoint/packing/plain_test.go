package packing

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/tensor"
)

// TestMicroscaled reads blocks and scales as transformers unpacks them: byte j of a block has
// weight 2j in its low half and weight 2j+1 in its high one.
func TestMicroscaled(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	blocks := tensor.Tensor{DType: tensor.U8, Shape: tensor.Shape{2, 3, 2, 16}, Data: make([]byte, 192)}
	scales := tensor.Tensor{DType: tensor.U8, Shape: tensor.Shape{2, 3, 2}, Data: make([]byte, 12)}
	for i := range blocks.Data {
		blocks.Data[i] = byte(r.Uint32())
	}
	var want []float32
	values := []float32{0, 0.5, 1, 1.5, 2, 3, 4, 6}
	for i := range scales.Data {
		scales.Data[i] = byte(120 + i)
		by := float32(uint32(1)<<i) / 128
		for _, b := range blocks.Data[16*i : 16*i+16] {
			for _, code := range []byte{b & 15, b >> 4} {
				v := by * values[code&7]
				if code > 8 {
					v = -v
				}
				want = append(want, v)
			}
		}
	}
	x, err := microscaled("w", blocks, scales)
	if err != nil || !slices.Equal(x.Shape, tensor.Shape{2, 3, 64}) || x.DType != tensor.MXFP4 {
		t.Fatalf("%v %v, %v", x.DType, x.Shape, err)
	}
	whole, err := x.Whole()
	got := make([]float32, len(want))
	if err == nil {
		err = quant.Dequantize(tensor.MXFP4, got, whole.Data)
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	part := make([]byte, 40)
	if _, err := x.Source.ReadAt(part, 23); err != nil || !slices.Equal(part, whole.Data[23:63]) {
		t.Errorf("bytes 23 to 63: %v", err)
	}
	if n, err := x.Source.ReadAt(part, int64(len(whole.Data)-4)); n != 4 || err == nil {
		t.Errorf("beyond the end: %d bytes, %v", n, err)
	}
	scales.Shape = tensor.Shape{3, 2, 2}
	if _, err := microscaled("w", blocks, scales); err == nil || !strings.Contains(err.Error(), "[3 2 2]") {
		t.Errorf("scales of another shape: %v", err)
	}
}

// TestDescribed does not say that a description is missing where config.json has one of MXFP4.
func TestDescribed(t *testing.T) {
	_, parts := layer(t, "fp8-block")
	fails(t, `{"quantization_config": {"quant_method": "mxfp4"}}`, parts, "which quant_method mxfp4 of config.json has")
	fails(t, `{}`, parts, "config.json has no quantization_config")
}
