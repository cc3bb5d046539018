package falconh1

import "github.com/karat-run/karat/internal/family"

// Family describes files of Falcon-H1.
//
// Source: transformers 5.17, models/falcon_h1/configuration_falcon_h1.py; llama.cpp,
// conversion/falcon_h1.py and src/models/falcon-h1.cpp.
var Family = family.Family{
	Name:  "falcon-h1",
	Title: "Falcon-H1",
	Model: family.Of(New),

	Types: []family.Type{{Name: "falcon_h1", Class: "FalconH1ForCausalLM", Defaults: map[string]any{
		"rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false, "max_position_embeddings": 8192.,
		"num_key_value_heads": 8., "mamba_n_heads": 128., "mamba_n_groups": 1., "mamba_d_state": 256.,
		"mamba_d_conv": 4., "mamba_conv_bias": true, "mamba_norm_before_gate": true, "mamba_expand": 2.}}},
	Fixed:  map[string]any{"hidden_act": "silu", "mamba_proj_bias": false, "projectors_bias": false, "mlp_bias": false},
	Absent: map[string]any{"multipliers_folded": true},
	Idle: []string{"mamba_expand", "mamba_chunk_size", "mamba_d_ssm", "mamba_norm_before_gate", "mamba_use_mlp",
		"num_logits_to_keep", "multipliers_folded", "mlp_expansion_factor",
		// GGUF has the multipliers in the values of tensors, beyond a reader's reach.
		"embedding_multiplier", "attention_in_multiplier", "attention_out_multiplier", "key_multiplier",
		"ssm_in_multiplier", "ssm_out_multiplier", "ssm_multipliers", "mlp_multipliers", "lm_head_multiplier"},
	FromConfig: normal,
	ToConfig:   size,
	Limits: append(append(family.ScanLimits("mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state",
		"mamba_d_conv"), family.Limit{Key: "mamba_d_ssm", Min: 1, Max: 1 << 24, Rule: family.Whole}),
		factors("embedding_multiplier", "attention_in_multiplier", "attention_out_multiplier", "key_multiplier",
			"ssm_in_multiplier", "ssm_out_multiplier", "lm_head_multiplier")...),
	Rope: family.Rope{Full: map[string]any{"rope_theta": 1e4}},

	Keys: []family.Key{
		{Setting: "vocab_size"},
		{Setting: "mamba_d_conv", GGUF: "ssm.conv_kernel"},
		{Setting: "mamba_d_head", GGUF: "ssm.inner_size", Kind: family.Product, Of: "mamba_n_heads"},
		{Setting: "mamba_d_state", GGUF: "ssm.state_size"},
		{Setting: "mamba_n_heads", GGUF: "ssm.time_step_rank"},
		{Setting: "mamba_n_groups", GGUF: "ssm.group_count"},
	},
	Held: map[string]string{"mamba_conv_bias": ".ssm_conv1d.bias", "mamba_rms_norm": ".ssm_norm"},
	Habits: append([]family.Habit{
		{Ends: []string{"token_embd"}, Times: multiply("embedding_multiplier")},
		{Ends: []string{".attn_output"}, Times: multiply("attention_out_multiplier")},
		{Ends: []string{"output"}, Times: multiply("lm_head_multiplier")},
		{Ends: []string{".attn_q", ".attn_v"}, Times: multiply("attention_in_multiplier")},
		{Ends: []string{".attn_k"}, Times: multiply("key_multiplier", "attention_in_multiplier")},
		{Ends: []string{".ffn_gate"}, Times: element("mlp_multipliers", 0)},
		{Ends: []string{".ffn_down"}, Times: element("mlp_multipliers", 1)},
		{Ends: []string{".ssm_in"}, Times: parts},
		{Ends: []string{".ssm_out"}, Times: multiply("ssm_out_multiplier")},
	}, family.ScanHabits("mamba_n_groups")...),
	Bare: []string{".A_log", ".D", ".dt_bias", ".ssm_a", ".ssm_d", ".ffn_norm"},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "falcon-h1"},
	Expect: family.Expect{
		Parts: []family.Part{{GGUF: "ssm_in", HF: "mamba.in_proj"}, {GGUF: "attn_q", HF: "self_attn.q_proj"}},
		Theta: true,
		Eps:   []float64{1e-5},
	},
}

// multiply returns the settings as multipliers of a weight, in order.
func multiply(settings ...string) func(s family.Settings, row int) []float64 {
	return func(s family.Settings, _ int) (all []float64) {
		for _, key := range settings {
			if v, ok := s[key].(float64); ok {
				all = append(all, v)
			}
		}
		return all
	}
}

// element returns an element of a setting as the multiplier of a weight.
func element(setting string, i int) func(s family.Settings, row int) []float64 {
	return func(s family.Settings, _ int) []float64 {
		list := s.List(setting)
		if i >= len(list) {
			return nil
		}
		v, _ := list[i].(float64)
		return []float64{v}
	}
}

// parts returns the multipliers of a row of the scan's projection: a factor for all rows, and a factor of the
// row's part.
func parts(s family.Settings, row int) []float64 {
	inner, groups := s.Int("mamba_n_heads")*s.Int("mamba_d_head"), s.Int("mamba_n_groups")*s.Int("mamba_d_state")
	i := 0
	for _, end := range []int{inner, 2 * inner, 2*inner + groups, 2*inner + 2*groups} {
		if row >= end {
			i++
		}
	}
	return append(multiply("ssm_in_multiplier")(s, row), element("ssm_multipliers", i)(s, row)...)
}

// normal computes the size of a scan's head where the setting is "auto" or missing.
func normal(s family.Settings, f *family.File) {
	family.Unlimited(s, f)
	heads, inner := s.Number("mamba_n_heads"), s.Number("mamba_d_ssm")
	if dim, ok := s["mamba_d_head"].(float64); ok && s["mamba_d_ssm"] != 0. {
		f.Follows(s, "mamba_d_ssm", heads*dim)
	}
	if _, ok := s["mamba_d_ssm"].(float64); !ok {
		inner = s.Number("mamba_expand") * s.Number("hidden_size")
	}
	if auto := s["mamba_d_head"]; (auto == nil || auto == "auto") && heads > 0 {
		s["mamba_d_head"] = inner / heads
	}
}

// size completes a config.json.
func size(s family.Settings) {
	delete(s, "multipliers_folded")
	s["mamba_d_ssm"] = s.Number("mamba_n_heads") * s.Number("mamba_d_head")
	s["mamba_norm_before_gate"] = false
}
