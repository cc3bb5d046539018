package convert

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/quantmix"
	"github.com/karat-run/karat/internal/tensor"
)

// dtypeNames are transformers' names.
var dtypeNames = map[tensor.DType]string{tensor.F32: "float32", tensor.F16: "float16", tensor.BF16: "bfloat16"}

// unknownMix returns the error of a type for a file, which may be a type for single weights.
func unknownMix(name string) error {
	if d, ok := tensor.ParseDType(name); ok && d.Quantized() {
		return fmt.Errorf("%v is a type of weights, not of files: --tensor-type REGEX=%v sets it for the weights "+
			"whose name matches; TYPE is one of %s", d, d, strings.Join(quantmix.Names(), ", "))
	}
	return fmt.Errorf("type %q, want %s", name, strings.Join(quantmix.Names(), ", "))
}

// parseType returns the mix with a name; "" stands for a mix without a type.
func parseType(name, dst string) (quantmix.Mix, error) {
	if name == "" {
		return quantmix.Mix{}, nil
	}
	m, ok := quantmix.Find(name)
	switch {
	case !ok:
		return m, unknownMix(name)
	case m.Most.Quantized() && !isGGUF(dst):
		return m, fmt.Errorf("type %s is GGUF's; a folder has F32, F16 or BF16", m.Name)
	}
	return m, nil
}

// commonType returns the float type of most of the weights' bytes; F32 if most are quantized.
func commonType(tensors []tensor.Tensor) tensor.DType {
	size := map[tensor.DType]int{}
	best := tensor.F32
	for _, t := range tensors {
		if size[t.DType] += t.Size(); size[t.DType] > size[best] {
			best = t.DType
		}
	}
	if best.Quantized() {
		return tensor.F32
	}
	return best
}

// keepsF32 reports whether a tensor of a GGUF file, named so, is kept in F32 whatever
// the type of the others: vectors, norms, routers, short convolutions, scales and biases
// (prepare_tensors in llama.cpp's conversion/base.py).
func keepsF32(name string, shape tensor.Shape) bool {
	name, weight := strings.CutSuffix(name, ".weight")
	return !weight || len(shape) <= 1 || name == "position_embd" || name == "token_types" ||
		slices.ContainsFunc([]string{"_norm", ".ffn_gate_inp", ".ffn_gate_inp_shexp", ".ssm_conv1d", ".shortconv.conv",
			".ssm_conv1d_q", ".ssm_conv1d_k", ".ssm_conv1d_v",
			".altup_correct_coef", ".altup_predict_coef", ".indexer.proj"},
			func(end string) bool { return strings.HasSuffix(name, end) })
}

// isGGUF reports whether the name of the result asks for GGUF.
func isGGUF(dst string) bool { return strings.EqualFold(filepath.Ext(dst), ".gguf") }
