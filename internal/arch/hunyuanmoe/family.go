package hunyuanmoe

import "github.com/karat-run/karat/internal/family"

// Family describes files of Hunyuan-A13B.
//
// Source: transformers 5.17, models/hunyuan_v1_moe/configuration_hunyuan_v1_moe.py; llama.cpp, conversion/hunyuan.py
// and src/models/hunyuan-moe.cpp.
var Family = family.Family{
	Name:  "hunyuan-moe",
	Title: "Hunyuan",
	Model: family.Of(New),

	Types: []family.Type{{Name: "hunyuan_v1_moe", Class: "HunYuanMoEV1ForCausalLM", Defaults: map[string]any{
		"rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false, "max_position_embeddings": 2048.,
		"num_experts": 1., "top_k_experts": 1.}}},
	Fixed: map[string]any{"hidden_act": "silu", "attention_bias": false, "mlp_bias": false, "use_cla": false,
		"use_qk_norm": true, "use_rotary_pos_emb": true, "num_shared_expert": 1., "norm_topk_prob": true,
		"moe_layer_num_skipped": 0., "norm_type": "rms"},
	Idle: []string{"use_mixed_mlp_moe", "moe_drop_tokens", "moe_random_routing_dropped_token", "capacity_factor",
		"eod_token_id", "num_shared_expert"},
	FromConfig: func(s family.Settings, f *family.File) {
		for _, key := range []string{"num_experts", "top_k_experts", "moe_intermediate_size", "num_shared_expert"} {
			if list := s.List(key); len(list) > 0 { // a number for each layer, all alike
				for i := range list {
					f.Follows(family.Settings{key: list[i]}, key, list[0])
				}
				if len(list) != s.Int("num_hidden_layers") {
					f.Report(key, "has %d layers, the model %d", len(list), s.Int("num_hidden_layers"))
				}
				s[key] = list[0]
			}
		}
		s.Fill("moe_intermediate_size", s["intermediate_size"])
		s.Fill("num_shared_expert", 1.)
		family.Enlarge(s, f)
	},
	ToConfig: func(s family.Settings) {
		for _, key := range []string{"top_k_experts", "moe_intermediate_size", "num_shared_expert"} {
			list := []any{}
			for range s.Int("num_hidden_layers") {
				list = append(list, s[key])
			}
			s[key] = list
		}
	},
	Rope:     family.Rope{Full: map[string]any{"rope_theta": 1e4}},
	Spelling: map[string][]string{"top_k_experts": {"moe_topk"}, "head_dim": {"head_dim", "attention_head_dim"}},

	Keys: []family.Key{
		{Setting: "intermediate_size", GGUF: "expert_shared_feed_forward_length"},
		{Setting: "moe_intermediate_size"},
		{Setting: "num_shared_expert", GGUF: "expert_shared_count"},
	},
	Habits: []family.Habit{{Ends: []string{".ffn_gate_exps", ".ffn_up_exps", ".ffn_down_exps"}, Joined: "mlp.experts"}},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "hunyuan", BOS: true, Mixed: true},
	Expect: family.Expect{
		Parts: []family.Part{{GGUF: "attn_q_norm", HF: "query_layernorm"}, {GGUF: "ffn_gate_inp", HF: "mlp.gate.wg"}},
		Eps:   []float64{1e-5},
	},
}
