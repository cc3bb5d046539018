package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

type closers []io.Closer

// maxText bounds the size of a folder's text files: the largest published
// tokenizer.json has 33 MB.
const maxText = 128 << 20

// readText reads a file of a folder; nil if it is not there.
func readText(dir, name string) ([]byte, error) {
	path := filepath.Join(dir, name)
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	if !st.Mode().IsRegular() || st.Size() > maxText {
		return nil, fmt.Errorf("checkpoint: %s: %d bytes, %v: expected a regular file of at most %d", path, st.Size(), st.Mode(), maxText)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	return b, nil
}

// openFolder opens a Hugging Face folder as it is downloaded.
func openFolder(dir string) (*Checkpoint, error) {
	config, err := readText(dir, "config.json")
	if err != nil {
		return nil, err
	}
	if config == nil {
		return nil, noConfig(dir)
	}
	c := &Checkpoint{Path: dir, Format: HuggingFace, tensors: map[string]tensor.Tensor{}}
	fail := func(err error) (*Checkpoint, error) {
		c.Close()
		return nil, err
	}
	if c.settings, c.Arch, err = parseHF(config); err != nil {
		return fail(fmt.Errorf("checkpoint: %s: %w", dir, err))
	}
	c.metadataHF(config)
	if err := c.openTensors(); err != nil {
		return fail(err)
	}
	if c.text, err = textHF(dir); err != nil {
		return fail(err)
	}
	return c.finish()
}

// noConfig says what a folder that is no model might have been meant for.
func noConfig(dir string) error {
	found, _ := filepath.Glob(filepath.Join(dir, "*.gguf"))
	if len(found) > 0 {
		return fmt.Errorf("checkpoint: %s: a folder without config.json; for GGUF give the file, such as %s", dir, found[0])
	}
	return fmt.Errorf("checkpoint: %s: a folder without config.json is no Hugging Face model", dir)
}

// openTensors opens model.safetensors, or the files of its index.
func (c *Checkpoint) openTensors() error {
	path := filepath.Join(c.Path, "model.safetensors")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		path += ".index.json"
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return noTensors(c.Path)
		}
	}
	f, err := safetensors.Open(path)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	c.close = append(c.close, f)
	ts := f.Tensors
	multimodal := slices.ContainsFunc(ts, func(t tensor.Tensor) bool { return strings.Contains(t.Name, "language_model.") })
	aside := 0
	for _, t := range ts {
		name, text := textName(t.Name)
		if multimodal && !text {
			aside++
			continue
		}
		if t.DType != tensor.F32 && t.DType != tensor.F16 && t.DType != tensor.BF16 {
			return fmt.Errorf("checkpoint: %s: tensor %s: type %v is not supported (F32, F16 and BF16 are)", c.Path, t.Name, t.DType)
		}
		if strings.HasSuffix(name, ".rotary_emb.inv_freq") { // old files hold what the configuration says
			continue
		}
		if err := c.add(name, t); err != nil {
			return err
		}
	}
	if aside > 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("%d tensors outside the language model (vision, audio) are set aside", aside))
	}
	return nil
}

func noTensors(dir string) error {
	for _, old := range []string{"pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.00.pth"} {
		if _, err := os.Stat(filepath.Join(dir, old)); err == nil {
			return fmt.Errorf("checkpoint: %s: holds %s but no model.safetensors; a pickle runs code when it is read, so Karat never opens one", dir, old)
		}
	}
	return fmt.Errorf("checkpoint: %s: neither model.safetensors nor model.safetensors.index.json is there", dir)
}

// textName is the name that a tensor has in a model of text alone, and whether
// it belongs to the language part where there are others.
func textName(name string) (string, bool) {
	for _, prefix := range []string{"model.language_model.", "language_model.model."} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			return "model." + rest, true
		}
	}
	if rest, ok := strings.CutPrefix(name, "language_model."); ok {
		return rest, true
	}
	return name, strings.HasPrefix(name, "lm_head.")
}

// metadataHF lists config.json for people.
func (c *Checkpoint) metadataHF(config []byte) {
	var m map[string]json.RawMessage
	if json.Unmarshal(config, &m) != nil {
		return
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		c.Metadata = append(c.Metadata, Entry{k, strings.Join(strings.Fields(string(m[k])), " ")})
	}
}
