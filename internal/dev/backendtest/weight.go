package backendtest

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// The types that weights come in.
var (
	plain  = []tensor.DType{tensor.F32, tensor.F16, tensor.BF16}
	blocks = []tensor.DType{tensor.Q4_0, tensor.Q4_1, tensor.Q5_0, tensor.Q5_1, tensor.Q8_0, tensor.Q2_K, tensor.Q3_K,
		tensor.Q4_K, tensor.Q5_K, tensor.Q6_K, tensor.IQ4_NL, tensor.IQ4_XS, tensor.MXFP4, tensor.IQ1_S, tensor.IQ1_M,
		tensor.IQ2_XXS, tensor.IQ2_XS, tensor.IQ2_S, tensor.IQ3_XXS, tensor.IQ3_S, tensor.TQ1_0, tensor.TQ2_0,
		tensor.NVFP4,
		tensor.Q1_0, tensor.Q2_0, tensor.Grouped(2, 64, true), tensor.Grouped(3, 32, false),
		tensor.Grouped(4, 128, true), tensor.Grouped(6, 64, false), tensor.Grouped(8, 32, false)}
)

// halves tells where in a block its binary16 scale and minimum lie.
var halves = map[tensor.DType][]int{
	tensor.Q4_0: {0}, tensor.Q4_1: {0, 2}, tensor.Q5_0: {0}, tensor.Q5_1: {0, 2}, tensor.Q8_0: {0},
	tensor.Q2_K: {80, 82}, tensor.Q3_K: {108}, tensor.Q4_K: {0, 2}, tensor.Q5_K: {0, 2}, tensor.Q6_K: {208},
	tensor.IQ4_NL: {0}, tensor.IQ4_XS: {0}, tensor.IQ1_S: {0}, tensor.IQ2_XXS: {0}, tensor.IQ2_XS: {0},
	tensor.IQ2_S:   {0},
	tensor.IQ3_XXS: {0}, tensor.IQ3_S: {0}, tensor.TQ1_0: {52}, tensor.TQ2_0: {64}, tensor.Q1_0: {0}, tensor.Q2_0: {0},
}

// newWeight is a random weight of about unit size or less: normal numbers, or
// blocks of random bytes with tame scales. Every second one begins at an odd
// address, as tensors in files may.
func newWeight(r *rand.Rand, name string, d tensor.DType, shape ...int) *graph.Weight {
	size, err := tensor.Bytes(d, shape)
	if err != nil {
		panic(fmt.Sprintf("backendtest: weight %s: %v", name, err))
	}
	odd := r.IntN(2)
	w := &graph.Weight{GGUF: name, HF: name, Tensor: tensor.Tensor{Name: name + ".weight", DType: d, Shape: shape,
		Data: make([]byte, odd+size)[odd:]}}
	for b := w.Data; len(b) > 0; b = b[d.BlockBytes():] {
		fillBlock(r, d, b[:d.BlockBytes()])
	}
	return w
}

// fillBlock makes one block, or one number of a plain type.
func fillBlock(r *rand.Rand, d tensor.DType, b []byte) {
	x := float32(r.NormFloat64())
	switch d {
	case tensor.F64:
		binary.LittleEndian.PutUint64(b, math.Float64bits(r.NormFloat64()))
		return
	case tensor.F32:
		binary.LittleEndian.PutUint32(b, math.Float32bits(x))
		return
	case tensor.F16:
		binary.LittleEndian.PutUint16(b, float16.ToF16(x))
		return
	case tensor.BF16:
		binary.LittleEndian.PutUint16(b, float16.ToBF16(x))
		return
	}
	wild(r, b)
	scale := 0x1p-6
	if d.BlockSize() == 256 {
		scale = 0x1p-12 // its groups have scales of their own
	}
	places := halves[d]
	bits, zero := d.Groups()
	if bits > 0 {
		places = halves[tensor.Q4_1]
	}
	if zero { // where the minimum would be
		places = places[:1]
		b[2] &= 1<<bits - 1
	}
	for _, at := range places {
		s := (0.5 + r.Float64()) * scale
		if r.IntN(2) == 0 {
			s = -s
		}
		binary.LittleEndian.PutUint16(b[at:], float16.ToF16(float32(s)))
	}
	switch d {
	case tensor.MXFP4:
		b[0] = byte(118 + r.IntN(8)) // 2^-9 to 2^-2
	case tensor.NVFP4:
		for i := range 4 {
			b[i] &= 0x1f // to 0.1
		}
	case tensor.IQ1_M:
		b[55] = b[55]&0x8f | 1<<4 // four bits of the scale: 2^-11 to 2^-8
	}
}

// wild fills b with random bytes.
func wild(r *rand.Rand, b []byte) {
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

// ofValues is an F32 weight [len(rows), len(rows[0])].
func ofValues(name string, rows [][]float32) *graph.Weight {
	w := &graph.Weight{GGUF: name, HF: name, Tensor: tensor.Tensor{Name: name + ".weight", DType: tensor.F32,
		Shape: tensor.Shape{len(rows), len(rows[0])}}}
	for _, row := range rows {
		for _, v := range row {
			w.Data = binary.LittleEndian.AppendUint32(w.Data, math.Float32bits(v))
		}
	}
	return w
}
