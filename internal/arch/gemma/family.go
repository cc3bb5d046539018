package gemma

import "github.com/karat-run/karat/internal/family"

// Family describes files of the first Gemma. Published files say gelu, and null or the tanh GELU in
// hidden_activation: all models were trained with the latter.
//
// Source: transformers 4.57 and 5.17, models/gemma/configuration_gemma.py; llama.cpp,
// conversion/gemma.py and src/models/gemma.cpp.
var Family = family.Family{
	Name:  "gemma",
	Title: "Gemma",
	Model: family.Of(New),

	Types: []family.Type{{Name: "gemma", Class: "GemmaForCausalLM", Defaults: map[string]any{
		"rms_norm_eps": 1e-6, "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": true,
		"max_position_embeddings": 8192., "vocab_size": 256000., "num_attention_heads": 16.,
		"num_key_value_heads": 16., "head_dim": 256.}}},
	Fixed:      map[string]any{"hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh"},
	FromConfig: activation,
	Rope:       family.Rope{Full: map[string]any{"rope_theta": 1e4}, Silent: true},
	Habits:     []family.Habit{{Ends: []string{"norm"}, Plus: 1}},

	Tokenizer: family.Tokenizer{Model: "llama", Pre: "default", BOS: true},
	Expect: family.Expect{
		Lacks: []family.Part{family.PostNorm, family.QKNorm, family.Scalar, family.QKVBias},
		Tied:  true,
		Theta: true,
		Turns: []family.Turns{{Name: "Gemma's", Marks: []string{"<start_of_turn>", "<end_of_turn>"}, Only: true}},
	},
}

// activation reads gelu as the tanh GELU.
func activation(s family.Settings, _ *family.File) {
	if s["hidden_activation"] == "gelu" {
		s["hidden_activation"] = "gelu_pytorch_tanh"
	}
}
