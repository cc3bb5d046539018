package nomicbert

import "github.com/karat-run/karat/internal/family"

// Family describes files of nomic-embed-text without experts. Texts are as long as in training: published files have
// four times that number in n_positions.
//
// Source: transformers 5.17, models/nomic_bert/configuration_nomic_bert.py; llama.cpp, conversion/bert.py and
// src/models/nomic-bert.cpp.
var Family = family.Family{
	Name:  "nomic-bert",
	Title: "Nomic's BERT",
	Model: family.Of(New),

	Types: []family.Type{{Name: "nomic_bert", Class: "NomicBertModel", Defaults: map[string]any{
		"layer_norm_eps": 1e-12, "hidden_act": "silu", "max_position_embeddings": 2048., "type_vocab_size": 2.,
		"vocab_size": 30528., "hidden_size": 768., "num_hidden_layers": 12., "num_attention_heads": 12.,
		"intermediate_size": 3072.}}},
	Fixed: map[string]any{"hidden_act": "silu", "activation_function": "swiglu", "causal": false, "prenorm": false,
		"qkv_proj_bias": false, "mlp_fc1_bias": false, "mlp_fc2_bias": false, "rotary_emb_fraction": 1.,
		"rotary_emb_interleaved": false, "use_rms_norm": false, "parallel_block": false},
	Idle: []string{"tie_word_embeddings", "type_vocab_size", "head_dim", "num_key_value_heads", "n_positions",
		"attn_pdrop", "embd_pdrop", "resid_pdrop", "attention_probs_dropout_prob", "hidden_dropout_prob",
		"pad_vocab_size_multiple", "fused_bias_fc", "fused_dropout_add_ln", "use_flash_attn", "use_xentropy",
		"summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj",
		"dense_seq_output", "last_layer_subset", "parallel_block_tied_norm", "max_trained_positions",
		"reorder_and_upcast_attn", "rotary_scaling_factor", "scale_attn_by_inverse_layer_idx", "scale_attn_weights"},
	Limits: []family.Limit{{Key: "type_vocab_size", Min: 0, Max: 1 << 16, Rule: family.Whole}},
	Rope:   family.Rope{Full: map[string]any{"rope_theta": 1e4}},
	Spelling: map[string][]string{
		"hidden_size": {"hidden_size", "n_embd"}, "intermediate_size": {"intermediate_size", "n_inner"},
		"num_hidden_layers":   {"num_hidden_layers", "n_layer"},
		"num_attention_heads": {"num_attention_heads", "n_head"},
		"layer_norm_eps":      {"layer_norm_eps", "layer_norm_epsilon"},
		"rope_theta":          {"rope_theta", "rotary_emb_base"},
	},
	Without: []string{"num_key_value_heads", "rms_norm_eps"},

	Keys:     []family.Key{{GGUF: "attention.causal", Kind: family.Never}},
	FromGGUF: func(s family.Settings, f *family.File) { s.Fill("type_vocab_size", f.Rows("token_types")) },

	Tokenizer: family.Tokenizer{Model: "bert", Pre: "jina-v2-en", BOS: true, End: true},
	Expect:    family.Expect{Eps: []float64{1e-12}},
}
