package karat

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/mix"
	"github.com/karat-run/karat/internal/tensor"
)

// QuantizeOptions say what Quantize makes. Type is required.
type QuantizeOptions struct {
	// Type names what llama-quantize makes: Q8_0, Q4_K_M, IQ4_XS and so on, in any
	// case. Most weights get the type of that name, those that matter more a better one.
	Type string
	// TensorTypes come before that; the first whose pattern a weight's name has counts.
	TensorTypes []TensorType
	// Imatrix is the path of an importance matrix, as "karat imatrix" and
	// llama-imatrix write it. "" is none.
	Imatrix string
	// Requantize allows weights that are quantized already, which lose again.
	Requantize bool
	// Threads is how many work; 0 is one for each processor that the process may
	// use. The bytes do not depend on it.
	Threads int
	// Progress is called with the bytes of tensors that are written, and all. It
	// may be nil.
	Progress func(done, total int64)
}

// TensorType gives the weights whose name Pattern finds a Type: that of a block,
// such as Q4_K, or F16, BF16, F32.
type TensorType struct {
	Pattern *regexp.Regexp
	Type    string
}

// Quantize makes the GGUF file dst of the one at src (any part of a split one), its
// weights in blocks of small integers with scales: the types, the bytes and the
// metadata that llama-quantize of llama.cpp gives it. A file at dst is replaced. The
// memory that it takes does not grow with the model.
//
// A weight that is not finite, or that its type cannot hold, is an error that names
// the tensor. After an error, or the end of ctx, all is as before.
func Quantize(ctx context.Context, src, dst string, o QuantizeOptions) (*Conversion, error) {
	if ctx == nil {
		return nil, fmt.Errorf("karat: %w", errNilContext)
	}
	c := convert.QuantizeOptions{Type: o.Type, Imatrix: o.Imatrix, Requantize: o.Requantize, Threads: o.Threads, Progress: o.Progress}
	for _, t := range o.TensorTypes {
		d, ok := tensor.ParseDType(strings.ToUpper(t.Type))
		if !ok || t.Pattern == nil {
			return nil, fmt.Errorf("karat: weights of %v: type %q is none of a block, such as Q4_K", t.Pattern, t.Type)
		}
		c.Rules = append(c.Rules, mix.Rule{Pattern: t.Pattern, Type: d})
	}
	r, err := convert.Quantize(ctx, src, dst, c)
	if err != nil {
		return nil, err
	}
	return (*Conversion)(r), nil
}
