package stablelm

import "github.com/karat-run/karat/internal/family"

// Family describes files of StableLM.
//
// Source: transformers 5.17, models/stablelm/configuration_stablelm.py; llama.cpp,
// conversion/stablelm.py and src/models/stablelm.cpp.
var Family = family.Family{
	Name:  "stablelm",
	Title: "StableLM",
	Model: family.Of(New),

	Types: []family.Type{{Name: "stablelm", Class: "StableLmForCausalLM", Defaults: map[string]any{
		"layer_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false, "max_position_embeddings": 4096.,
		"num_key_value_heads": 32., "vocab_size": 50304., "use_qkv_bias": false, "qk_layernorm": false,
		"use_parallel_residual": false}}},
	Fixed:    map[string]any{"hidden_act": "silu"},
	FromGGUF: parallel,
	Rope:     family.Rope{Full: map[string]any{"rope_theta": 1e4, "partial_rotary_factor": 0.25}, Silent: true},
	Without:  []string{"rms_norm_eps"},

	Keys: []family.Key{
		{GGUF: "rope.dimension_count", Kind: family.Turning},
		{Setting: "use_parallel_residual", GGUF: "use_parallel_residual", Kind: family.Truth, Unusual: true},
	},
	Held: map[string]string{"use_qkv_bias": "blk.0.attn_q.bias", "qk_layernorm": "blk.0.attn_q_norm"},
	Habits: []family.Habit{
		{Ends: []string{".attn_q_norm"}, Joined: "q_layernorm.norms"},
		{Ends: []string{".attn_k_norm"}, Joined: "k_layernorm.norms"},
	},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "stablelm2"},
	Expect:    family.Expect{Theta: true, Eps: []float64{1e-5}},
}

// parallel reads what readers go by: a layer without a second norm has one norm for both parts.
func parallel(s family.Settings, f *family.File) {
	if f.Tensors != nil {
		s.Fill("use_parallel_residual", !f.Has("blk.0.ffn_norm"))
	}
}
