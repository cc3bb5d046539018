package packing

import (
	"fmt"
	"strings"
)

// refused explains methods that are not read, by how their names in config.json begin.
var refused = map[string]string{
	"bitsandbytes": "its codes are one line, with blocks and nested scales of that library",
	"hqq":          "its codes and zero points are tensors of that library",
	"aqlm":         "its weights are sums of vectors of codebooks",
	"vptq":         "its weights are vectors of codebooks",
	"quip":         "its weights are vectors of codebooks, behind rotations",
	"exl2":         "its rows have different numbers of bits, in an order of ExLlama's kernels",
	"exl3":         "its codes are walks of a trellis, behind rotations",
	"spqr":         "its outliers are a sparse matrix",
	"torchao":      "its tensors are subclasses of PyTorch's, which safetensors files name but do not describe",
	"quanto":       "its tensors are subclasses of PyTorch's",
	"eetq":         "its codes are in an order of that library's kernels",
	"higgs":        "its weights are vectors of grids, behind rotations",
	"fp_quant":     "its weights lie behind rotations of activations",
	"bitnet":       "its weights are ternary, and activations are 8-bit integers",
	"gemv":         "its codes are in an order of that kernel",
}

// refuse returns the error about a method that is not read.
func refuse(method, algo string) error {
	if method == "" {
		return fmt.Errorf("it names no quant_method; %s", advice)
	}
	why := "it is unknown here"
	for name, is := range refused {
		if strings.HasPrefix(strings.ToLower(method), name) {
			why = is
		}
	}
	if algo != "" {
		method += ", " + algo
	}
	return fmt.Errorf("quant_method %q is not read: %s; %s", method, why, advice)
}

// advice names the alternatives.
const advice = "take the model's folder without quantization, one in FP8, compressed-tensors, AWQ, GPTQ or MLX, " +
	"or a GGUF file"
