package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/chat"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/model"
	"github.com/karat-run/karat/internal/tokenizer"
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
		return x.orInterrupted(err, ": "+f.output+" was not written")
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

// editFlags are the flags of edit.
type editFlags struct {
	set, unset    []string
	template, out string
	json          bool
}

// templateKey is the key of a GGUF file's chat template.
const templateKey = "tokenizer.chat_template"

func newEditCommand() *cobra.Command {
	var f editFlags
	c := define("edit", f.run)
	c.flags("set", &f.set, "unset", &f.unset, "chat-template", file(&f.template), "output", file(&f.out), "json",
		&f.json)
	alias(c.Flags(), "chat-template", "template")
	c.takesModel()
	return c.Command
}

// options returns the changes, with a readable chat template.
func (f *editFlags) options() (o convert.EditOptions, err error) {
	o.Unset = f.unset
	for _, text := range f.set {
		kv, err := convert.ParseKeyValue(text)
		if err != nil {
			return o, usagef("--set %w", err)
		}
		o.Set = append(o.Set, kv)
	}
	if f.template != "" {
		text := must((&chatFlags{file: f.template}).read())
		o.Set = append(o.Set, gguf.KeyValue{Key: templateKey, Value: text})
	}
	for _, kv := range o.Set {
		text, ok := kv.Value.(string)
		if kv.Key == templateKey && ok {
			if _, err := chat.Parse(text, chat.Limits{}); err != nil {
				return o, fmt.Errorf("%s: %w", templateKey, err)
			}
		}
	}
	if len(o.Set)+len(o.Unset) == 0 {
		return o, usagef("no change: give --set, --unset or --template")
	}
	return o, nil
}

func (f *editFlags) run(x *call) error {
	o := must(f.options())
	throw(refuseOverwrite("-o "+f.out, f.out, f.template))
	must(x.find())
	found := must(namedModel(x.model.name))
	out := f.out
	switch {
	case out == "" && found.Name != "":
		return usagef("%s is in the store of models, whose files are known by their hash: -o FILE writes another file",
			found.Name)
	case out == "":
		out = found.Path
	}
	o.Loads = x.checkLoads
	changes, err := convert.Edit(x.ctx, found.Path, out, o)
	if err != nil {
		return x.orInterrupted(err, ": "+out+" was not written")
	}
	if f.json {
		return x.json(map[string]any{"file": out, "changes": changes})
	}
	return writeChanges(x.out, out, changes, "")
}

// checkLoads returns the error of a model impossible to load.
func (x *call) checkLoads(m *checkpoint.Checkpoint) error {
	_, _, err := model.Graph(x.ctx, m, 0)
	return err
}

// writeChanges prints the changes to the metadata of a file.
func writeChanges(w io.Writer, file string, changes []convert.Change, end string) error {
	for _, c := range changes {
		was, is := cmp.Or(c.Was, "(none)"), cmp.Or(c.Is, "(none)")
		if _, err := fmt.Fprintf(w, "%s: %s -> %s\n", oneLine(c.Key), oneLine(was), oneLine(is)); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%s: %s\n%s", oneLine(file), count(len(changes), "change"), end)
	return err
}

// hashesOf returns the hashes of a model's files and of this program.
func hashesOf(ctx context.Context, c *checkpoint.Checkpoint, t *tokenizer.Tokenizer) (model.Hashes, error) {
	x, err := model.HashesOf(ctx, c, t)
	if err == nil {
		x.Program = programHash()
	}
	return x, err
}

// programHash returns the SHA-256 of the executable, "" if unreadable.
func programHash() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}

// hashesAt returns hashesOf for the model at path. A model without a tokenizer has no hash of a tokenizer.
func hashesAt(ctx context.Context, path string) (*model.Hashes, error) {
	c, err := openCheckpoint(path)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	t, err := c.Tokenizer()
	if err != nil && !errors.Is(err, tokenizer.ErrNone) {
		return nil, err
	}
	x, err := hashesOf(ctx, c, t)
	return &x, err
}

// conversionHashes identify the source, the result and the program of a conversion. Files of an unknown architecture,
// only copied, have no hashes.
type conversionHashes struct {
	Source *model.Hashes `json:"source_hashes,omitempty"`
	Output *model.Hashes `json:"hashes,omitempty"`
}

// compute reads both models.
func (h *conversionHashes) compute(ctx context.Context, source, output string) (err error) {
	h.Source, err = hashesAt(ctx, source)
	if errors.Is(err, checkpoint.ErrUnsupported) {
		h.Source = nil
		return nil
	}
	if err == nil {
		h.Source.Program = "" // the program belongs to the result
		h.Output, err = hashesAt(ctx, output)
	}
	return err
}
