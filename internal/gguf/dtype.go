package gguf

import (
	"cmp"
	"strings"

	"github.com/karat-run/karat/internal/tensor"
)

// ggmlTypes lists ggml's element types by their number (ggml.h, enum ggml_type). A type without a dtype has a name
// only; refusal returns the reason.
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
	16: {"IQ2_XXS", tensor.IQ2_XXS},
	17: {"IQ2_XS", tensor.IQ2_XS},
	18: {"IQ3_XXS", tensor.IQ3_XXS},
	19: {"IQ1_S", tensor.IQ1_S},
	20: {"IQ4_NL", tensor.IQ4_NL},
	21: {"IQ3_S", tensor.IQ3_S},
	22: {"IQ2_S", tensor.IQ2_S},
	23: {"IQ4_XS", tensor.IQ4_XS},
	24: {"I8", tensor.I8},
	25: {"I16", tensor.I16},
	26: {"I32", tensor.I32},
	27: {"I64", tensor.I64},
	28: {"F64", tensor.F64},
	29: {"IQ1_M", tensor.IQ1_M},
	30: {"BF16", tensor.BF16},
	31: {name: "Q4_0_4_4"},
	32: {name: "Q4_0_4_8"},
	33: {name: "Q4_0_8_8"},
	34: {"TQ1_0", tensor.TQ1_0},
	35: {"TQ2_0", tensor.TQ2_0},
	36: {name: "IQ4_NL_4_4"},
	37: {name: "IQ4_NL_4_8"},
	38: {name: "IQ4_NL_8_8"},
	39: {"MXFP4", tensor.MXFP4},
	40: {"NVFP4", tensor.NVFP4},
	41: {"Q1_0", tensor.Q1_0},
	42: {"Q2_0", tensor.Q2_0},
}

// foreignTypes lists the types that ik_llama.cpp adds, by their number (ggml.h of that project).
var foreignTypes = map[uint32]string{
	133: "Q6_0", 134: "IQ1_BN", 135: "IQ2_BN", 136: "Q8_K64",
	137: "IQ2_K", 138: "IQ3_K", 139: "IQ4_K", 140: "IQ5_K", 141: "IQ6_K", 142: "IQ2_TN", 143: "IQ1_TN",
	144: "IQ4_KS", 145: "IQ2_KS", 146: "IQ4_KSS", 147: "Q8_K16", 148: "Q8_K32", 149: "Q8_KR8", 150: "Q8_K128",
	151: "Q8_KV", 152: "IQ5_KS", 153: "IQ2_KT", 154: "IQ3_KT", 155: "IQ4_KT", 156: "IQ3_KS", 157: "IQ2_KL",
	158: "IQ1_KT", 202: "Q4_0_R8", 206: "Q5_0_R4", 208: "Q8_0_R8", 210: "Q2_K_R4", 211: "Q3_K_R4",
	212: "Q4_K_R4", 213: "Q5_K_R4", 214: "Q6_K_R4", 216: "IQ2_XXS_R4", 217: "IQ2_XS_R4", 218: "IQ3_XXS_R4",
	219: "IQ1_S_R4", 220: "IQ4_NL_R4", 221: "IQ3_S_R4", 222: "IQ2_S_R4", 223: "IQ4_XS_R8", 229: "IQ1_M_R4",
	230: "BF16_R16", 233: "Q6_0_R4", 335: "IQ2_BN_R4", 337: "IQ2_K_R4", 338: "IQ3_K_R4", 339: "IQ4_K_R4",
	340: "IQ5_K_R4", 344: "IQ4_KS_R4", 352: "IQ5_KS_R4", 353: "MXFP4_R8", 397: "Q8_K_R16", 398: "Q8_KV_R8",
	399: "Q8_K_R8",
}

// dtypeOf returns the element type with a number and its name in ggml; Invalid for a type that is not read.
func dtypeOf(id uint32) (tensor.DType, string) {
	if uint64(id) < uint64(len(ggmlTypes)) {
		return ggmlTypes[id].dtype, ggmlTypes[id].name
	}
	return tensor.Invalid, cmp.Or(foreignTypes[id], "unknown")
}

// refusal says why a type is not read, and how to get a file that is.
func refusal(id uint32) string {
	_, name := dtypeOf(id)
	switch successor, rows, _ := strings.Cut(name, "_4_"); {
	case foreignTypes[id] != "":
		return "elements of a type that only ik_llama.cpp reads: take a file of llama.cpp's types"
	case name == "Q8_1" || name == "Q8_K":
		return "elements of a type for activations, which no file has"
	case rows != "" || name == "Q4_0_8_8" || name == "IQ4_NL_8_8":
		successor = strings.TrimSuffix(successor, "_8_8")
		return "elements of a type that llama.cpp removed, and replaced by " + successor + ": quantize the model to " +
			successor
	case name == "Q4_2" || name == "Q4_3":
		return "elements of a type that llama.cpp removed: quantize the model again"
	}
	return "elements of a type that is not read"
}

// idOf returns the inverse of dtypeOf; false for a type absent from GGUF.
func idOf(d tensor.DType) (uint32, bool) {
	for id, t := range ggmlTypes {
		if t.dtype == d && d != tensor.Invalid {
			return uint32(id), true
		}
	}
	return 0, false
}
