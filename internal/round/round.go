// Package round rounds numbers to engines' formats: float64 arithmetic imitates an
// engine's arithmetic, to measure the effect of rounding alone.
//
// Files, users before the used: class.go (an engine's formats), keep.go (keys and values), round.go (formats).
package round

import (
	"math"

	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/tensor"
)

// Format is a format of stored numbers. The zero value is float64.
type Format string

// The formats. Products read formats of whole numbers: a value of a row is an integer times the scale of a block.
const (
	F64  Format = "f64"
	F32  Format = "f32"
	F16  Format = "f16"
	BF16 Format = "bf16"

	Q8_32  Format = "q8_32"  // 8 bits, a binary16 scale for every 32: llama.cpp's Q8_0
	Q8_256 Format = "q8_256" // 8 bits, a float32 scale for every 256: llama.cpp's Q8_K
	Q8     Format = "q8"     // what llama.cpp makes of a row for weights of a type: see Input
	I16_32 Format = "i16_32" // 16 bits, a float32 scale for every 32: Karat's, for quantized weights
)

// The forms of keys and values in whole numbers, as engines keep them. A form turned is multiplied by a Hadamard matrix
// before, as queries and results are; here it is turned back, so that sums stay as they are.
const (
	KVQ8       Format = "q8_0"        // llama.cpp's Q8_0: blocks of 32 of a row
	KVQ4       Format = "q4_0"        // llama.cpp's Q4_0
	KVQ8Turned Format = "q8_0_turned" // llama.cpp's since 2026: heads of a multiple of 64 turned
	KVQ4Turned Format = "q4_0_turned" // likewise
	KVPages    Format = "q8_0_pages"  // Karat's --kv q8_0: binary16, older pages in blocks of 8 bits (Older)
)

// Activations are the formats that products may read, KV the formats that keys and values may be kept in.
var (
	Activations = []Format{F64, F32, F16, BF16, Q8_32, Q8_256, Q8, I16_32}
	KV          = []Format{F64, F32, F16, BF16, KVQ8, KVQ8Turned, KVQ4, KVQ4Turned, KVPages}
)

// UnmarshalText also knows PyTorch's names of the float formats. Any other name is
// taken as it is; Class.Check judges it.
func (f *Format) UnmarshalText(name []byte) error {
	switch *f = Format(name); *f {
	case "float64":
		*f = F64
	case "float32":
		*f = F32
	case "float16":
		*f = F16
	case "bfloat16":
		*f = BF16
	}
	return nil
}

// Stored returns the format of values between the operations of an engine with products that read f.
func (f Format) Stored() Format {
	switch f {
	case Q8_32, Q8_256, Q8, I16_32:
		return F32
	}
	return f
}

// Input returns the format in which a product with weights of type w reads a row, if that is f by declaration: of q8 it
// is the one that belongs to w in llama.cpp, and i16_32 is for quantized weights only. (ggml-cpu.c, type_traits_cpu.
// Q4_1 and Q5_1 round the sum of a block to binary16 besides, which is left out.)
func (f Format) Input(w tensor.DType) Format {
	switch {
	case f == I16_32 && !w.Quantized():
		return F32
	case f != Q8:
		return f
	case w == tensor.F16:
		return F16
	case w == tensor.BF16:
		return BF16
	case !w.Quantized():
		return F32
	case w.BlockSize() == 256:
		return Q8_256
	}
	return Q8_32
}

// To rounds one number to a format that is not of whole numbers. It goes by way of float32, as engines do.
func (f Format) To(x float64) float64 {
	switch f {
	case F32:
		return single(x)
	case F16:
		return half(x)
	case BF16:
		return brain(x)
	}
	return x
}

func single(x float64) float64 { return float64(float32(x)) }
func half(x float64) float64   { return float64(float16.F16(float16.ToF16(float32(x)))) }
func brain(x float64) float64  { return float64(float16.BF16(float16.ToBF16(float32(x)))) }

// Round rounds a row in place. The row's last block may be short.
func (f Format) Round(row []float64) {
	switch f {
	case Q8_32:
		blocks(row, 32, q8_0)
	case Q8_256:
		blocks(row, 256, q8_K)
	case I16_32:
		blocks(row, 32, i16)
	case F32: // a loop each: the choice a number took a fifth of a diagnosis
		for i, v := range row {
			row[i] = single(v)
		}
	case F16:
		for i, v := range row {
			row[i] = half(v)
		}
	case BF16:
		for i, v := range row {
			row[i] = brain(v)
		}
	}
}

// blocks rounds blocks of size values by the value of the largest magnitude. One with a NaN or an infinity is all NaN.
func blocks(row []float64, size int, round func(block []float64, top float64)) {
	for len(row) > 0 {
		n := min(size, len(row))
		var block []float64
		block, row = row[:n], row[n:]
		var top float64
		for i, v := range block {
			block[i] = single(v)
			if a := math.Abs(block[i]); a > math.Abs(top) || a != a {
				top = block[i]
			}
		}
		if top-top != 0 {
			for i := range block {
				block[i] = math.NaN()
			}
			continue
		}
		round(block, top)
	}
}

// q8_0 as x86 has it: quantize_row_q8_0 in llama.cpp's ggml-cpu/arch/x86/quants.c.
func q8_0(block []float64, top float64) {
	top = math.Abs(top)
	scale, inverse := F16.To(single(top/127)), 0.0
	if top > 0 {
		inverse = single(127 / top)
	}
	for i, v := range block {
		block[i] = math.RoundToEven(single(v*inverse)) * scale
	}
}

// q8_K computes quantize_row_q8_K_ref in llama.cpp's ggml-quants.c.
func q8_K(block []float64, top float64) {
	if top == 0 {
		clear(block)
		return
	}
	inverse := single(-127 / top)
	for i, v := range block {
		block[i] = min(127, math.RoundToEven(single(inverse*v))) * single(1/inverse)
	}
}

// i16 computes simd.Quantize.
func i16(block []float64, top float64) {
	if top = math.Abs(top); top < 1e-30 {
		clear(block)
		return
	}
	for i, v := range block {
		block[i] = math.RoundToEven(single(v*single(32767/top))) * single(top/32767)
	}
}
