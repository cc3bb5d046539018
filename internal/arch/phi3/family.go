package phi3

import "github.com/karat-run/karat/internal/family"

// Family describes files of Phi-3, Phi-3.5, Phi-4 and Phi-4-mini.
//
// Source: transformers 5.17, models/phi3/configuration_phi3.py; llama.cpp, conversion/phi.py and
// src/models/phi3.cpp (ignores the window).
var Family = family.Family{
	Name:  "phi3",
	Title: "Phi-3",
	Model: family.Of(New),

	Types: []family.Type{{Name: "phi3", Class: "Phi3ForCausalLM", Window: family.Everywhere, Defaults: map[string]any{
		"rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false, "max_position_embeddings": 4096.,
		"original_max_position_embeddings": 4096., "vocab_size": 32064.}}},
	Fixed:      map[string]any{"hidden_act": "silu"},
	Absent:     map[string]any{"sliding_window": 0.},
	Idle:       []string{"full_attn_mod", "interpolate_factor"},
	FromConfig: longrope,
	Limits:     []family.Limit{{Key: "original_max_position_embeddings", Min: 1, Max: 1<<31 - 1, Rule: family.Whole}},
	Rope:       family.Rope{Full: map[string]any{"rope_theta": 1e4}},

	Keys: []family.Key{
		{Setting: "original_max_position_embeddings", GGUF: "rope.scaling.original_context_length"},
		{GGUF: "rope.dimension_count", Kind: family.Turning},
	},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "gpt-4o", Strips: true},
	Expect: family.Expect{
		Parts: []family.Part{{GGUF: "attn_qkv", HF: "qkv_proj"}},
		Theta: true,
		Eps:   []float64{1e-5},
		Turns: []family.Turns{{Name: "Phi's", Marks: []string{"<|user|>", "<|assistant|>"}}},
	},
}

// longrope names the only scaling: older files have other names.
func longrope(s family.Settings, _ *family.File) {
	for _, key := range []string{"rope_scaling", "rope_parameters"} {
		p, _ := family.Object(s[key])
		for _, typ := range []string{"type", "rope_type"} {
			if p[typ] == "su" || p[typ] == "yarn" {
				p[typ] = "longrope"
			}
		}
	}
}
