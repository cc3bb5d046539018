// Package packed writes folders with quantized weights for tests, from the formats' definitions and beside the reader:
// a packed folder, and a plain one that has the values in float32.
//
// Files in reading order: all.go (the packings), integers.go, floats.go, packed.go (folders), numbers.go.
package packed

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

// Packing writes weights in a way of packing.
type Packing struct {
	Name    string
	Key     string // of config.json
	Config  string // its value
	Embeds  bool   // packs the embedding too
	Columns int    // divides a weight's columns; 0 is 32

	Pack pack

	Others map[string]string // of MLX: the packings of modules, by their endings and names
}

// Folders writes a folder like src with packed weights to packed, and one with their values to plain. Edit may change
// the parts before; it may be nil.
func Folders(src, packed, plain string, p Packing, edit func(parts map[string]tensor.Tensor)) error {
	f, err := safetensors.Open(filepath.Join(src, "model.safetensors"))
	if err != nil {
		return err
	}
	defer f.Close()
	in, out := map[string]tensor.Tensor{}, map[string]tensor.Tensor{}
	packing := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(p.Config), &packing); err != nil {
		return err
	}
	for _, t := range f.Tensors {
		module, ok := strings.CutSuffix(t.Name, ".weight")
		if !ok || !p.packs(module, t) {
			in[t.Name], out[t.Name] = t, t
			continue
		}
		w := make([]float32, t.Shape.Size())
		if err := quant.Dequantize(t.DType, w, t.Data); err != nil {
			return err
		}
		q := p.of(module)
		if q.Name != p.Name {
			packing[module] = json.RawMessage(q.Config)
		}
		parts, values := q.Pack(w, t.Shape[0], t.Shape[1])
		for _, part := range parts {
			part.Name = module + "." + part.Name
			in[part.Name] = part
		}
		out[t.Name] = tensor.Tensor{Name: t.Name, DType: tensor.F32, Shape: t.Shape, Data: bytes(values)}
	}
	if edit != nil {
		edit(in)
	}
	config, err := os.ReadFile(filepath.Join(src, "config.json"))
	if err != nil {
		return err
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(config, &keys); err != nil {
		return err
	}
	described, err := json.Marshal(packing)
	keys[p.Key] = described
	with, marshaled := json.Marshal(keys)
	if err := errors.Join(err, marshaled); err != nil {
		return err
	}
	return errors.Join(write(src, packed, with, in), write(src, plain, config, out))
}

var linear = regexp.MustCompile(`_proj$|\.w[123]$|\.experts\.|\.query_key_value$|\.dense$`)

// packs reports whether a module's weight is packed: of a linear layer.
func (p Packing) packs(module string, t tensor.Tensor) bool {
	is := linear.MatchString(module) || p.Embeds && strings.HasSuffix(module, "embed_tokens")
	return is && len(t.Shape) == 2 && t.Shape[0]%8 == 0 && t.Shape[1]%max(32, p.Columns) == 0
}

// write writes a folder with the texts of src.
func write(src, dst string, config []byte, tensors map[string]tensor.Tensor) error {
	if err := os.CopyFS(dst, os.DirFS(src)); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dst, "config.json"), config, 0o666); err != nil {
		return err
	}
	path := filepath.Join(dst, "model.safetensors")
	if err := os.Remove(path); err != nil {
		return err
	}
	var all []tensor.Tensor
	for name, t := range tensors {
		t.Name = name
		all = append(all, t)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	w, err := safetensors.NewWriter(file, all, map[string]string{"format": "pt"})
	if err != nil {
		return err
	}
	for i := range w.Tensors {
		if _, err := w.Write(tensors[w.Tensors[i].Name].Data); err != nil {
			return err
		}
	}
	return w.Close()
}
