package check

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/tensor"
)

// reorder puts the rows of a tensor into another order: row i becomes the old row from(i).
func reorder(name string, from func(i int) int) func(m *model) {
	return func(m *model) {
		x := m.tensor(name)
		old, n := slices.Clone(x.Data), x.DType.RowBytes(x.Shape.Last())
		for i := range x.Rows() {
			copy(x.Data[i*n:(i+1)*n], old[from(i)*n:])
		}
	}
}

// swap exchanges the data of two tensors.
func swap(a, b string) func(m *model) {
	return func(m *model) {
		x, y := m.tensor(a), m.tensor(b)
		x.Data, y.Data = y.Data, x.Data
	}
}

// jitter adds noise of a share of each value's size.
func jitter(name string, share float64) func(m *model) {
	return func(m *model) {
		r := rand.New(rand.NewPCG(2, 3))
		var rms float64 = 0.08
		m.alter(name, func(_ int, v float32) float32 { return v + float32(r.NormFloat64()*share*rms) })
	}
}

// transpose turns a square matrix of floats.
func transpose(name string) func(m *model) {
	return func(m *model) {
		x := m.tensor(name)
		v := values(m.t, x)
		n := x.Shape[0]
		old := slices.Clone(v)
		m.alter(name, func(i int, _ float32) float32 { return old[i%n*n+i/n] })
	}
}

var spoiledSource = []spoil{
	{"44 a square matrix transposed", "tiny-qwen2", true, "source-transposed", transpose("model.layers.2.self_attn.o_proj")},
	{"22 queries not brought into pairs", "tiny-llama.Q8_0", true, "source-permuted", reorder("blk.1.attn_q", func(r int) int { h, i := r/32, r%32; return h*32 + i%16*2 + i/16 })},
	{"21 keys of qwen3 in pairs", "tiny-qwen3.Q8_0", true, "source-permuted", reorder("blk.1.attn_k", func(r int) int { h, i := r/96, r%96; return h*96 + i%2*48 + i/2 })},
	{"35 heads exchanged", "tiny-qwen3.Q8_0", true, "source-permuted", reorder("blk.0.attn_q", func(r int) int { return (r + 96) % 384 })},
	{"rows of the embedding shifted by one token", "tiny-qwen3.Q8_0", true, "source-permuted", reorder("token_embd", func(r int) int { return (r + 1) % 2048 })},
	{"46 nibbles in the wrong order", "tiny-llama.Q4_0", true, "source-permuted", func(m *model) {
		x := m.tensor("blk.1.ffn_down")
		for block := range slices.Chunk(x.Data, 18) {
			for i := 2; i < 18; i++ {
				block[i] = block[i]<<4 | block[i]>>4
			}
		}
	}},
	{"46 nibbles in pairs", "tiny-llama.Q4_0", true, "source-permuted", func(m *model) {
		x := m.tensor("blk.1.ffn_down")
		for block := range slices.Chunk(x.Data, 18) {
			var q [32]byte
			for i := range 16 {
				q[2*i], q[2*i+1] = block[2+i]&15, block[2+i]>>4
			}
			for i := range 16 {
				block[2+i] = q[i] | q[i+16]<<4
			}
		}
	}},
	{"columns reversed", "tiny-llama.bf16", true, "source-permuted", func(m *model) {
		x := m.tensor("blk.1.ffn_up")
		v := values(m.t, x)
		for row := range slices.Chunk(v, 256) {
			slices.Reverse(row)
		}
		store(x, v)
	}},
	{"layers exchanged", "tiny-llama.Q4_K", true, "source-swapped", swap("blk.1.ffn_up", "blk.2.ffn_up")},
	{"34 keys and values exchanged", "tiny-llama.Q8_0", true, "source-swapped", swap("blk.2.attn_k", "blk.2.attn_v")},
	{"gate and up exchanged", "tiny-gemma3.Q8_0", true, "source-swapped", swap("blk.2.ffn_gate", "blk.2.ffn_up")},
	{"norms exchanged", "tiny-gemma3.Q8_0", true, "source-swapped", swap("blk.2.post_ffw_norm", "blk.2.post_attention_norm")},
	{"a tensor times two", "tiny-llama.Q8_0", true, "source-scaled", rescale("blk.1.attn_output", 2)},
	{"a tensor times 1.05", "tiny-llama.Q8_0", true, "source-scaled", rescale("blk.1.attn_output", 1.05)},
	{"7 the embedding times the root of hidden, folded in", "tiny-llama.Q8_0", true, "source-scaled", rescale("token_embd", 16)},
	{"a sign turned", "tiny-llama.Q8_0", true, "source-scaled", codes("blk.1.attn_v", func(_ int, q int8) int8 { return -q })},
	{"12 the 1 twice after the MLP", "tiny-gemma3.Q8_0", true, "source-offset", func(m *model) { m.add("blk.1.post_ffw_norm.weight", 1) }},
	{"12 the 1 twice in the last norm", "tiny-gemma3.Q8_0", true, "source-offset", func(m *model) { m.add("output_norm.weight", 1) }},
	{"46 minimums added", "tiny-llama.Q4_1", true, "source-offset", func(m *model) {
		x := m.tensor("blk.1.attn_q")
		for i := 3; i < len(x.Data); i += x.DType.BlockBytes() {
			if i/x.DType.BlockBytes()%8 == 0 {
				x.Data[i] ^= 0x80
			}
		}
	}},
	{"an older checkpoint", "tiny-llama.bf16", true, "source-stale", jitter("blk.1.ffn_up", 0.3)},
	{"a little of a fine-tune", "tiny-llama.bf16", true, "source-stale", jitter("blk.1.ffn_up", 0.01)},
	{"other weights", "tiny-llama.bf16", true, "source-differs", func(m *model) { x := m.tensor("blk.1.ffn_up"); x.Data = noise(m, len(x.Data)/2) }},
	{"47 half of a tensor", "tiny-llama.bf16", true, "source-part", func(m *model) {
		x := m.tensor("blk.1.ffn_up")
		copy(x.Data[3*len(x.Data)/4:], noise(m, len(x.Data)/8))
	}},
	{"one value", "tiny-llama.bf16", true, "source-part", func(m *model) {
		m.tensor("blk.1.ffn_up").Data[2*777] ^= 0x20
		m.tensor("blk.1.ffn_up").Data[2*777+1] ^= 0x80
	}},
	{"one scale", "tiny-llama.Q8_0", true, "source-part", func(m *model) { m.tensor("blk.1.ffn_up").Data[34*55+1] ^= 0x04 }},
	{"a poor quantizer", "tiny-llama.Q8_0", true, "source-precision", codes("blk.1.ffn_up", func(_ int, q int8) int8 { return int8(min(int(q)+2, 127) >> 2 << 2) })},
	{"53 a norm of F16 called BF16", "tiny-llama", true, "source-type", func(m *model) {
		x := m.tensor("model.norm")
		v := values(m.t, x)
		x.Data = x.Data[:0]
		for _, f := range v {
			x.Data = binary.LittleEndian.AppendUint16(x.Data, float16.ToF16(f))
		}
	}},
	{"40 per-layer embeddings dropped", "tiny-gemma4.Q8_0", true, "source-missing", func(m *model) {
		m.set(".embedding_length_per_layer_input", uint32(0))
		m.tensors = slices.DeleteFunc(m.tensors, func(x tensor.Tensor) bool {
			return strings.Contains(x.Name, "per_layer") || strings.HasSuffix(x.Name, "inp_gate.weight") || strings.HasSuffix(x.Name, ".proj.weight") || strings.HasSuffix(x.Name, ".post_norm.weight")
		})
	}},
	{"44 a feed-forward part cut in half", "tiny-llama", true, "source-shape", func(m *model) {
		m.set("intermediate_size", 256)
		for _, suffix := range []string{"gate_proj.weight", "up_proj.weight"} {
			m.each(suffix, func(x *tensor.Tensor) { x.Shape, x.Data = tensor.Shape{256, 256}, x.Data[:len(x.Data)/2] })
		}
		m.each("down_proj.weight", func(x *tensor.Tensor) {
			v := values(m.t, x)
			half := make([]float32, 0, len(v)/2)
			for row := range slices.Chunk(v, 512) {
				half = append(half, row[:256]...)
			}
			x.Shape = tensor.Shape{256, 256}
			store(x, half)
		})
	}},
	{"25 other factor of the rotation", "tiny-gemma3.Q8_0", true, "source-settings", set(".rope.scaling.factor", float32(4))},
	{"19 other attention scale", "tiny-gemma3.Q8_0", true, "source-settings", set(".attention.scale", float32(0.125))},
	{"30 window off by one", "tiny-gemma3.Q8_0", true, "source-settings", set(".attention.sliding_window", uint32(63))},
	{"17 epsilon 1e-6 for 1e-5", "tiny-llama.Q4_K", true, "source-settings", set(".attention.layer_norm_rms_epsilon", float32(1e-6))},
	{"24 scaling lost", "tiny-llama.Q4_K", true, "source-settings", func(m *model) { m.remove("rope_freqs") }},
	{"one of a norm's last bits", "tiny-llama.Q4_K", true, "source-part", func(m *model) { m.tensor("blk.1.ffn_norm").Data[4*100] ^= 1 }},
	{"42 more experts", "tiny-gemma4-moe.bf16", true, "source-settings", set(".expert_used_count", uint32(3))},
	{"twice the context", "tiny-qwen3.Q8_0", true, "source-settings", set(".context_length", uint32(8192))},
	{"28 other rotary base", "tiny-qwen3.Q8_0", true, "source-settings", set(".rope.freq_base", float32(5e5))},
	{"layer period 6 for 3", "tiny-gemma3.Q8_0", true, "source-settings", set(".attention.sliding_window_pattern", uint32(6))},
	{"49 head lost", "tiny-qwen2", true, "tied-head", func(m *model) { m.set("tie_word_embeddings", true); m.remove("lm_head") }},
	{"tokens exchanged", "tiny-gemma3.Q8_0", true, "source-tokens", func(m *model) {
		s := m.strs("tokenizer.ggml.tokens")
		i, j := slices.Index(s, "▁"), slices.Index(s, "a")
		s[i], s[j] = s[j], s[i]
		m.set("tokenizer.ggml.tokens", s)
	}},
	{"1 a space before the text", "tiny-gemma3.Q8_0", true, "source-tokens", set("tokenizer.ggml.add_space_prefix", true)},
	{"other pre-tokenizer", "tiny-qwen3.Q8_0", true, "source-tokens", set("tokenizer.ggml.pre", "gpt-2")},
	{"another system prompt", "tiny-qwen3.Q8_0", true, "source-template", func(m *model) {
		m.set("tokenizer.chat_template", "<|im_start|>system\nhm<|im_end|>\n"+chatML)
	}},
}
