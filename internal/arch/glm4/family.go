package glm4

import "github.com/karat-run/karat/internal/family"

// seeing are the defaults of models that see.
var seeing = map[string]any{"rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false,
	"max_position_embeddings": 32768., "num_key_value_heads": 2., "attention_bias": true}

// Family describes files of GLM-4, as of 0414, and of the text of GLM-4.1V and 4.6V Flash,
// whose heads GGUF turns by halves.
//
// Source: transformers 5.17, models/glm4/configuration_glm4.py and models/glm4v/modular_glm4v.py; llama.cpp,
// conversion/glm.py and src/models/glm4.cpp.
var Family = family.Family{
	Name:  "glm4",
	Title: "GLM-4",
	Model: family.Of(New),

	Types: []family.Type{{Name: "glm4", Class: "Glm4ForCausalLM", Defaults: map[string]any{
		"rms_norm_eps": 1.5625e-7, "hidden_act": "silu", "tie_word_embeddings": false,
		"max_position_embeddings": 131072., "num_key_value_heads": 2., "head_dim": 128.}},
		{Name: "glm4v_text", Defaults: seeing}, {Name: "glm4v", Defaults: seeing}},
	Fixed:      map[string]any{"hidden_act": "silu"},
	Idle:       []string{"mrope_section"},
	FromConfig: family.TakeSections,
	ToConfig:   func(s family.Settings) { delete(s, "mrope_section") }, // a model of text
	Rope:       family.Rope{Full: map[string]any{"rope_theta": 1e4, "partial_rotary_factor": 0.5}},

	Keys: []family.Key{{GGUF: "rope.dimension_count", Kind: family.Turning},
		{GGUF: "rope.dimension_sections", Setting: "mrope_section", Kind: family.Sections}},
	Habits: []family.Habit{
		{Ends: []string{".attn_q", ".attn_q.bias"}, Heads: "num_attention_heads", Halves: true},
		{Ends: []string{".attn_k", ".attn_k.bias"}, Heads: "num_key_value_heads", Halves: true},
	},
	Held: map[string]string{"attention_bias": "blk.0.attn_q.bias"},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "glm4"},
	Expect: family.Expect{
		Theta: true,
		Eps:   []float64{1.5625e-7, 1e-5},
	},
}
