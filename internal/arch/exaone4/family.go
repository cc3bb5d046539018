package exaone4

import "github.com/karat-run/karat/internal/family"

var defaults = map[string]any{"rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false,
	"max_position_embeddings": 2048., "sliding_window": 4096.}

// Family describes files of EXAONE 4.0, and of the text of EXAONE 4.5, whose positions are plain.
//
// Source: transformers 5.17, models/exaone4/configuration_exaone4.py and models/exaone4_5/modular_exaone4_5.py;
// llama.cpp, conversion/exaone.py and src/models/exaone4.cpp.
var Family = family.Family{
	Name:  "exaone4",
	Title: "EXAONE 4.0",
	Model: family.Of(New),

	Types: []family.Type{
		{Name: "exaone4", Class: "Exaone4ForCausalLM", Window: family.Periodic, Period: 4, Defaults: defaults},
		{Name: "exaone4_5_text", Window: family.Periodic, Period: 4, Defaults: defaults},
		{Name: "exaone4_5", Window: family.Periodic, Period: 4, Defaults: defaults}},
	Fixed: map[string]any{"hidden_act": "silu"},
	Idle:  []string{"num_nextn_predict_layers", "max_window_layers", "reorder_qk_norm"},
	Rope:  family.Rope{Full: map[string]any{"rope_theta": 1e4}},

	Keys: []family.Key{
		{Setting: "vocab_size"},
		{Setting: "sliding_window"},
		{GGUF: "attention.sliding_window_pattern", Kind: family.Flags, Unusual: true},
	},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "exaone4"},
	Expect: family.Expect{
		Eps:        []float64{1e-5},
		Unwindowed: true, // the 1.2B
		Turns: []family.Turns{{Name: "EXAONE's", Marks: []string{"[|user|]", "[|assistant|]", "[|endofturn|]"},
			Only: true}},
	},
}
