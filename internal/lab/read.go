package lab

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

// infoPath returns the path of a record's JSON file: OUT.json beside OUT.safetensors.
func infoPath(path string) string { return strings.TrimSuffix(path, filepath.Ext(path)) + ".json" }

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
