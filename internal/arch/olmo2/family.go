package olmo2

import "github.com/karat-run/karat/internal/family"

// Family describes files of OLMo 2 and 3, models of the same GGUF key.
//
// Source: transformers 5.17, models/olmo2 and models/olmo3, configuration_*.py;
// llama.cpp, conversion/olmo.py and src/models/olmo2.cpp.
var Family = family.Family{
	Name:  "olmo2",
	Title: "OLMo",
	Model: family.Of(New),

	Types: []family.Type{
		{Name: "olmo2", Class: "Olmo2ForCausalLM", Period: 4, Defaults: map[string]any{
			"rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false,
			"max_position_embeddings": 2048.}},
		{Name: "olmo3", Class: "Olmo3ForCausalLM", Window: family.Periodic, Period: 4, Defaults: map[string]any{
			"rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false, "max_position_embeddings": 2048.,
			"sliding_window": 4096.}},
	},
	Fixed: map[string]any{"hidden_act": "silu"},
	Rope: family.Rope{Full: map[string]any{"rope_theta": 1e4}, Sliding: map[string]any{"rope_theta": 1e4},
		OneBase: true},

	Keys: []family.Key{{GGUF: "attention.sliding_window_pattern", Kind: family.Flags, Unusual: true}},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "dbrx"},
	Expect: family.Expect{
		Theta: true,
		Eps:   []float64{1e-6, 1e-5},
	},
}
