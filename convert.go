package karat

import (
	"context"
	"fmt"

	"github.com/karat-run/karat/internal/convert"
)

// ConvertOptions say what Convert makes. The zero value keeps types, in one file.
type ConvertOptions struct {
	// Type is the type of the weights, such as "bf16", "f16", "f32" or "Q8_0".
	// "" is from a folder that of most of its weights, from GGUF into GGUF that of each
	// tensor, and from a quantized GGUF file into a folder f32, which holds its values.
	Type string
	// Split is the most bytes of tensors in one file; 0 is one file of all. The
	// files are NAME-00001-of-00003.gguf, or model-00001-of-00003.safetensors.
	Split int64
	// Ignore are settings of the source, as config.json or the metadata names
	// them, that may be lost though there is no place for them.
	Ignore []string
	// Progress is called with the bytes of tensors that are written, and all. It
	// may be nil.
	Progress func(done, total int64)
}

// Conversion is what Convert made.
type Conversion struct {
	Format       string // GGUF or Hugging Face
	Architecture string
	Files        []string // that hold tensors
	Tensors      int
	Bytes        int64          // of tensors
	Types        map[string]int // how many tensors there are of each type
	Notes        []string       // what the format cannot say, or was set aside
}

// Convert makes dst, a GGUF file if its name ends in .gguf and else a Hugging Face
// folder, of the model at src, a GGUF file (any part of a split one) or a Hugging
// Face folder. A file at dst is replaced; a folder that is not empty is not. The
// memory that it takes does not grow with the model.
//
// A tensor or a setting that has no place in the other format is an error, as is
// a weight that is not finite. After an error, or the end of ctx, all is as before.
func Convert(ctx context.Context, src, dst string, o ConvertOptions) (*Conversion, error) {
	if ctx == nil {
		return nil, fmt.Errorf("karat: %w", errNilContext)
	}
	r, err := convert.Convert(ctx, src, dst, convert.Options(o))
	if err != nil {
		return nil, err
	}
	return (*Conversion)(r), nil
}
