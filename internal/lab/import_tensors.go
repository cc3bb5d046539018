//go:build !karat_wasmsimd

package lab

import (
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

// recordName matches the names of a record's tensors.
var recordName = regexp.MustCompile(`^\d+\.(ids|logits|hidden|tap\..*)$`)

// tensorsForm returns the form of a safetensors file that is no record, "" for others.
func tensorsForm(path string) (form string) {
	f, err := safetensors.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	names := map[string]bool{}
	for _, t := range f.Tensors {
		if names[t.Name] = true; recordName.MatchString(t.Name) {
			return ""
		}
	}
	switch {
	case len(names) == 0:
		return ""
	case names["hidden_states"] && names["token_ids"]:
		return FormVLLM
	}
	return FormTensors
}

// importTensors reads a safetensors file whose tensors have names of taps, or vLLM's hidden states of layers.
func importTensors(path, form string, layers []int) (*Import, error) {
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	r := &Record{Path: path, file: f}
	i := &Import{Form: form, count: 1, file: r, prompt: func(int) (*Prompt, error) { return r.Prompts[0], nil }}
	err = mmap.Guard(func() error {
		if form == FormVLLM {
			return i.vllm(r, f.Tensors, layers)
		}
		var all []tensor.Tensor
		seen := map[string]string{}
		for _, t := range f.Tensors {
			if !t.DType.Float() && t.DType != tensor.I32 && t.DType != tensor.I64 {
				continue // such as a mask
			}
			name := (&arrayInfo{Name: t.Name, Prompt: new(int)}).tensorName()
			if before, ok := seen[name]; ok {
				return fmt.Errorf("%q: %q, which %q is as well", t.Name, name, before)
			}
			seen[name], t.Name = t.Name, name
			all = append(all, t)
		}
		return r.fill(all)
	})
	if err == nil && len(r.Prompts) != 1 {
		err = fmt.Errorf("%d prompts, want the tensors of one", len(r.Prompts))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return i, nil
}

// vllm fills r with the states of layers: hidden_states [T, layers, size], token_ids [T] and perhaps residual, the part
// of the stream that vLLM adds later. The file lacks the layers' numbers.
func (i *Import) vllm(r *Record, tensors []tensor.Tensor, layers []int) error {
	find := func(name string) *tensor.Tensor {
		if at := slices.IndexFunc(tensors, func(t tensor.Tensor) bool { return t.Name == name }); at >= 0 {
			return &tensors[at]
		}
		return nil
	}
	ids, states, residual := find("token_ids"), find("hidden_states"), find("residual")
	if ids == nil || states == nil {
		return errors.New("no token_ids or no hidden_states")
	}
	shape := slices.Clone(states.Shape)
	if len(shape) == 2 {
		shape = tensor.Shape{shape[0], 1, shape[1]}
	}
	switch {
	case len(shape) != 3 || !states.DType.Float() || shape.Size() == 0:
		return fmt.Errorf("hidden_states: shape %v, want floats of [tokens, layers, size]", []int(states.Shape))
	case len(layers) != shape[1]:
		return fmt.Errorf("hidden_states of %d layers: --hidden-layers wants as many numbers, those of "+
			"eagle_aux_hidden_state_layer_ids", shape[1])
	case residual != nil && (residual.DType != states.DType || !slices.Equal(residual.Shape, states.Shape)):
		return errors.New("residual: another type or shape than hidden_states")
	}
	all := []tensor.Tensor{{Name: "0.ids", DType: ids.DType, Shape: ids.Shape, Data: ids.Data}}
	for k, layer := range layers {
		name := "0.tap.model.embed_tokens.out"
		if layer < 0 || layer > 1<<16 || slices.Contains(layers[:k], layer) {
			return fmt.Errorf("--hidden-layers %d: state %d, want different numbers from 0 for %d states", layer, k,
				len(layers))
		} else if layer > 0 {
			name = fmt.Sprintf("0.tap.model.layers.%d.out", layer-1)
		}
		parts := rowsOf(&tensor.Tensor{DType: states.DType, Shape: tensor.Shape{shape[0] * shape[1], shape[2]},
			Data: states.Data})
		var rest rows
		if residual != nil {
			rest = parts
			rest.data = residual.Data
		}
		x, row, more := make([]float32, 0, shape[0]*shape[2]), make([]float64, shape[2]), make([]float64, shape[2])
		for t := range shape[0] {
			parts.read(row, t*shape[1]+k)
			if residual != nil {
				rest.read(more, t*shape[1]+k)
			}
			for j, v := range row {
				x = append(x, float32(v+more[j]))
			}
		}
		t := newF32(x, shape[0], shape[2])
		t.Name = name
		all = append(all, *t)
	}
	i.Names = NamesHF
	note := "layer N of vLLM's list is the residual stream before layer N"
	if residual != nil {
		note += ", hidden states and residual added"
	}
	i.Notes = append(i.Notes, note)
	return r.fill(all)
}
