package arch_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/checkpoint"
)

// TestReported wants a note on everything that is assumed, set aside or not read
// though its name says that logits depend on it.
func TestReported(t *testing.T) {
	for _, c := range []struct {
		name, model string
		hf          func(*model)
		gguf        func(*file)
		want        []string
	}{
		{name: "attention softcap null", model: "gemma3", hf: set("attn_logit_softcapping", nil)},
		{name: "attention softcap in GGUF", model: "gemma3", gguf: key("attn_logit_softcapping", float32(50)), want: []string{"metadata key gemma3.attn_logit_softcapping = 50 is not read by architecture gemma3"}},
		{name: "final softcap of llama in GGUF", model: "llama", gguf: key("final_logit_softcapping", float32(30)), want: []string{"configuration key llama.final_logit_softcapping = 30 is not read by architecture llama"}},
		{name: "sections", model: "qwen2", gguf: key("rope.dimension_sections", []int32{1, 2, 3, 0}), want: []string{"metadata key qwen2.rope.dimension_sections = \"an array of 4 int32\" is not read by architecture qwen2"}},
		{name: "two factors", model: "llama", gguf: func(f *file) { f.set("rope.scaling.factor", float32(2)); f.set("rope.scale_linear", float32(4)) },
			want: []string{"metadata key llama.rope.scale_linear = 4 is not read by architecture llama"}},
		{name: "a multiplier of latents", model: "qwen2", gguf: func(f *file) {
			f.set("rope.scaling.type", "yarn")
			f.set("rope.scaling.factor", float32(2))
			f.set("rope.scaling.yarn_log_multiplier", float32(0.5))
		}, want: []string{"metadata key qwen2.rope.scaling.yarn_log_multiplier = 0.5 is not read by architecture qwen2"}},
		{name: "scaling none with a factor", model: "qwen2", gguf: func(f *file) { f.set("rope.scaling.type", "none"); f.set("rope.scaling.factor", float32(8)) },
			want: []string{"metadata key qwen2.rope.scaling.factor = 8 is not read: the scaling's type is none"}},
		{name: "scaling none", model: "qwen2", gguf: func(f *file) { f.set("rope.scaling.type", "none"); f.set("rope.scaling.factor", float32(1)) }},
		{name: "window of qwen in GGUF", model: "qwen3", gguf: key("attention.sliding_window", uint32(4)), want: []string{"metadata key qwen3.attention.sliding_window = 4 is not read by architecture qwen3"}},
		{name: "other keys", model: "llama", gguf: key("tensor_data_layout", "Meta AI original pth")},
		{name: "window of llama", model: "llama", hf: set("sliding_window", 4), want: []string{"configuration key sliding_window = 4 is not read: a model of type llama has no window"}},
		{name: "logit scale", model: "qwen3", hf: set("logits_scaling", 8), want: []string{"configuration key logits_scaling = 8 is not read by architecture qwen3"}},
		{name: "switched off", model: "qwen3", hf: func(m *model) { m.config["clip_qkv"], m.config["qk_norm_bias"] = nil, false }},
		{name: "rope settings", model: "llama", hf: set("rope_scaling", map[string]any{"rope_type": "linear", "factor": 2, "beta_fast": 32, "attention_factor": 1.2}),
			want: []string{"rope setting attention_factor = 1.2 of full_attention is not read", "rope setting beta_fast = 32 of full_attention is not read"}},
		{name: "rope settings of other types", model: "llama", hf: set("rope_scaling", map[string]any{"rope_type": "default", "factor": 2, "low_freq_factor": 1}),
			want: []string{"rope setting factor = 2 of full_attention is not read", "rope setting low_freq_factor = 1 of full_attention is not read"}},
		{name: "two types", model: "llama", hf: set("rope_scaling", map[string]any{"rope_type": "linear", "type": "yarn", "factor": 2}),
			want: []string{"rope_scaling.type = \"yarn\" is not read: rope_type is \"linear\""}},
		{name: "misspelt keys", model: "llama", hf: func(m *model) { m.config["Rope_Scaling"], m.config["rotary_base"] = map[string]any{"factor": 2}, 5 },
			want: []string{"configuration key Rope_Scaling = {\"factor\":2} is not read by architecture llama", "configuration key rotary_base = 5 is not read by architecture llama"}},
		{name: "rope settings beside kinds", model: "gemma4-31b", hf: func(m *model) { m.config["rope_parameters"].(map[string]any)["factor"] = 2 },
			want: []string{"rope setting factor = 2 beside those of kinds of layers is not read"}},
		{name: "vision", model: "gemma3", hf: func(m *model) { m.nest("gemma3", "language_model."); m.vector("vision_tower.x", 4) }},
		{name: "a head that repeats", model: "llama", hf: func(m *model) { m.copy("model.embed_tokens", "lm_head.weight") }, want: []string{"tensor lm_head repeats model.embed_tokens and is set aside"}},
		{name: "the last layer slides", model: "gemma4-31b", hf: func(m *model) { m.config["layer_types"].([]any)[3] = "sliding_attention" }, want: []string{"layer_types lets the last layer slide: assuming a full one"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := synthetic(c.model)
			path := ""
			if c.gguf != nil {
				path = toGGUF(t, m.write(t), c.gguf)
			} else {
				c.hf(m)
				path = m.write(t)
			}
			if _, _, notes := load(t, path); !slices.Equal(notes, c.want) {
				t.Errorf("notes %q\nwant  %q", notes, c.want)
			}
		})
	}
}

// TestConvertersGemma3 loads files as llama.cpp's converter leaves them: no key
// says which layers are full and by what attention is scaled.
func TestConvertersGemma3(t *testing.T) {
	strip := func(f *file) { f.set("attention.sliding_window_pattern", nil); f.set("attention.scale", nil) }
	m := synthetic("gemma3")
	_, g, notes := load(t, toGGUF(t, m.write(t), strip))
	want := []string{"the file has no key gemma3.attention.sliding_window_pattern: assuming that every 6th layer is full", "the file has no key gemma3.attention.scale: assuming 1/sqrt(8)"}
	if !slices.Equal(notes, want) {
		t.Errorf("notes %q\nwant  %q", notes, want)
	}
	if kvs := g.KVs(); kvs[2].Window != 4 {
		t.Errorf("of 3 layers none is the 6th, but the last has window %d", kvs[2].Window)
	}
	m.config["query_pre_attn_scalar"], m.config["layer_types"] = float64(dim), slices.Repeat([]any{"sliding_attention"}, 3)
	if got, want := printed(t, toGGUF(t, m.write(t), strip)), printed(t, m.write(t)); got != want {
		t.Error(difference(got, want))
	}

	// The 27B, known by its number of layers, has 1/sqrt(hidden/heads).
	for layers, want := range map[uint32]float64{62: hidden / 2, 61: dim} {
		c, err := checkpoint.Open(toGGUF(t, synthetic("gemma3").write(t), func(f *file) {
			strip(f)
			f.set("block_count", layers)
			f.set("attention.head_count", uint32(2))
			for i := range 62 {
				f.tensors = append(f.tensors, floats(fmt.Sprintf("x.%d", i), []float32{1}))
			}
		}))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var read struct {
			Scalar float64 `json:"query_pre_attn_scalar"`
		}
		if _, err := c.Config(&read); err != nil || read.Scalar != want {
			t.Errorf("%d layers: %v, %v, want %v", layers, read.Scalar, err, want)
		}
		if note := fmt.Sprintf("the file has no key gemma3.attention.scale: assuming 1/sqrt(%v)", want); !slices.Contains(c.Notes, note) {
			t.Errorf("%d layers: notes %q, want %q", layers, c.Notes, note)
		}
	}
}
