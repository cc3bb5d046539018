package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/tensor"
)

// divided are tensors of GGUF that some converters write whole and others in parts, whose rows lie one
// after the other, those of each matrix for itself. (create_tensor_qkv and create_tensor_gate_up_exps in
// llama.cpp/src/llama-model.cpp read both.)
var divided = []struct {
	whole string
	parts []string
	turns bool // a model with the parts takes the whole, too
}{
	{"attn_qkv", []string{"attn_q", "attn_k", "attn_v"}, false},
	{"attn_qkv.bias", []string{"attn_q.bias", "attn_k.bias", "attn_v.bias"}, false},
	{"ffn_gate_up_exps", []string{"ffn_gate_exps", "ffn_up_exps"}, true},
}

// divide brings such tensors into the form that the model has.
func (c *weights) divide() error {
	for _, d := range divided {
		whole := c.Family.Model.Claims(strings.TrimSuffix(d.whole, ".bias")) && !c.Family.Model.Claims(d.parts[0])
		for _, name := range slices.Clone(c.set.Names) {
			var err error
			if layer, ok := strings.CutSuffix(name, "."+d.parts[0]); ok && whole {
				err = c.stack(layer, d.whole, d.parts)
			} else if layer, ok := strings.CutSuffix(name, "."+d.whole); ok && !whole && d.turns {
				err = c.cut(layer, d.whole, d.parts)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", c.Path, err)
			}
		}
	}
	return nil
}

// cut puts the parts in the place of the whole, of which it copies nothing. One that cannot be divided is left
// as it is, and reported later.
func (c *weights) cut(layer, whole string, parts []string) error {
	t := c.set.ByName[layer+"."+whole]
	if n := len(t.Shape); n < 2 || t.Shape[n-2]%len(parts) != 0 {
		return nil
	}
	c.set.Drop(layer + "." + whole)
	for i, part := range parts {
		if err := c.add(layer+"."+part, tensor.Cut(t, i, len(parts))); err != nil {
			return err
		}
	}
	return nil
}

// stack copies the parts into one, in F32 where their types differ. Parts of which one is missing, or that do
// not fit each other, are left as they are, and reported later.
func (c *weights) stack(layer, whole string, parts []string) error {
	all := make([]tensor.Tensor, len(parts))
	for i, part := range parts {
		t, ok := c.set.ByName[layer+"."+part]
		if !ok || len(t.Shape) != len(c.set.ByName[layer+"."+parts[0]].Shape) || len(t.Shape) > 1 && t.Shape.Last() != all[0].Shape.Last() && i > 0 {
			return nil
		}
		all[i] = t
	}
	if _, twice := c.set.ByName[layer+"."+whole]; twice {
		return fmt.Errorf("tensor %s.%s: parts of it are there, too", layer, whole)
	}
	if len(all[0].Shape) == 3 { // each matrix for itself, so all are of one type and shape
		if !slices.Equal(all[0].Shape, all[1].Shape) || all[0].DType != all[1].DType {
			return nil
		}
		return c.replace(layer, whole, parts, tensor.Stack(layer+"."+whole, all))
	}
	mixed := slices.ContainsFunc(all, func(t tensor.Tensor) bool { return t.DType != all[0].DType })
	t := tensor.Tensor{Name: layer + "." + whole, Shape: slices.Clone(all[0].Shape)}
	t.Shape[0] = 0
	for _, part := range all {
		data, err := part.Whole()
		if err == nil && mixed {
			data, err = plainOf(part)
		}
		if err != nil {
			return err
		}
		t.DType, t.Data = data.DType, append(t.Data, data.Data...)
		t.Shape[0] += part.Shape[0]
		for _, b := range part.Origin() { // else it would be in memory twice
			mmap.Drop(b)
		}
	}
	return c.replace(layer, whole, parts, t)
}

// replace puts the whole in the place of its parts.
func (c *weights) replace(layer, whole string, parts []string, t tensor.Tensor) error {
	for _, part := range parts {
		c.set.Drop(layer + "." + part)
	}
	return c.add(layer+"."+whole, t)
}
