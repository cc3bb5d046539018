package hyv3

import (
	"strings"

	"github.com/karat-run/karat/internal/family"
)

// Family describes files of Hunyuan 3.
//
// Source: transformers 5.17, models/hy_v3/configuration_hy_v3.py; llama.cpp, conversion/hunyuan.py and
// src/models/hy-v3.cpp.
var Family = family.Family{
	Name:  "hy_v3",
	Title: "Hunyuan 3",
	Model: family.Of(New),

	Types: []family.Type{{Name: "hy_v3", Class: "HYV3ForCausalLM", Lacks: []string{"scoring_func"},
		Defaults: map[string]any{
			"rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false,
			"max_position_embeddings": 131072., "num_attention_heads": 64., "num_key_value_heads": 8.,
			"head_dim": 128., "moe_intermediate_size": 1536., "num_experts": 192., "top_k_experts": 8.,
			"num_shared_experts": 1., "routed_scaling_factor": 2.826, "norm_topk_prob": true,
			"scoring_func": "sigmoid"}}},
	Fixed: map[string]any{"hidden_act": "silu", "attention_bias": false, "mlp_bias": false, "qk_norm": true,
		"scoring_func": "sigmoid", "norm_topk_prob": true, "moe_router_use_sigmoid": true,
		"moe_router_enable_expert_bias": true},
	Absent: map[string]any{"num_shared_experts": 1.},
	Coarse: func(family.Settings) float64 { return 2.8e-3 }, // rows that change their experts
	Idle: []string{"enable_moe_fp32_combine", "enable_lm_head_fp32", "enable_attention_fp32_softmax",
		"output_router_logits", "use_grouped_mm", "scoring_func"},
	FromConfig: func(s family.Settings, f *family.File) {
		family.LeadingDense(s, f, 1)
		f.Follows(s, "expert_hidden_dim", s["moe_intermediate_size"])
		delete(s, "expert_hidden_dim")
	},
	FromGGUF: family.CountDense,
	Limits: []family.Limit{
		{Key: "first_k_dense_replace", Min: 0, Max: 1 << 10, Rule: family.Whole},
		{Key: "num_shared_experts", Min: 1, Max: 1 << 10, Rule: family.Required | family.Whole},
		{Key: "routed_scaling_factor", Min: 1e-6, Max: 1e6},
	},
	Rope: family.Rope{Full: map[string]any{"rope_theta": 11158840.}},
	Spelling: map[string][]string{"routed_scaling_factor": {"router_scaling_factor"}, "norm_topk_prob": {"route_norm"},
		"num_experts": {"num_experts", "num_local_experts"}, "top_k_experts": {"num_experts_per_tok"}},

	Keys: []family.Key{
		{Setting: "moe_intermediate_size"},
		{Setting: "num_shared_experts", GGUF: "expert_shared_feed_forward_length", Kind: family.Product,
			Of: "moe_intermediate_size"},
		{Setting: "norm_topk_prob", GGUF: "expert_weights_norm", Kind: family.Truth},
		{Setting: "routed_scaling_factor", GGUF: "expert_weights_scale", Kind: family.Number},
		{Setting: "scoring_func", GGUF: "expert_gating_func", Kind: family.Choice,
			Words: []string{"", "softmax", "sigmoid"}},
		{Setting: "num_nextn_predict_layers", GGUF: "nextn_predict_layers", Kind: family.NextLayers},
	},
	Held:   map[string]string{"first_k_dense_replace": ".ffn_gate"}, // FromGGUF counts
	Habits: []family.Habit{{Ends: []string{".ffn_gate_exps", ".ffn_up_exps", ".ffn_down_exps"}, Joined: "mlp.experts"}},
	Bare:   []string{".exp_probs_b", ".expert_bias"},
	Rename: func(name string, _ func(string) bool) string {
		return strings.Replace(name, ".final_layernorm.", ".shared_head.norm.", 1)
	},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "hunyuan-dense", BOS: true, Mixed: true},
	Expect: family.Expect{
		Theta: true,
		Eps:   []float64{1e-5},
		Parts: []family.Part{family.QKNorm, {GGUF: "exp_probs_b", HF: "expert_bias"}},
		Lacks: []family.Part{family.PostNorm, family.Scalar, family.OBias},
	},
}
