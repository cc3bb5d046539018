package packed

import (
	"fmt"
	"math"

	"github.com/karat-run/karat/internal/tensor"
)

// integers are the packings of whole numbers.
var integers = []Packing{
	{Name: "ct-int4-group", Key: quantization,
		Config: compressed("pack-quantized",
			`"num_bits": 4, "type": "int", "symmetric": true, "strategy": "group", "group_size": 32`),
		Pack: packInts(4, 32, true, false)},
	{Name: "ct-int4-asymmetric", Key: quantization,
		Config: compressed("pack-quantized",
			`"num_bits": 4, "type": "int", "symmetric": false, "strategy": "group", "group_size": 32`),
		Pack: packInts(4, 32, false, false)},
	{Name: "ct-int4-actorder", Key: quantization,
		Config: compressed("pack-quantized",
			`"num_bits": 4, "type": "int", "symmetric": true, "strategy": "group", "group_size": 32,
				"actorder": "group"`),
		Pack: packInts(4, 32, true, true)},
	{Name: "ct-int8-channel", Key: quantization,
		Config: compressed("pack-quantized",
			`"num_bits": 8, "type": "int", "symmetric": true, "strategy": "channel"`),
		Pack: packInts(8, 0, true, false)},
	{Name: "ct-int8-bytes", Key: quantization,
		Config: compressed("int-quantized",
			`"num_bits": 8, "type": "int", "symmetric": true, "strategy": "channel"`),
		Pack: packBytes},
	{Name: "gptq", Key: quantization,
		Config: `{"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": false, "sym": false}`,
		Pack:   gptq(4, 32, 1, false)},
	{Name: "gptq-act-order", Key: quantization,
		Config: `{"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": true}`,
		Pack:   gptq(4, 32, 1, true)},
	{Name: "gptq-v2-3-bits", Key: quantization,
		Config: `{"quant_method": "gptq", "bits": 3, "group_size": -1, "checkpoint_format": "gptq_v2"}`,
		Pack:   gptq(3, 0, 0, false)},
	{Name: "gptq-8-bits", Key: quantization,
		Config: `{"quant_method": "gptq", "bits": 8, "group_size": 64, "sym": true}`,
		Pack:   gptq(8, 64, 1, false)},
	{Name: "awq", Key: quantization,
		Config: `{"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": true, "version": "gemm"}`,
		Pack:   awq},
	mlx(2, 32, tensor.F16), mlx(3, 64, tensor.F16), mlx(4, 64, tensor.BF16), mlx(5, 32, tensor.F32),
	mlx(6, 64, tensor.BF16), mlx(8, 32, tensor.F16),
}

// quantized holds whole numbers [n, k] from 0 on, with a scale and a zero point for each row and group.
type quantized struct {
	codes   []int
	scales  []float32 // [n, groups], as data has them
	data    []byte
	zeros   []int
	values  []float32
	groups  int
	indices []int // group of each column
}

// quantize quantizes w. Shuffled has columns of a group apart.
func quantize(w []float32, n, k, bits, group int, d tensor.DType, symmetric, shuffled bool) (q quantized) {
	if group <= 0 {
		group = k
	}
	q.groups = (k + group - 1) / group
	for c := range k {
		g := c / group
		if shuffled {
			g = c * 7 % k / group // 7 and k have no divisor together
		}
		q.indices = append(q.indices, g)
	}
	low, high := make([]float64, n*q.groups), make([]float64, n*q.groups)
	for i, x := range w {
		g := i/k*q.groups + q.indices[i%k]
		low[g], high[g] = min(low[g], float64(x)), max(high[g], float64(x))
	}
	most := float64(int(1)<<bits - 1)
	raw := make([]float32, n*q.groups)
	for g := range raw {
		if symmetric {
			raw[g] = float32(2 * max(high[g], -low[g]) / most)
		} else {
			raw[g] = float32((high[g] - low[g]) / most)
		}
		raw[g] = max(raw[g], 1e-4)
	}
	q.data, q.scales = rounded(d, raw)
	q.zeros = make([]int, len(raw))
	for g := range raw {
		q.zeros[g] = 1 << (bits - 1)
		if !symmetric {
			q.zeros[g] = int(min(most, max(1, math.RoundToEven(-low[g]/float64(q.scales[g])))))
		}
	}
	q.codes, q.values = make([]int, len(w)), make([]float32, len(w))
	for i, x := range w {
		g := i/k*q.groups + q.indices[i%k]
		s, z := float64(q.scales[g]), float64(q.zeros[g])
		q.codes[i] = int(min(most, max(0, math.RoundToEven(float64(x)/s)+z)))
		q.values[i] = float32((float64(q.codes[i]) - z) * s)
	}
	return q
}

// lines packs each row of codes for itself.
func lines(codes []int, columns, bits int) (all []uint32, width int) {
	for i := 0; i < len(codes); i += columns {
		line := stream(codes[i:i+columns], bits)
		all, width = append(all, line...), len(line)
	}
	return all, width
}

// packInts packs as compressed-tensors does: codes along columns, and zero points along rows.
func packInts(bits, group int, symmetric, order bool) pack {
	return func(w []float32, n, k int) ([]tensor.Tensor, []float32) {
		q := quantize(w, n, k, bits, group, tensor.BF16, symmetric, order)
		codes, width := lines(q.codes, k, bits)
		shape := []byte{byte(n), byte(n >> 8), 0, 0, 0, 0, 0, 0, byte(k), byte(k >> 8), 0, 0, 0, 0, 0, 0}
		parts := []tensor.Tensor{part("weight_packed", tensor.I32, words(codes), n, width),
			part("weight_scale", tensor.BF16, q.data, n, q.groups), part("weight_shape", tensor.I64, shape, 2)}
		if !symmetric {
			zeros, width := lines(transpose(q.zeros, n, q.groups), n, bits)
			zeros = transpose(zeros, q.groups, width)
			parts = append(parts, part("weight_zero_point", tensor.I32, words(zeros), width, q.groups))
		}
		if order {
			parts = append(parts, part("weight_g_idx", tensor.I32, words(q.indices), k))
		}
		return parts, q.values
	}
}

// packBytes packs signed bytes with a scale for each row.
func packBytes(w []float32, n, k int) ([]tensor.Tensor, []float32) {
	q := quantize(w, n, k, 8, 0, tensor.BF16, true, false)
	data := make([]byte, len(w))
	for i, c := range q.codes {
		data[i] = byte(c - 128)
	}
	scale := part("weight_scale", tensor.BF16, q.data, n, 1)
	return []tensor.Tensor{part("weight", tensor.I8, data, n, k), scale}, q.values
}

// gptq packs codes along columns, words of a column of words side by side, and zero points along rows, less one in the
// first version of the format.
func gptq(bits, group, less int, order bool) pack {
	return func(w []float32, n, k int) ([]tensor.Tensor, []float32) {
		q := quantize(w, n, k, bits, group, tensor.F16, bits == 8, order)
		codes, width := lines(q.codes, k, bits)
		stored := transpose(q.zeros, n, q.groups)
		for i := range stored {
			stored[i] -= less
		}
		zeros, across := lines(stored, n, bits)
		return []tensor.Tensor{part("qweight", tensor.I32, words(transpose(codes, n, width)), width, n),
			part("qzeros", tensor.I32, words(zeros), q.groups, across),
			part("scales", tensor.F16, halves(q.data, n, q.groups), q.groups, n),
			part("g_idx", tensor.I32, words(q.indices), k)}, q.values
	}
}

// halves transposes numbers of 16 bits.
func halves(data []byte, rows, columns int) (out []byte) {
	for c := range columns {
		for r := range rows {
			at := 2 * (r*columns + c)
			out = append(out, data[at], data[at+1])
		}
	}
	return out
}

// awq packs eight rows of a column to a word, the even ones in the low half (order_map in AutoAWQ's gemm.py).
func awq(w []float32, n, k int) ([]tensor.Tensor, []float32) {
	q := quantize(w, n, k, 4, 32, tensor.F16, false, false)
	pack := func(codes []int, columns int) []byte { // codes [n, columns]
		var all []uint32
		for c := range columns {
			for r := 0; r < n; r += 8 {
				var word uint32
				for i, from := range []int{0, 2, 4, 6, 1, 3, 5, 7} {
					word |= uint32(codes[(r+from)*columns+c]) << (4 * i)
				}
				all = append(all, word)
			}
		}
		return words(all)
	}
	return []tensor.Tensor{part("qweight", tensor.I32, pack(q.codes, k), k, n/8),
		part("qzeros", tensor.I32, pack(q.zeros, q.groups), q.groups, n/8),
		part("scales", tensor.F16, halves(q.data, n, q.groups), q.groups, n)}, q.values
}

// mlx packs codes with a scale and a bias for each group, as affine_quantize in mlx/backend/metal/kernels/quantized.h:
// the value of a group farthest from zero has a code of its own, and where the value is positive the scale is negative.
func mlx(bits, group int, d tensor.DType) Packing {
	pack := func(w []float32, n, k int) ([]tensor.Tensor, []float32) {
		most := float64(int(1)<<bits - 1)
		scales, biases := make([]float32, len(w)/group), make([]float32, len(w)/group)
		for g := range scales {
			low, high := w[g*group], w[g*group]
			for _, x := range w[g*group : (g+1)*group] {
				low, high = min(low, x), max(high, x)
			}
			scale, edge := max(float64(high-low)/most, 1e-4), float64(low)
			if math.Abs(edge) <= math.Abs(float64(high)) {
				scale, edge = -scale, float64(high)
			}
			if q := math.RoundToEven(edge / scale); q != 0 {
				scales[g], biases[g] = float32(edge/q), float32(edge)
			} else {
				scales[g] = float32(scale)
			}
		}
		data, scales := rounded(d, scales)
		base, biases := rounded(d, biases)
		codes, values := make([]int, len(w)), make([]float32, len(w))
		for i, x := range w {
			s, b := float64(scales[i/group]), float64(biases[i/group])
			codes[i] = int(min(most, max(0, math.RoundToEven((float64(x)-b)/s))))
			values[i] = float32(float32(float64(codes[i])*s)) + float32(b)
		}
		all, width := lines(codes, k, bits)
		return []tensor.Tensor{part("weight", tensor.U32, words(all), n, width), part("scales", d, data, n, k/group),
			part("biases", d, base, n, k/group)}, values
	}
	return Packing{Name: fmt.Sprintf("mlx-%d-bits", bits), Key: "quantization", Embeds: true, Columns: group,
		Pack:   pack,
		Config: fmt.Sprintf(`{"group_size": %d, "bits": %d, "mode": "affine"}`, group, bits)}
}
