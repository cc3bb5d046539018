package afmoe

import "github.com/karat-run/karat/internal/family"

// Family describes files of Arcee's Trinity.
//
// Source: transformers 5.17, models/afmoe/configuration_afmoe.py; llama.cpp, conversion/afmoe.py and
// src/models/afmoe.cpp.
var Family = family.Family{
	Name:  "afmoe",
	Title: "Trinity",
	Model: family.Of(New),

	Types: []family.Type{{Name: "afmoe", Class: "AfmoeForCausalLM", Window: family.Periodic, Period: 4,
		Defaults: map[string]any{
			"rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false, "max_position_embeddings": 16384.,
			"sliding_window": 1024., "num_dense_layers": 1., "moe_intermediate_size": 256., "num_experts": 64.,
			"top_k_experts": 6., "num_shared_experts": 0., "routed_scaling_factor": 1., "norm_topk_prob": true,
			"mup_enabled": false, "head_dim": 128., "score_func": "sigmoid"}}},
	Fixed: map[string]any{"hidden_act": "silu", "attention_bias": false, "mup_enabled": true, "score_func": "sigmoid",
		"n_group": 1., "topk_group": 1., "num_expert_groups": 1., "num_limited_groups": 1.},
	Absent: map[string]any{"num_dense_layers": 0., "score_func": "sigmoid"},
	Idle: []string{"output_router_logits", "load_balance_coeff", "use_grouped_mm", "score_func",
		"global_attn_every_n_layers"},
	Limits: []family.Limit{
		{Key: "num_dense_layers", Min: 0, Max: 1 << 10, Rule: family.Whole},
		{Key: "num_shared_experts", Min: 1, Max: 1 << 10, Rule: family.Required | family.Whole},
		{Key: "routed_scaling_factor", Min: 1e-6, Max: 1e6},
	},
	Rope: family.Rope{Full: map[string]any{"rope_theta": 1e4}},
	Spelling: map[string][]string{"top_k_experts": {"num_experts_per_tok"}, "routed_scaling_factor": {"route_scale"},
		"norm_topk_prob": {"route_norm"}, "sliding_window_pattern": {"global_attn_every_n_layers"}},

	Keys: []family.Key{
		{Setting: "vocab_size"}, {GGUF: "rope.dimension_count", Kind: family.FullDim},
		{Setting: "num_shared_experts", GGUF: "expert_shared_count"}, {Setting: "moe_intermediate_size"},
		{Setting: "num_dense_layers", GGUF: "leading_dense_block_count"},
		{Setting: "norm_topk_prob", GGUF: "expert_weights_norm", Kind: family.Truth},
		{Setting: "routed_scaling_factor", GGUF: "expert_weights_scale", Kind: family.Number},
		{Setting: "sliding_window"}, {GGUF: "attention.sliding_window_pattern", Kind: family.Period, Unusual: true},
		{GGUF: "expert_gating_func", Setting: "score_func", Kind: family.Choice, Unusual: true,
			Words: []string{"", "softmax", "sigmoid"}},
	},
	Habits: []family.Habit{{Ends: []string{".ffn_gate_exps", ".ffn_up_exps", ".ffn_down_exps"}, Joined: "mlp.experts"}},
	Bare:   []string{".expert_bias"},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "afmoe", BOS: true, Mixed: true},
	Expect: family.Expect{Theta: true, Eps: []float64{1e-5},
		Parts: []family.Part{{GGUF: "attn_gate", HF: "self_attn.gate_proj"}}},
}
