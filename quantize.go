package karat

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/quantmix"
	"github.com/karat-run/karat/internal/tensor"
)

// QuantizeOptions are options of Quantize. Type is required.
type QuantizeOptions struct {
	// Type is a mix as llama-quantize names it: Q8_0, Q4_K_M, IQ4_XS and so on, in any
	// case. Most weights get the type of that name; weights that matter more get a better one.
	Type string
	// TensorTypes override Type; the first whose pattern matches a weight's name counts.
	TensorTypes []TensorType
	// Imatrix is the path of an importance matrix, as "karat imatrix" and
	// llama-imatrix write it. "" is none.
	Imatrix string
	// Requantize allows weights that are quantized already. They lose precision again.
	Requantize bool
	// Threads is the number of threads; 0 means one for each processor that the process
	// may use. The bytes do not depend on it.
	Threads int
	// Progress is called with the bytes of tensors written so far and their total. It
	// may be nil.
	Progress func(done, total int64)
}

// TensorType sets the Type of the weights whose name matches Pattern: the type of a
// block, such as Q4_K, or F16, BF16, F32.
type TensorType struct {
	Pattern *regexp.Regexp
	Type    string
}

// Quantize writes the GGUF file at src (any part of a split one) to dst with its
// weights as blocks of small integers with scales. The types, the bytes and the
// metadata are those of llama.cpp's llama-quantize. A file at dst is replaced. Its
// memory does not grow with the model.
//
// A weight that is not finite, or that its type cannot hold, is an error that names
// the tensor. After an error, or the end of ctx, dst is unchanged.
func Quantize(ctx context.Context, src, dst string, o QuantizeOptions) (*Conversion, error) {
	if ctx == nil {
		return nil, errNilContext
	}
	c := convert.QuantizeOptions{Type: o.Type, Imatrix: o.Imatrix, Requantize: o.Requantize, Threads: o.Threads, Progress: o.Progress}
	for _, t := range o.TensorTypes {
		d, ok := tensor.ParseDType(strings.ToUpper(t.Type))
		if !ok || t.Pattern == nil {
			return nil, fmt.Errorf("weights of %v: type %q is none of a block, such as Q4_K", t.Pattern, t.Type)
		}
		c.Rules = append(c.Rules, quantmix.Rule{Pattern: t.Pattern, Type: d})
	}
	r, err := convert.Quantize(ctx, src, dst, c)
	if err != nil {
		return nil, err
	}
	return (*Conversion)(r), nil
}
