package mistral3

import "github.com/karat-run/karat/internal/family"

// Family describes files of Ministral 3, and of the text of Mistral Small 3 that sees: such a model neither scales its
// rotation nor grows its queries, and is a mistral in config.json.
//
// Source: transformers 5.17, models/ministral3/configuration_ministral3.py; llama.cpp,
// conversion/mistral3.py and src/models/mistral3.cpp.
var Family = family.Family{
	Name:  "mistral3",
	Title: "Ministral 3",
	Model: family.Of(New),

	Types: []family.Type{
		{Name: "ministral3", Class: "Ministral3ForCausalLM", Window: family.Everywhere,
			Needs: []string{"llama_4_scaling_beta"}, Defaults: map[string]any{
				"rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false,
				"max_position_embeddings": 262144., "num_key_value_heads": 8., "head_dim": 128.,
				"vocab_size": 131072.}},
		{Name: "mistral", Class: "MistralForCausalLM", Window: family.Everywhere, Defaults: map[string]any{
			"rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": false,
			"max_position_embeddings": 131072., "num_key_value_heads": 8., "sliding_window": 4096.}},
	},
	Fixed:      map[string]any{"hidden_act": "silu"},
	FromConfig: published,
	Limits:     []family.Limit{{Key: "llama_4_scaling_beta", Min: 0, Max: 1e3}},
	Rope: family.Rope{Full: map[string]any{"rope_theta": 1e6},
		With: []string{"llama_4_scaling_beta"}},

	Keys: []family.Key{
		{Setting: "vocab_size"},
		{GGUF: "rope.dimension_count", Kind: family.FullDim},
		{GGUF: "rope.scaling.yarn_log_multiplier", Kind: family.Multiplier},
		{Setting: "llama_4_scaling_beta", GGUF: "attention.temperature_scale", Kind: family.Number},
	},
	Habits: []family.Habit{
		{Ends: []string{".attn_q"}, Heads: "num_attention_heads"},
		{Ends: []string{".attn_k"}, Heads: "num_key_value_heads"},
	},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "tekken", BOS: true},
	Expect:    family.Expect{Eps: []float64{1e-5}},
}

// published sets the library's assumptions about rotation where the file is silent.
func published(s family.Settings, _ *family.File) {
	switch {
	case s["rope_parameters"] != nil || s["rope_scaling"] != nil || s["rope_theta"] != nil:
	case s["model_type"] == "mistral":
		s["rope_theta"] = 1e4
	default:
		s["rope_parameters"] = map[string]any{"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.,
			"original_max_position_embeddings": 16384., "beta_fast": 32., "beta_slow": 1., "mscale": 1.,
			"mscale_all_dim": 1., "llama_4_scaling_beta": 0.1}
	}
}
