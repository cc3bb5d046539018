package granitehybrid

import "github.com/karat-run/karat/internal/family"

// Family describes files of Granite 4.
//
// Source: transformers 5.17, models/granitemoehybrid/configuration_granitemoehybrid.py;
// llama.cpp, conversion/granite.py and src/models/granite-hybrid.cpp.
var Family = family.Family{
	Name:  "granitehybrid",
	Title: "Granite 4",
	Model: family.Of(New),

	Types: []family.Type{{Name: "granitemoehybrid", Class: "GraniteMoeHybridForCausalLM", Window: family.Listed,
		Defaults: map[string]any{
			"rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": false, "max_position_embeddings": 2048.,
			"embedding_multiplier": 1., "attention_multiplier": 1., "residual_multiplier": 1., "logits_scaling": 1.,
			"num_experts": 8., "top_k_experts": 2., "shared_intermediate_size": 1024.,
			"mamba_n_heads": 128., "mamba_n_groups": 1., "mamba_d_state": 256., "mamba_d_conv": 4., "mamba_expand": 2.,
			"mamba_conv_bias": true}}},
	Fixed:  map[string]any{"hidden_act": "silu", "mamba_proj_bias": false},
	Absent: map[string]any{"embedding_multiplier": 1., "residual_multiplier": 1., "logits_scaling": 1.},
	Idle: []string{"max_position_embeddings", "mamba_expand", "mamba_chunk_size", "output_router_logits",
		"router_aux_loss_coef", "normalization_function", "init_method", "time_step_min", "time_step_max"},
	FromConfig: normal,
	ToConfig:   spell,
	FromGGUF:   family.PlainScale,
	ToGGUF:     positions,
	Layers: family.Layers{Kinds: map[string]string{"mamba": family.LinearAttention,
		family.LinearAttention: family.LinearAttention, "attention": family.FullAttention,
		family.FullAttention: family.FullAttention}},
	Limits: append(family.ScanLimits("mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state",
		"mamba_d_conv"), []family.Limit{
		{Key: "shared_intermediate_size", Min: 1, Max: 1 << 24, Rule: family.Required | family.Whole},
		{Key: "mamba_expand", Min: 1e-3, Max: 1 << 10},
		{Key: "embedding_multiplier", Min: 1e-6, Max: 1e6, Rule: family.Required},
		{Key: "attention_multiplier", Min: 1e-6, Max: 1e3, Rule: family.Required},
		{Key: "residual_multiplier", Min: 1e-6, Max: 1e3, Rule: family.Required},
		{Key: "logits_scaling", Min: 1e-6, Max: 1e6, Rule: family.Required},
	}...),
	Rope:     family.Rope{Full: map[string]any{"rope_theta": 1e4}},
	Spelling: map[string][]string{"num_experts": {"num_local_experts"}, "top_k_experts": {"num_experts_per_tok"}},

	Keys: []family.Key{
		{Setting: "vocab_size"},
		{GGUF: "rope.dimension_count", Kind: family.FullDim},
		{Setting: "attention_multiplier", GGUF: "attention.scale", Kind: family.Number},
		{Setting: "embedding_multiplier", GGUF: "embedding_scale", Kind: family.Number},
		{Setting: "residual_multiplier", GGUF: "residual_scale", Kind: family.Number},
		{Setting: "logits_scaling", GGUF: "logit_scale", Kind: family.Number},
		{Setting: "shared_intermediate_size", GGUF: "expert_shared_feed_forward_length"},
		{Setting: "mamba_d_conv", GGUF: "ssm.conv_kernel"},
		{Setting: "mamba_d_state", GGUF: "ssm.state_size"},
		{Setting: "mamba_n_groups", GGUF: "ssm.group_count"},
		{Setting: "mamba_d_head", GGUF: "ssm.inner_size", Kind: family.Product, Of: "mamba_n_heads"},
		{Setting: "mamba_n_heads", GGUF: "ssm.time_step_rank"},
		{Setting: "position_embedding_type", GGUF: "rope.scaling.finetuned", Kind: family.Switch, Text: "rope"},
	},
	Held: map[string]string{"attention_bias": ".attn_q.bias", "mamba_conv_bias": ".ssm_conv1d.bias"},
	Habits: append([]family.Habit{
		{Ends: []string{".attn_q", ".attn_q.bias"}, Heads: "num_attention_heads"},
		{Ends: []string{".attn_k", ".attn_k.bias"}, Heads: "num_key_value_heads"},
		{Ends: []string{".ffn_gate_exps", ".ffn_up_exps", ".ffn_gate_shexp", ".ffn_up_shexp", ".ffn_gate", ".ffn_up"},
			Woven: []string{"input_linear", "gate_linear", "up_linear"}, Runs: true},
	}, family.ScanHabits("mamba_n_groups")...),
	Bare: []string{".A_log", ".D", ".dt_bias", ".ssm_a", ".ssm_d"},
	Synonyms: map[string]string{".block_sparse_moe.experts.gate_proj": ".block_sparse_moe.gate_linear",
		".block_sparse_moe.experts.up_proj":   ".block_sparse_moe.up_linear",
		".block_sparse_moe.experts.down_proj": ".block_sparse_moe.output_linear",
		".mlp.gate_proj":                      ".shared_mlp.gate_linear", ".mlp.up_proj": ".shared_mlp.up_linear",
		".mlp.down_proj": ".shared_mlp.output_linear"},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "refact"},
	Expect: family.Expect{Parts: []family.Part{{GGUF: "ssm_in", HF: "mamba.in_proj"}}, Theta: true,
		Eps: []float64{1e-6, 1e-5}},
}

// normal computes the size of a scan's head where the setting is "auto" or missing.
func normal(s family.Settings, f *family.File) {
	family.Unlimited(s, f)
	heads := s.Number("mamba_n_heads")
	if auto := s["mamba_d_head"]; (auto == nil || auto == "auto") && heads > 0 {
		s["mamba_d_head"] = s.Number("mamba_expand") * s.Number("hidden_size") / heads
	}
}

// positions returns the length of models without positions.
func positions(s family.Settings) {
	if s["position_embedding_type"] != "rope" {
		family.Endless(s)
	}
}

// spell completes a config.json. The kinds of layers get names that all versions read.
func spell(s family.Settings) {
	if hidden := s.Number("hidden_size"); hidden > 0 {
		s["mamba_expand"] = s.Number("mamba_n_heads") * s.Number("mamba_d_head") / hidden
	}
	if s["num_experts"] == nil { // the library's default is 8
		s["num_experts"], s["top_k_experts"] = 0., 0.
	}
	s.NameKinds(map[any]string{family.LinearAttention: "mamba", family.FullAttention: "attention"})
}
