package jamba

import (
	"fmt"
	"math"

	"github.com/karat-run/karat/internal/family"
)

// Family describes files of Jamba. GGUF has a number of key heads for each layer, 0 for scans; the tensors tell which
// layers have experts.
//
// Source: transformers 5.17, models/jamba/configuration_jamba.py; llama.cpp, conversion/jamba.py.
var Family = family.Family{
	Name:  "jamba",
	Title: "Jamba",
	Model: family.Of(New),

	Types: []family.Type{{Name: "jamba", Class: "JambaForCausalLM", Window: family.Listed, Defaults: map[string]any{
		"vocab_size": 65536., "hidden_size": 4096., "intermediate_size": 14336., "num_hidden_layers": 32.,
		"num_attention_heads": 32., "num_key_value_heads": 8., "rms_norm_eps": 1e-6, "hidden_act": "silu",
		"tie_word_embeddings": false, "max_position_embeddings": 262144., "num_experts": 16., "top_k_experts": 2.,
		"expert_layer_period": 2., "expert_layer_offset": 1., "attn_layer_period": 8., "attn_layer_offset": 4.,
		"mamba_d_state": 16., "mamba_d_conv": 4., "mamba_expand": 2., "mamba_dt_rank": "auto",
		"mamba_conv_bias": true}}},
	Fixed: map[string]any{"hidden_act": "silu", "mamba_proj_bias": false},
	Idle: []string{"attn_layer_period", "attn_layer_offset", "use_mamba_kernels", "use_mambapy", "use_associative_scan",
		"num_logits_to_keep", "output_router_logits", "router_aux_loss_coef", "max_position_embeddings"},
	FromConfig: func(s family.Settings, _ *family.File) {
		if s["mamba_dt_rank"] == "auto" {
			s["mamba_dt_rank"] = math.Ceil(s.Number("hidden_size") / 16)
		}
	},
	ToConfig: spell,
	FromGGUF: func(s family.Settings, f *family.File) {
		offset, period := every(s.Int("num_hidden_layers"), func(i int) bool {
			return f.Has(fmt.Sprintf("blk.%d.ffn_gate_inp", i))
		})
		s["expert_layer_offset"], s["expert_layer_period"] = offset, period
	},
	Layers: family.Layers{Older: attends, Kinds: map[string]string{"mamba": family.LinearAttention,
		family.LinearAttention: family.LinearAttention, "attention": family.FullAttention,
		family.FullAttention: family.FullAttention}},
	Limits: []family.Limit{
		{Key: "mamba_expand", Min: 1, Max: 1 << 10, Rule: family.Required | family.Whole},
		{Key: "mamba_dt_rank", Min: 1, Max: 1 << 14, Rule: family.Required | family.Whole},
		{Key: "mamba_d_state", Min: 1, Max: 1 << 14, Rule: family.Required | family.Whole},
		{Key: "mamba_d_conv", Min: 2, Max: 1 << 10, Rule: family.Required | family.Whole},
		{Key: "expert_layer_period", Min: 1, Max: 1 << 11, Rule: family.Required | family.Whole},
		{Key: "expert_layer_offset", Min: 0, Max: 1 << 11, Rule: family.Whole},
	},
	Spelling: map[string][]string{"num_experts": {"num_experts", "num_local_experts"},
		"top_k_experts": {"num_experts_per_tok"}, "layer_types": {"layers_block_type"}},
	Without: []string{"rope_parameters"},

	Keys: []family.Key{
		{Setting: "mamba_d_conv", GGUF: "ssm.conv_kernel"},
		{Setting: "mamba_expand", GGUF: "ssm.inner_size", Kind: family.Product, Of: "hidden_size"},
		{Setting: "mamba_d_state", GGUF: "ssm.state_size"},
		{Setting: "mamba_dt_rank", GGUF: "ssm.time_step_rank"},
	},
	Held: map[string]string{"mamba_conv_bias": ".ssm_conv1d.bias", "expert_layer_offset": ".ffn_gate_inp",
		"expert_layer_period": ".ffn_gate_inp"},
	Habits: []family.Habit{
		{Ends: []string{".ssm_a"}, NegExp: true},
		{Ends: []string{".ssm_conv1d"}, Form: family.Depthwise},
		{Ends: []string{".ffn_gate_exps", ".ffn_up_exps", ".ffn_down_exps"}, Joined: "feed_forward.experts"},
	},
	Bare: []string{".A_log", ".D", ".ssm_a", ".ssm_d"},

	Tokenizer: family.Tokenizer{Model: "llama", Pre: "gpt-2", BOS: true},
	Expect:    family.Expect{Parts: []family.Part{{GGUF: "ssm_dt_norm", HF: "mamba.dt_layernorm"}}},
}

// attends returns the kinds of layers: attention at each period, scans elsewhere.
func attends(s family.Settings, f *family.File) (types []any, key string) {
	key = "attn_layer_period"
	for _, k := range []string{key, "attn_layer_offset"} {
		if s[k] != float64(s.Int(k)) {
			f.Report(k, "is %s, expected a whole number", family.Show(s[k]))
			return nil, ""
		}
	}
	period, offset := s.Int(key), s.Int("attn_layer_offset")
	if period < 1 || offset < 0 || offset >= period {
		f.Report(key, "is %s, and attn_layer_offset %s, expected a smaller offset", family.Show(s[key]),
			family.Show(s["attn_layer_offset"]))
		return nil, ""
	}
	for i := range min(s.Int("num_hidden_layers"), family.MaxLayers) {
		kind := family.LinearAttention
		if i%period == offset {
			kind = family.FullAttention
		}
		types = append(types, kind)
	}
	return types, key
}

// every returns the number of the first layer found, and the distance to the second.
func every(layers int, is func(i int) bool) (first, period float64) {
	found := []float64{}
	for i := range min(layers, family.MaxLayers) {
		if is(i) {
			found = append(found, float64(i))
		}
	}
	found = append(found, float64(layers), 2*float64(layers))
	return found[0], max(found[1]-found[0], found[0]+1)
}

// spell writes kinds of layers as a period.
func spell(s family.Settings) {
	types := s.List("layer_types")
	s["attn_layer_offset"], s["attn_layer_period"] = every(len(types), func(i int) bool {
		return types[i] == family.FullAttention
	})
	s.NameKinds(map[any]string{family.LinearAttention: "mamba", family.FullAttention: "attention"})
}
