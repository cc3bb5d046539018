package synth

import (
	"maps"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/tensor"
)

// mix is what llama-quantize calls a file type: most weights have one type, and
// some another. fileType is its number in general.file_type.
type mix struct {
	fileType             uint32
	most, output, better tensor.DType // better: half the layers' attn_v and ffn_down
	value                tensor.DType // attn_v, where it is not Invalid
	experts              tensor.DType // the experts', where it is not Invalid
}

var mixes = map[string]mix{
	"F16":       {fileType: 1, most: tensor.F16, output: tensor.F16, better: tensor.F16},
	"BF16":      {fileType: 32, most: tensor.BF16, output: tensor.BF16, better: tensor.BF16},
	"Q8_0":      {fileType: 7, most: tensor.Q8_0, output: tensor.Q8_0, better: tensor.Q8_0},
	"Q4_0":      {fileType: 2, most: tensor.Q4_0, output: tensor.Q6_K, better: tensor.Q4_0},
	"Q4_K_M":    {fileType: 15, most: tensor.Q4_K, output: tensor.Q6_K, better: tensor.Q6_K},
	"Q5_K_M":    {fileType: 17, most: tensor.Q5_K, output: tensor.Q6_K, better: tensor.Q6_K},
	"Q6_K":      {fileType: 18, most: tensor.Q6_K, output: tensor.Q6_K, better: tensor.Q6_K},
	"IQ4_XS":    {fileType: 30, most: tensor.IQ4_XS, output: tensor.Q6_K, better: tensor.IQ4_XS, value: tensor.Q5_K},
	"MXFP4_MOE": {fileType: 38, most: tensor.Q8_0, output: tensor.Q8_0, better: tensor.Q8_0, experts: tensor.MXFP4},
}

// Types lists the names of the mixes.
func Types() []string { return slices.Sorted(maps.Keys(mixes)) }

// narrow is the type instead of one in blocks of 256, for rows that are no multiple.
var narrow = map[tensor.DType]tensor.DType{
	tensor.Q4_K: tensor.Q5_0, tensor.Q5_K: tensor.Q5_1, tensor.Q6_K: tensor.Q8_0, tensor.IQ4_XS: tensor.IQ4_NL,
}

// dtype is the type of the weight of a name ("ffn_down") in a layer of so many.
func (m mix) dtype(name string, row, layer, layers int) tensor.DType {
	d := m.most
	switch {
	case strings.HasSuffix(name, "token_embd"):
		d = m.output
	case strings.HasSuffix(name, "_exps") && m.experts != tensor.Invalid:
		d = m.experts
	case name == "attn_v" && m.value != tensor.Invalid:
		d = m.value
	case (name == "attn_v" || name == "ffn_down") && moreBits(layer, layers):
		d = m.better
	}
	if other, ok := narrow[d]; ok && row%d.BlockSize() != 0 {
		d = other
	}
	return d
}

// moreBits is llama.cpp's choice of layers (src/llama-quant.cpp, use_more_bits).
func moreBits(i, n int) bool { return i < n/8 || i >= 7*n/8 || (i-n/8)%3 == 2 }
