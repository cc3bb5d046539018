package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/tensor"
)

// fromGGUF views an open GGUF file, and closes it on failure.
func fromGGUF(path string, f *gguf.File) (*Checkpoint, error) {
	c := newCheckpoint(path, GGUF)
	c.close = closers{f}
	return c.fill(func() (err error) {
		if c.Arch, err = f.Metadata.String("general.architecture"); err != nil {
			return fmt.Errorf("checkpoint: %s: %w", path, err)
		}
		if !supported(c.Arch) {
			return fmt.Errorf("checkpoint: %s: architecture %q is not supported (llama, qwen2, qwen3, gemma3 and gemma4 are)", path, c.Arch)
		}
		for _, t := range f.Tensors() {
			if err := c.addGGUF(t); err != nil {
				return err
			}
		}
		if err := c.parseGGUF(f); err != nil {
			return err
		}
		if c.text, err = textGGUF(f); err != nil {
			return fmt.Errorf("checkpoint: %s: %w", path, err)
		}
		c.metadataGGUF(f)
		return nil
	})
}

func (c *Checkpoint) addGGUF(t tensor.Tensor) error {
	if c.Arch == "gemma3" && isNorm(t.Name) && t.DType.Quantized() {
		return fmt.Errorf("checkpoint: %s: tensor %s: type %v is not supported for norms", c.Path, t.Name, t.DType)
	}
	return c.add(t.Name, t)
}

func isNorm(name string) bool { return strings.HasSuffix(strings.TrimSuffix(name, ".weight"), "norm") }

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
	case c.Arch == "gemma3" && isNorm(name):
		return minusOne(t)
	case c.Arch == "llama" && (strings.HasSuffix(name, ".attn_q") || strings.HasSuffix(name, ".attn_q.bias")):
		return unpermute(t, c.settings.integer("num_attention_heads"))
	case c.Arch == "llama" && (strings.HasSuffix(name, ".attn_k") || strings.HasSuffix(name, ".attn_k.bias")):
		return unpermute(t, c.settings.integer("num_key_value_heads"))
	}
	return t
}

// minusOne subtracts in float32, which is exact for weights from 0.5 to 2, and
// elsewhere rounds as the addition did.
func minusOne(t tensor.Tensor) tensor.Tensor {
	n := len(t.Data) / t.DType.BlockBytes()
	data := make([]byte, 0, 4*n)
	for i := range n {
		var v float32
		switch t.DType {
		case tensor.F16:
			v = float16.F16(binary.LittleEndian.Uint16(t.Data[2*i:]))
		case tensor.BF16:
			v = float16.BF16(binary.LittleEndian.Uint16(t.Data[2*i:]))
		default:
			v = math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:]))
		}
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v-1))
	}
	t.DType, t.Data = tensor.F32, data
	return t
}

// unpermute turns rows (head, pair, half) into (head, half, pair). A tensor
// whose rows are no whole heads is left as it is; its shape is reported later.
func unpermute(t tensor.Tensor, heads int) tensor.Tensor {
	if len(t.Shape) == 0 || t.Shape[0]%(2*heads) != 0 {
		return t
	}
	rows := t.Shape[0]
	dim, size := rows/heads, len(t.Data)/rows
	data := make([]byte, len(t.Data))
	for r := range rows {
		h, i := r/dim, r%dim // i = half*dim/2 + pair
		from := h*dim + i%(dim/2)*2 + i/(dim/2)
		copy(data[r*size:(r+1)*size], t.Data[from*size:])
	}
	mmap.Drop(t.Data) // else it would be in memory twice
	t.Data = data
	return t
}
