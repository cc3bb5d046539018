package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	meta "github.com/karat-run/karat/internal/checkpoint/gguf"
	"github.com/karat-run/karat/internal/checkpoint/hf"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/patherr"
	"github.com/karat-run/karat/internal/tokenizer"
)

// OpenTokenizer makes the tokenizer of a model, or of what has a tokenizer and no more: a
// GGUF file without tensors, of any architecture; a tokenizer.json or tokenizer.model, with the
// tokenizer_config.json beside it; the folder of such a file.
func OpenTokenizer(path string) (*tokenizer.Tokenizer, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, patherr.Plain(err)
	}
	switch ext := strings.ToLower(filepath.Ext(path)); {
	case st.IsDir():
		if missing(path, "config.json") || missing(path, "model.safetensors") && missing(path, "model.safetensors.index.json") {
			if err := hf.CheckLinks(path); err != nil {
				return nil, err
			}
			return hf.Tokenizer(path, hf.MaxTokenizer)
		}
	case ext == ".json", ext == ".model":
		return bareTokenizer(path, ext)
	case ext == ".gguf":
		if t, err := vocabularyGGUF(path); t != nil || err != nil {
			return t, err
		}
	}
	c, err := Open(path)
	if err != nil {
		return nil, err
	}
	t, err := c.Tokenizer()
	return t, errors.Join(err, c.Close())
}

func missing(dir, file string) bool {
	_, err := os.Stat(filepath.Join(dir, file))
	return errors.Is(err, fs.ErrNotExist)
}

// bareTokenizer returns the tokenizer of a file that may have any name with its extension.
func bareTokenizer(path, ext string) (*tokenizer.Tokenizer, error) {
	dir := filepath.Dir(path)
	b, err := hf.ReadText(dir, filepath.Base(path), hf.MaxTokenizer)
	if err != nil {
		return nil, err
	}
	f := tokenizer.Files{JSON: b}
	if ext == ".model" {
		f = tokenizer.Files{Model: b}
	}
	if f.Config, err = hf.ReadText(dir, "tokenizer_config.json", hf.MaxText); err != nil {
		return nil, err
	}
	return hf.ParseTokenizer(path, f)
}

// vocabularyGGUF returns the tokenizer of a GGUF file without tensors, nil of one with them.
func vocabularyGGUF(path string) (*tokenizer.Tokenizer, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if len(f.Tensors()) > 0 {
		return nil, nil
	}
	g, err := meta.Tokenizer(f.Metadata)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	t, err := tokenizer.FromGGUF(g)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}
