package kimilinear

import (
	"slices"

	"github.com/karat-run/karat/internal/family"
)

// Family describes files of Kimi Linear. GGUF has 0 key heads for layers of delta attention, and no number of their
// heads, which is that of queries.
//
// Source: transformers 5.17, models/kimi_linear/configuration_kimi_linear.py; llama.cpp, conversion/kimi_linear.py.
var Family = family.Family{
	Name:  "kimi-linear",
	Title: "Kimi Linear",
	Model: family.Of(New),

	Types: []family.Type{{Name: "kimi_linear", Class: "KimiLinearForCausalLM", Window: family.Listed,
		Defaults: map[string]any{
			"hidden_act": "silu", "tie_word_embeddings": false, "rms_norm_eps": 1e-5,
			"max_position_embeddings": 1048576.,
			"scoring_func":            "sigmoid", "norm_topk_prob": true, "n_group": 1., "topk_group": 1.,
			"n_shared_experts": 1., "routed_scaling_factor": 2.446}}},
	Fixed: map[string]any{"hidden_act": "silu", "scoring_func": "sigmoid", "norm_topk_prob": true, "n_group": 1.,
		"q_lora_rank": nil, "moe_layer_freq": 1., "mla_use_nope": true},
	Idle: []string{"scoring_func", "norm_topk_prob", "n_group", "topk_group", "qk_head_dim", "num_key_value_heads",
		"head_dim", "rope_theta", "rope_scaling", "num_nextn_predict_layers", "use_grouped_topk",
		"max_position_embeddings"},
	Absent:     map[string]any{"routed_scaling_factor": 1.},
	FromConfig: flatten,
	ToConfig:   nest,
	Layers: family.Layers{Older: listed, Kinds: map[string]string{family.FullAttention: family.FullAttention,
		family.LinearAttention: family.LinearAttention, "kda_attention": family.LinearAttention}},
	Limits: []family.Limit{
		{Key: "linear_head_dim", Min: 1, Max: 1 << 14, Rule: family.Required | family.Whole},
		{Key: "linear_conv_kernel_dim", Min: 2, Max: 64, Rule: family.Required | family.Whole},
		{Key: "first_k_dense_replace", Min: 0, Max: 1 << 10, Rule: family.Whole},
		{Key: "n_shared_experts", Min: 1, Max: 1 << 10, Rule: family.Required | family.Whole},
		{Key: "routed_scaling_factor", Min: 1e-6, Max: 1e6},
	},
	Spelling: map[string][]string{"top_k_experts": {"num_experts_per_token"}, "norm_topk_prob": {"moe_renormalize"},
		"n_shared_experts": {"num_shared_experts"}, "n_group": {"num_expert_group"},
		"scoring_func": {"moe_router_activation_func"}, "max_position_embeddings": {"model_max_length"}},
	Without: []string{"rope_parameters"},

	Keys: []family.Key{
		{Setting: "head_dim", GGUF: "attention.value_length"}, // which nothing reads
		{Setting: "scoring_func", GGUF: "expert_gating_func", Kind: family.Choice,
			Words: []string{"", "softmax", "sigmoid"}},
		{Setting: "topk_group", GGUF: "expert_group_used_count"}, {Setting: "vocab_size"},
		{Setting: "linear_conv_kernel_dim", GGUF: "ssm.conv_kernel"},
		{Setting: "linear_head_dim", GGUF: "kda.head_dim"},
		{Setting: "kv_lora_rank", GGUF: "attention.kv_lora_rank", Kind: family.Rank},
		{Setting: "qk_rope_head_dim", GGUF: "rope.dimension_count"},
		{Setting: "moe_intermediate_size"}, {Setting: "n_shared_experts", GGUF: "expert_shared_count"},
		{Setting: "first_k_dense_replace", GGUF: "leading_dense_block_count"},
		{Setting: "routed_scaling_factor", GGUF: "expert_weights_scale", Kind: family.Number},
	},
	Habits: []family.Habit{
		{Ends: []string{".ssm_a"}, NegExp: true, Form: family.Squeezed},
		{Ends: []string{".ssm_conv1d_q", ".ssm_conv1d_k", ".ssm_conv1d_v"}, Form: family.Squeezed},
		{Ends: []string{".ffn_gate_exps", ".ffn_up_exps", ".ffn_down_exps"}, Joined: "block_sparse_moe.experts"},
	},
	Bare: []string{".A_log", ".dt_bias", ".ssm_a", "e_score_correction_bias"},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "kimi-k2", BOS: true, Mixed: true},
	Expect: family.Expect{Parts: []family.Part{{GGUF: "ssm_f_a", HF: "f_a_proj"}},
		Eps: []float64{1e-5}},
}

// group is config.json's object of delta attention.
const group = "linear_attn_config"

// names are the canonical names of its settings.
var names = map[string]string{"head_dim": "linear_head_dim", "num_heads": "linear_num_heads",
	"short_conv_kernel_size": "linear_conv_kernel_dim"}

// listed returns the kinds of layers by their numbers, which count from 1.
func listed(s family.Settings, f *family.File) (types []any, key string) {
	c, ok := family.Object(s[group])
	if !ok {
		return nil, ""
	}
	full, delta := c.List("full_attn_layers"), c.List("kda_layers")
	for i := range min(s.Int("num_hidden_layers"), family.MaxLayers) {
		kind := family.LinearAttention
		isFull, isDelta := slices.Contains(full, any(float64(i+1))), slices.Contains(delta, any(float64(i+1)))
		if isFull {
			kind = family.FullAttention
		}
		if isFull == isDelta {
			f.Report(group, "says that layer %d is full: %v, and of delta attention: %v", i+1, isFull, isDelta)
		}
		types = append(types, kind)
	}
	return types, group
}

// flatten takes the settings of delta attention out of their object, and checks settings repeating others.
func flatten(s family.Settings, f *family.File) {
	family.LeadingDense(s, f, 1)
	c, _ := family.Object(s.Take(group))
	for key, name := range names {
		f.Follows(s, name, c[key])
		if c[key] != nil {
			s[name] = c[key]
		}
	}
	s.Say(map[string]any{"linear_head_dim": 128., "linear_conv_kernel_dim": 4.})
	for _, heads := range []string{"linear_num_heads", "num_key_value_heads"} {
		f.Follows(s, heads, s["num_attention_heads"])
	}
	f.Follows(s, "qk_head_dim", s.Number("qk_nope_head_dim")+s.Number("qk_rope_head_dim"))
	delete(s, "linear_num_heads")
}

// nest inverts flatten.
func nest(s family.Settings) {
	of := map[any][]any{family.FullAttention: {}, family.LinearAttention: {}}
	for i, kind := range s.List("layer_types") {
		of[kind] = append(of[kind], float64(i+1))
	}
	s["linear_num_heads"] = s["num_attention_heads"]
	c := map[string]any{"full_attn_layers": of[family.FullAttention], "kda_layers": of[family.LinearAttention]}
	for key, name := range names {
		c[key] = s[name]
	}
	s[group] = c
	s.Say(map[string]any{"q_lora_rank": nil})
}
