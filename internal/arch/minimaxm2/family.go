package minimaxm2

import "github.com/karat-run/karat/internal/family"

// Family describes files of MiniMax-M2.
//
// Source: transformers 5.17, models/minimax_m2/configuration_minimax_m2.py; llama.cpp, conversion/minimax.py and
// src/models/minimax-m2.cpp.
var Family = family.Family{
	Name:  "minimax-m2",
	Title: "MiniMax-M2",
	Model: family.Of(New),

	Types: []family.Type{{Name: "minimax_m2", Class: "MiniMaxM2ForCausalLM", Lacks: []string{"moe_intermediate_size"},
		Defaults: map[string]any{"rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": false,
			"max_position_embeddings": 196608., "num_key_value_heads": 8., "head_dim": 128., "num_experts": 256.,
			"top_k_experts": 8., "scoring_func": "sigmoid"}}},
	Fixed: map[string]any{"hidden_act": "silu", "scoring_func": "sigmoid", "use_routing_bias": true,
		"use_qk_norm": true, "qk_norm_type": "per_layer", "shared_intermediate_size": 0., "attention_bias": false},
	Coarse: func(family.Settings) float64 { return 1.5e-3 }, // rows that change their experts
	Idle: []string{"intermediate_size", "output_router_logits", "router_aux_loss_coef", "router_jitter_noise",
		"use_mtp", "num_mtp_modules", "mtp_transformer_layers", "scoring_func", "mlp_intermediate_size",
		"shared_moe_mode", "layernorm_full_attention_beta", "layernorm_linear_attention_beta", "layernorm_mlp_beta"},
	FromConfig: func(s family.Settings, f *family.File) {
		s.Fill("moe_intermediate_size", s["intermediate_size"])
		given := s.Take("rotary_dim")
		turning, ok := given.(float64)
		if given != nil && !(turning >= 1 && turning <= s.Number("head_dim") && turning == float64(int(turning))) {
			f.Report("rotary_dim", "is %s, expected a whole number from 1 to head_dim", family.Show(given))
		} else if ok && s.Number("head_dim") > 0 {
			f.Follows(s, "partial_rotary_factor", turning/s.Number("head_dim"))
			s["partial_rotary_factor"] = turning / s.Number("head_dim")
		}
		for _, kind := range s.List("attn_type_list") {
			if kind != 1. {
				f.Report("attn_type_list", "is %s, expected 1 for each layer", family.Show(s["attn_type_list"]))
				break
			}
		}
		delete(s, "attn_type_list")
	},
	ToConfig: func(s family.Settings) {
		s.Say(map[string]any{"use_routing_bias": true, "use_qk_norm": true})
		if part, ok := s["partial_rotary_factor"].(float64); ok {
			s["rotary_dim"] = float64(int(part*s.Number("head_dim") + 0.5))
		}
	},
	Rope: family.Rope{Full: map[string]any{"rope_theta": 5e6}},
	Spelling: map[string][]string{"num_experts": {"num_local_experts"},
		"top_k_experts": {"num_experts_per_tok"}},

	Keys: []family.Key{
		{Setting: "scoring_func", GGUF: "expert_gating_func", Kind: family.Choice,
			Words: []string{"", "softmax", "sigmoid"}},
		{Setting: "num_experts"}, {Setting: "top_k_experts"}, {Setting: "moe_intermediate_size"},
		{GGUF: "rope.dimension_count", Kind: family.Turning},
	},
	Habits: []family.Habit{{Ends: []string{".ffn_gate_exps", ".ffn_up_exps", ".ffn_down_exps"},
		Joined: "block_sparse_moe.experts"}},
	Bare: []string{".e_score_correction_bias"},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "minimax-m2"},
	Expect: family.Expect{Theta: true,
		Parts: []family.Part{{GGUF: "exp_probs_b.bias", HF: "block_sparse_moe.gate"}}},
}
