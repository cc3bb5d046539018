package check

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/checkpoint/hf"
	"github.com/karat-run/karat/internal/checkpoint/packing"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/jsonerr"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/patherr"
	"github.com/karat-run/karat/internal/registry"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

// files is the plain content of a model's files: a loader that refuses a model must not hide further faults.
type files struct {
	format  checkpoint.Format
	arch    string // from its key, or config.json's model_type
	gguf    *gguf.File
	dir     string         // Hugging Face folder
	config  map[string]any // content of config.json
	tensors []tensor.Tensor
	scales  []packing.Scales
	close   func() error
}

// open opens the files. Files that cannot be opened are not judged.
func open(path string) (*files, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, patherr.Plain(err)
	}
	if !st.IsDir() {
		switch ext := strings.ToLower(filepath.Ext(path)); ext {
		case ".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".safetensors", ".json":
			_, err := checkpoint.Open(path) // knows why
			return nil, err
		}
		f, err := gguf.Open(path)
		if err != nil {
			return nil, err
		}
		arch, _ := f.Metadata.String("general.architecture")
		return &files{format: checkpoint.GGUF, arch: arch, gguf: f, tensors: f.Tensors(), close: f.Close}, nil
	}
	return openFolder(path)
}

// maxConfig bounds config.json, read into memory.
const maxConfig = 1 << 20

func openFolder(dir string) (*files, error) {
	if err := hf.CheckLinks(dir); err != nil {
		return nil, err
	}
	f := &files{format: checkpoint.HuggingFace, dir: dir}
	config, err := mmap.ReadFile(filepath.Join(dir, "config.json"), maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		_, err = checkpoint.Open(dir) // the error names the alternative
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(config, &f.config); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, "config.json"), jsonerr.Plain(err, ""))
	}
	f.arch = f.modelType()
	path, err := hf.FindWeights(dir)
	if err != nil {
		return nil, err
	}
	s, err := safetensors.Open(path)
	if err != nil {
		if _, opened := checkpoint.Open(dir); opened != nil { // tells of pickles
			err = opened
		}
		return nil, err
	}
	f.tensors, f.close = s.Tensors, s.Close
	read := func(name string) ([]byte, error) { return hf.ReadText(dir, name, hf.MaxConfig) }
	if p, err := packing.Of(config, read); err == nil {
		if u, err := p.Apply(s.Tensors, s.FileOf, f.turns); err == nil { // else the model is refused, which says why
			f.tensors, f.scales = u.Tensors, u.Scales
		}
	}
	return f, nil
}

// turns reports whether the family's folders have a tensor of matrices as [in, out].
func (f *files) turns(name string) bool {
	of := registry.Find(f.arch)
	return of != nil && of.Turns(name)
}

// text returns the part of config.json about the language model.
func (f *files) text() map[string]any {
	if text, ok := f.config["text_config"].(map[string]any); ok {
		return text
	}
	return f.config
}

// modelType returns config.json's.
func (f *files) modelType() string {
	kind, ok := f.text()["model_type"].(string)
	if !ok {
		kind, _ = f.config["model_type"].(string)
	}
	whole, _ := f.config["model_type"].(string)
	if f, _ := registry.OfConfig(kind, whole, f.text()); f != nil {
		return f.Name
	}
	return strings.TrimSuffix(kind, "_text")
}

// guard runs read, which may touch mapped memory.
func (c *checker) guard(read func()) error {
	return mmap.Guard(func() error {
		read()
		return c.ctx.Err()
	})
}

// judgeStale lists the files of a folder that hold tensors outside the model: a reader that takes all files, or another
// index, gets older values.
func judgeStale(c *checker) {
	dir := c.files.dir
	if dir == "" {
		return
	}
	found, _ := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	path, err := hf.FindWeights(dir)
	if err != nil {
		return
	}
	indexed := map[string]bool{filepath.Base(path): true}
	if strings.HasSuffix(path, ".json") {
		var x struct {
			Map map[string]string `json:"weight_map"`
		}
		index, err := mmap.ReadFile(path, 1<<26)
		if err != nil || json.Unmarshal(index, &x) != nil {
			return
		}
		for _, name := range x.Map {
			indexed[name] = true
		}
	}
	var left []string
	for _, path := range found {
		name := filepath.Base(path)
		if !indexed[name] && !strings.HasPrefix(name, "consolidated") && !strings.HasPrefix(name, "adapter") {
			left = append(left, name)
		}
	}
	const index = "model.safetensors.index.json"
	if _, err := os.Stat(filepath.Join(dir, index)); err == nil && !indexed[index] {
		left = append(left, index)
	}
	if len(left) > 0 {
		c.add("stale-files", left, "the folder holds %s beside the model's own files", list(left))
	}
}

// list names up to four things.
func list(names []string) string {
	const most = 4
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
