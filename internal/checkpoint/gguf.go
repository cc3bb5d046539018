package checkpoint

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/registry"
	"github.com/karat-run/karat/internal/tensor"
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
		if c.family = registry.Find(c.Arch); c.family == nil {
			return fmt.Errorf("%s: architecture %q %w (%s are)", path, c.Arch, ErrUnsupported, registry.Supported())
		}
		for _, t := range f.Tensors() {
			if err := c.addGGUF(t); err != nil {
				return err
			}
		}
		if err := errors.Join(c.join(), c.divide()); err != nil {
			return err
		}
		if err := c.parseGGUF(f); err != nil {
			return err
		}
		if c.text, err = textGGUF(f); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		c.metadataGGUF(f)
		return nil
	})
}

func (c *Checkpoint) addGGUF(t tensor.Tensor) error {
	if c.Habit(strings.TrimSuffix(t.Name, ".weight")).Plus != 0 && t.DType.Quantized() {
		return fmt.Errorf("%s: tensor %s: type %v is not supported for norms", c.Path, t.Name, t.DType)
	}
	return c.add(t.Name, t)
}

// next sets the layers aside that predict further tokens, which lie behind the last.
func (r *ggufReader) next() {
	if r.family.Next() == "" {
		return // the key is unread
	}
	n, ok := r.number("nextn_predict_layers")
	if !ok {
		return
	}
	layers, _ := r.settings["num_hidden_layers"].(float64)
	if n < 0 || n >= layers {
		r.errorf("nextn_predict_layers", "is %v, expected less than the %v layers", n, layers)
		return
	}
	r.settings["num_hidden_layers"] = layers - n
	if own := r.aside("blk.", "nextn.", int(layers-n)); own >= 0 {
		r.errorf("nextn_predict_layers", "is %v, but layer %d has no tensors nextn.*, as layers that predict further tokens have: it is one of the model's own", n, own)
	}
}

// aside drops the tensors of layers from one on, in the list that begins with prefix. Such a layer
// has a tensor whose name goes on with mark: the result is the first one that has others alone, -1
// for none.
func (c *Checkpoint) aside(prefix, mark string, from int) (own int) {
	before, marked := len(c.names), map[int]bool{} // by the layers that have tensors
	c.names = slices.DeleteFunc(c.names, func(name string) bool {
		rest, ok := strings.CutPrefix(name, prefix)
		number, rest, _ := strings.Cut(rest, ".")
		i, err := strconv.Atoi(number)
		if !ok || err != nil || i < from {
			return false
		}
		marked[i] = marked[i] || strings.HasPrefix(rest, mark)
		delete(c.tensors, name)
		return true
	})
	if n := before - len(c.names); n > 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("%d tensors of layers that predict further tokens are set aside", n))
	}
	for _, i := range slices.Sorted(maps.Keys(marked)) {
		if !marked[i] {
			return i
		}
	}
	return -1
}

// metadataGGUF lists the metadata for people: long arrays by their size.
func (c *Checkpoint) metadataGGUF(f *gguf.File) {
	for _, key := range f.Metadata.Keys() {
		v, _ := f.Metadata.Lookup(key)
		text := fmt.Sprintf("array of %d %v", v.Len(), v.Elem())
		if v.Type() != gguf.Array || v.Len() <= 64 && v.Elem() != gguf.String {
			x, err := v.Any()
			if text = fmt.Sprint(x); err != nil {
				text = err.Error()
			}
		}
		c.Metadata = append(c.Metadata, Entry{key, text})
	}
}
