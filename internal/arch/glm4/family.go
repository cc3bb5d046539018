package glm4

import "github.com/karat-run/karat/internal/family"

// Family describes files of GLM-4, as of 0414.
//
// Source: transformers 5.17, models/glm4/configuration_glm4.py; llama.cpp,
// conversion/glm.py and src/models/glm4.cpp.
var Family = family.Family{
	Name:  "glm4",
	Title: "GLM-4",
	Model: family.Of(New),

	Types: []family.Type{{Name: "glm4", Class: "Glm4ForCausalLM", Defaults: map[string]any{
		"rms_norm_eps": 1.5625e-7, "hidden_act": "silu", "tie_word_embeddings": false,
		"max_position_embeddings": 131072., "num_key_value_heads": 2., "head_dim": 128.}}},
	Fixed: map[string]any{"hidden_act": "silu"},
	Rope:  family.Rope{Full: map[string]any{"rope_theta": 1e4, "partial_rotary_factor": 0.5}},

	Keys: []family.Key{{GGUF: "rope.dimension_count", Kind: family.Turning}},
	Held: map[string]string{"attention_bias": "blk.0.attn_q.bias"},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "glm4"},
	Expect: family.Expect{
		Theta: true,
		Eps:   []float64{1.5625e-7, 1e-5},
	},
}
