package eurobert

import "github.com/karat-run/karat/internal/family"

// Family describes files of EuroBERT. Tensors of the masked-word head are set aside.
//
// Source: transformers 5.17, models/eurobert/configuration_eurobert.py; llama.cpp, conversion/bert.py and
// src/models/eurobert.cpp.
var Family = family.Family{
	Name:  "eurobert",
	Title: "EuroBERT",
	Model: family.Of(New),

	Types: []family.Type{{Name: "eurobert", Class: "EuroBertModel", Defaults: map[string]any{
		"rms_norm_eps": 1e-5, "hidden_act": "silu", "max_position_embeddings": 8192., "vocab_size": 128256.,
		"num_attention_heads": 12.}}},
	Fixed: map[string]any{"hidden_act": "silu", "attention_bias": false, "mlp_bias": false},
	Idle:  []string{"tie_word_embeddings", "classifier_pooling"},
	Rope:  family.Rope{Full: map[string]any{"rope_theta": 250000.}},

	Keys: []family.Key{
		{GGUF: "attention.causal", Kind: family.Never},
		{GGUF: "rope.scaling.type", Kind: family.Word, Text: "none"},
	},
	Rename: family.Discard("lm_head.weight"),

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "llama-bpe", BOS: true, End: true},
	Expect:    family.Expect{Eps: []float64{1e-5}},
}
