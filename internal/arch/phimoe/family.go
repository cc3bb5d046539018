package phimoe

import "github.com/karat-run/karat/internal/family"

// Family describes files of Phi-3.5-MoE.
//
// Source: transformers 5.17, models/phimoe/configuration_phimoe.py; llama.cpp, conversion/phi.py.
var Family = family.Family{
	Name:  "phimoe",
	Title: "Phi-3.5-MoE",
	Model: family.Of(New),

	Types: []family.Type{{Name: "phimoe", Class: "PhimoeForCausalLM", Window: family.Everywhere,
		Defaults: map[string]any{"rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false,
			"max_position_embeddings": 131072., "num_key_value_heads": 8., "vocab_size": 32064.,
			"attention_bias": false, "lm_head_bias": false, "num_experts": 16., "top_k_experts": 2.,
			"router_jitter_noise": 0.01}}},
	Fixed:  map[string]any{"hidden_act": "silu", "tie_word_embeddings": false, "router_jitter_noise": 0.01},
	Absent: map[string]any{"sliding_window": 0.},
	Coarse: func(family.Settings) float64 { return 8.6e-3 }, // rows that change their experts
	Idle:   []string{"input_jitter_noise", "output_router_logits", "router_aux_loss_coef"},
	FromConfig: func(s family.Settings, f *family.File) {
		for _, key := range []string{"rope_scaling", "rope_parameters"} {
			if p, _ := family.Object(s[key]); p["short_factor"] != nil || p["short_mscale"] != nil {
				if p["short_mscale"] == nil {
					f.Report(key, "has no short_mscale")
				}
				f.Follows(p, "long_mscale", p["short_mscale"])
				f.Follows(p, "attention_factor", p["short_mscale"])
				p["attention_factor"] = p.Take("short_mscale")
				delete(p, "long_mscale")
			}
		}
	},
	ToConfig: func(s family.Settings) {
		for _, key := range []string{"rope_scaling", "rope_parameters"} {
			if p, _ := family.Object(s[key]); p["attention_factor"] != nil {
				p["short_mscale"] = p.Take("attention_factor")
				p["long_mscale"] = p["short_mscale"]
			}
		}
	},
	Limits: []family.Limit{{Key: "original_max_position_embeddings", Min: 1, Max: 1<<31 - 1, Rule: family.Whole},
		{Key: "router_jitter_noise", Min: 0, Max: 1}},
	Rope: family.Rope{Full: map[string]any{"rope_theta": 1e4}},
	Spelling: map[string][]string{"num_experts": {"num_local_experts"},
		"top_k_experts": {"num_experts_per_tok"}},

	Keys: []family.Key{
		{Setting: "original_max_position_embeddings", GGUF: "rope.scaling.original_context_length"},
		{GGUF: "rope.dimension_count", Kind: family.FullDim},
		{Setting: "top_k_experts"}, {Setting: "num_experts"},
	},
	Held: map[string]string{"attention_bias": "blk.0.attn_q.bias", "lm_head_bias": "output.bias"},
	Habits: []family.Habit{{Ends: []string{".ffn_gate_exps", ".ffn_up_exps", ".ffn_down_exps"},
		Joined: "block_sparse_moe.experts"}},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "gpt-4o", BOS: true},
	Expect: family.Expect{Theta: true, Eps: []float64{1e-5},
		Parts: []family.Part{{GGUF: "output.bias", HF: "lm_head.bias"}}},
}
