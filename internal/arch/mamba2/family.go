package mamba2

import "github.com/karat-run/karat/internal/family"

// Family describes files of Mamba 2.
//
// Source: transformers 5.17, models/mamba2/configuration_mamba2.py; llama.cpp, conversion/mamba.py and
// src/models/mamba2.cpp (norms each group of heads apart). transformers norms all together, and so does
// Karat: equal in models of a single group.
var Family = family.Family{
	Name:  "mamba2",
	Title: "Mamba 2",
	Model: family.Of(New),

	Types: []family.Type{{Name: "mamba2", Class: "Mamba2ForCausalLM", Window: family.Listed, Defaults: map[string]any{
		"vocab_size": 32768., "hidden_size": 4096., "num_hidden_layers": 64., "num_heads": 128., "ssm_head_dim": 64.,
		"state_size": 128., "n_groups": 8., "conv_kernel": 4., "expand": 2., "rms_norm_eps": 1e-5,
		"hidden_act": "silu", "tie_word_embeddings": false, "rms_norm": true, "use_conv_bias": true}}},
	Fixed: map[string]any{"hidden_act": "silu", "rms_norm": true, "use_conv_bias": true, "use_bias": false},
	Idle: []string{"expand", "chunk_size", "rescale_prenorm_residual", "residual_in_fp32", "time_step_floor",
		"time_step_max", "time_step_min", "time_step_rank", "max_position_embeddings"},
	FromConfig: family.Unlimited,
	ToConfig:   spell,
	ToGGUF:     family.Endless,
	Layers: family.Layers{Kinds: map[string]string{"mamba": family.LinearAttention,
		family.LinearAttention: family.LinearAttention}},
	Limits: append(family.ScanLimits("num_heads", "ssm_head_dim", "n_groups", "state_size", "conv_kernel"),
		[]family.Limit{
			{Key: "expand", Min: 1e-3, Max: 1 << 10},
		}...),
	Spelling: map[string][]string{"rms_norm_eps": {"layer_norm_epsilon"}, "ssm_head_dim": {"head_dim"}},
	Without: []string{"num_attention_heads", "num_key_value_heads", "intermediate_size", "head_dim",
		"rope_parameters", "layer_types"},

	Keys: []family.Key{
		{Setting: "conv_kernel", GGUF: "ssm.conv_kernel"},
		{Setting: "ssm_head_dim", GGUF: "ssm.inner_size", Kind: family.Product, Of: "num_heads"},
		{Setting: "state_size", GGUF: "ssm.state_size"},
		{Setting: "num_heads", GGUF: "ssm.time_step_rank"},
		{Setting: "n_groups", GGUF: "ssm.group_count"},
	},
	Habits: family.ScanHabits("n_groups"),
	Bare:   []string{".A_log", ".D", ".dt_bias", ".ssm_a", ".ssm_d"},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "gpt-2"},
	Expect: family.Expect{
		Parts: []family.Part{{GGUF: "ssm_in", HF: "mixer.in_proj"}},
		Eps:   []float64{1e-5},
	},
}

// spell completes a config.json.
func spell(s family.Settings) {
	if hidden := s.Number("hidden_size"); hidden > 0 {
		s["expand"] = s.Number("num_heads") * s.Number("ssm_head_dim") / hidden
	}
}
