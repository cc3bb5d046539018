package mimo2

import (
	"fmt"
	"strings"

	"github.com/karat-run/karat/internal/family"
)

// Family describes files of Xiaomi's MiMo-V2-Flash. Its layers behind the last, which predict further tokens, are set
// aside.
//
// Source: transformers 5.17, models/mimo_v2_flash/configuration_mimo_v2_flash.py; llama.cpp, conversion/mimo.py and
// src/models/mimo2.cpp.
var Family = family.Family{
	Name:  "mimo2",
	Title: "MiMo-V2-Flash",
	Model: family.Of(New),

	Types: []family.Type{{Name: "mimo_v2_flash", Class: "MiMoV2FlashForCausalLM", Window: family.Periodic, Period: 6,
		FirstFull: true, Defaults: map[string]any{
			"hidden_act": "silu", "tie_word_embeddings": false, "rms_norm_eps": 1e-5,
			"max_position_embeddings": 262144., "attention_value_scale": 0.707, "sliding_window": 128.,
			"head_dim":   192.,
			"v_head_dim": 128., "n_group": 1., "topk_group": 1., "scoring_func": "sigmoid"}}},
	Fixed: map[string]any{"hidden_act": "silu", "attention_bias": false, "norm_topk_prob": true,
		"routed_scaling_factor": 1., "topk_method": "noaux_tc", "n_shared_experts": 0.,
		"scoring_func": "sigmoid"},
	Coarse: func(family.Settings) float64 { return 1.03e-3 }, // rows that change their experts
	Idle: []string{"topk_method", "norm_topk_prob", "routed_scaling_factor", "n_shared_experts",
		"attention_chunk_size", "scoring_func"},
	Layers:     family.Layers{Older: kinds},
	FromConfig: published,
	ToConfig:   spell,
	FromGGUF: func(s family.Settings, f *family.File) {
		family.CountDense(s, f)
		held := map[any]bool{}
		for i, kind := range s.List("layer_types") {
			held[kind] = held[kind] || f.Has(fmt.Sprintf("blk.%d.attn_sinks", i))
		}
		for kind, key := range sinks {
			s[key] = held[kind]
		}
	},
	Limits: []family.Limit{
		{Key: "first_k_dense_replace", Min: 0, Max: 1 << 10, Rule: family.Whole},
		{Key: "v_head_dim", Min: 1, Max: 1 << 14, Rule: family.Required | family.Whole},
		{Key: "attention_value_scale", Min: 1e-6, Max: 1e6, Rule: family.Required},
	},
	Rope: family.Rope{Full: map[string]any{"rope_theta": 5e6, "partial_rotary_factor": 0.334},
		Sliding: map[string]any{"rope_theta": 1e4, "partial_rotary_factor": 0.334}, Local: "swa_rope_theta"},
	Spelling: map[string][]string{"num_experts": {"n_routed_experts"}, "top_k_experts": {"num_experts_per_tok"},
		"rms_norm_eps":   {"layernorm_epsilon", "rms_norm_eps"},
		"sliding_window": {"sliding_window", "sliding_window_size"}},
	Absent: map[string]any{"attention_value_scale": 1.},

	Keys: []family.Key{
		{Setting: "num_experts"}, {Setting: "top_k_experts"},
		{Setting: "n_group", GGUF: "expert_group_count", Nil: true},
		{Setting: "topk_group", GGUF: "expert_group_used_count", Nil: true},
		{Setting: "scoring_func", GGUF: "expert_gating_func", Kind: family.Choice,
			Words: []string{"", "softmax", "sigmoid"}},
		{Setting: "sliding_window"}, {GGUF: "attention.sliding_window_pattern", Kind: family.Flags},
		{Setting: "moe_intermediate_size"}, {GGUF: "rope.dimension_count", Kind: family.Turning},
		{Setting: "attention_value_scale", GGUF: "attention.value_scale", Kind: family.Number},
		{Setting: "num_nextn_predict_layers", GGUF: "nextn_predict_layers", Kind: family.NextLayers},
	},
	Held: map[string]string{"first_k_dense_replace": ".ffn_gate", // FromGGUF counts
		"add_swa_attention_sink_bias": ".attn_sinks", "add_full_attention_sink_bias": ".attn_sinks"},
	Habits: []family.Habit{{Ends: []string{".ffn_gate_exps", ".ffn_up_exps", ".ffn_down_exps"}, Joined: "mlp.experts"}},
	Bare:   []string{".e_score_correction_bias", ".attention_sink_bias"},
	Rename: func(name string, _ func(string) bool) string {
		return map[bool]string{false: name}[strings.HasPrefix(name, "model.mtp.")]
	},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "qwen2"},
	Expect:    family.Expect{Theta: true, Eps: []float64{1e-5}},
}
