package modernbert

import "github.com/karat-run/karat/internal/family"

// Family describes files of ModernBERT. Tensors of the masked-word head are set aside.
//
// Source: transformers 5.17, models/modernbert/configuration_modernbert.py; llama.cpp, conversion/bert.py and
// src/models/modern-bert.cpp.
var Family = family.Family{
	Name:  "modern-bert",
	Title: "ModernBERT",
	Model: family.Of(New),

	Types: []family.Type{{Name: "modernbert", Class: "ModernBertModel", Window: family.PeriodicFirst, Period: 3,
		Defaults: map[string]any{"rms_norm_eps": 1e-5, "hidden_activation": "gelu", "max_position_embeddings": 8192.,
			"sliding_window": 128.}}},
	Fixed: map[string]any{"hidden_activation": "gelu", "attention_bias": false, "mlp_bias": false, "norm_bias": false},
	Idle: []string{"tie_word_embeddings", "head_dim", "num_key_value_heads", "classifier_activation",
		"classifier_bias", "classifier_pooling", "decoder_bias", "deterministic_flash_attn", "embedding_dropout",
		"mlp_dropout", "initializer_cutoff_factor", "sparse_pred_ignore_index", "sparse_prediction",
		"reference_compile", "repad_logits_with_grad", "position_embedding_type", "gradient_checkpointing",
		"layer_norm_eps"},
	// a second name of norm_eps, never read
	FromConfig: func(s family.Settings, _ *family.File) { delete(s, "layer_norm_eps") },
	FromGGUF:   family.Epsilon,
	Rope: family.Rope{
		Full:    map[string]any{"rope_theta": 160000.},
		Sliding: map[string]any{"rope_theta": 1e4},
		Local:   "local_rope_theta",
	},
	Spelling: map[string][]string{"rms_norm_eps": {"norm_eps"}, "sliding_window": {"local_attention"},
		"sliding_window_pattern": {"global_attn_every_n_layers"}, "rope_theta": {"global_rope_theta"}},
	Without: []string{"num_key_value_heads"},

	Keys: []family.Key{
		{GGUF: "attention.causal", Kind: family.Never},
		{GGUF: "attention.sliding_window_pattern", Kind: family.Period},
		{GGUF: "rope.scaling.type", Kind: family.Word, Text: "none"},
		{Setting: "vocab_size", Kind: family.Count},
		// llama.cpp's reader wants the first, its converter may write the second alone
		{Setting: "rms_norm_eps", GGUF: "attention.layer_norm_epsilon", Kind: family.Number},
		{GGUF: "hidden_activation", Kind: family.Word, Text: "gelu"},
	},
	Rename: family.Discard("head.dense.weight", "head.norm.weight", "decoder.bias", "decoder.weight"),

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "modern-bert", BOS: true, End: true},
	Expect:    family.Expect{Eps: []float64{1e-5}},
}
