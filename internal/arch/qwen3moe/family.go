package qwen3moe

import "github.com/karat-run/karat/internal/family"

// Family describes files of Qwen 3's models with experts.
//
// Source: transformers 5.17, models/qwen3_moe/configuration_qwen3_moe.py; llama.cpp,
// conversion/qwen.py and src/models/qwen3moe.cpp.
var Family = family.Family{
	Name:  "qwen3moe",
	Title: "Qwen",
	Model: family.Of(New),

	Types: []family.Type{{Name: "qwen3_moe", Class: "Qwen3MoeForCausalLM", Window: family.FromLayer,
		Defaults: map[string]any{
			"rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": false, "max_position_embeddings": 32768.,
			"sliding_window": 4096., "max_window_layers": 28., "num_key_value_heads": 4., "decoder_sparse_step": 1.,
			"moe_intermediate_size": 768., "num_experts": 128., "top_k_experts": 8., "norm_topk_prob": false}}},
	Fixed: map[string]any{"hidden_act": "silu", "decoder_sparse_step": 1., "norm_topk_prob": true,
		"mlp_only_layers": []any{}, "use_qk_norm": true},
	Idle: []string{"intermediate_size", "output_router_logits", "router_aux_loss_coef"},
	Rope: family.Rope{Full: map[string]any{"rope_theta": 1e4}},
	Spelling: map[string][]string{"num_experts": {"num_experts", "num_local_experts"},
		"top_k_experts": {"num_experts_per_tok"}},

	Keys: []family.Key{
		{Setting: "num_experts"},
		{Setting: "top_k_experts"},
		{Setting: "moe_intermediate_size"},
	},
	Habits: []family.Habit{{Ends: []string{".ffn_gate_exps", ".ffn_up_exps", ".ffn_down_exps"}, Joined: "mlp.experts"}},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "qwen2"},
	Expect: family.Expect{
		Parts: []family.Part{family.QKNorm, family.Router},
		Lacks: []family.Part{family.PostNorm, family.Scalar},
	},
}

// VLFamily describes the part for text of Qwen3-VL's models with experts.
//
// Source: transformers 5.17, models/qwen3_vl_moe; llama.cpp, conversion/qwen3vl.py and src/models/qwen3vlmoe.cpp.
var VLFamily = family.Seeing(Family, "qwen3vlmoe", 5e6, []any{24., 20., 20.}, family.Type{
	Name: "qwen3_vl_moe_text", Window: family.FromLayer, Defaults: map[string]any{
		"rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": false,
		"max_position_embeddings": 128000., "sliding_window": 4096., "max_window_layers": 28.,
		"num_key_value_heads": 16., "decoder_sparse_step": 1., "head_dim": 128., "moe_intermediate_size": 1408.,
		"num_experts": 60., "top_k_experts": 4., "norm_topk_prob": true}})
