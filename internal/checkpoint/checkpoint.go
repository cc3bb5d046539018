// Package checkpoint gives the same view of a GGUF file, a split GGUF file and a Hugging Face folder. The package
// undoes the habits of formats and converters: an architecture sees its configuration in canonical keys, and its
// weights as in the paper.
//
// Files in reading order: folder.go, projector.go, open.go, text.go, embed.go, mlx.go, factor.go, join.go, restore.go,
// habit.go, latent.go, mmproj.go, tower.go, checkpoint.go.
package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/tensor"
	"github.com/karat-run/karat/internal/tokenizer"
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
	Metadata []settings.Entry // all settings of the files, for people to read
	Packing  string           // name of the packing of a folder's quantized weights; "" for none
	Tower    *Tower           // nil for a model that sees nothing, or without the files

	text  textFiles
	close closers
}

// weights holds the tensors as the files have them, with the settings that say how the model has them.
type weights struct {
	*settings.Model            // settings of the files
	Format          Format     // of the files
	set             tensor.Set // the names are without .weight
}

// textFiles holds the parts of the files about text. Making the tokenizer is left to the first caller that needs a
// tokenizer.
type textFiles struct {
	template   string // chat template; "" for none
	tokens     int    // number of tokens in a GGUF file
	generation settings.Generation
	tokenizer  func() (*tokenizer.Tokenizer, error)
	gguf       func() (tokenizer.GGUF, []string, error) // the tokenizer as GGUF has it, and notes on the losses
}

type closers []io.Closer

// Close unmaps the files. The tensors may not be used afterwards.
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

// Names implements bind.Source: all tensors in file order.
func (c *weights) Names() []string { return c.set.Names }

// Name implements bind.Source.
func (c *weights) Name(gguf, hf string) string {
	if c.Format == GGUF {
		return gguf
	}
	return hf
}

// Bytes returns the size of all tensors.
func (c *weights) Bytes() int64 {
	var n int64
	for t := range maps.Values(c.set.ByName) {
		n += int64(t.Stored())
	}
	return n
}

// Parameters counts the numbers of all tensors, and names the commonest type.
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

// add adds a tensor under its name without .weight.
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

func isMissing(dir, file string) bool {
	_, err := os.Stat(filepath.Join(dir, file))
	return errors.Is(err, fs.ErrNotExist)
}
