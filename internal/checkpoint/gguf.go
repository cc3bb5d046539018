package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/tensor"
)

// fromGGUF views an open GGUF file, and closes it on failure.
func fromGGUF(path string, f *gguf.File) (*Checkpoint, error) {
	c := &Checkpoint{Path: path, Format: GGUF, tensors: map[string]tensor.Tensor{}, close: closers{f}}
	fail := func(err error) (*Checkpoint, error) {
		c.Close()
		return nil, err
	}
	arch, err := f.Metadata.String("general.architecture")
	if err != nil {
		return fail(fmt.Errorf("checkpoint: %s: %w", path, err))
	}
	c.Arch = arch
	if !supported(arch) {
		return fail(fmt.Errorf("checkpoint: %s: architecture %q is not supported (llama, qwen2, qwen3, gemma3 and gemma4 are)", path, arch))
	}
	for _, t := range f.Tensors() {
		if err := c.add(t.Name, t); err != nil {
			return fail(err)
		}
	}
	if err := c.parseGGUF(f); err != nil {
		return fail(err)
	}
	if c.text, err = textGGUF(f); err != nil {
		return fail(fmt.Errorf("checkpoint: %s: %w", path, err))
	}
	c.metadataGGUF(f)
	return c.finish()
}

func supported(arch string) bool {
	for _, a := range modelTypes {
		if a == arch {
			return true
		}
	}
	return false
}

// metadataGGUF lists the metadata for people: long arrays by their size.
func (c *Checkpoint) metadataGGUF(f *gguf.File) {
	for _, key := range f.Metadata.Keys() {
		v, _ := f.Metadata.Lookup(key)
		text := fmt.Sprintf("array of %d %v", v.Len(), v.Elem())
		if v.Type() != gguf.Array || v.Len() <= 64 && v.Elem() != gguf.String {
			x, err := v.Any()
			if text = fmt.Sprint(x); err != nil {
				text = err.Error()
			}
		}
		c.Metadata = append(c.Metadata, Entry{key, text})
	}
}

// restore undoes what converters to GGUF do to a tensor: llama.cpp's permutes
// the rows of Llama's query and key projections for interleaved rotation, and
// adds 1 to Gemma 3's norms.
func (c *Checkpoint) restore(name string, t tensor.Tensor) tensor.Tensor {
	switch {
	case c.Format != GGUF || c.Arch != "llama" && c.Arch != "gemma3":
	case c.Arch == "gemma3" && strings.HasSuffix(name, "norm") && t.DType == tensor.F32:
		return minusOne(t)
	case c.Arch == "llama" && (strings.HasSuffix(name, ".attn_q") || strings.HasSuffix(name, ".attn_q.bias")):
		return unpermute(t, c.settings.integer("num_attention_heads"))
	case c.Arch == "llama" && (strings.HasSuffix(name, ".attn_k") || strings.HasSuffix(name, ".attn_k.bias")):
		return unpermute(t, c.settings.integer("num_key_value_heads"))
	}
	return t
}

// minusOne is exact where 1+w was: the difference is w again.
func minusOne(t tensor.Tensor) tensor.Tensor {
	data := make([]byte, len(t.Data))
	for i := 0; i < len(data); i += 4 {
		v := math.Float32frombits(binary.LittleEndian.Uint32(t.Data[i:]))
		binary.LittleEndian.PutUint32(data[i:], math.Float32bits(v-1))
	}
	t.Data = data
	return t
}

// unpermute turns rows (head, pair, half) into (head, half, pair). A tensor
// whose rows are no whole heads is left as it is; its shape is reported later.
func unpermute(t tensor.Tensor, heads int) tensor.Tensor {
	rows := t.Shape[0]
	if heads < 1 || rows%(2*heads) != 0 || len(t.Data)%rows != 0 {
		return t
	}
	dim, size := rows/heads, len(t.Data)/rows
	data := make([]byte, len(t.Data))
	for r := range rows {
		h, i := r/dim, r%dim // i = half*dim/2 + pair
		from := h*dim + i%(dim/2)*2 + i/(dim/2)
		copy(data[r*size:(r+1)*size], t.Data[from*size:])
	}
	t.Data = data
	return t
}
