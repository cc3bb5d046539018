// Package checkpoint gives one view of a model's files: a GGUF
// file, a split one, or a Hugging Face folder. It undoes the habits of formats and
// converters, so that an architecture sees one spelling of its
// configuration, and its weights as in the paper.
package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/family"
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
	Path     string
	Format   Format
	Arch     string   // its family: general.architecture
	Notes    []string // assumptions, tensors set aside
	Metadata []Entry  // as the files have it, for people to read

	family *family.Family
	kind   *family.Type // of a folder
	// settings is the configuration in one spelling, whatever the file's: Hugging Face's keys, with rope_parameters
	// always by kind of layer ({"full_attention": {...}, "sliding_attention": {...}}), layer_types always written out,
	// and per_layer_config for what differs between layers. No value is null.
	settings   family.Settings
	derivedDim bool              // the file does not say the head size
	spelling   map[string]string // the file's own names of canonical keys, where they differ
	unread     []string          // notes on settings of the file that have no canonical key
	left       []Entry           // those settings, whether they matter or not
	assumed    []Entry           // settings that the file leaves out and that have a default
	names      []string          // of tensors, without .weight, in file order
	tensors    map[string]tensor.Tensor
	text       textFiles
	pooling    *float64 // pooling_type of a GGUF file; nil where there is none
	close      closers
}

// Entry is a setting as a file has it.
type Entry struct{ Key, Value string }

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

// newCheckpoint is an empty view of path.
func newCheckpoint(path string, f Format) *Checkpoint {
	return &Checkpoint{Path: path, Format: f, settings: family.Settings{}, spelling: map[string]string{}, tensors: map[string]tensor.Tensor{}}
}

// Close unmaps the files. No tensor may be used after it.
func (c *Checkpoint) Close() error {
	var errs []error
	for _, f := range c.close {
		errs = append(errs, f.Close())
	}
	c.close, c.tensors = nil, nil
	return errors.Join(errs...)
}

// fill fills c in from its files, checks it, and closes it where that fails. A
// file that shrinks meanwhile is an error.
func (c *Checkpoint) fill(from func() error) (*Checkpoint, error) {
	err := mmap.Guard(func() error {
		if err := from(); err != nil {
			return err
		}
		if err := errors.Join(c.validate(), c.validateEnd()); err != nil {
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

// Family is what files of this one's family are like.
func (c *Checkpoint) Family() *family.Family { return c.family }

// Names implements bind.Source: all tensors in file order.
func (c *Checkpoint) Names() []string { return c.names }

// Name implements bind.Source.
func (c *Checkpoint) Name(gguf, hf string) string {
	if c.Format == GGUF {
		return gguf
	}
	return hf
}

// Key implements bind.Source: the file's own name of a canonical setting.
func (c *Checkpoint) Key(name string) string {
	if own, ok := c.spelling[name]; ok {
		return own
	}
	return name
}

// Tensor implements bind.Source.
func (c *Checkpoint) Tensor(gguf, hf string) (tensor.Tensor, bool) {
	name := c.Name(gguf, hf)
	t, ok := c.tensors[name]
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
func (c *Checkpoint) Tensors() (all []tensor.Tensor) {
	for _, n := range c.names {
		t := c.tensors[n]
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

// Bytes is the size of all tensors.
func (c *Checkpoint) Bytes() int64 {
	var n int64
	for t := range maps.Values(c.tensors) {
		n += int64(t.Size())
	}
	return n
}

// Parameters counts the numbers of all tensors, and names the type of most of them.
func (c *Checkpoint) Parameters() (n int64, most string) {
	of := map[string]int64{}
	for _, t := range c.tensors {
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

// ContextLength is the number of positions the model was made for; 0 if unknown.
func (c *Checkpoint) ContextLength() int { return c.settings.Int("max_position_embeddings") }

// Setting is the value of a canonical setting, nil where there is none: a
// float64, string, bool, []any or map[string]any, or a map of the like.
func (c *Checkpoint) Setting(key string) any { return c.settings[key] }

// Rope is a number of the rotary settings of a kind of layer (full_attention or
// sliding_attention); 0 where it is absent.
func (c *Checkpoint) Rope(kind, key string) float64 {
	params, _ := family.Object(c.ropeParameters()[kind])
	v, _ := params[key].(float64)
	return v
}

// Assumed lists the settings that the files leave out, in the files' spelling,
// with the defaults that hold.
func (c *Checkpoint) Assumed() []Entry { return c.assumed }

// add takes a tensor in under its name without .weight.
func (c *Checkpoint) add(name string, t tensor.Tensor) error {
	name = strings.TrimSuffix(name, ".weight")
	if _, ok := c.tensors[name]; ok {
		return fmt.Errorf("%s: tensor %s: two tensors have this name", c.Path, t.Name)
	}
	if !weights(t.DType) {
		return fmt.Errorf("%s: tensor %s: type %v is not supported for weights", c.Path, t.Name, t.DType)
	}
	if t.Size() == 0 {
		return fmt.Errorf("%s: tensor %s: shape %v has no elements", c.Path, t.Name, []int(t.Shape))
	}
	c.names = append(c.names, name)
	c.tensors[name] = t
	return nil
}

// weights reports whether weights are stored in d.
func weights(d tensor.DType) bool {
	return d.Quantized() || d == tensor.F32 || d == tensor.F16 || d == tensor.BF16
}

func (c *Checkpoint) drop(name string) {
	delete(c.tensors, name)
	if i := slices.Index(c.names, name); i >= 0 {
		c.names = slices.Delete(c.names, i, i+1)
	}
}

// dropTiedHead sets a head aside that repeats the embedding byte for byte, as
// some converters write tied models. One that differs stays, and contradicts
// the configuration.
func (c *Checkpoint) dropTiedHead() {
	head, embed := c.Name("output", "lm_head"), c.Name("token_embd", c.family.Model.Embedding())
	t, ok := c.tensors[head]
	if ok && c.settings["tie_word_embeddings"] == true && same(t, c.tensors[embed]) {
		c.Notes = append(c.Notes, fmt.Sprintf("tensor %s repeats %s and is set aside", head, embed))
		c.drop(head)
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
