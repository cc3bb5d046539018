package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	meta "github.com/karat-run/karat/internal/checkpoint/gguf"
	"github.com/karat-run/karat/internal/checkpoint/hf"
	"github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/patherr"
	"github.com/karat-run/karat/internal/registry"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

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

// Parse reads a GGUF file in memory.
func Parse(name string, data []byte) (*Checkpoint, error) {
	f, err := gguf.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return fromGGUF(name, f)
}

// Read reads a GGUF file that cannot be mapped, or all parts of a split file. Large data of parts without Data is read
// on demand, until Close.
func Read(files ...gguf.Source) (*Checkpoint, error) {
	f, err := gguf.Read(files...)
	if err != nil {
		return nil, err
	}
	return fromGGUF(files[0].Name, f)
}

// ErrUnsupported reports an unknown architecture.
var ErrUnsupported = errors.New("is not supported")

// fromGGUF returns the view of an open GGUF file, or closes the file on failure.
func fromGGUF(path string, f *gguf.File) (*Checkpoint, error) {
	c := newCheckpoint(path, GGUF)
	c.close = closers{f}
	return c.fill(func() (err error) {
		if c.Arch, err = f.Metadata.String("general.architecture"); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if kind, _ := f.Metadata.String("general.type"); kind == "adapter" {
			return fmt.Errorf("%s: an adapter and no model: give it with --lora, beside the model that it was made for",
				path)
		}
		if c.Arch == "clip" {
			return fmt.Errorf("%s: a part for pictures and no model: give it with --mmproj, beside the model that it "+
				"was made for", path)
		}
		if len(f.Tensors()) == 0 {
			return fmt.Errorf("%s: the file has a vocabulary at most, but no tensors: there is no model to run "+
				"(karat tokenize works with it)", path)
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
		if err := errors.Join(takeFactors(&c.weights), c.join(), c.matchParts()); err != nil {
			return err
		}
		c.Ranks = c.ranks()
		if err := errors.Join(meta.Read(c.Model, &c.set, f.Metadata), c.unweave()); err != nil {
			return err
		}
		if c.text, err = textGGUF(f); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		c.Metadata = entriesGGUF(f)
		return nil
	})
}

// entriesGGUF lists a file's metadata for people, with the sizes in place of long arrays.
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

// fill fills in c and checks the result. On failure, for example of a file that shrinks meanwhile, c is closed.
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

// dropTiedHead drops a head that repeats the embedding byte for byte, as some converters write tied models. A head that
// differs stays, and contradicts the configuration.
func (c *Checkpoint) dropTiedHead() {
	head, embed := c.Name("output", "lm_head"), c.Name("token_embd", c.Family.Model.Embedding())
	t, ok := c.set.ByName[head]
	if ok && c.Values["tie_word_embeddings"] == true && equalData(t, c.set.ByName[embed]) {
		c.Notes = append(c.Notes, fmt.Sprintf("tensor %s repeats %s and is set aside", head, embed))
		c.set.Drop(head)
	}
}

// equalData reports whether two tensors have the same bytes. Unreadable tensors differ.
func equalData(t, u tensor.Tensor) bool {
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

// Contents opens files without a model to run, for example a vocabulary without tensors or a model of an unknown
// architecture. The result serves people who look at the metadata, the tensors and the chat template.
func Contents(path string) (*Checkpoint, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st.IsDir() {
		return contentsHF(path)
	}
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	c := newCheckpoint(path, GGUF)
	c.close = closers{f}
	c.Arch, _ = f.Metadata.String("general.architecture")
	c.text.template, _ = f.Metadata.String("tokenizer.chat_template")
	c.Metadata = entriesGGUF(f)
	c.addAll(f.Tensors())
	return c, nil
}

// contentsHF opens the files of a folder.
func contentsHF(dir string) (*Checkpoint, error) {
	if err := hf.CheckLinks(dir); err != nil {
		return nil, err
	}
	c := newCheckpoint(dir, HuggingFace)
	config, err := hf.ReadText(dir, "config.json", hf.MaxConfig)
	if err != nil {
		return nil, err
	}
	c.Metadata = entriesHF(config)
	var kind struct {
		Type string `json:"model_type"`
	}
	if json.Unmarshal(config, &kind) == nil {
		c.Arch = kind.Type
	}
	path, err := hf.FindWeights(dir)
	if err != nil {
		return nil, err
	}
	if path != "" {
		f, err := safetensors.Open(path)
		if err != nil {
			return nil, err
		}
		c.close = append(c.close, f)
		c.addAll(f.Tensors)
	}
	if config == nil && len(c.set.Names) == 0 {
		return nil, noConfig(dir)
	}
	return c, nil
}

// addAll adds tensors under their names in the file.
func (c *weights) addAll(tensors []tensor.Tensor) {
	for _, t := range tensors {
		c.set.Names = append(c.set.Names, t.Name)
		c.set.ByName[t.Name] = t
	}
}
