package gguf

import "github.com/karat-run/karat/internal/tensor"

// ggmlTypes lists ggml's element types by their number (ggml.h, enum ggml_type).
// One without a dtype is known by name only: it is not read.
var ggmlTypes = [...]struct {
	name  string
	dtype tensor.DType
}{
	0:  {"F32", tensor.F32},
	1:  {"F16", tensor.F16},
	2:  {"Q4_0", tensor.Q4_0},
	3:  {"Q4_1", tensor.Q4_1},
	4:  {name: "Q4_2"},
	5:  {name: "Q4_3"},
	6:  {"Q5_0", tensor.Q5_0},
	7:  {"Q5_1", tensor.Q5_1},
	8:  {"Q8_0", tensor.Q8_0},
	9:  {name: "Q8_1"},
	10: {"Q2_K", tensor.Q2_K},
	11: {"Q3_K", tensor.Q3_K},
	12: {"Q4_K", tensor.Q4_K},
	13: {"Q5_K", tensor.Q5_K},
	14: {"Q6_K", tensor.Q6_K},
	15: {name: "Q8_K"},
	16: {name: "IQ2_XXS"},
	17: {name: "IQ2_XS"},
	18: {name: "IQ3_XXS"},
	19: {name: "IQ1_S"},
	20: {"IQ4_NL", tensor.IQ4_NL},
	21: {name: "IQ3_S"},
	22: {name: "IQ2_S"},
	23: {"IQ4_XS", tensor.IQ4_XS},
	24: {"I8", tensor.I8},
	25: {"I16", tensor.I16},
	26: {"I32", tensor.I32},
	27: {"I64", tensor.I64},
	28: {"F64", tensor.F64},
	29: {name: "IQ1_M"},
	30: {"BF16", tensor.BF16},
	31: {name: "Q4_0_4_4"},
	32: {name: "Q4_0_4_8"},
	33: {name: "Q4_0_8_8"},
	34: {name: "TQ1_0"},
	35: {name: "TQ2_0"},
	36: {name: "IQ4_NL_4_4"},
	37: {name: "IQ4_NL_4_8"},
	38: {name: "IQ4_NL_8_8"},
	39: {"MXFP4", tensor.MXFP4},
	40: {name: "NVFP4"},
	41: {name: "Q1_0"},
	42: {name: "Q2_0"},
}

// dtypeOf returns the element type with that number and its name in ggml; an
// unread one is Invalid.
func dtypeOf(id uint32) (tensor.DType, string) {
	if uint64(id) >= uint64(len(ggmlTypes)) {
		return tensor.Invalid, "unknown"
	}
	return ggmlTypes[id].dtype, ggmlTypes[id].name
}

// idOf is the inverse of dtypeOf; false for a type that GGUF does not have.
func idOf(d tensor.DType) (uint32, bool) {
	for id, t := range ggmlTypes {
		if t.dtype == d && d != tensor.Invalid {
			return uint32(id), true
		}
	}
	return 0, false
}
