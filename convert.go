package karat

import (
	"context"

	"github.com/karat-run/karat/internal/convert"
)

// ConvertOptions are options of Convert. The zero value keeps types, in one file.
type ConvertOptions struct {
	// Type is the type of the weights, such as "bf16", "f16", "f32" or "Q8_0". "" means, for a folder, the type of most
	// of its weights; from GGUF to GGUF, the type of each tensor; and from a quantized GGUF file to a folder, f32,
	// which holds quantized values exactly.
	Type string
	// Split is the maximum bytes of tensors per file; 0 means a single file. The files are NAME-00001-of-00003.gguf, or
	// model-00001-of-00003.safetensors.
	Split int64
	// Projector is the GGUF file of the part for pictures of a GGUF model on its way to a folder; "" is a fitting one
	// beside the model, if any.
	Projector string
	// Ignore lists settings of the source free to be lost, by their names in config.json or in the metadata.
	Ignore []string
	// Progress is called with the bytes of tensors written so far and their total. Progress may be nil.
	Progress func(done, total int64)
}

// Conversion is the result of Convert or Quantize.
type Conversion struct {
	Format       string // GGUF or Hugging Face
	Architecture string
	Files        []string // with tensors
	Tensors      int
	Bytes        int64          // of tensors
	Types        map[string]int // how many tensors there are of each type
	Notes        []string       // losses, by the limits of the format or set aside
}

// Convert converts the model at src, a GGUF file (any part of a split file) or a Hugging Face folder, to dst: a GGUF
// file if its name ends in .gguf, else a Hugging Face folder. A file at dst is replaced; a nonempty folder is an error.
// Memory does not grow with the model.
//
// A folder's part for pictures becomes a second file beside dst, mmproj-NAME.gguf, in its own type if dst is quantized.
//
// A tensor or a setting without a place in the other format is an error, and so is a weight that is not finite. After
// an error, or the end of ctx, dst is unchanged.
func Convert(ctx context.Context, src, dst string, o ConvertOptions) (*Conversion, error) {
	if ctx == nil {
		return nil, errNilContext
	}
	r, err := convert.Convert(ctx, src, dst, convert.Options(o))
	if err != nil {
		return nil, err
	}
	return (*Conversion)(r), nil
}
