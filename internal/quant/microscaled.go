package quant

import (
	"fmt"
	"io"
	"slices"

	"github.com/karat-run/karat/internal/tensor"
)

// microscaled is the Source of an MXFP4 tensor with scales in one tensor and codes in another, byte j of 16 holding
// weights 2j and 2j+1.
type microscaled struct{ blocks, scales []byte }

// Microscaled returns the MXFP4 tensor stored in a safetensors file as two tensors of bytes, blocks [..., columns/32,
// 16] and scales [..., columns/32]. Nothing is copied. (Mxfp4Config in transformers/quantizers/quantizer_mxfp4.py.)
func Microscaled(name string, blocks, scales tensor.Tensor) (tensor.Tensor, error) {
	n := len(scales.Shape)
	want := append(slices.Clone(scales.Shape), 16)
	t := tensor.Tensor{Name: name, DType: tensor.MXFP4}
	if blocks.DType != tensor.U8 || scales.DType != tensor.U8 || n < 2 || !slices.Equal(blocks.Shape, want) {
		return t, fmt.Errorf("blocks %v %v and scales %v %v, expected U8 %v and U8 %v", blocks.DType,
			[]int(blocks.Shape), scales.DType, []int(scales.Shape), []int(want), []int(scales.Shape))
	}
	t.Shape = slices.Clone(scales.Shape)
	t.Shape[n-1] *= 32
	t.Source = microscaled{blocks.Data, scales.Data}
	_, err := tensor.Bytes(t.DType, t.Shape)
	return t, err
}

// Origin implements the Origin of tensor.Source.
func (m microscaled) Origin() [][]byte { return [][]byte{m.blocks, m.scales} }

// ReadAt implements io.ReaderAt.
func (m microscaled) ReadAt(p []byte, off int64) (n int, err error) {
	size := tensor.MXFP4.BlockBytes()
	var block [17]byte
	for n < len(p) {
		at := int(off) + n
		i := at / size
		if i >= len(m.scales) {
			return n, io.EOF
		}
		block[0] = m.scales[i]
		in := m.blocks[16*i : 16*i+16]
		for j := range 8 { // weights 2j and 2j+1 to the low halves, weights 16 later to the high halves
			x, y := in[j], in[j+8]
			block[1+2*j], block[2+2*j] = x&15|y<<4, x>>4|y&0xf0
		}
		n += copy(p[n:], block[at%size:])
	}
	return n, nil
}
