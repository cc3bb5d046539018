package nemotronh

import (
	"maps"
	"slices"

	"github.com/karat-run/karat/internal/family"
)

// Family describes files of Nemotron-H with MLPs (Nemotron-H, Nemotron Nano 2).
//
// Source: the publisher's configuration_nemotron_h.py of 2025; llama.cpp, conversion/nemotron.py and
// src/models/nemotron-h.cpp.
var Family = family.Family{
	Name:  "nemotron_h",
	Title: "Nemotron-H",
	Model: family.Of(New),

	Types: []family.Type{{Name: "nemotron_h", Root: "backbone", Class: "NemotronHForCausalLM", Window: family.Listed,
		Defaults: assume(nil)}},
	Fixed:      fixed,
	Idle:       append([]string{"time_step_rank"}, idle...),
	FromConfig: plain,
	ToConfig:   spell,
	FromGGUF:   family.Epsilon,
	ToGGUF:     family.Endless,
	Layers:     layers(family.MLPAlone, "-"),
	Limits:     limits,
	Spelling:   spellings,
	Without:    []string{"rope_parameters"},

	Keys:   slices.Concat(keys, scanKeys),
	Held:   map[string]string{"use_conv_bias": ".ssm_conv1d.bias"},
	Habits: habits,
	Bare:   []string{".A_log", ".D", ".dt_bias", ".ssm_a", ".ssm_d"},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "tekken", BOS: true},
	Expect: family.Expect{
		Parts: []family.Part{{GGUF: "ssm_in", HF: "mixer.in_proj"}},
		Eps:   []float64{1e-5},
	},
}

// MoEFamily describes files of Nemotron-H with experts (Nemotron 3 Nano).
//
// Source: transformers 5.17, models/nemotron_h/configuration_nemotron_h.py; llama.cpp,
// conversion/nemotron.py and src/models/nemotron-h.cpp.
var MoEFamily = family.Family{
	Name:  "nemotron_h_moe",
	Title: "Nemotron-H",
	Model: family.Of(New),

	Types: []family.Type{{Name: "nemotron_h", Root: "backbone", Class: "NemotronHForCausalLM", Window: family.Listed,
		If: "n_routed_experts",
		Defaults: assume(map[string]any{
			"num_experts": 8., "n_shared_experts": 1., "top_k_experts": 2., "moe_intermediate_size": 7688.,
			"moe_shared_expert_intermediate_size": 7688., "routed_scaling_factor": 1., "n_group": 1., "topk_group": 1.,
			"norm_topk_prob": true})}},
	Fixed: fixed,
	Idle: append([]string{"intermediate_size", "moe_shared_expert_overlap", "mtp_layers_block_type",
		"num_nextn_predict_layers"}, idle...),
	FromConfig: normal,
	ToConfig:   spell,
	FromGGUF:   family.Epsilon,
	ToGGUF:     family.Endless,
	Layers:     layers(family.ExpertsAlone, "E"),
	Limits: slices.Concat(limits, []family.Limit{
		{Key: "moe_shared_expert_intermediate_size", Min: 1, Max: 1 << 24, Rule: family.Required | family.Whole},
		{Key: "moe_latent_size", Min: 1, Max: 1 << 24, Rule: family.Whole | family.OrZero},
		{Key: "routed_scaling_factor", Min: 1e-6, Max: 1e6, Rule: family.Required},
		{Key: "n_shared_experts", Min: 0, Max: 1 << 10, Rule: family.Whole},
	}),
	Spelling: spellings,
	Without:  []string{"rope_parameters"},

	Keys: slices.Concat(keys, []family.Key{
		{Setting: "n_group", GGUF: "expert_group_count", Nil: true},
		{Setting: "topk_group", GGUF: "expert_group_used_count", Nil: true},
	}, scanKeys, []family.Key{
		{Setting: "moe_intermediate_size"},
		{Setting: "moe_shared_expert_intermediate_size", GGUF: "expert_shared_feed_forward_length"},
		{Setting: "n_shared_experts", GGUF: "expert_shared_count"},
		{Setting: "norm_topk_prob", GGUF: "expert_weights_norm", Kind: family.Truth},
		{Setting: "routed_scaling_factor", GGUF: "expert_weights_scale", Kind: family.Number},
		{Setting: "moe_latent_size", GGUF: "moe_latent_size"},
	}),
	Absent: map[string]any{"routed_scaling_factor": 1.},
	Held:   map[string]string{"use_conv_bias": ".ssm_conv1d.bias"},
	Habits: slices.Concat(habits, []family.Habit{
		{Ends: []string{".ffn_up_exps", ".ffn_down_exps"}, Joined: "mixer.experts"}}),
	Bare:     []string{".A_log", ".D", ".dt_bias", ".e_score_correction_bias", ".ssm_a", ".ssm_d"},
	Synonyms: map[string]string{".experts.fc1": ".experts.up_proj", ".experts.fc2": ".experts.down_proj"},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "tekken", BOS: true},
	Expect: family.Expect{
		Parts: []family.Part{{GGUF: "ssm_in", HF: "mixer.in_proj"},
			{GGUF: "ffn_up_shexp", HF: "mixer.shared_experts.up_proj"}},
		Eps: []float64{1e-5},
	},
}

// What models with MLPs and with experts have alike.
var (
	fixed = map[string]any{"mamba_hidden_act": "silu", "mlp_hidden_act": "relu2", "use_bias": false,
		"mamba_proj_bias": false, "mlp_bias": false, "attention_bias": false}
	idle = []string{"max_position_embeddings", "expand", "chunk_size", "mamba_ssm_cache_dtype", "num_logits_to_keep",
		"residual_in_fp32", "time_step_floor", "time_step_max", "time_step_min", "use_mamba_kernels",
		"num_query_groups", "hybrid_override_pattern", "rope_theta", "partial_rotary_factor"} // nothing turns
	limits    = family.ScanLimits("mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel")
	spellings = map[string][]string{"rms_norm_eps": {"layer_norm_epsilon", "norm_eps"},
		"num_experts":   {"n_routed_experts"},
		"top_k_experts": {"num_experts_per_tok"}, "layer_types": {"layers_block_type"},
		"head_dim": {"head_dim", "attention_head_dim"},
		"n_groups": {"n_groups", "mamba_n_groups"}, "conv_kernel": {"conv_kernel", "mamba_d_conv"},
		"use_conv_bias":   {"use_conv_bias", "mamba_conv_bias"},
		"time_step_limit": {"time_step_limit", "mamba_dt_limit"}}
	keys = []family.Key{
		// readers want the other name as well
		{Setting: "rms_norm_eps", GGUF: "attention.layer_norm_epsilon", Kind: family.Number},
		{Setting: "vocab_size"},
		{GGUF: "rope.dimension_count", Kind: family.FullDim},
	}
	scanKeys = []family.Key{
		{Setting: "conv_kernel", GGUF: "ssm.conv_kernel"},
		{Setting: "ssm_state_size", GGUF: "ssm.state_size"},
		{Setting: "n_groups", GGUF: "ssm.group_count"},
		{Setting: "mamba_head_dim", GGUF: "ssm.inner_size", Kind: family.Product, Of: "mamba_num_heads"},
		{Setting: "mamba_num_heads", GGUF: "ssm.time_step_rank"},
		// never read: nothing turns
		{Setting: "position_embedding_type", GGUF: "rope.scaling.finetuned", Kind: family.Switch, Text: "rope"},
	}
	habits = append([]family.Habit{
		{Ends: []string{".attn_q"}, Heads: "num_attention_heads"}, // though nothing turns
		{Ends: []string{".attn_k"}, Heads: "num_key_value_heads"},
	}, family.ScanHabits("n_groups")...)
)

// assume adds the library's defaults to the defaults of a type.
func assume(more map[string]any) map[string]any {
	all := map[string]any{
		"rms_norm_eps": 1e-5, "mamba_hidden_act": "silu", "mlp_hidden_act": "relu2", "tie_word_embeddings": false,
		"max_position_embeddings": 4096., "num_attention_heads": 32., "num_key_value_heads": 8., "head_dim": 128.,
		"ssm_state_size": 128., "mamba_num_heads": 128., "mamba_head_dim": 64., "n_groups": 8., "conv_kernel": 4.,
		"use_conv_bias": true}
	maps.Copy(all, more)
	return all
}

// layers returns the kinds of layers by config.json's names and by the letters of older versions: a scan, attention,
// and a third kind.
func layers(third, letter string) family.Layers {
	return family.Layers{Older: family.Letters("hybrid_override_pattern"), Kinds: map[string]string{
		"mamba": family.LinearAttention, family.LinearAttention: family.LinearAttention, "M": family.LinearAttention,
		"attention": family.FullAttention, family.FullAttention: family.FullAttention, "*": family.FullAttention,
		third: third, letter: third}}
}

// normal takes the width of experts for the width of the model's MLPs, as GGUF does: the MLPs are experts.
func normal(s family.Settings, f *family.File) {
	plain(s, f)
	s["intermediate_size"] = s["moe_intermediate_size"]
}

func plain(s family.Settings, f *family.File) {
	family.Unlimited(s, f)
	delete(s, "rescale_prenorm_residual") // of training
}

// spell completes a config.json: older versions read letters.
func spell(s family.Settings) {
	letters := ""
	for _, kind := range s.List("layer_types") {
		letters += map[any]string{family.FullAttention: "*", family.ExpertsAlone: "E",
			family.MLPAlone: "-", family.LinearAttention: "M"}[kind]
	}
	s["hybrid_override_pattern"] = letters
	delete(s, "position_embedding_type")
}
