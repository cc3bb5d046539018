package convert

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/tensor"
)

// fileType is what general.file_type says of a file whose weights are mostly of a
// type (llama_ftype in llama.h).
var fileType = map[tensor.DType]uint32{tensor.F32: 0, tensor.F16: 1, tensor.BF16: 32}

// floats are the types without blocks, by the names of Options.
var floats = map[string]tensor.DType{"f32": tensor.F32, "f16": tensor.F16, "bf16": tensor.BF16}

// dtypeNames are transformers' names.
var dtypeNames = map[tensor.DType]string{tensor.F32: "float32", tensor.F16: "float16", tensor.BF16: "bfloat16"}

// parseType is the type named so, Invalid for "".
func parseType(name string) (tensor.DType, error) {
	if name == "" {
		return tensor.Invalid, nil
	}
	if d, ok := floats[strings.ToLower(name)]; ok {
		return d, nil
	}
	return tensor.Invalid, fmt.Errorf("convert: type %q, possible are %s", name, strings.Join(slices.Sorted(maps.Keys(floats)), ", "))
}

// mostly is the float type that most of the weights' bytes are in, else Invalid.
func mostly(tensors []tensor.Tensor) tensor.DType {
	size := map[tensor.DType]int{}
	best := tensor.Invalid
	for _, t := range tensors {
		size[t.DType] += len(t.Data)
		if size[t.DType] > size[best] {
			best = t.DType
		}
	}
	if !best.Float() {
		return tensor.Invalid
	}
	return best
}

// stays reports whether a tensor of a GGUF file, named so, is kept in F32 whatever
// the type of the others: vectors, norms, routers, scales and biases
// (prepare_tensors in llama.cpp's conversion/base.py).
func stays(name string, shape tensor.Shape) bool {
	name, weight := strings.CutSuffix(name, ".weight")
	return !weight || len(shape) <= 1 || strings.HasSuffix(name, "_norm") || strings.HasSuffix(name, ".ffn_gate_inp")
}
