package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	meta "github.com/karat-run/karat/internal/checkpoint/gguf"
	"github.com/karat-run/karat/internal/checkpoint/hf"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/patherr"
	"github.com/karat-run/karat/internal/tokenizer"
)

// OpenTokenizer makes the tokenizer of a model, or of files with a tokenizer alone: a GGUF file without tensors, of any
// architecture; a tokenizer.json or tokenizer.model, with the tokenizer_config.json beside it; a folder with such
// files.
func OpenTokenizer(path string) (*tokenizer.Tokenizer, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, patherr.Plain(err)
	}
	switch ext := strings.ToLower(filepath.Ext(path)); {
	case st.IsDir():
		weights, _ := hf.FindWeights(path)
		if weights == "" || isMissing(path, "config.json") {
			if err := hf.CheckLinks(path); err != nil {
				return nil, err
			}
			return hf.Tokenizer(path, hf.MaxTokenizer)
		}
	case ext == ".json", ext == ".model":
		return openTokenizerFile(path, ext)
	case ext == ".gguf":
		if t, err := openVocabulary(path); t != nil || err != nil {
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

// openTokenizerFile makes the tokenizer of a file with any name. The extension tells the format.
func openTokenizerFile(path, ext string) (*tokenizer.Tokenizer, error) {
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

// openVocabulary makes the tokenizer of a GGUF file without tensors, and returns nil for a file with tensors.
func openVocabulary(path string) (*tokenizer.Tokenizer, error) {
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
