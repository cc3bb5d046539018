package phi2

import "github.com/karat-run/karat/internal/family"

// Family describes files of Phi-1, Phi-1.5 and Phi-2.
//
// Source: transformers 5.17, models/phi/configuration_phi.py; llama.cpp, conversion/phi.py and src/models/phi2.cpp.
var Family = family.Family{
	Name:  "phi2",
	Title: "Phi-2",
	Model: family.Of(New),

	Types: []family.Type{{Name: "phi", Class: "PhiForCausalLM", Defaults: map[string]any{
		"layer_norm_eps": 1e-5, "hidden_act": "gelu_new", "max_position_embeddings": 2048., "vocab_size": 51200.}}},
	Fixed:   map[string]any{"hidden_act": "gelu_new", "qk_layernorm": false, "tie_word_embeddings": false},
	Rope:    family.Rope{Full: map[string]any{"rope_theta": 1e4, "partial_rotary_factor": 0.5}, Silent: true},
	Without: []string{"rms_norm_eps"},

	Keys: []family.Key{{GGUF: "rope.dimension_count", Kind: family.Turning}},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "phi-2"},
	Expect:    family.Expect{Eps: []float64{1e-5}},
}
