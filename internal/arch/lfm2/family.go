package lfm2

import (
	"github.com/karat-run/karat/internal/family"
)

// Family describes files of LFM2.
//
// Source: transformers 5.17, models/lfm2/configuration_lfm2.py; llama.cpp, conversion/lfm2.py and src/models/lfm2.cpp.
var Family = family.Family{
	Name:  "lfm2",
	Title: "LFM2",
	Model: family.Of(New),

	Types: []family.Type{{Name: "lfm2", Class: "Lfm2ForCausalLM", Window: family.Listed, Defaults: map[string]any{
		"rms_norm_eps": 1e-5, "tie_word_embeddings": true, "max_position_embeddings": 128000.,
		"num_attention_heads": 32., "num_key_value_heads": 8., "conv_L_cache": 3., "conv_bias": false,
		"block_auto_adjust_ff_dim": true, "block_multiple_of": 256., "block_ffn_dim_multiplier": 1.}, Period: 1}},
	Fixed: map[string]any{"conv_bias": false, "block_auto_adjust_ff_dim": false},
	Idle: []string{"full_attn_idxs", "block_dim", "block_mlp_init_scale", "block_out_init_scale",
		"block_use_swiglu", "block_use_xavier_init", "conv_dim", "conv_dim_out", "conv_use_xavier_init", "use_pos_enc",
		"num_heads"},
	FromConfig: adjust,
	ToConfig:   spell,
	Layers:     family.Layers{Kinds: kinds, Older: family.Indexes("full_attn_idxs")},
	Limits:     []family.Limit{{Key: "conv_L_cache", Min: 2, Max: 1 << 10, Rule: family.Required | family.Whole}},
	Rope:       family.Rope{Full: map[string]any{"rope_theta": 1e6}},
	Spelling: map[string][]string{"rms_norm_eps": {"norm_eps", "block_norm_eps"},
		"intermediate_size":   {"intermediate_size", "block_ff_dim"},
		"tie_word_embeddings": {"tie_word_embeddings", "tie_embedding"}, "rope_theta": {"rope_theta", "theta"}},

	Keys: []family.Key{
		{Setting: "vocab_size"},
		{Setting: "conv_L_cache", GGUF: "shortconv.l_cache"},
	},
	Habits: []family.Habit{{Ends: []string{".shortconv.conv"}, Form: family.Depthwise}},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "lfm2", BOS: true},
	Expect: family.Expect{
		Parts: []family.Part{{GGUF: "shortconv.in_proj", HF: "conv.in_proj"}},
		Tied:  true,
		Theta: true,
		Eps:   []float64{1e-5},
	},
}

// MoEFamily describes files of LFM2's models with experts.
//
// Source: transformers 5.17, models/lfm2_moe/configuration_lfm2_moe.py; llama.cpp,
// conversion/lfm2.py and src/models/lfm2moe.cpp.
var MoEFamily = family.Family{
	Name:  "lfm2moe",
	Title: "LFM2",
	Model: family.Of(New),

	Types: []family.Type{{Name: "lfm2_moe", Class: "Lfm2MoeForCausalLM", Window: family.Listed,
		Lacks: []string{"scoring_func"}, Defaults: map[string]any{
			"rms_norm_eps": 1e-5, "tie_word_embeddings": true, "max_position_embeddings": 128000.,
			"num_attention_heads": 32., "num_key_value_heads": 8., "conv_L_cache": 3., "conv_bias": false,
			"num_dense_layers": 2., "moe_intermediate_size": 1792., "num_experts": 32., "top_k_experts": 4.,
			"use_expert_bias": true, "norm_topk_prob": true, "routed_scaling_factor": 1., "scoring_func": "sigmoid"}}},
	Fixed:    map[string]any{"conv_bias": false, "norm_topk_prob": true, "routed_scaling_factor": 1.},
	ToConfig: spell,
	Layers:   family.Layers{Kinds: kinds},
	Limits: []family.Limit{
		{Key: "conv_L_cache", Min: 2, Max: 1 << 10, Rule: family.Required | family.Whole},
		{Key: "num_dense_layers", Min: 0, Max: 1 << 10, Rule: family.Whole},
		{Key: "routed_scaling_factor", Min: 1e-6, Max: 1e6},
	},
	Rope:     family.Rope{Full: map[string]any{"rope_theta": 1e6}},
	Spelling: map[string][]string{"rms_norm_eps": {"norm_eps"}, "top_k_experts": {"num_experts_per_tok"}},
	Absent:   map[string]any{"scoring_func": "sigmoid"},

	Keys: []family.Key{
		{Setting: "moe_intermediate_size"},
		{Setting: "num_dense_layers", GGUF: "leading_dense_block_count"},
		{Setting: "scoring_func", GGUF: "expert_gating_func", Kind: family.Choice,
			Words: []string{"", "softmax", "sigmoid"}},
		{Setting: "vocab_size"},
		{Setting: "conv_L_cache", GGUF: "shortconv.l_cache"},
	},
	Held: map[string]string{"use_expert_bias": ".exp_probs_b.bias"},
	Habits: []family.Habit{
		{Ends: []string{".shortconv.conv"}, Form: family.Depthwise},
		{Ends: []string{".ffn_gate_exps", ".ffn_up_exps", ".ffn_down_exps"}, Joined: "feed_forward.experts"},
	},
	Bare: []string{"expert_bias"},
	Synonyms: map[string]string{".experts.gate_proj": ".experts.w1", ".experts.up_proj": ".experts.w3",
		".experts.down_proj": ".experts.w2", ".feed_forward.gate_proj": ".feed_forward.w1",
		".feed_forward.up_proj": ".feed_forward.w3", ".feed_forward.down_proj": ".feed_forward.w2"},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "lfm2", BOS: true},
	Expect: family.Expect{
		Parts: []family.Part{{GGUF: "shortconv.in_proj", HF: "conv.in_proj"},
			{GGUF: "ffn_gate_inp", HF: "feed_forward.gate"}},
		Tied:  true,
		Theta: true,
		Eps:   []float64{1e-5},
	},
}

// kinds are config.json's names, equal in both.
var kinds = map[string]string{"conv": family.LinearAttention, family.LinearAttention: family.LinearAttention,
	family.FullAttention: family.FullAttention}

// adjust computes the library's width from the width of a config.json.
func adjust(s family.Settings, _ *family.File) {
	width, by := s.Number("intermediate_size"), s.Number("block_ffn_dim_multiplier")
	of := int(min(max(s.Number("block_multiple_of"), 1), 1<<24))
	if s["block_auto_adjust_ff_dim"] == true && width > 0 && width < 1<<24 && by > 0 && by < 1<<10 {
		n := int(by * float64(int(2*width/3)))
		s["intermediate_size"] = float64((n + of - 1) / of * of)
	}
	s["block_auto_adjust_ff_dim"] = false
	delete(s, "block_ffn_dim_multiplier")
	delete(s, "block_multiple_of")
}

// spell writes the kinds of layers as in config.json.
func spell(s family.Settings) { s.NameKinds(map[any]string{family.LinearAttention: "conv"}) }
