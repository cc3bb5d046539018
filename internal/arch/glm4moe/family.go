package glm4moe

import (
	"maps"

	"github.com/karat-run/karat/internal/family"
)

var defaults = map[string]any{
	"rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false,
	"max_position_embeddings": 131072., "num_attention_heads": 96., "num_key_value_heads": 8.,
	"first_k_dense_replace": 1., "moe_intermediate_size": 1408., "num_experts": 128., "top_k_experts": 8.,
	"n_shared_experts": 1., "n_group": 1., "topk_group": 1., "routed_scaling_factor": 1.,
	"norm_topk_prob": true, "scoring_func": "sigmoid"}

// seeing are the defaults of models that see.
var seeing = func() map[string]any {
	d := maps.Clone(defaults)
	d["max_position_embeddings"], d["attention_bias"] = 65536., true
	return d
}()

// Family describes files of GLM-4.5 and GLM-4.5-Air, and of the text of GLM-4.5V and GLM-4.6V.
//
// Source: transformers 5.17, models/glm4_moe/configuration_glm4_moe.py; llama.cpp,
// conversion/glm.py and src/models/glm4-moe.cpp.
var Family = family.Family{
	Name:  "glm4moe",
	Title: "GLM-4.5",
	Model: family.Of(New),

	Types: []family.Type{
		{Name: "glm4_moe", Class: "Glm4MoeForCausalLM", Lacks: []string{"scoring_func"}, Defaults: defaults},
		{Name: "glm4v_moe_text", Lacks: []string{"scoring_func"}, Defaults: seeing},
		{Name: "glm4v_moe", Lacks: []string{"scoring_func"}, Defaults: seeing}},
	Fixed:      map[string]any{"hidden_act": "silu"},
	Absent:     map[string]any{"scoring_func": "sigmoid"},
	Idle:       []string{"output_router_logits", "router_aux_loss_coef", "mrope_section"},
	FromConfig: family.TakeSections,
	ToConfig:   func(s family.Settings) { delete(s, "mrope_section") }, // a model of text
	Limits: []family.Limit{
		{Key: "first_k_dense_replace", Min: 0, Max: 1 << 10, Rule: family.Whole},
		{Key: "n_shared_experts", Min: 0, Max: 1 << 10, Rule: family.Whole},
		{Key: "routed_scaling_factor", Min: 1e-6, Max: 1e6},
	},
	Rope:     family.Rope{Full: map[string]any{"rope_theta": 1e4, "partial_rotary_factor": 0.5}},
	Spelling: map[string][]string{"num_experts": {"n_routed_experts"}, "top_k_experts": {"num_experts_per_tok"}},

	Keys: []family.Key{
		{Setting: "n_group", GGUF: "expert_group_count", Nil: true},
		{Setting: "topk_group", GGUF: "expert_group_used_count", Nil: true},
		{GGUF: "rope.dimension_count", Kind: family.Turning},
		{GGUF: "rope.dimension_sections", Setting: "mrope_section", Kind: family.Sections},
		{Setting: "moe_intermediate_size"},
		{Setting: "n_shared_experts", GGUF: "expert_shared_count"},
		{Setting: "first_k_dense_replace", GGUF: "leading_dense_block_count"},
		{Setting: "scoring_func", GGUF: "expert_gating_func", Kind: family.Choice,
			Words: []string{"", "softmax", "sigmoid"}},
		{Setting: "routed_scaling_factor", GGUF: "expert_weights_scale", Kind: family.Number},
		{Setting: "norm_topk_prob", GGUF: "expert_weights_norm", Kind: family.Truth},
		{Setting: "num_nextn_predict_layers", GGUF: "nextn_predict_layers", Kind: family.NextLayers},
	},
	Held:   map[string]string{"attention_bias": "blk.0.attn_q.bias", "use_qk_norm": "blk.0.attn_q_norm"},
	Habits: []family.Habit{{Ends: []string{".ffn_gate_exps", ".ffn_up_exps", ".ffn_down_exps"}, Joined: "mlp.experts"}},
	Bare:   []string{"e_score_correction_bias"},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "glm4"},
	Expect: family.Expect{
		Parts: []family.Part{{GGUF: "exp_probs_b.bias", HF: "e_score_correction_bias"}},
		Lacks: []family.Part{family.PostNorm, family.Scalar, family.OBias},
		Theta: true,
		Eps:   []float64{1e-5},
	},
}
