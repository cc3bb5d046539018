package deepseek2

import (
	"maps"

	"github.com/karat-run/karat/internal/family"
)

// Family describes files of DeepSeek V2, V3 and R1, of Kimi K2, and of GLM-4.7-Flash.
//
// Source: transformers 5.17, models/deepseek_v2, models/deepseek_v3 and models/glm4_moe_lite,
// configuration_*.py; llama.cpp, conversion/deepseek.py, conversion/glm.py and src/models/deepseek2.cpp.
var Family = family.Family{
	Name:  "deepseek2",
	Title: "DeepSeek",
	Model: family.Of(New),

	Types: []family.Type{
		{Name: "deepseek_v2", Class: "DeepseekV2ForCausalLM", Only: map[string]any{"scoring_func": "softmax"},
			Defaults: merge(map[string]any{
				"max_position_embeddings": 2048., "first_k_dense_replace": 0., "topk_method": "greedy",
				"routed_scaling_factor": 1., "norm_topk_prob": false, "scoring_func": "softmax"})},
		{Name: "deepseek_v3", Class: "DeepseekV3ForCausalLM", Only: map[string]any{"scoring_func": "sigmoid"},
			Defaults: third},
		{Name: "kimi_k2", Only: map[string]any{"scoring_func": "sigmoid"}, Defaults: third},
		{Name: "glm4_moe_lite", Class: "Glm4MoeLiteForCausalLM", Only: map[string]any{"scoring_func": "sigmoid"},
			Defaults: merge(map[string]any{"max_position_embeddings": 202752., "rms_norm_eps": 1e-5,
				"q_lora_rank": 768., "qk_nope_head_dim": 192., "v_head_dim": 256., "routed_scaling_factor": 1.8,
				"norm_topk_prob": true, "scoring_func": "sigmoid", "topk_method": "noaux_tc"})},
	},
	Fixed:      map[string]any{"hidden_act": "silu", "rope_interleave": true, "moe_layer_freq": 1., "mlp_bias": false},
	FromGGUF:   method,
	FromConfig: follow,
	Coarse: func(s family.Settings) float64 { // rows that change their experts; in binary16 the KL is 1.2e-3
		if s.Int("n_group") > 1 {
			return 8.1e-3
		}
		return 0
	},
	ToConfig: func(s family.Settings) { s.Say(map[string]any{"q_lora_rank": nil}) }, // a reader assumes 1536
	Idle: []string{"qk_head_dim", "num_key_value_heads", "head_dim", "topk_method",
		"ep_size", "aux_loss_alpha", "seq_aux", "output_router_logits", "router_aux_loss_coef"},
	Limits: []family.Limit{
		{Key: "q_lora_rank", Min: 1, Max: 1 << 24, Rule: family.Whole | family.OrZero},
		{Key: "first_k_dense_replace", Min: 0, Max: 1 << 10, Rule: family.Whole},
		{Key: "n_shared_experts", Min: 0, Max: 1 << 10, Rule: family.Whole},
		{Key: "routed_scaling_factor", Min: 1e-6, Max: 1e6},
	},
	Rope:     family.Rope{Full: map[string]any{"rope_theta": 1e4}},
	Spelling: map[string][]string{"num_experts": {"n_routed_experts"}, "top_k_experts": {"num_experts_per_tok"}},

	Keys: []family.Key{
		{Setting: "first_k_dense_replace", GGUF: "leading_dense_block_count"}, {Setting: "vocab_size"},
		{Setting: "q_lora_rank", GGUF: "attention.q_lora_rank"},
		{Setting: "kv_lora_rank", GGUF: "attention.kv_lora_rank", Kind: family.Rank},
		{Setting: "moe_intermediate_size"}, {Setting: "n_shared_experts", GGUF: "expert_shared_count"},
		{Setting: "n_group", GGUF: "expert_group_count", Nil: true},
		{Setting: "topk_group", GGUF: "expert_group_used_count", Nil: true},
		{Setting: "scoring_func", GGUF: "expert_gating_func", Kind: family.Choice, Unusual: true,
			Words: []string{"", "softmax", "sigmoid"}},
		{Setting: "routed_scaling_factor", GGUF: "expert_weights_scale", Kind: family.Number},
		{Setting: "norm_topk_prob", GGUF: "expert_weights_norm", Kind: family.Truth},
		{GGUF: "rope.dimension_count", Kind: family.FullDim},
		{Setting: "num_nextn_predict_layers", GGUF: "nextn_predict_layers", Kind: family.NextLayers},
	},
	Held:   map[string]string{"e_score_correction_bias": ".exp_probs_b.bias"},
	Habits: []family.Habit{{Ends: []string{".ffn_gate_exps", ".ffn_up_exps", ".ffn_down_exps"}, Joined: "mlp.experts"}},
	Bare:   []string{"e_score_correction_bias"},
	Synonyms: map[string]string{".self_attn.embed_q": ".self_attn.k_b_proj",
		".self_attn.unembed_out": ".self_attn.v_b_proj"},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "deepseek-v3", BOS: true, Mixed: true},
	Expect: family.Expect{Theta: true, Eps: []float64{1e-6, 1e-5},
		Parts: []family.Part{{GGUF: "attn_kv_a_mqa", HF: "kv_a_proj_with_mqa"}},
		Turns: []family.Turns{{Name: "DeepSeek's", Marks: []string{"<｜User｜>", "<｜Assistant｜>"}}},
	},
}

// third has the defaults of V3.
var third = merge(map[string]any{
	"max_position_embeddings": 4096., "first_k_dense_replace": 3., "n_group": 8., "topk_group": 4.,
	"routed_scaling_factor": 2.5, "norm_topk_prob": true, "scoring_func": "sigmoid", "topk_method": "noaux_tc"})

// merge returns the defaults of all types with a type's own.
func merge(own map[string]any) map[string]any {
	all := map[string]any{"qk_nope_head_dim": 128., "qk_rope_head_dim": 64., "v_head_dim": 128.,
		"kv_lora_rank": 512., "q_lora_rank": 1536., "rms_norm_eps": 1e-6, "hidden_act": "silu",
		"tie_word_embeddings": false, "rope_interleave": true, "n_group": 1., "topk_group": 1.}
	maps.Copy(all, own)
	return all
}

// follow checks settings repeating others.
func follow(s family.Settings, f *family.File) {
	family.LeadingDense(s, f, 1)
	f.Follows(s, "head_dim", s["qk_rope_head_dim"])
	f.Follows(s, "num_key_value_heads", s["num_attention_heads"])
	f.Follows(s, "qk_head_dim", s.Number("qk_nope_head_dim")+s.Number("qk_rope_head_dim"))
}

// method sets the choice of experts, by the function of their scores. In files without that function, as of
// V2 and V2.5, a bias tells of V3.
func method(s family.Settings, _ *family.File) {
	switch {
	case s["scoring_func"] != nil:
	case s["e_score_correction_bias"] == true:
		s["scoring_func"] = "sigmoid"
	default:
		s["scoring_func"] = "softmax"
	}
	delete(s, "e_score_correction_bias")
	switch {
	case s["scoring_func"] == "sigmoid":
		s["topk_method"] = "noaux_tc"
	case s.Number("n_group") > 1:
		s["topk_method"] = "group_limited_greedy"
	default:
		s["topk_method"] = "greedy"
	}
}
