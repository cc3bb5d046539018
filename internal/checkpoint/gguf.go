package checkpoint

import (
	"errors"
	"fmt"
	"strings"

	meta "github.com/karat-run/karat/internal/checkpoint/gguf"
	"github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/registry"
)

// ErrUnsupported says that a model's architecture is none that Karat knows.
var ErrUnsupported = errors.New("is not supported")

// fromGGUF views an open GGUF file, and closes it on failure.
func fromGGUF(path string, f *gguf.File) (*Checkpoint, error) {
	c := newCheckpoint(path, GGUF)
	c.close = closers{f}
	return c.fill(func() (err error) {
		if c.Arch, err = f.Metadata.String("general.architecture"); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if kind, _ := f.Metadata.String("general.type"); kind == "adapter" {
			return fmt.Errorf("%s: an adapter and no model: give it with --lora, beside the model that it was made for", path)
		}
		if len(f.Tensors()) == 0 {
			return fmt.Errorf("%s: the file has a vocabulary at most, but no tensors: there is no model to run (karat tokenize works with it)", path)
		}
		if c.Family = registry.Find(c.Arch); c.Family == nil {
			return fmt.Errorf("%s: architecture %q %w (%s are)", path, c.Arch, ErrUnsupported, registry.Supported())
		}
		for _, t := range f.Tensors() {
			if c.Habit(strings.TrimSuffix(t.Name, ".weight")).Plus != 0 && t.DType.Quantized() {
				return fmt.Errorf("%s: tensor %s: type %v is not supported for norms", path, t.Name, t.DType)
			}
			if err := c.add(t.Name, t); err != nil {
				return err
			}
		}
		if err := errors.Join(c.join(), c.divide()); err != nil {
			return err
		}
		c.Ranks = c.ranks()
		if err := meta.Read(c.Model, &c.set, f.Metadata); err != nil {
			return err
		}
		if c.text, err = textGGUF(f); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		c.Metadata = entriesGGUF(f)
		return nil
	})
}

// entriesGGUF lists a file's metadata for people: long arrays by their size.
func entriesGGUF(f *gguf.File) (list []settings.Entry) {
	for _, key := range f.Metadata.Keys() {
		v, _ := f.Metadata.Lookup(key)
		text := fmt.Sprintf("array of %d %v", v.Len(), v.Elem())
		if v.Type() != gguf.Array || v.Len() <= 64 && v.Elem() != gguf.String {
			x, err := v.Any()
			if text = fmt.Sprint(x); err != nil {
				text = err.Error()
			}
		}
		list = append(list, settings.Entry{Key: key, Value: text})
	}
	return list
}
