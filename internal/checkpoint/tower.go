package checkpoint

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"

	"github.com/karat-run/karat/internal/checkpoint/hf"
	"github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/tensor"
)

// Tower is the part of a checkpoint that sees: its settings, its tensors, and how pictures are prepared.
type Tower struct {
	weights
	Kind      *family.Tower
	Processor []byte // preprocessor_config.json
}

// newTower returns a tower without tensors.
func newTower(kind *family.Tower, m *settings.Model, f Format) *Tower {
	return &Tower{weights: weights{m, f, tensor.Set{ByName: map[string]tensor.Tensor{}}}, Kind: kind}
}

// ConfiguredTower returns the tower of a config.json, without tensors; nil for a model that sees nothing.
func ConfiguredTower(config []byte) (*Tower, error) {
	kind, m, err := hf.Tower("", hf.Finite(config))
	if kind == nil || err != nil {
		return nil, err
	}
	return newTower(kind, m, HuggingFace), nil
}

// openTower finds the tower of a folder, yet without tensors. A model's text can be used where its tower cannot.
func openTower(c *Checkpoint, config []byte) (err error) {
	kind, m, err := hf.Tower(c.Path, config)
	if err != nil {
		c.Notes = append(c.Notes, fmt.Sprintf("pictures are not read: %v", err))
		return nil
	}
	if kind == nil {
		return nil
	}
	c.Tower = newTower(kind, m, HuggingFace)
	c.Tower.Processor, err = readProcessor(c.Path)
	return err
}

// readProcessor returns how a folder's pictures are prepared: a part of processor_config.json, where transformers
// writes it since version 5, else preprocessor_config.json; nil for neither. A part of a type and a size alone, as a
// folder of MLX has it, is completed by the other file: the class's patches fit Qwen2-VL alone.
func readProcessor(dir string) ([]byte, error) {
	b, err := hf.ReadText(dir, "processor_config.json", hf.MaxConfig)
	if err != nil {
		return nil, err
	}
	var c struct {
		Image json.RawMessage `json:"image_processor"`
	}
	if b != nil {
		if err := json.Unmarshal(b, &c); err != nil {
			return nil, fmt.Errorf("%s: processor_config.json: %w", dir, err)
		}
	}
	flat, err := hf.ReadText(dir, "preprocessor_config.json", hf.MaxConfig)
	if len(c.Image) == 0 || string(c.Image) == "null" {
		return flat, err
	}
	var own, all map[string]json.RawMessage
	if json.Unmarshal(c.Image, &own) != nil || json.Unmarshal(flat, &all) != nil || own["patch_size"] != nil ||
		all["patch_size"] == nil {
		return c.Image, err
	}
	if own["size"] != nil { // bounds of the area would win over it
		delete(all, "min_pixels")
		delete(all, "max_pixels")
	}
	maps.Copy(all, own)
	return json.Marshal(all)
}

// Rows returns the maximum rows of a picture where the processor's file has one, at most 65,536; else 0.
func (t *Tower) Rows() int {
	var c struct {
		Most int `json:"max_soft_tokens"`
	}
	if json.Unmarshal(t.Processor, &c) != nil {
		return 0
	}
	return min(max(c.Most, 0), 1<<16)
}

// claim takes a tensor of the tower, under PyTorch's name in the newest layout.
func (t *Tower) claim(x tensor.Tensor) error {
	name := strings.TrimPrefix(x.Name, "model.")
	return t.add("model."+strings.Replace(name, "vision_tower.vision_model.", "vision_tower.", 1), x)
}

// Tensor implements bind.Source.
func (t *Tower) Tensor(gguf, hf string) (tensor.Tensor, bool) {
	x, ok := t.set.ByName[t.Name(gguf, hf)]
	return x, ok
}

// Config decodes the settings into the struct at dst.
func (t *Tower) Config(dst any) error {
	return t.Decode(reflect.ValueOf(dst).Elem(), map[string]any(t.Values), "")
}
