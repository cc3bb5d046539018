package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/checkpoint/hf"
	"github.com/karat-run/karat/internal/checkpoint/packing"
	"github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

// openFolder opens a Hugging Face folder.
func openFolder(dir string) (*Checkpoint, error) {
	if err := hf.CheckLinks(dir); err != nil {
		return nil, err
	}
	config, err := hf.ReadText(dir, "config.json", hf.MaxConfig)
	if err != nil {
		return nil, err
	}
	if config == nil {
		return nil, noConfig(dir)
	}
	config = hf.Finite(config)
	c := newCheckpoint(dir, HuggingFace)
	return c.fill(func() (err error) {
		if err := hf.Read(c.Model, config); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
		c.Metadata = entriesHF(config)
		if err := openTower(c, config); err != nil {
			return err
		}
		if err := c.openTensors(config); err != nil {
			return err
		}
		return c.textHF(config)
	})
}

// Configured returns a model with the settings of a config.json, and without tensors or text.
func Configured(config []byte) (*Checkpoint, error) {
	c := newCheckpoint("", HuggingFace)
	if err := hf.Read(c.Model, hf.Finite(config)); err != nil {
		return nil, err
	}
	return c, c.Validate(0)
}

// noConfig returns the error for a folder without config.json, with a guess at the user's intention.
func noConfig(dir string) error {
	found, _ := filepath.Glob(filepath.Join(dir, "*.gguf"))
	if len(found) > 0 {
		return fmt.Errorf("%s: a folder without config.json; for GGUF give the file, such as %s", dir, found[0])
	}
	return fmt.Errorf("%s: a folder without config.json is no Hugging Face model", dir)
}

// openTensors opens the folder's weights.
func (c *Checkpoint) openTensors(config []byte) error {
	path, err := hf.FindWeights(c.Path)
	if err == nil && path == "" {
		err = noTensors(c.Path)
	}
	if err != nil {
		return err
	}
	f, err := safetensors.Open(path)
	if err != nil {
		return err
	}
	c.close = append(c.close, f)
	u, err := unpack(c.Path, config, f, c.Family.Turns)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Path, err)
	}
	if c.Packing = u.Name; u.Aside > 0 {
		c.Notes = append(c.Notes, noteAside(u.Aside))
	}
	multimodal := c.Tower != nil || slices.ContainsFunc(f.Tensors,
		func(t tensor.Tensor) bool { return strings.Contains(t.Name, "language_model.") })
	root, _, _ := strings.Cut(c.Family.Model.Embedding(), ".")
	based := slices.ContainsFunc(f.Tensors,
		func(t tensor.Tensor) bool { return hasRoot(TextName(t.Name), root, c.root()) })
	has := func(name string) bool {
		return slices.ContainsFunc(f.Tensors, func(t tensor.Tensor) bool { return t.Name == name })
	}
	aside := 0
	for _, t := range u.Tensors {
		name := ofMLX.Replace(TextName(t.Name))
		if rest, ok := strings.CutPrefix(name, c.root()+"."); ok && c.root() != "" {
			name = root + "." + rest
		}
		name = c.Family.Behind(name, c.Values)
		if !based && !hasRoot(name, "lm_head", "mtp") { // a file of the module alone
			name = root + "." + name
		}
		if c.Family.Rename != nil {
			name = c.Family.Rename(name, has)
		}
		switch {
		case multimodal && otherModality(t.Name):
			if c.Tower == nil || strings.Contains(t.Name, "audio") {
				aside++
			} else if err := c.Tower.claim(t); err != nil {
				return err
			}
		case strings.HasPrefix(name, "mtp."): // by config.json there is no such head
		case name == "", strings.HasSuffix(name, ".rotary_emb.inv_freq"): // a copy of settings, in old files
		default:
			if err := c.add(name, t); err != nil {
				return err
			}
		}
	}
	if aside > 0 {
		c.Notes = append(c.Notes,
			fmt.Sprintf("%d tensors outside the language model (vision, audio) are set aside", aside))
	}
	if err := errors.Join(c.countNextLayers(), c.openDense()); err != nil {
		return err
	}
	if err := errors.Join(c.join(), renameParts(&c.weights), readMLX(&c.weights)); err != nil {
		return err
	}
	share(&c.weights)
	return errors.Join(c.unweave(), c.matchParts(), takeNumbers(&c.weights))
}

// takeNumbers makes settings of tensors with a number of each layer.
func takeNumbers(c *weights) error {
	for key, number := range c.Family.Numbers {
		var list []any
		for i := range c.Values.Int("num_hidden_layers") {
			name := fmt.Sprintf("model.layers.%d.%s", i, number.End)
			t, ok := c.set.ByName[name]
			if !ok || t.Shape.Size() != 1 {
				return fmt.Errorf("%s: tensor %s is no number, or missing", c.Path, name)
			}
			t, err := mapValues(t, func(x float32) float32 { return x })
			if err != nil {
				return fmt.Errorf("%s: tensor %s: %w", c.Path, name, err)
			}
			c.set.Drop(name)
			list = append(list, float64(math.Float32frombits(binary.LittleEndian.Uint32(t.Data))))
		}
		c.Values[key] = list
	}
	return nil
}

// countNextLayers counts the layers behind the last, where config.json says that they predict further tokens.
func (c *Checkpoint) countNextLayers() error {
	next := c.Family.NextKey()
	n := c.Values.Int(next)
	if n == 0 {
		return nil
	}
	behind, own := settings.CountBehind(&c.set, "model.layers.", "eh_proj", c.Values.Int("num_hidden_layers"))
	if c.Values[next] = float64(behind); own >= 0 {
		return fmt.Errorf("%s: config.json: key %s is %d, but layer %d has no tensor eh_proj, as layers that "+
			"predict further tokens have: it is one of the model's own (num_hidden_layers)", c.Path, next, n, own)
	}
	return nil
}

// unpack makes a single tensor of the parts of each packed weight in a folder.
func unpack(dir string, config []byte, f *safetensors.File, turned func(name string) bool) (
	u packing.Unpacked, err error) {
	p, err := packing.Of(config, func(name string) ([]byte, error) { return hf.ReadText(dir, name, hf.MaxConfig) })
	if err != nil {
		return u, err
	}
	return p.Apply(f.Tensors, f.FileOf, turned)
}

// hasRoot reports whether a name begins with one of the modules.
func hasRoot(name string, roots ...string) bool {
	module, _, _ := strings.Cut(name, ".")
	return slices.Contains(roots, module)
}

func noTensors(dir string) error {
	for _, old := range []string{"pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.00.pth"} {
		if _, err := os.Stat(filepath.Join(dir, old)); err == nil {
			return fmt.Errorf("%s: holds %s but no model.safetensors; a pickle runs code when it is read, so Karat "+
				"never opens one", dir, old)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "seed.json")); err == nil {
		return fmt.Errorf("%s: holds seed.json but no model.safetensors; in a clone of Karat \"go run "+
			"testdata/unpack.go\" writes the weights of such folders", dir)
	}
	return fmt.Errorf("%s: neither model.safetensors nor model.safetensors.index.json is there", dir)
}

// TextName returns the tensor's name in a model of text alone.
func TextName(name string) string {
	for _, prefix := range []string{"model.language_model.", "language_model.model.", "model.text_model."} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			return "model." + rest
		}
	}
	return strings.TrimPrefix(name, "language_model.")
}

// otherModality reports whether a multimodal model's tensor serves seeing or hearing.
func otherModality(name string) bool {
	name = strings.TrimPrefix(name, "model.")
	return slices.ContainsFunc([]string{"vision", "visual", "audio", "multi_modal", "embed_vision", "embed_audio",
		"connector"},
		func(part string) bool { return strings.HasPrefix(name, part) })
}

// entriesHF lists a config.json for people.
func entriesHF(config []byte) (list []settings.Entry) {
	var m map[string]json.RawMessage
	if json.Unmarshal(config, &m) != nil {
		return nil
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list = append(list, settings.Entry{Key: k, Value: strings.Join(strings.Fields(string(m[k])), " ")})
	}
	return list
}
