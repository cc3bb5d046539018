package packing

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/karat-run/karat/internal/tensor"
)

// source has random parts of a weight, read as the publishers' programs read them.
type source struct {
	r     *rand.Rand
	parts map[string]tensor.Tensor
}

// words adds a part of random 32-bit words.
func (s *source) words(ending string, d tensor.DType, rows, columns int) func(i, j int) uint32 {
	data := make([]byte, 4*rows*columns)
	for i := range data {
		data[i] = byte(s.r.Uint32())
	}
	s.add(ending, d, data, rows, columns)
	return func(i, j int) uint32 { return binary.LittleEndian.Uint32(data[4*(i*columns+j):]) }
}

// octets adds a part of random bytes, of which none is NaN as E4M3.
func (s *source) octets(ending string, d tensor.DType, rows, columns int) func(i, j int) byte {
	data := make([]byte, rows*columns)
	for i := range data {
		if data[i] = byte(s.r.Uint32()); data[i]&0x7f == 0x7f {
			data[i] = 3
		}
	}
	s.add(ending, d, data, rows, columns)
	return func(i, j int) byte { return data[i*columns+j] }
}

// numbers adds a part of random numbers.
func (s *source) numbers(ending string, rows, columns int) func(i, j int) float32 {
	data, v := []byte(nil), make([]float32, rows*columns)
	for i := range v {
		v[i] = 0.001 + s.r.Float32()
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v[i]))
	}
	s.add(ending, tensor.F32, data, rows, columns)
	return func(i, j int) float32 { return v[i*columns+j] }
}

func (s *source) add(ending string, d tensor.DType, data []byte, shape ...int) {
	name := "m.q_proj." + ending
	s.parts[name] = tensor.Tensor{Name: name, DType: d, Shape: shape, Data: data}
}

// e4m3Of and e2m1Of return the values of codes by the formats' definitions.
func e4m3Of(c byte) float32 {
	sign, e, m := 1-2*float64(c>>7), int(c>>3&15), float64(c&7)
	if e == 0 {
		return float32(sign * math.Ldexp(m/8, -6))
	}
	return float32(sign * math.Ldexp(1+m/8, e-7))
}

func e2m1Of(c byte) float32 {
	return []float32{0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6}[c&15]
}

// formula has the values of a weight of 32 rows and 64 columns, by row and column.
type formula struct {
	config string
	value  func(s *source) func(r, c int) float32
}

// gptqFormula is GPTQ's of so many bits, with a number added to words of zero points.
func gptqFormula(bits int, version string, plus uint32) formula {
	const n, k = 32, 64
	per, mask := 32/bits, uint32(1)<<bits-1
	return formula{fmt.Sprintf(gptqConfig, bits, version), func(s *source) func(r, c int) float32 {
		q, z := s.words("qweight", tensor.I32, k/per, n), s.words("qzeros", tensor.I32, k/32, n/per)
		by := s.numbers("scales", k/32, n)
		return func(r, c int) float32 {
			code, zero := q(c/per, r)>>(bits*(c%per))&mask, (z(c/32, r/per)+plus)>>(bits*(r%per))&mask
			return by(c/32, r) * float32(int(code)-int(zero))
		}
	}}
}

// threeFormula is GPTQ's of 3 bits, with a number added to zero points.
func threeFormula(version string, plus uint32) formula {
	const n, k = 32, 64
	three := func(w func(i int) uint32, i int) uint32 { // 32 codes in three words
		switch {
		case i < 10:
			return w(0) >> (3 * i) & 7
		case i == 10:
			return w(0)>>30&3 | w(1)<<2&4
		case i < 21:
			return w(1) >> (3*(i-11) + 1) & 7
		case i == 21:
			return w(1)>>31&1 | w(2)<<1&6
		}
		return w(2) >> (3*(i-22) + 2) & 7
	}
	return formula{fmt.Sprintf(gptqConfig, 3, version), func(s *source) func(r, c int) float32 {
		q, z := s.words("qweight", tensor.I32, k/32*3, n), s.words("qzeros", tensor.I32, k/32, n/32*3)
		by := s.numbers("scales", k/32, n)
		return func(r, c int) float32 {
			code := three(func(i int) uint32 { return q(c/32*3+i, r) }, c%32)
			zero := (three(func(i int) uint32 { return z(c/32, r/32*3+i) }, r%32) + plus) & 7
			return by(c/32, r) * float32(int(code)-int(zero))
		}
	}}
}

const gptqConfig = `{"quantization_config": {"quant_method": "gptq", "bits": %d, "group_size": 32, "checkpoint_format": "%s"}}`

// TestFormulas reads random words by the formulas of the publishers' programs, named with each.
func TestFormulas(t *testing.T) {
	const n, k = 32, 64
	for name, c := range map[string]formula{
		// unpack_awq, reverse_awq_order and dequantize_gemm in AutoAWQ's packing_utils.py.
		"AWQ": {`{"quantization_config": {"quant_method": "awq", "group_size": 32}}`, func(s *source) func(r, c int) float32 {
			q, z, by := s.words("qweight", tensor.I32, k, n/8), s.words("qzeros", tensor.I32, k/32, n/8), s.numbers("scales", k/32, n)
			shift := []int{0, 16, 4, 20, 8, 24, 12, 28} // 4 times AWQ_REVERSE_ORDER
			return func(r, c int) float32 {
				code, zero := q(c, r/8)>>shift[r%8]&15, z(c/32, r/8)>>shift[r%8]&15
				return float32(int(code)-int(zero)) * by(c/32, r)
			}
		}},
		// forward in AutoGPTQ's qlinear_cuda.py; of the first version after convert_gptq_v1_to_v2_format_module in
		// GPTQModel's utils/model.py, which adds 1 to each zero point.
		"GPTQ 4":            gptqFormula(4, "gptq_v2", 0),
		"GPTQ 2, version 1": gptqFormula(2, "gptq", 0x55555555),
		"GPTQ 4, version 1": gptqFormula(4, "gptq", 0x11111111),
		"GPTQ 8, version 1": gptqFormula(8, "gptq", 0x01010101),
		"GPTQ 3":            threeFormula("gptq_v2", 0),
		"GPTQ 3, version 1": threeFormula("gptq", 1),
		// unpack_from_int32 in pack_quantized/helpers.py of compressed-tensors, and dequantize in forward.py.
		"compressed-tensors": {configure("pack-quantized", `"num_bits": 5, "group_size": 32, "symmetric": false`),
			func(s *source) func(r, c int) float32 {
				q, z, by := s.words("weight_packed", tensor.I32, n, k*5/32), s.words("weight_zero_point", tensor.I32, n*5/32, k/32), s.numbers("weight_scale", n, k/32)
				s.add("weight_shape", tensor.I64, []byte{n, 0, 0, 0, 0, 0, 0, 0, k, 0, 0, 0, 0, 0, 0, 0}, 2)
				five := func(w func(i int) uint32, i int) int { // the number of 32 that begins at bit 5i
					v, at := 0, 5*i
					for b := range 5 {
						v |= int(w((at+b)/32)>>((at+b)%32)&1) << b
					}
					return v - 16
				}
				return func(r, c int) float32 {
					code := five(func(i int) uint32 { return q(r, i) }, c)
					zero := five(func(i int) uint32 { return z(i, c/32) }, r)
					return float32(code-zero) * by(r, c/32)
				}
			}},
		// The same of files before June 2026: six codes a word, and two bits to spare.
		"compressed-tensors, spare bits": {configure("pack-quantized", `"num_bits": 5, "group_size": 32, "symmetric": false`),
			func(s *source) func(r, c int) float32 {
				q, z, by := s.words("weight_packed", tensor.I32, n, (k+5)/6), s.words("weight_zero_point", tensor.I32, (n+5)/6, k/32), s.numbers("weight_scale", n, k/32)
				s.add("weight_shape", tensor.I64, []byte{n, 0, 0, 0, 0, 0, 0, 0, k, 0, 0, 0, 0, 0, 0, 0}, 2)
				return func(r, c int) float32 {
					code, zero := q(r, c/6)>>(5*(c%6))&31, z(r/6, c/32)>>(5*(r%6))&31
					return float32(int(code)-int(zero)) * by(r, c/32)
				}
			}},
		"compressed-tensors, spare bits, symmetric": {configure("pack-quantized", `"num_bits": 3, "group_size": 32`),
			func(s *source) func(r, c int) float32 {
				q, by := s.words("weight_packed", tensor.I32, n, (k+9)/10), s.numbers("weight_scale", n, k/32)
				s.add("weight_shape", tensor.I64, []byte{n, 0, 0, 0, 0, 0, 0, 0, k, 0, 0, 0, 0, 0, 0, 0}, 2)
				return func(r, c int) float32 { return float32(int(q(r, c/10)>>(3*(c%10))&7)-4) * by(r, c/32) }
			}},
		// affine_dequantize in mlx/ops.cpp: of codes of a power of two bits, and of others bit by bit.
		"MLX 4": {`{"quantization": {"group_size": 32, "bits": 4}}`, func(s *source) func(r, c int) float32 {
			q, by, base := s.words("weight", tensor.U32, n, k/8), s.numbers("scales", n, k/32), s.numbers("biases", n, k/32)
			return func(r, c int) float32 {
				start := c % 8 * 4
				return float32(by(r, c/32)*float32(q(r, c/8)<<(32-(start+4))>>28)) + base(r, c/32)
			}
		}},
		"MLX 6": {`{"quantization": {"group_size": 32, "bits": 6}}`, func(s *source) func(r, c int) float32 {
			q, by, base := s.words("weight", tensor.U32, n, k*6/32), s.numbers("scales", n, k/32), s.numbers("biases", n, k/32)
			return func(r, c int) float32 {
				code := uint32(0)
				for b := range 6 {
					code += q(r, (6*c+b)/32) >> ((6*c + b) % 32) & 1 << b
				}
				return float32(by(r, c/32)*float32(code)) + base(r, c/32)
			}
		}},
		// NVFP4QTensor.dequantize in ModelOpt's nvfp4_tensor.py.
		"ModelOpt": {`{"quantization_config": {"quant_algo": "NVFP4"}}`, func(s *source) func(r, c int) float32 {
			q, by := s.octets("weight", tensor.U8, n, k/2), s.octets("weight_scale", tensor.F8_E4M3, n, k/16)
			all := s.numbers("weight_scale_2", 1, 1)
			return func(r, c int) float32 {
				return e2m1Of(q(r, c/2)>>(c%2*4)) * float32(e4m3Of(by(r, c/16))*all(0, 0))
			}
		}},
		// dequantize in forward.py of compressed-tensors: scale / global_scale.
		"NVFP4": {configure("nvfp4-pack-quantized", `"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16`),
			func(s *source) func(r, c int) float32 {
				q, by := s.octets("weight_packed", tensor.U8, n, k/2), s.octets("weight_scale", tensor.F8_E4M3, n, k/16)
				all := s.numbers("weight_global_scale", 1, 1)
				return func(r, c int) float32 {
					return e2m1Of(q(r, c/2)>>(c%2*4)) * float32(e4m3Of(by(r, c/16))/all(0, 0))
				}
			}},
		// weight_dequant_kernel in DeepSeek's inference/kernel.py.
		"FP8": {`{"quantization_config": {"quant_method": "fp8", "weight_block_size": [20, 48]}}`, func(s *source) func(r, c int) float32 {
			q, by := s.octets("weight", tensor.F8_E4M3, n, k), s.numbers("weight_scale_inv", 2, 2)
			return func(r, c int) float32 { return e4m3Of(q(r, c)) * by(r/20, c/48) }
		}},
	} {
		for seed := range uint64(3) {
			s := &source{rand.New(rand.NewPCG(seed, 7)), map[string]tensor.Tensor{}}
			want := c.value(s)
			for i, v := range values(t, c.config, s.parts) {
				if w := want(i/k, i%k); v != w {
					t.Fatalf("%s: row %d, column %d: %v, want %v", name, i/k, i%k, v, w)
				}
			}
		}
	}
}

// TestShortGroup reads GPTQ modules whose last group is short, where modules may differ: the size is of all modules or
// the module's own, and is guessed where it divides the columns alone.
func TestShortGroup(t *testing.T) {
	const n, k, group = 32, 160, 64
	s := &source{rand.New(rand.NewPCG(1, 7)), map[string]tensor.Tensor{}}
	q, z, by := s.words("qweight", tensor.I32, k/8, n), s.words("qzeros", tensor.I32, 3, n/8), s.numbers("scales", 3, n)
	const config = `{"quantization_config": {"quant_method": "gptq", "checkpoint_format": "gptq_v2", %s}}`
	for _, settings := range []string{`"group_size": 64`, `"group_size": 64, "extra_config": {"lm_head": {"bits": 16}}`,
		`"group_size": 64, "dynamic": {"-:lm_head": {}}`, `"group_size": 32, "extra_config": {"m.q_proj": {"group_size": 64}}`,
		`"group_size": 32, "dynamic": {"+:.*k_proj": {"group_size": 70}, "+:.*q_proj": {"bits": 4, "group_size": 64}}`} {
		for i, v := range values(t, fmt.Sprintf(config, settings), s.parts) {
			r, c := i/k, i%k
			want := by(c/group, r) * float32(int(q(c/8, r)>>(4*(c%8))&15)-int(z(c/group, r/8)>>(4*(r%8))&15))
			if v != want {
				t.Fatalf("%s: row %d, column %d: %v, want %v", settings, r, c, v, want)
			}
		}
	}
	for _, settings := range []string{`"group_size": 32, "extra_config": {"lm_head": {"group_size": 64}}`,
		`"group_size": 32, "dynamic": {"-:m.q_proj": {"group_size": 64}, "+:proj": {"group_size": 64}}`} {
		fails(t, fmt.Sprintf(config, settings), s.parts, "scales has 3 groups for 160 columns")
	}
}
