package olmohybrid

import (
	"slices"

	"github.com/karat-run/karat/internal/family"
)

// Family describes files of OLMo Hybrid. llama.cpp has no such architecture: GGUF's keys and tensors have the names of
// other families with DeltaNets.
//
// Source: transformers 5.17, models/olmo_hybrid/configuration_olmo_hybrid.py.
var Family = family.Family{
	Name:  "olmo-hybrid",
	Title: "OLMo Hybrid",
	Model: family.Of(New),

	Types: []family.Type{{Name: "olmo_hybrid", Class: "OlmoHybridForCausalLM", Window: family.Listed, Period: 4,
		Defaults: map[string]any{
			"rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": false, "max_position_embeddings": 65536.,
			"linear_conv_kernel_dim": 4., "linear_allow_neg_eigval": true}}},
	Fixed: map[string]any{"hidden_act": "silu", "attention_bias": false},
	Idle: []string{"linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max", "linear_dt_init_floor",
		"linear_use_gate"},
	FromConfig: fill,
	ToConfig:   spell,
	Layers: family.Layers{Kinds: map[string]string{family.LinearAttention: family.LinearAttention,
		family.FullAttention: family.FullAttention}},
	Limits: family.DeltaLimits,
	Rope:   family.Rope{Full: map[string]any{"rope_theta": 1e4}},

	Keys: slices.Concat(family.DeltaKeys, []family.Key{
		{GGUF: "ssm.negative_eigenvalues", Setting: "linear_allow_neg_eigval", Kind: family.Truth},
		{GGUF: "rope.scaling.finetuned", Setting: "position_embedding_type", Kind: family.Switch, Text: "rope"}}),
	Habits: []family.Habit{
		{Ends: []string{".ssm_conv1d_q", ".ssm_conv1d_k", ".ssm_conv1d_v"}, Form: family.Depthwise,
			Even: []string{".q_conv1d", ".k_conv1d", ".v_conv1d"}, Shares: shares},
		{Ends: []string{".ssm_a"}, NegExp: true},
	},
	Bare: []string{".A_log", ".dt_bias", ".ssm_a"},
	Synonyms: map[string]string{".attention_layer_norm": ".input_layernorm",
		".feedforward_layer_norm": ".post_attention_layernorm"},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "dbrx"},
	Expect:    family.Expect{Parts: []family.Part{{GGUF: "attn_gate", HF: "g_proj"}}, Eps: []float64{1e-6}},
}

// shares are the rows of the three convolutions. Transformers 5.17 has one of them, and saves equal thirds.
func shares(s family.Settings) (groups int, parts []family.Share) {
	keys := s.Int("linear_num_key_heads") * s.Int("linear_key_head_dim")
	values := s.Int("linear_num_value_heads") * s.Int("linear_value_head_dim")
	return 1, []family.Share{{Part: 0, Rows: keys}, {Part: 1, Rows: keys}, {Part: 2, Rows: values}}
}

// fill sets the library's sizes of heads, and whether heads turn: where the file has a base.
func fill(s family.Settings, _ *family.File) {
	heads := s["num_attention_heads"]
	s.Say(map[string]any{"linear_num_key_heads": heads, "linear_num_value_heads": heads})
	if n := s.Int("linear_num_key_heads"); n > 0 {
		s.Say(map[string]any{"linear_key_head_dim": float64(3 * s.Int("hidden_size") / (4 * n))})
	}
	s.Say(map[string]any{"linear_value_head_dim": 2 * s.Number("linear_key_head_dim")})
	s["position_embedding_type"] = "rope"
	if p, ok := family.Object(s["rope_parameters"]); s["rope_theta"] == nil && p["rope_theta"] == nil &&
		(ok || s["rope_parameters"] == nil) {
		s["position_embedding_type"] = "nope"
		delete(s, "rope_parameters")
	}
}

// spell writes models without positions as published: a base of null.
func spell(s family.Settings) {
	if s.Take("position_embedding_type") != "rope" {
		delete(s, "rope_theta")
		s["rope_parameters"] = map[string]any{"rope_theta": nil}
	}
}
