// Package packing reads weights that Hugging Face folders hold as codes with scales: FP8, and the packings of
// compressed-tensors, AWQ, GPTQ and MLX.
//
// Of reads a folder's packing from config.json, and Apply makes one tensor of the parts of each weight. Its values are
// decoded when they are read; nothing of the files is copied. Every part of a folder belongs to a weight: a scale,
// a zero point or an index that no weight claims is an error.
//
// Files in reading order: packing.go; the methods: compressed.go, nvfp4.go, fp8.go, mlx.go, awq.go, gptq.go,
// refused.go; and the weights of methods: matrix.go, blocks.go, module.go, codes.go, grid.go.
package packing

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/tensor"
)

// Packing tells how a folder's weights are packed.
type Packing struct{ method }

// method reads the weights of a way of packing.
type method interface {
	// weight returns the weight of a module with parts, after reading all parts about the weight.
	weight(m *module) (tensor.Tensor, error)
	// Name returns the names of the method and its settings, for people.
	Name() string
}

// maxErrors bounds the report on a hostile folder.
const maxErrors = 20

// Of returns the packing described in a config.json, nil for none. An unknown method is an error.
func Of(config []byte) (*Packing, error) {
	var c struct {
		Quantization json.RawMessage `json:"quantization_config"`
		Compression  json.RawMessage `json:"compression_config"`
		MLX          json.RawMessage `json:"quantization"`
		Text         struct {
			Quantization json.RawMessage `json:"quantization_config"`
		} `json:"text_config"`
	}
	if err := json.Unmarshal(config, &c); err != nil {
		return nil, nil // the reading of settings has the error
	}
	key, raw := "quantization_config", c.Quantization
	for _, other := range []struct {
		key string
		raw json.RawMessage
	}{{"quantization", c.MLX}, {"compression_config", c.Compression},
		{"text_config.quantization_config", c.Text.Quantization}} {
		if isNull(raw) || other.key == "quantization" && !isNull(other.raw) {
			key, raw = other.key, other.raw
		}
	}
	if isNull(raw) {
		return nil, nil
	}
	p, err := parse(raw)
	if err != nil {
		return nil, fmt.Errorf("config.json: key %s: %w", key, err)
	}
	return p, nil
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// parse reads the object that describes a packing.
func parse(raw json.RawMessage) (*Packing, error) {
	var c struct {
		Method string `json:"quant_method"`
		Bits   int
		Group  int    `json:"group_size"`
		Algo   string `json:"quant_algo"`
		Format string `json:"packing_format"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, fmt.Errorf("it is %.80s, expected an object: %w", raw, err)
	}
	var m method
	switch kind := strings.ToLower(c.Method); {
	case kind == "mxfp4": // gpt-oss: the parts' names tell
		return nil, nil
	case kind == "fp8", kind == "fbgemm_fp8", kind == "modelopt" && c.Algo == "FP8":
		m = &fp8{}
	case kind == "modelopt" && c.Algo == "NVFP4":
		m = &nvfp4{}
	case kind == "compressed-tensors":
		m = &compressed{}
	case kind == "gptq", kind == "auto-round" && strings.HasSuffix(c.Format, "gptq"):
		m = &gptq{}
	case kind == "awq", kind == "auto-round" && strings.HasSuffix(c.Format, "awq"):
		m = &awq{}
	case kind == "" && c.Group > 0 && c.Bits > 0:
		m = &mlx{}
	default:
		return nil, refuse(c.Method, c.Algo)
	}
	if err := json.Unmarshal(raw, m); err != nil {
		return nil, err
	}
	if v, ok := m.(interface{ validate() error }); ok {
		if err := v.validate(); err != nil {
			return nil, err
		}
	}
	return &Packing{m}, nil
}

// Apply returns the tensors of a folder, with a single tensor in place of each packed weight's parts. Scales of
// activations, which are computed in floating point here, are left out; aside is their number.
func (p *Packing) Apply(all []tensor.Tensor) (list []tensor.Tensor, aside int, err error) {
	modules := map[string]*module{}
	for _, t := range all {
		if name, ending := split(t.Name); ending != "" {
			if modules[name] == nil {
				modules[name] = &module{name: name, parts: map[string]tensor.Tensor{}, read: map[string]bool{}}
			}
			modules[name].parts[ending] = t
		}
	}
	var errs []error
	for _, t := range all {
		name, ending := split(t.Name)
		switch m := modules[name]; {
		case ending == "":
			list = append(list, t)
		case kinds[ending] == codesPart && !m.plain():
			if t, err = p.weight(m); err != nil {
				errs = append(errs, fmt.Errorf("tensor %s: %w", name, err))
			}
			list = append(list, t)
		case kinds[ending] == codesPart:
			list = append(list, t)
		case kinds[ending] == ofCache:
			aside++
		case kinds[ending] == ofActivations && m.packed():
			aside++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		errs = append(errs, modules[name].unread()...)
	}
	if n := len(errs); n > maxErrors {
		errs = append(errs[:maxErrors:maxErrors], fmt.Errorf("and %d more", n-maxErrors))
	}
	return list, aside, errors.Join(errs...)
}
