package checkpoint

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/tensor"
)

// Habit is what converters to GGUF do to a tensor: llama.cpp's permutes the rows
// of Llama's query and key projections for interleaved rotation, and adds 1 to
// Gemma 3's norms. The zero value is nothing.
type Habit struct {
	Heads int     // how many heads the permuted rows belong to; 0 where none are
	Plus  float32 // what is added to every value
}

// Habit is what is done to the tensor that GGUF names so, without .weight.
func (c *Checkpoint) Habit(gguf string) Habit {
	switch {
	case c.Arch == "gemma3" && isNorm(gguf):
		return Habit{Plus: 1}
	case c.Arch != "llama":
	case strings.HasSuffix(gguf, ".attn_q") || strings.HasSuffix(gguf, ".attn_q.bias"):
		return Habit{Heads: c.settings.integer("num_attention_heads")}
	case strings.HasSuffix(gguf, ".attn_k") || strings.HasSuffix(gguf, ".attn_k.bias"):
		return Habit{Heads: c.settings.integer("num_key_value_heads")}
	}
	return Habit{}
}

// Stored tells which row of the other format's tensor GGUF's row r is, of rows:
// rows (head, half, pair) lie as (head, pair, half).
func (h Habit) Stored(r, rows int) int {
	if h.Heads == 0 || rows%(2*h.Heads) != 0 {
		return r
	}
	dim := rows / h.Heads
	i := r % dim // pair*2 + half
	return r - i + i%2*(dim/2) + i/2
}

// Restored is the inverse of Stored. A tensor whose rows are no whole heads is
// left as it is; its shape is reported later.
func (h Habit) Restored(r, rows int) int {
	if h.Heads == 0 || rows%(2*h.Heads) != 0 {
		return r
	}
	dim := rows / h.Heads
	i := r % dim // half*dim/2 + pair
	return r - i + i%(dim/2)*2 + i/(dim/2)
}

// restore undoes the habit of GGUF files.
func (c *Checkpoint) restore(name string, t tensor.Tensor) tensor.Tensor {
	if c.Format != GGUF {
		return t
	}
	switch h := c.Habit(name); {
	case h.Plus != 0:
		return minus(t, h.Plus)
	case h.Heads > 0 && len(t.Shape) == 2 && (t.DType.Quantized() || t.Source != nil):
		t.Order = func(row int) int { return h.Restored(row, t.Shape[0]) }
	case h.Heads > 0 && len(t.Shape) > 0:
		return unpermute(t, h)
	}
	return t
}

// minus subtracts in float32, which is exact for weights from 0.5 to 2, and
// elsewhere rounds as the addition did.
func minus(t tensor.Tensor, plus float32) tensor.Tensor {
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
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v-plus))
	}
	t.DType, t.Data = tensor.F32, data
	return t
}

// unpermute copies what is multiplied as it lies.
func unpermute(t tensor.Tensor, h Habit) tensor.Tensor {
	rows := t.Shape[0]
	size := len(t.Data) / rows
	data := make([]byte, len(t.Data))
	for r := range rows {
		copy(data[r*size:(r+1)*size], t.Data[h.Restored(r, rows)*size:])
	}
	mmap.Drop(t.Data) // else it would be in memory twice
	t.Data = data
	return t
}

// Stored is a Checkpoint as a bind.Source whose tensors are as the files have
// them: nothing of them is copied.
type Stored struct{ *Checkpoint }

// Tensor implements bind.Source.
func (s Stored) Tensor(gguf, hf string) (tensor.Tensor, bool) {
	t, ok := s.tensors[s.Name(gguf, hf)]
	return t, ok
}

// bare are the ends of tensors' names that have no .weight: of parameters that
// are no module's weight.
var bare = map[Format][]string{
	GGUF:        {".bias", ".scale"},
	HuggingFace: {".bias", ".scale", ".per_expert_scale", ".layer_scalar", ".experts.gate_up_proj", ".experts.down_proj"},
}

// TensorName is the name that a format has for a tensor, given the one without
// .weight.
func TensorName(f Format, name string) string {
	if slices.ContainsFunc(bare[f], func(end string) bool { return strings.HasSuffix(name, end) }) {
		return name
	}
	return name + ".weight"
}
