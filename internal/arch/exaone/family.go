package exaone

import "github.com/karat-run/karat/internal/family"

// Family describes files of EXAONE 3.0 and 3.5.
//
// Source: the publisher's configuration_exaone.py; llama.cpp, conversion/exaone.py and src/models/exaone.cpp.
var Family = family.Family{
	Name:  "exaone",
	Title: "EXAONE 3.5",
	Model: family.Of(New),

	Types: []family.Type{{Name: "exaone", Class: "ExaoneForCausalLM", Defaults: map[string]any{
		"rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false, "max_position_embeddings": 2048.}}},
	Fixed: map[string]any{"hidden_act": "silu"},
	Idle:  []string{"embed_dropout"},
	Rope:  family.Rope{Full: map[string]any{"rope_theta": 1e4}},
	Spelling: map[string][]string{"num_hidden_layers": {"num_layers"}, "hidden_act": {"activation_function"},
		"rms_norm_eps": {"layer_norm_epsilon"}},

	Keys: []family.Key{{GGUF: "rope.dimension_count", Kind: family.FullDim}},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "exaone"},
	Expect: family.Expect{
		Theta: true,
		Eps:   []float64{1e-5},
		Turns: []family.Turns{{Name: "EXAONE's", Marks: []string{"[|user|]", "[|assistant|]", "[|endofturn|]"},
			Only: true}},
	},
}
