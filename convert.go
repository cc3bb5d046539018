package karat

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/check"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/quantmix"
	"github.com/karat-run/karat/internal/tensor"
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

// CheckOptions are options of Check. The zero value is usable.
type CheckOptions struct {
	// Against is the Hugging Face folder behind the model, "" for none: Check compares every tensor, the settings, the
	// tokenizer and the chat template with the folder's.
	Against string
	// Progress is called with the bytes of tensors read so far and their total. Progress may be nil. Calls come in
	// sequence, on Check's own goroutine.
	Progress func(done, total int64)
}

// CheckReport is the result of Check. Its JSON form is printed by "karat check --json".
type CheckReport struct {
	Path         string    `json:"path"`
	Format       string    `json:"format"` // GGUF or Hugging Face
	Architecture string    `json:"architecture"`
	Against      string    `json:"against,omitempty"` // the source's folder, "" for none
	Tensors      int       `json:"tensors"`
	Bytes        int64     `json:"bytes"`              // of the tensors
	Compared     int       `json:"compared,omitempty"` // tensors compared with the source's
	Findings     []Finding `json:"findings"`           // by area, in each the worst first
	Unproven     []string  `json:"unproven"`           // faults invisible to every check of this model's files
}

// Finding is a fault in a model's files, with all places of its occurrence. docs/checking.md lists all IDs.
type Finding struct {
	ID       string   `json:"id"` // the same from version to version
	Severity Severity `json:"severity"`
	Area     string   `json:"area"`  // configuration, tensors, values, text or source
	What     string   `json:"what"`  // a sentence with the numbers
	Where    []string `json:"where"` // tensors, keys or files, by their names in the model
	Means    string   `json:"means"` // for the logits
	Fix      string   `json:"fix"`
}

// Severity is how bad a Finding is.
type Severity string

// The severities.
const (
	SeverityError   Severity = "error"   // logits are wrong, or the model does not run
	SeverityWarning Severity = "warning" // logits are likely wrong
	SeverityNote    Severity = "note"    // something is assumed, or odd, and most likely right
)

// Clean reports whether the report has no errors and no warnings.
func (r *CheckReport) Clean() bool {
	return !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity != SeverityNote })
}

// Check looks for faults in the model at path, a GGUF file (any part of a split file) or a Hugging Face folder, without
// running it. Check reads the tensors once, in pieces. Faults are in the report. The error is for unreadable files, of
// the model or of its source.
func Check(ctx context.Context, path string, o CheckOptions) (*CheckReport, error) {
	if ctx == nil {
		return nil, errNilContext
	}
	r, err := check.Run(ctx, path, check.Options{Against: o.Against, Progress: o.Progress})
	if err != nil {
		return nil, err
	}
	c := &CheckReport{Path: r.Path, Format: r.Format, Architecture: r.Architecture, Against: r.Against,
		Tensors: r.Tensors, Bytes: r.Bytes, Compared: r.Compared, Findings: []Finding{}, Unproven: r.Unproven}
	for _, f := range r.Findings {
		c.Findings = append(c.Findings, Finding{f.ID, Severity(f.Severity), string(f.Area), f.What, f.Where, f.Means,
			f.Fix})
	}
	return c, nil
}
