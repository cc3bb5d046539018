package packed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/tensor"
)

// pack packs the weight w, [n, k], of a module: parts, whose names are endings, and the values.
type pack func(w []float32, n, k int) (parts []tensor.Tensor, values []float32)

// quantization is the key of most packings.
const quantization = "quantization_config"

// compressed returns the configuration of a format of compressed-tensors, of which weights says how.
func compressed(format, weights string) string {
	return fmt.Sprintf(`{"quant_method": "compressed-tensors", "format": %q, "ignore": ["lm_head"],
		"config_groups": {"group_0": {"targets": ["Linear"], "weights": {%s}}}}`, format, weights)
}

// part returns a part of numbers.
func part(ending string, d tensor.DType, data []byte, shape ...int) tensor.Tensor {
	return tensor.Tensor{Name: ending, DType: d, Shape: shape, Data: data}
}

// bytes returns v as F32.
func bytes(v []float32) (b []byte) {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// rounded returns v in the type d, and the values that it has there.
func rounded(d tensor.DType, v []float32) (b []byte, values []float32) {
	b, values = make([]byte, d.RowBytes(len(v))), make([]float32, len(v))
	if err := errors.Join(quant.Quantize(d, b, v, len(v), nil), quant.Dequantize(d, values, b)); err != nil {
		panic(err)
	}
	return b, values
}

// transpose returns v, [rows, columns], by columns.
func transpose[T any](v []T, rows, columns int) []T {
	out := make([]T, 0, len(v))
	for c := range columns {
		for r := range rows {
			out = append(out, v[r*columns+c])
		}
	}
	return out
}

// stream packs whole numbers of a few bits into 32-bit words, one behind the other from the lowest bit up.
func stream(codes []int, bits int) []uint32 {
	words := make([]uint32, (len(codes)*bits+31)/32)
	for i, c := range codes {
		for b := range bits {
			if c>>b&1 == 1 {
				words[(i*bits+b)/32] |= 1 << ((i*bits + b) % 32)
			}
		}
	}
	return words
}

// words returns v as bytes.
func words[T uint32 | int](v []T) (b []byte) {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, uint32(x))
	}
	return b
}

// largest returns the largest magnitude.
func largest(v []float32) (m float64) {
	for _, x := range v {
		m = max(m, math.Abs(float64(x)))
	}
	return m
}
