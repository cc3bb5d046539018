package arcee

import "github.com/karat-run/karat/internal/family"

// Family describes files of Arcee's AFM.
//
// Source: transformers 5.17, models/arcee/configuration_arcee.py; llama.cpp,
// conversion/llama.py and src/models/arcee.cpp.
var Family = family.Family{
	Name:  "arcee",
	Title: "Arcee",
	Model: family.Of(New),

	Types: []family.Type{{Name: "arcee", Class: "ArceeForCausalLM", Defaults: map[string]any{
		"rms_norm_eps": 1e-5, "hidden_act": "relu2", "tie_word_embeddings": false, "max_position_embeddings": 4096.}}},
	Fixed: map[string]any{"hidden_act": "relu2", "attention_bias": false, "mlp_bias": false},
	Rope:  family.Rope{Full: map[string]any{"rope_theta": 1e4}},

	Keys: []family.Key{
		{Setting: "vocab_size"},
		{GGUF: "rope.dimension_count", Kind: family.FullDim},
	},
	Habits: []family.Habit{
		{Ends: []string{".attn_q"}, Heads: "num_attention_heads"},
		{Ends: []string{".attn_k"}, Heads: "num_key_value_heads"},
	},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "llama-bpe", BOS: true},
	Expect:    family.Expect{Eps: []float64{1e-5}},
}
