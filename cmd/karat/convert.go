package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/convert"
	"github.com/spf13/cobra"
)

type convertFlags struct {
	output, kind string
	split        size
	ignore       []string
	json         bool
}

func newConvertCommand() *cobra.Command {
	var f convertFlags
	c := &cobra.Command{
		Use:   "convert SRC -o OUT",
		Short: "Convert between Hugging Face folders and GGUF, and between GGUF types",
		Long: `Convert writes a model in the other format, with its tokenizer and chat template: a
Hugging Face folder as GGUF, GGUF as a folder of safetensors, or GGUF as GGUF with another
type or in other parts. OUT is a GGUF file if its name ends in .gguf. Else it is a folder,
which must be empty or not exist.

Without --type tensors keep their types; for a folder, the type of most weights is used.
Vectors and norms are F32 in GGUF. Quantized types are llama-quantize's mixes, as in "karat
quantize". A quantized file becomes a folder of F32, which holds its values exactly.

A tensor or a setting that the other format cannot hold is an error that names it. So is
a weight that is not finite. The output appears when it is complete. With --json the SHA-256
of weights, tokenizer and template of both models are printed, and the program's.`,
		Example: `  karat convert ./Qwen3-0.6B -o qwen3-0.6b.gguf
  karat convert ./Llama-3.2-1B -o llama.gguf --type f16 --split 4G
  karat convert llama-00001-of-00003.gguf -o llama.gguf
  karat convert gemma.gguf -o ./gemma --json`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 2 && args[1] != "" {
				return usagef("one file is read, %s; use -o %s for the file that is written", args[0], args[1])
			}
			return byUse(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			path, err := findModel(args[0])
			if err != nil {
				return err
			}
			return f.run(c, path)
		},
	}
	fs := c.Flags()
	fs.SortFlags = false
	fs.VarP((*name)(&f.output), "output", "o", "`file or folder` to write")
	fs.StringVar(&f.kind, "type", "", "`type` of the weights: bf16, f16, f32, or in GGUF Q8_0, Q4_K_M ...")
	fs.Var(&f.split, "split", "maximum bytes of tensors in one file, for example 500M")
	fs.StringArrayVar(&f.ignore, "ignore", nil, "`setting` that may be lost")
	fs.BoolVar(&f.json, "json", false, "print the result as one JSON object")
	return leadModel(c, true)
}

func (f *convertFlags) run(c *cobra.Command, src string) error {
	if f.output == "" {
		return usagef("-o OUT is needed")
	}
	if err := convert.Check(f.output, convert.Options{Type: f.kind, Split: int64(f.split)}); err != nil {
		return usageError{err}
	}
	p := newProgress(c.ErrOrStderr(), f.output)
	ctx, stop := interruptible()
	defer stop()
	r, err := karat.Convert(ctx, src, f.output, karat.ConvertOptions{Type: f.kind, Split: int64(f.split), Ignore: f.ignore, Progress: p.report})
	p.end()
	switch {
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return failure{statusInterrupted, fmt.Errorf("interrupted: %s was not written", f.output)}
	case err != nil:
		return err
	}
	seconds := time.Since(p.start).Seconds()
	if f.json {
		return writeConversion(ctx, c.OutOrStdout(), src, f.output, r, seconds)
	}
	for _, n := range r.Notes {
		fmt.Fprintln(c.ErrOrStderr(), "karat: note:", oneLine(n))
	}
	var types []string
	for _, t := range slices.Sorted(maps.Keys(r.Types)) {
		types = append(types, fmt.Sprintf("%d %s", r.Types[t], t))
	}
	made := f.output
	if f.split > 0 && len(r.Files) > 0 && filepath.Dir(r.Files[0]) != filepath.Clean(f.output) {
		made = few(r.Files, 1)
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "%s: %s, %s, %s (%s), %s in %s, %.1f s\n", oneLine(made), r.Format, oneLine(r.Architecture),
		count(r.Tensors, "tensor"), strings.Join(types, ", "), bytesText(r.Bytes), count(len(r.Files), "file"), seconds)
	return err
}

// writeConversion writes the result as JSON, with the hashes of both models.
func writeConversion(ctx context.Context, w io.Writer, src, out string, r *karat.Conversion, seconds float64) error {
	files := make([]string, len(r.Files))
	for i, path := range r.Files {
		files[i] = filepath.ToSlash(path)
	}
	made := out
	if r.Format == "GGUF" {
		made = r.Files[0] // of several, perhaps
	}
	var hashes conversionHashes
	if err := hashes.of(ctx, src, made); err != nil {
		return interruptedOr(ctx, err)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(struct {
		Source       string         `json:"source"`
		Output       string         `json:"output"`
		Format       string         `json:"format"`
		Architecture string         `json:"architecture"`
		Files        []string       `json:"files"`
		Tensors      int            `json:"tensors"`
		Bytes        int64          `json:"bytes"`
		Types        map[string]int `json:"types"`
		Notes        []string       `json:"notes"`
		Seconds      float64        `json:"seconds"`
		conversionHashes
	}{src, out, r.Format, r.Architecture, files, r.Tensors, r.Bytes, r.Types, append([]string{}, r.Notes...), seconds, hashes})
}

// size is a flag's number of bytes: 4G is 4e9 as llama.cpp's gguf-split has it, and
// 4GiB 2^32.
type size int64

var sizeUnits = map[string]int64{"": 1, "B": 1, "K": 1e3, "M": 1e6, "G": 1e9, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30,
	"T": 1e12, "TB": 1e12, "TIB": 1 << 40}

func (s *size) String() string { return strconv.FormatInt(int64(*s), 10) }
func (s *size) Type() string   { return "size" }

func (s *size) Set(text string) error {
	digits := strings.TrimRight(text, "BKMGTIbkmgti")
	unit, ok := sizeUnits[strings.ToUpper(text[len(digits):])]
	n, err := strconv.ParseFloat(digits, 64)
	switch x := n * float64(unit); {
	case !ok || err != nil || math.IsNaN(x):
	case x < 1 || x >= 1<<62:
		return errors.New("want 1 byte to 4194304 TiB")
	default:
		*s = size(x)
		return nil
	}
	return errors.New("want a size such as 500M, 4G or 4GiB")
}
