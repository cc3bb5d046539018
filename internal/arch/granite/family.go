package granite

import "github.com/karat-run/karat/internal/family"

// Family describes files of Granite 3.
//
// Source: transformers 5.17, models/granite/configuration_granite.py; llama.cpp,
// conversion/granite.py and src/models/granite.cpp.
var Family = family.Family{
	Name:  "granite",
	Title: "Granite",
	Model: family.Of(New),

	Types: []family.Type{{Name: "granite", Class: "GraniteForCausalLM", Defaults: map[string]any{
		"rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": false, "max_position_embeddings": 2048.,
		"embedding_multiplier": 1., "attention_multiplier": 1., "residual_multiplier": 1., "logits_scaling": 1.}}},
	Fixed: map[string]any{"hidden_act": "silu"},
	Limits: []family.Limit{
		{Key: "embedding_multiplier", Min: 1e-6, Max: 1e6},
		{Key: "attention_multiplier", Min: 1e-6, Max: 1e3},
		{Key: "residual_multiplier", Min: 1e-6, Max: 1e3},
		{Key: "logits_scaling", Min: 1e-6, Max: 1e6, Rule: family.Required},
	},
	FromGGUF: family.PlainScale,
	Rope:     family.Rope{Full: map[string]any{"rope_theta": 1e4}, Switch: "rope.scaling.finetuned"},

	Keys: []family.Key{
		{Setting: "vocab_size"},
		{GGUF: "rope.dimension_count", Kind: family.FullDim},
		{Setting: "attention_multiplier", GGUF: "attention.scale", Kind: family.Number},
		{Setting: "embedding_multiplier", GGUF: "embedding_scale", Kind: family.Number},
		{Setting: "residual_multiplier", GGUF: "residual_scale", Kind: family.Number},
		{Setting: "logits_scaling", GGUF: "logit_scale", Kind: family.Number},
	},
	Held: map[string]string{"attention_bias": "blk.0.attn_q.bias", "mlp_bias": "blk.0.ffn_gate.bias"},
	Habits: []family.Habit{
		{Ends: []string{".attn_q", ".attn_q.bias"}, Heads: "num_attention_heads"},
		{Ends: []string{".attn_k", ".attn_k.bias"}, Heads: "num_key_value_heads"},
	},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "refact"},
	Expect: family.Expect{
		Theta: true,
		Eps:   []float64{1e-6, 1e-5},
	},
}
