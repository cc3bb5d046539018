// Package checkpoint gives one view of a model's files: a GGUF
// file, a split one, or a Hugging Face folder. It undoes the habits of formats and
// converters, so that an architecture sees one spelling of its
// configuration, and its weights as in the paper.
//
// Files in reading order: checkpoint.go, gguf.go, folder.go, contents.go, text.go, tokenizer.go, embed.go, rank.go,
// parts.go, latent.go, habit.go.
package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/patherr"
	"github.com/karat-run/karat/internal/tensor"
)

// Format is the format of a checkpoint's files.
type Format string

// The formats.
const (
	GGUF        Format = "GGUF"
	HuggingFace Format = "Hugging Face"
)

// Checkpoint is an open model on disk. Tensors point into mapped memory.
type Checkpoint struct {
	weights
	Metadata []settings.Entry // as the files have it, for people to read

	text  textFiles
	close closers
}

// weights are the tensors of a model, as its files have them, with what tells how the model has them.
type weights struct {
	*settings.Model            // what the files say
	Format          Format     // of the files
	set             tensor.Set // the names are without .weight
}

// Open opens a GGUF file (any part of a split one) or a Hugging Face folder.
func Open(path string) (*Checkpoint, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, patherr.Plain(err)
	}
	if st.IsDir() {
		return openFolder(path)
	}
	switch strings.ToLower(filepath.Ext(path)) {
	case ".safetensors", ".json":
		return nil, fmt.Errorf("%s: one file of a Hugging Face model; give its folder, %s", path, filepath.Dir(path))
	}
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	return fromGGUF(path, f)
}

// Parse reads a GGUF file that is already in memory.
func Parse(name string, data []byte) (*Checkpoint, error) {
	f, err := gguf.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return fromGGUF(name, f)
}

// Read reads a GGUF file that cannot be mapped, or all parts of a split one: large data
// of those without Data stays in them, which must be readable until Close.
func Read(files ...gguf.Source) (*Checkpoint, error) {
	f, err := gguf.Read(files...)
	if err != nil {
		return nil, err
	}
	return fromGGUF(files[0].Name, f)
}

// Close unmaps the files. No tensor may be used after it.
func (c *Checkpoint) Close() error {
	var errs []error
	for _, f := range c.close {
		errs = append(errs, f.Close())
	}
	c.close, c.set.ByName = nil, nil
	return errors.Join(errs...)
}

// newCheckpoint returns an empty view of path.
func newCheckpoint(path string, f Format) *Checkpoint {
	return &Checkpoint{weights: weights{settings.New(path), f, tensor.Set{ByName: map[string]tensor.Tensor{}}}}
}

// fill fills c in from its files, checks it, and closes it where that fails. A
// file that shrinks meanwhile is an error.
func (c *Checkpoint) fill(from func() error) (*Checkpoint, error) {
	err := mmap.Guard(func() error {
		if err := from(); err != nil {
			return err
		}
		if err := errors.Join(c.Validate(len(c.set.Names)), c.validateEnd()); err != nil {
			return err
		}
		c.dropTiedHead()
		return c.cutLatents()
	})
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Names implements bind.Source: all tensors in file order.
func (c *weights) Names() []string { return c.set.Names }

// Name implements bind.Source.
func (c *weights) Name(gguf, hf string) string {
	if c.Format == GGUF {
		return gguf
	}
	return hf
}

// Tensor implements bind.Source.
func (c *weights) Tensor(gguf, hf string) (tensor.Tensor, bool) {
	name := c.Name(gguf, hf)
	t, ok := c.set.ByName[name]
	if ok {
		var err error
		if t, err = c.restore(gguf, t); err != nil {
			t.Data, t.Source = nil, tensor.Unread{Err: err}
		}
	}
	return t, ok
}

// Tensors lists the model's tensors in file order, of joined ones the parts, and of
// halves the whole.
func (c *weights) Tensors() (all []tensor.Tensor) {
	for _, n := range c.set.Names {
		t := c.set.ByName[n]
		switch of := t.Source.(type) {
		case tensor.Joined:
			all = append(all, of...)
		case *halved:
			if of.from == 0 {
				all = append(all, of.in)
			}
		default:
			all = append(all, t)
		}
	}
	return all
}

// Bytes returns the size of all tensors.
func (c *weights) Bytes() int64 {
	var n int64
	for t := range maps.Values(c.set.ByName) {
		n += int64(t.Size())
	}
	return n
}

// Parameters counts the numbers of all tensors, and names the type of most of them.
func (c *weights) Parameters() (n int64, most string) {
	of := map[string]int64{}
	for _, t := range c.set.ByName {
		name := t.DType.String()
		n, of[name] = n+int64(t.Shape.Size()), of[name]+int64(t.Shape.Size())
	}
	for name, count := range of {
		if count > of[most] || count == of[most] && name < most {
			most = name
		}
	}
	return n, most
}

// add takes a tensor in under its name without .weight.
func (c *weights) add(name string, t tensor.Tensor) error {
	name = strings.TrimSuffix(name, ".weight")
	if _, ok := c.set.ByName[name]; ok {
		return fmt.Errorf("%s: tensor %s: two tensors have this name", c.Path, t.Name)
	}
	if !isWeight(t.DType) {
		return fmt.Errorf("%s: tensor %s: type %v is not supported for weights", c.Path, t.Name, t.DType)
	}
	if t.Size() == 0 {
		return fmt.Errorf("%s: tensor %s: shape %v has no elements", c.Path, t.Name, []int(t.Shape))
	}
	c.set.Names = append(c.set.Names, name)
	c.set.ByName[name] = t
	return nil
}

// isWeight reports whether weights are stored in d.
func isWeight(d tensor.DType) bool {
	return d.Quantized() || d == tensor.F32 || d == tensor.F16 || d == tensor.BF16
}

// dropTiedHead sets a head aside that repeats the embedding byte for byte, as
// some converters write tied models. One that differs stays, and contradicts
// the configuration.
func (c *Checkpoint) dropTiedHead() {
	head, embed := c.Name("output", "lm_head"), c.Name("token_embd", c.Family.Model.Embedding())
	t, ok := c.set.ByName[head]
	if ok && c.Values["tie_word_embeddings"] == true && same(t, c.set.ByName[embed]) {
		c.Notes = append(c.Notes, fmt.Sprintf("tensor %s repeats %s and is set aside", head, embed))
		c.set.Drop(head)
	}
}

// same reports whether two tensors have the same bytes. Tensors that cannot be read are
// found to be different.
func same(t, u tensor.Tensor) bool {
	if t.Size() != u.Size() || t.Rows() != u.Rows() {
		return false
	}
	step := max(1, 16<<20/max(1, t.Size()/max(1, t.Rows())))
	for from := 0; from < t.Rows(); from += step {
		to := min(from+step, t.Rows())
		a, errA := t.Part(from, to)
		b, errB := u.Part(from, to)
		if errA != nil || errB != nil || !bytes.Equal(a.Data, b.Data) {
			return false
		}
	}
	return true
}
