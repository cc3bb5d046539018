package ernie45

import "github.com/karat-run/karat/internal/family"

// Family describes files of ERNIE 4.5's dense models.
//
// Source: transformers 5.17, models/ernie4_5/configuration_ernie4_5.py; llama.cpp,
// conversion/ernie.py and src/models/ernie4-5.cpp.
var Family = family.Family{
	Name:  "ernie4_5",
	Title: "ERNIE 4.5",
	Model: family.Of(New),

	Types: []family.Type{{Name: "ernie4_5", Class: "Ernie4_5ForCausalLM", Defaults: map[string]any{
		"rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": true, "max_position_embeddings": 131072.,
		"vocab_size": 103424., "num_attention_heads": 16., "num_key_value_heads": 2., "head_dim": 128.}}},
	Fixed: map[string]any{"hidden_act": "silu", "use_bias": false, "use_rmsnorm": true},
	Rope:  family.Rope{Full: map[string]any{"rope_theta": 5e5}},

	Tokenizer: family.Tokenizer{Model: "llama", Pre: "default", BOS: true},
	Expect: family.Expect{
		Theta: true,
		Eps:   []float64{1e-5},
	},
}
