package packed

import (
	"math"
	"sort"

	"github.com/karat-run/karat/internal/tensor"
)

// floats are the packings of 8-bit and 4-bit floats.
var floats = []Packing{
	{Name: "fp8-block", Key: quantization,
		Config: `{"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}`,
		Pack:   fp8("weight_scale_inv", tensor.F32, 128, 128)},
	{Name: "fp8-small-block-bf16", Key: quantization,
		Config: `{"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [24, 40]}`,
		Pack:   fp8("weight_scale_inv", tensor.BF16, 24, 40)},
	{Name: "fp8-block-e8m0", Key: quantization,
		Config: `{"quant_method": "fp8", "scale_fmt": "ue8m0", "weight_block_size": [128, 128]}`,
		Pack:   fp8("weight_scale_inv", tensor.F8_E8M0, 128, 128)},
	{Name: "fp8-tensor-static", Key: quantization,
		Config: `{"quant_method": "fp8", "activation_scheme": "static"}`,
		Pack:   static(fp8("weight_scale", tensor.BF16, 0, 0))},
	{Name: "ct-float-channel", Key: quantization,
		Config: compressed("float-quantized",
			`"num_bits": 8, "type": "float", "symmetric": true, "strategy": "channel"`),
		Pack: fp8("weight_scale", tensor.BF16, 1, 0)},
	{Name: "ct-float-block", Key: quantization,
		Config: compressed("float-quantized",
			`"num_bits": 8, "type": "float", "symmetric": true, "strategy": "block", "block_structure": [128, 128]`),
		Pack: fp8("weight_scale", tensor.BF16, 128, 128)},
	{Name: "ct-nvfp4", Key: quantization,
		Config: compressed("nvfp4-pack-quantized",
			`"num_bits": 4, "type": "float", "symmetric": true, "strategy": "tensor_group", "group_size": 16`),
		Pack: fp4("weight_packed", tensor.U8, "weight_scale", tensor.F8_E4M3, 16, "weight_global_scale")},
	{Name: "ct-mxfp4", Key: quantization,
		Config: compressed("mxfp4-pack-quantized",
			`"num_bits": 4, "type": "float", "symmetric": true, "strategy": "group", "group_size": 32`),
		Pack: fp4("weight_packed", tensor.U8, "weight_scale", tensor.U8, 32, "")},
	{Name: "modelopt-nvfp4", Key: quantization, Config: `{"quant_method": "modelopt", "quant_algo": "NVFP4"}`,
		Pack: fp4("weight", tensor.U8, "weight_scale", tensor.F8_E4M3, 16, "weight_scale_2")},
	{Name: "modelopt-fp8-rows", Key: quantization,
		Config: `{"quant_method": "modelopt", "quant_algo": "FP8_PER_CHANNEL_PER_TOKEN", "ignore": ["lm_head"]}`,
		Pack:   flat(fp8("weight_scale", tensor.F32, 1, 0))},
	{Name: "modelopt-fp8-mixed", Key: quantization,
		Config: `{"quant_algo": "MIXED_PRECISION", "quantized_layers": {"m": {"quant_algo": "NVFP4", "group_size": 16},
			"m.q_proj": {"quant_algo": "fp8"}, "model": {"quant_algo": "FP8"}}}`,
		Pack: static(fp8("weight_scale", tensor.F32, 0, 0))},
	{Name: "modelopt-fp8-block", Key: quantization, Config: `{"quantization": {"quant_algo": "fp8_pb_wo"}}`,
		Pack: deep(fp8("weight_scale", tensor.F32, 128, 128))},
	{Name: "modelopt-mxfp8", Key: quantization, Config: `{"quant_method": "modelopt", "quant_algo": "MXFP8"}`,
		Pack: fp8("weight_scale", tensor.F8_E8M0, 1, 32)},
	{Name: "mlx-mxfp4", Key: "quantization", Config: `{"group_size": 32, "bits": 4, "mode": "mxfp4"}`, Embeds: true,
		Pack: fp4("weight", tensor.U32, "scales", tensor.U8, 32, "")},
	{Name: "mlx-nvfp4", Key: "quantization", Config: `{"group_size": 16, "bits": 4, "mode": "nvfp4"}`,
		Pack: fp4("weight", tensor.U32, "scales", tensor.U8, 16, "")},
}

// small returns the value of a float of exp and mantissa bits with a bias of 2^(exp-1)-1, without infinities.
func small(code, exp, mantissa int) float64 {
	sign := 1.
	if code>>(exp+mantissa)&1 == 1 {
		sign = -1
	}
	e, m := code>>mantissa&(1<<exp-1), float64(code&(1<<mantissa-1))/float64(int(1)<<mantissa)
	bias := 1<<(exp-1) - 1
	if e == 0 {
		return sign * math.Ldexp(m, 1-bias)
	}
	return sign * math.Ldexp(1+m, e-bias)
}

// e4m3 and e2m1 are the values of small by code.
var e4m3, e2m1 = smalls(4, 3), smalls(2, 1)

func smalls(exp, mantissa int) (all []float64) {
	for code := range 2 << (exp + mantissa) {
		all = append(all, small(code, exp, mantissa))
	}
	return all
}

// nearest returns the code, up to a last one, whose value is nearest to x.
func nearest(x float64, values []float64, last int) (code int) {
	sign := 0
	if math.Signbit(x) {
		sign = len(values) / 2
	}
	x = math.Abs(x)
	above := sort.Search(last, func(c int) bool { return values[c] > x }) // values grow with codes
	if below := max(above-1, 0); x-values[below] < values[above]-x {
		above = below
	}
	return above | sign
}

// fp8 packs E4M3 with scales of blocks of some rows and columns; 0 are all of them.
func fp8(ending string, d tensor.DType, rows, columns int) pack {
	return func(w []float32, n, k int) ([]tensor.Tensor, []float32) {
		bn, bk := rows, columns
		if bn == 0 {
			bn = n
		}
		if bk == 0 {
			bk = k
		}
		gn, gk := (n+bn-1)/bn, (k+bk-1)/bk
		scales := make([]float32, gn*gk)
		for i, x := range w {
			g := i/k/bn*gk + i%k/bk
			scales[g] = max(scales[g], float32(math.Abs(float64(x)))/448)
		}
		var data []byte
		if d == tensor.F8_E8M0 {
			for i, s := range scales {
				_, e := math.Frexp(float64(s))
				scales[i] = float32(math.Ldexp(1, e))
				data = append(data, byte(e+127))
			}
		} else {
			data, scales = rounded(d, scales)
		}
		codes, values := make([]byte, len(w)), make([]float32, len(w))
		for i, x := range w {
			s := float64(scales[i/k/bn*gk+i%k/bk])
			c := nearest(float64(x)/s, e4m3, 0x7e)
			codes[i], values[i] = byte(c), float32(e4m3[c]*s)
		}
		shape := []int{gn, gk}
		if rows == 0 {
			shape = nil
		}
		return []tensor.Tensor{part("weight", tensor.F8_E4M3, codes, n, k), part(ending, d, data, shape...)}, values
	}
}

// static adds the scale of activations.
func static(in pack) pack {
	return func(w []float32, n, k int) ([]tensor.Tensor, []float32) {
		parts, values := in(w, n, k)
		return append(parts, part("input_scale", tensor.F32, bytes([]float32{0.03}))), values
	}
}

// flat takes the last dimension of the scales, of size 1.
func flat(in pack) pack {
	return func(w []float32, n, k int) ([]tensor.Tensor, []float32) {
		parts, values := in(w, n, k)
		parts[1].Shape = parts[1].Shape[:1]
		return parts, values
	}
}

// deep adds dimensions of size 1 to the scales.
func deep(in pack) pack {
	return func(w []float32, n, k int) ([]tensor.Tensor, []float32) {
		parts, values := in(w, n, k)
		parts[1].Shape = tensor.Shape{parts[1].Shape[0], 1, parts[1].Shape[1], 1}
		return parts, values
	}
}

// fp4 packs E2M1, two to a byte, with E4M3 scales of 16 or E8M0 scales of 32, and a factor of all.
func fp4(ending string, d tensor.DType, scale string, of tensor.DType, group int, factor string) pack {
	return func(w []float32, n, k int) ([]tensor.Tensor, []float32) {
		codes, scales, values := make([]byte, len(w)/2), make([]byte, len(w)/group), make([]float32, len(w))
		by := float32(448 * 6 / largest(w)) // of compressed-tensors
		if factor == "weight_scale_2" {
			by = float32(largest(w) / (448 * 6))
		}
		for g := range scales {
			part := w[g*group : (g+1)*group]
			_, e := math.Frexp(largest(part) / 6)
			s := float32(math.Ldexp(1, e))
			scales[g] = byte(e + 127)
			if group == 16 {
				wanted := largest(part) / 6
				switch factor {
				case "weight_global_scale":
					wanted *= float64(by)
				case "weight_scale_2":
					wanted /= float64(by)
				}
				c := max(1, nearest(wanted, e4m3, 0x7e))
				scales[g], s = byte(c), float32(e4m3[c])
				switch factor {
				case "weight_global_scale":
					s /= by
				case "weight_scale_2":
					s *= by
				}
			}
			for j, x := range part {
				i := g*group + j
				c := nearest(float64(x)/float64(s), e2m1, 7)
				codes[i/2] |= byte(c) << (i % 2 * 4)
				values[i] = float32(e2m1[c] * float64(s))
			}
		}
		parts := []tensor.Tensor{part(ending, d, codes, n, k/2/d.BlockBytes()), part(scale, of, scales, n, k/group)}
		if factor != "" {
			parts = append(parts, part(factor, tensor.F32, bytes([]float32{by}), 1))
		}
		return parts, values
	}
}
