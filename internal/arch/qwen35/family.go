package qwen35

import (
	"maps"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/family"
)

// Family describes files of Qwen 3.5.
//
// Source: transformers 5.17, models/qwen3_5/configuration_qwen3_5.py; llama.cpp,
// conversion/qwen.py and src/models/qwen35.cpp.
var Family = family.Family{
	Name:  "qwen35",
	Title: "Qwen",
	Model: family.Of(New),

	Types: []family.Type{{Name: "qwen3_5_text", Class: "Qwen3_5ForCausalLM", Window: family.Listed, Period: 4,
		Defaults: merge(map[string]any{"num_key_value_heads": 4.})}},
	Fixed:      fixed,
	Idle:       idle,
	FromConfig: sections,
	ToConfig:   spell,
	Layers:     family.Layers{Kinds: kinds},
	Limits:     family.DeltaLimits,
	Rope:       family.Rope{Full: map[string]any{"rope_theta": 1e7, "partial_rotary_factor": 0.25}},

	Keys:    keys,
	Ahead:   ahead,
	Habits:  habits,
	Bare:    []string{".A_log", ".dt_bias", ".ssm_a"},
	Shifted: shifted,

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "qwen35"},
	Expect:    family.Expect{Parts: parts},
}

// MoEFamily describes files of Qwen 3.5's models with experts.
//
// Source: transformers 5.17, models/qwen3_5_moe/configuration_qwen3_5_moe.py; llama.cpp,
// conversion/qwen.py and src/models/qwen35moe.cpp.
var MoEFamily = family.Family{
	Name:  "qwen35moe",
	Title: "Qwen",
	Model: family.Of(New),

	Types: []family.Type{{Name: "qwen3_5_moe_text", Class: "Qwen3_5MoeForCausalLM", Window: family.Listed, Period: 4,
		Defaults: merge(map[string]any{"num_key_value_heads": 2., "moe_intermediate_size": 512.,
			"shared_expert_intermediate_size": 512., "num_experts": 256., "top_k_experts": 8.})}},
	Fixed:      fixed,
	Idle:       append([]string{"intermediate_size", "output_router_logits", "router_aux_loss_coef"}, idle...),
	FromConfig: sections,
	ToConfig:   spell,
	Layers:     family.Layers{Kinds: kinds},
	Limits: append([]family.Limit{{Key: "shared_expert_intermediate_size", Min: 1, Max: 1 << 24,
		Rule: family.Required | family.Whole}}, family.DeltaLimits...),
	Rope: family.Rope{Full: map[string]any{"rope_theta": 1e7, "partial_rotary_factor": 0.25}},

	Spelling: map[string][]string{"top_k_experts": {"num_experts_per_tok"}},
	Without:  []string{"intermediate_size"},

	Keys: append([]family.Key{
		{Setting: "num_experts"},
		{Setting: "top_k_experts"},
		{Setting: "moe_intermediate_size"},
		{GGUF: "expert_shared_feed_forward_length", Setting: "shared_expert_intermediate_size"},
	}, keys...),
	Ahead: ahead,
	Habits: append([]family.Habit{{Ends: []string{".ffn_gate_exps", ".ffn_up_exps", ".ffn_down_exps"},
		Joined: "mlp.experts"}}, habits...),
	Bare:    []string{".A_log", ".dt_bias", ".ssm_a"},
	Shifted: shifted,

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "qwen35"},
	Expect:    family.Expect{Parts: parts},
}

// NextFamily describes files of Qwen3-Next. A folder has queries, keys, values and gates of a DeltaNet in one matrix,
// by groups, and does not count the layers behind the last.
//
// Source: transformers 5.17, models/qwen3_next/configuration_qwen3_next.py; llama.cpp, conversion/qwen.py and
// src/models/qwen3next.cpp.
var NextFamily = family.Family{
	Name:  "qwen3next",
	Title: "Qwen3-Next",
	Model: family.Of(NewNext),

	Types: []family.Type{{Name: "qwen3_next", Class: "Qwen3NextForCausalLM", Window: family.Listed, Period: 4,
		Defaults: merge(map[string]any{"num_key_value_heads": 2., "moe_intermediate_size": 512.,
			"shared_expert_intermediate_size": 512., "num_experts": 512., "top_k_experts": 10.,
			"norm_topk_prob": true})}},
	Fixed: map[string]any{"hidden_act": "silu", "norm_topk_prob": true, "decoder_sparse_step": 1.,
		"attention_bias": false},
	Idle: append([]string{"intermediate_size", "output_router_logits", "router_aux_loss_coef", "norm_topk_prob",
		"decoder_sparse_step"}, idle...),
	FromConfig: func(s family.Settings, f *family.File) {
		if list := s.List("mlp_only_layers"); s["mlp_only_layers"] != nil && (list == nil || len(list) > 0) {
			f.Report("mlp_only_layers", "is %s, expected none", family.Show(s["mlp_only_layers"]))
		}
		delete(s, "mlp_only_layers")
		delete(s, "mrope_interleaved")
	},
	ToConfig: func(s family.Settings) { s.Say(map[string]any{"mlp_only_layers": []any{}}) },
	Layers:   family.Layers{Kinds: kinds},
	Limits:   MoEFamily.Limits,
	Rope:     family.Rope{Full: map[string]any{"rope_theta": 1e7, "partial_rotary_factor": 0.25}},
	Spelling: MoEFamily.Spelling,

	Keys:  append(MoEFamily.Keys[:4:4], keys[1:]...),
	Ahead: ahead,
	Habits: []family.Habit{MoEFamily.Habits[0], habits[0],
		{Ends: []string{".ssm_conv1d"}, Form: family.Depthwise}, {Ends: []string{".ssm_a"}, NegExp: true},
		{Ends: []string{".attn_qkv", ".attn_gate"}, Woven: []string{"in_proj_qkvz", "in_proj_qkv", "in_proj_z"},
			Older: "ssm_in", Shares: func(s family.Settings) (groups int, shares []family.Share) {
				if groups = s.Int("linear_num_key_heads"); groups > 0 {
					keys := s.Int("linear_key_head_dim")
					values := s.Int("linear_num_value_heads") / groups * s.Int("linear_value_head_dim")
					shares = []family.Share{{Part: 0, Rows: keys}, {Part: 0, Rows: keys}, {Part: 0, Rows: values},
						{Part: 1, Rows: values}}
				}
				return groups, shares
			}},
	},
	Bare:    []string{".A_log", ".dt_bias", ".ssm_a"},
	Shifted: shifted,
	Rename: func(name string, _ func(string) bool) string {
		return map[bool]string{false: name}[strings.HasPrefix(name, "mtp.")]
	},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "qwen2"},
	Expect:    family.Expect{Parts: parts},
}

// Settings of all.
var (
	fixed = map[string]any{"hidden_act": "silu", "mrope_interleaved": true, "attn_output_gate": true,
		"output_gate_type": "silu"} // the last of scans, Qwen 3.6's
	idle = []string{"full_attention_interval", "mtp_use_dedicated_embeddings",
		"mamba_ssm_dtype", "partial_rotary_factor"}
	kinds = map[string]string{family.LinearAttention: family.LinearAttention,
		family.FullAttention: family.FullAttention}
	parts = []family.Part{{GGUF: "attn_gate", HF: "in_proj_z"}, family.QKNorm}
	keys  = slices.Concat(
		[]family.Key{{GGUF: "rope.dimension_sections", Setting: "mrope_section", Kind: family.Sections}},
		family.DeltaKeys, []family.Key{{GGUF: "full_attention_interval", Kind: family.Interval},
			{GGUF: "rope.dimension_count", Kind: family.Turning},
			{GGUF: "nextn_predict_layers", Setting: "mtp_num_hidden_layers", Kind: family.NextLayers}})
	shifted = []string{".input_layernorm", ".post_attention_layernorm", "model.norm", ".q_norm", ".k_norm"}
	ahead   = map[string]string{"eh_proj": "mtp.fc", "enorm": "mtp.pre_fc_norm_embedding",
		"hnorm": "mtp.pre_fc_norm_hidden", "shared_head.norm": "mtp.norm", "": "mtp.layers"}
	habits = []family.Habit{
		{Ends: []string{".attn_norm", ".post_attention_norm", ".attn_q_norm", ".attn_k_norm", "output_norm", ".enorm",
			".hnorm", ".shared_head_norm"}, Plus: 1},
		{Ends: []string{".attn_qkv", ".attn_gate"}, Tiled: &family.Tiled{Groups: "linear_num_key_heads",
			Heads: "linear_num_value_heads", Size: "linear_value_head_dim"}},
		{Ends: []string{".ssm_conv1d"}, Form: family.Depthwise, Tiled: &family.Tiled{Groups: "linear_num_key_heads",
			Heads: "linear_num_value_heads", Size: "linear_value_head_dim"}},
		{Ends: []string{".ssm_alpha", ".ssm_beta", ".ssm_dt.bias"},
			Tiled: &family.Tiled{Groups: "linear_num_key_heads", Heads: "linear_num_value_heads"}},
		{Ends: []string{".ssm_a"}, NegExp: true, Tiled: &family.Tiled{Groups: "linear_num_key_heads",
			Heads: "linear_num_value_heads"}},
		{Ends: []string{".ssm_out"}, Tiled: &family.Tiled{Groups: "linear_num_key_heads",
			Heads: "linear_num_value_heads", Size: "linear_value_head_dim", Columns: true}},
	}
)

// merge adds the defaults of both types to the defaults of a type.
func merge(own map[string]any) map[string]any {
	maps.Copy(own, map[string]any{"rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": false,
		"max_position_embeddings": 32768., "head_dim": 256., "linear_conv_kernel_dim": 4., "linear_key_head_dim": 128.,
		"linear_value_head_dim": 128., "linear_num_key_heads": 16., "linear_num_value_heads": 32.,
		"mrope_interleaved": true})
	return own
}

// sections takes the sections of rotation out of the rotary settings.
func sections(s family.Settings, _ *family.File) {
	for _, key := range []string{"rope_parameters", "rope_scaling"} {
		p, _ := family.Object(s[key])
		for _, own := range []string{"mrope_section", "mrope_interleaved"} {
			if p[own] != nil {
				s[own] = p.Take(own)
			}
		}
	}
	s.Say(map[string]any{"mrope_section": []any{11., 11., 10.}})
}

// spell puts the sections back.
func spell(s family.Settings) {
	p := family.Settings{"mrope_section": s["mrope_section"], "mrope_interleaved": true}
	scaling, _ := family.Object(s["rope_scaling"])
	maps.Copy(p, scaling)
	p.Fill("rope_type", "default")
	s["rope_scaling"] = map[string]any(p)
	delete(s, "mrope_section")
	delete(s, "mrope_interleaved")
}
