package llama

import "github.com/karat-run/karat/internal/family"

// Family describes files of Llama, and of Mistral's models.
//
// Source: transformers 5.17, models/llama, models/mistral and models/mixtral,
// configuration_*.py; llama.cpp, conversion/llama.py.
var Family = family.Family{
	Name:  "llama",
	Title: "Llama",
	Model: family.Of(New),

	Types: []family.Type{
		{Name: "llama", Class: "LlamaForCausalLM", Lacks: []string{"num_experts", "top_k_experts"},
			Defaults: map[string]any{
				"rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": false,
				"max_position_embeddings": 2048.}},
		{Name: "mistral", Class: "MistralForCausalLM", Window: family.Everywhere,
			Lacks: []string{"attention_bias", "mlp_bias", "num_experts", "top_k_experts"}, Defaults: map[string]any{
				"rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": false,
				"max_position_embeddings": 131072., "num_key_value_heads": 8., "sliding_window": 4096.}},
		{Name: "mixtral", Class: "MixtralForCausalLM", Window: family.Everywhere,
			Lacks: []string{"attention_bias", "mlp_bias"}, Defaults: map[string]any{
				"rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false,
				"max_position_embeddings": 131072., "num_key_value_heads": 8., "num_experts": 8., "top_k_experts": 2.}},
	},
	Fixed: map[string]any{"hidden_act": "silu"},
	Idle: []string{"output_router_logits", "router_aux_loss_coef", "router_jitter_noise", // and of SmolVLM's text:
		"is_llama_config", "pixel_shuffle_factor", "perceiver_config", "_flash_attn_2_enabled"},
	Rope:     family.Rope{Full: map[string]any{"rope_theta": 1e4}},
	Spelling: map[string][]string{"num_experts": {"num_local_experts"}, "top_k_experts": {"num_experts_per_tok"}},

	Keys: []family.Key{
		{Setting: "vocab_size"},
		{GGUF: "rope.dimension_count", Kind: family.FullDim},
	},
	Held: map[string]string{"attention_bias": "blk.0.attn_q.bias", "mlp_bias": "blk.0.ffn_gate.bias"},
	Habits: []family.Habit{
		{Ends: []string{".ffn_gate_exps", ".ffn_up_exps", ".ffn_down_exps"}, Joined: "block_sparse_moe.experts"},
		{Ends: []string{".attn_q", ".attn_q.bias"}, Heads: "num_attention_heads"},
		{Ends: []string{".attn_k", ".attn_k.bias"}, Heads: "num_key_value_heads"},
	},

	Synonyms: map[string]string{".experts.gate_proj": ".experts.w1", ".experts.up_proj": ".experts.w3",
		".experts.down_proj": ".experts.w2"},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "llama-bpe", BOS: true},
	Expect: family.Expect{
		Theta:  true,
		Eps:    []float64{1e-6, 1e-5},
		Scaled: &family.Scaled{Theta: 5e5, Context: 8192, Whose: "Llama 3.1's"},
		Turns: []family.Turns{
			{Name: "Llama 3's", Marks: []string{"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}},
			{Name: "Mistral's", Marks: []string{"[INST]", "[/INST]"}},
		},
	},
	Seventy: func(layers, group int) bool { return layers == 80 && group != 1 }, // the model of 65 B shares no keys
	Coarse: func(s family.Settings) float64 { // rows that change their experts
		if s.Int("num_experts") > 0 {
			return 1.3e-3
		}
		return 0
	},
}
