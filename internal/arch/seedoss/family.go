package seedoss

import "github.com/karat-run/karat/internal/family"

// Family describes files of Seed-OSS.
//
// Source: transformers 5.17, models/seed_oss/configuration_seed_oss.py; llama.cpp, conversion/olmo.py and
// src/models/seed-oss.cpp.
var Family = family.Family{
	Name:  "seed_oss",
	Title: "Seed-OSS",
	Model: family.Of(New),

	Types: []family.Type{{Name: "seed_oss", Class: "SeedOssForCausalLM", Defaults: map[string]any{
		"rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": false, "max_position_embeddings": 524288.,
		"num_key_value_heads": 8., "head_dim": 128., "vocab_size": 155136., "attention_bias": true}}},
	Fixed: map[string]any{"hidden_act": "silu", "attention_out_bias": false, "mlp_bias": false},
	Idle:  []string{"residual_dropout", "pretraining_tp"},
	ToConfig: func(s family.Settings) { // the library's defaults have biases
		s.Say(map[string]any{"attention_out_bias": false, "attention_bias": false})
	},
	Rope: family.Rope{Full: map[string]any{"rope_theta": 1e7}},
	Held: map[string]string{"attention_bias": "blk.0.attn_q.bias"},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "seed-coder"},
	Expect:    family.Expect{Theta: true, Parts: []family.Part{family.QKVBias}},
}
