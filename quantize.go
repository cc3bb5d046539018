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
	// Type is a mix under llama-quantize's name: Q8_0, Q4_K_M, IQ4_XS and so on, in any case. Most weights get the type
	// of the name; more important weights get a better type.
	Type string
	// TensorTypes override Type; the first whose pattern matches a weight's name counts.
	TensorTypes []TensorType
	// Imatrix is the path of an importance matrix, written by "karat imatrix" or llama-imatrix. "" is none.
	Imatrix string
	// Requantize allows weights already quantized. They lose precision again.
	Requantize bool
	// Threads is the number of threads; 0 is the number of processors open to the process. The bytes are the same for
	// any number.
	Threads int
	// Progress is called with the bytes of tensors written so far and their total. Progress may be nil.
	Progress func(done, total int64)
}

// TensorType sets the Type of the weights whose name matches Pattern: the type of a
// block, such as Q4_K, or F16, BF16, F32.
type TensorType struct {
	Pattern *regexp.Regexp
	Type    string
}

// Quantize writes the GGUF file at src (any part of a split file) to dst with its weights as blocks of small integers
// with scales. The types, the bytes and the metadata equal llama-quantize's of llama.cpp. A file at dst is replaced.
// Memory does not grow with the model.
//
// A weight that is not finite, or out of its type's reach, is an error with the tensor's name. After an error, or the
// end of ctx, dst is unchanged.
func Quantize(ctx context.Context, src, dst string, o QuantizeOptions) (*Conversion, error) {
	if ctx == nil {
		return nil, errNilContext
	}
	c := convert.QuantizeOptions{Type: o.Type, Imatrix: o.Imatrix, Requantize: o.Requantize, Threads: o.Threads,
		Progress: o.Progress}
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
