package exaonemoe

import "github.com/karat-run/karat/internal/family"

// Family describes files of K-EXAONE.
//
// Source: transformers 5.17, models/exaone_moe/configuration_exaone_moe.py; llama.cpp, conversion/exaone.py and
// src/models/exaone-moe.cpp.
var Family = family.Family{
	Name:  "exaone-moe",
	Title: "K-EXAONE",
	Model: family.Of(New),

	Types: []family.Type{{Name: "exaone_moe", Class: "ExaoneMoeForCausalLM", Window: family.Periodic, Period: 4,
		Lacks: []string{"scoring_func"}, Defaults: map[string]any{
			"rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false, "max_position_embeddings": 2048.,
			"sliding_window": 4096., "moe_intermediate_size": 1024., "num_experts": 64., "top_k_experts": 8.,
			"num_shared_experts": 1., "n_group": 1., "topk_group": 1., "routed_scaling_factor": 2.5,
			"norm_topk_prob": true, "scoring_func": "sigmoid"}}},
	Fixed: map[string]any{"hidden_act": "silu", "scoring_func": "sigmoid", "topk_method": "noaux_tc"},
	Idle:  []string{"output_router_logits", "router_aux_loss_coef", "scoring_func"},
	FromConfig: func(s family.Settings, f *family.File) {
		s.Fill("first_k_dense_replace", s.Take("first_last_k_dense_replace"))
		if list := s.List("is_moe_layer"); list != nil { // an older mlp_layer_types
			for i, moe := range list {
				list[i] = map[any]any{false: "dense", true: "sparse"}[moe]
			}
			s.Fill("mlp_layer_types", s.Take("is_moe_layer"))
		}
		family.LeadingDense(s, f, 1)
	},
	Limits: []family.Limit{
		{Key: "first_k_dense_replace", Min: 0, Max: 1 << 10, Rule: family.Whole},
		{Key: "num_shared_experts", Min: 1, Max: 1 << 10, Rule: family.Required | family.Whole},
		{Key: "routed_scaling_factor", Min: 1e-6, Max: 1e6},
	},
	Rope:     family.Rope{Full: map[string]any{"rope_theta": 1e4}},
	Spelling: map[string][]string{"top_k_experts": {"num_experts_per_tok"}},

	Keys: []family.Key{
		{Setting: "n_group", GGUF: "expert_group_count", Nil: true},
		{Setting: "topk_group", GGUF: "expert_group_used_count", Nil: true},
		{Setting: "vocab_size"}, {Setting: "sliding_window"},
		{GGUF: "attention.sliding_window_pattern", Kind: family.Flags, Unusual: true},
		{Setting: "moe_intermediate_size"},
		{Setting: "num_shared_experts", GGUF: "expert_shared_count"},
		{Setting: "num_shared_experts", GGUF: "expert_shared_feed_forward_length", Kind: family.Product,
			Of: "moe_intermediate_size"},
		{Setting: "routed_scaling_factor", GGUF: "expert_weights_scale", Kind: family.Number},
		{Setting: "norm_topk_prob", GGUF: "expert_weights_norm", Kind: family.Truth},
		{Setting: "first_k_dense_replace", GGUF: "leading_dense_block_count"},
		{Setting: "scoring_func", GGUF: "expert_gating_func", Kind: family.Choice,
			Words: []string{"", "softmax", "sigmoid"}},
		{GGUF: "rope.scaling.type", Kind: family.Word, Text: "none"},
		{Setting: "num_nextn_predict_layers", GGUF: "nextn_predict_layers", Kind: family.NextLayers},
	},
	Habits: []family.Habit{{Ends: []string{".ffn_gate_exps", ".ffn_up_exps", ".ffn_down_exps"}, Joined: "mlp.experts"}},
	Bare:   []string{"e_score_correction_bias"},
	Ahead: map[string]string{"eh_proj": "mtp.fc", "enorm": "mtp.pre_fc_norm_embedding",
		"hnorm": "mtp.pre_fc_norm_hidden", "shared_head.norm": "mtp.norm", "": "mtp.layers"},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "exaone-moe"},
	Expect:    family.Expect{Theta: true, Eps: []float64{1e-5}, Parts: []family.Part{family.QKNorm}},
}
