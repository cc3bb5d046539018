package checkpoint

import (
	"encoding/json"
	"os"

	"github.com/karat-run/karat/internal/checkpoint/hf"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

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
