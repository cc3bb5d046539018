package main

import (
	"errors"
	"fmt"
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

// convertFlags are the flags of convert.
type convertFlags struct {
	output, kind string
	projector    string
	split        size
	ignore       []string
	json         bool
}

func newConvertCommand() *cobra.Command {
	var f convertFlags
	c := define("convert", f.run)
	check := c.Args
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 2 && args[1] != "" {
			return usagef("one file is read, %s; use -o %s for the file that is written", args[0], args[1])
		}
		return check(c, args)
	}
	c.flags("output", file(&f.output), "type", &f.kind, "split", &f.split, "ignore", &f.ignore, "mmproj",
		file(&f.projector), "json", &f.json)
	c.takesModel()
	return c.Command
}

func (f *convertFlags) run(x *call) error {
	src, err := x.find()
	switch {
	case err != nil:
		return err
	case f.output == "":
		return usagef("-o OUT is needed")
	}
	if err := convert.Check(f.output, convert.Options{Type: f.kind, Split: int64(f.split)}); err != nil {
		return usageError{err}
	}
	p := newProgress(x.log, f.output)
	r, err := karat.Convert(x.ctx, src, f.output,
		karat.ConvertOptions{Type: f.kind, Split: int64(f.split), Projector: f.projector,
			Ignore: f.ignore, Progress: p.bytes})
	p.end()
	if err != nil {
		return x.unwritten(err, f.output)
	}
	seconds := time.Since(p.start).Seconds()
	if f.json {
		return writeConversion(x, src, f.output, r, seconds)
	}
	for _, n := range r.Notes {
		x.note(n)
	}
	var types []string
	for _, t := range slices.Sorted(maps.Keys(r.Types)) {
		types = append(types, fmt.Sprintf("%d %s", r.Types[t], t))
	}
	made := f.output
	if f.split > 0 && len(r.Files) > 0 && filepath.Dir(r.Files[0]) != filepath.Clean(f.output) {
		made = listFew(r.Files, 1)
	}
	return x.printf("%s: %s, %s, %s (%s), %s in %s, %.1f s\n", oneLine(made), r.Format, oneLine(r.Architecture),
		count(r.Tensors, "tensor"), strings.Join(types, ", "), bytesText(r.Bytes), count(len(r.Files), "file"), seconds)
}

// writeConversion writes the result as JSON, with the hashes of both models.
func writeConversion(x *call, src, out string, r *karat.Conversion, seconds float64) error {
	files := make([]string, len(r.Files))
	for i, path := range r.Files {
		files[i] = filepath.ToSlash(path)
	}
	made := out
	if r.Format == "GGUF" {
		made = r.Files[0] // of several, perhaps
	}
	var hashes conversionHashes
	throw(hashes.compute(x.ctx, src, made))
	return x.json(struct {
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
	}{src, out, r.Format, r.Architecture, files, r.Tensors, r.Bytes, r.Types, append([]string{},
		r.Notes...), seconds, hashes})
}

// size is a flag's number of bytes: 4G is 4e9 as in llama.cpp's gguf-split, and 4GiB 2^32.
type size int64

var sizeUnits = map[string]int64{"": 1, "B": 1, "K": 1e3, "KB": 1e3, "KIB": 1 << 10, "M": 1e6, "MB": 1e6,
	"MIB": 1 << 20, "G": 1e9, "GB": 1e9, "GIB": 1 << 30, "T": 1e12, "TB": 1e12, "TIB": 1 << 40}

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
