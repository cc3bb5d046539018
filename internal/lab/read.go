package lab

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

// infoPath returns the path of a record's JSON file: OUT.json beside OUT.safetensors.
func infoPath(path string) string { return strings.TrimSuffix(path, filepath.Ext(path)) + ".json" }

// ReadRecord opens the record at path, a safetensors file, and reads the JSON file beside path if there is one,
// both as the same commit left them. The tensors stay in the file, so Close the record.
func ReadRecord(path string) (*Record, error) {
	if infoPath(path) == path {
		return readRecord(path)
	}
	return atomicfile.Open([]string{path, infoPath(path)}, func() (*Record, error) { return readRecord(path) })
}

func readRecord(path string) (*Record, error) {
	f, err := safetensors.Open(path)
	if err != nil {
		if kind := kindOf(path); kind != "" {
			return nil, fmt.Errorf("record: %s: it is %s, not safetensors%s", path, kind, instead(kind))
		}
		return nil, fmt.Errorf("record: %w", err)
	}
	r := &Record{Path: path, file: f}
	if err := r.read(f); err != nil {
		return nil, errors.Join(fmt.Errorf("record: %s: %w", path, err), f.Close())
	}
	return r, nil
}

// instead says what to do with a file of a kind.
func instead(kind string) string {
	switch kind {
	case kindJSON:
		return ": if it lies beside a record, or in a folder of arrays, name these"
	case kindNumpy, kindZip, kindText:
		return ": karat lab import makes a record of some others"
	}
	return ""
}

// ParseRecord reads a record in memory as ReadRecord does: info is the JSON file, or nil. path is for messages.
func ParseRecord(path string, info, tensors []byte) (*Record, error) {
	f, err := safetensors.Parse(tensors)
	r := &Record{Path: path}
	if err == nil && info != nil {
		err = r.addInfo(info)
	}
	if err == nil {
		err = r.fill(f.Tensors)
	}
	if err != nil {
		return nil, fmt.Errorf("record: %s: %w", path, err)
	}
	return r, nil
}

func (r *Record) read(f *safetensors.File) error {
	if err := readJSON(infoPath(r.Path), r.addInfo); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return mmap.Guard(func() error { return r.fill(f.Tensors) })
}

// fill gives all tensors their places, and checks that they fit the prompts.
func (r *Record) fill(tensors []tensor.Tensor) error {
	for i := range tensors {
		if err := r.add(&tensors[i]); err != nil {
			return err
		}
	}
	if len(r.Prompts) == 0 {
		return errors.New("no prompts")
	}
	for _, p := range r.Prompts {
		if len(p.IDs) == 0 && p.Logits == nil && p.Hidden == nil && len(p.Taps) == 0 {
			return fmt.Errorf("prompt %d has neither ids nor arrays: its index is the number before the arrays' names",
				p.Index)
		}
		p.Decode = cmp.Or(p.Decode, min(r.decode, len(p.IDs)))
		p.Rows = cmp.Or(p.Rows, r.rows)
		if err := p.check(); err != nil {
			return err
		}
	}
	return nil
}
