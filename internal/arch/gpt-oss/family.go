package gptoss

import "github.com/karat-run/karat/internal/family"

// Family describes files of gpt-oss.
//
// Source: transformers 5.17, models/gpt_oss/configuration_gpt_oss.py; llama.cpp,
// conversion/gpt_oss.py and src/models/openai-moe.cpp.
var Family = family.Family{
	Name:  "gpt-oss",
	Title: "gpt-oss",
	Model: family.Of(New),

	Types: []family.Type{{Name: "gpt_oss", Class: "GptOssForCausalLM", Window: family.Periodic, Period: 2,
		Lacks: []string{"moe_intermediate_size"}, Defaults: map[string]any{
			"rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false,
			"max_position_embeddings": 131072., "sliding_window": 128., "num_experts": 128., "top_k_experts": 4.,
			"attention_bias": true, "swiglu_limit": 7., "num_attention_heads": 64., "num_key_value_heads": 8.,
			"head_dim": 64.}}},
	Fixed: map[string]any{"hidden_act": "silu", "swiglu_limit": 7.},
	Idle:  []string{"output_router_logits", "router_aux_loss_coef", "initial_context_length", "intermediate_size"},
	// The blocks of MXFP4 are read by their tensors; another quantization has others.
	FromConfig: width,
	Limits:     []family.Limit{{Key: "swiglu_limit", Min: 1e-3, Max: 1e6, Rule: family.Required}},
	Rope: family.Rope{Fixed: map[string]any{"truncate": false},
		Full: map[string]any{"rope_theta": 1.5e5}},
	Spelling: map[string][]string{"num_experts": {"num_local_experts", "num_experts"},
		"top_k_experts": {"num_experts_per_tok", "experts_per_token"}},

	Keys: []family.Key{
		{Setting: "num_experts"},
		{Setting: "top_k_experts"},
		{GGUF: "attention.sliding_window_pattern", Kind: family.Period, Unusual: true},
		{Setting: "moe_intermediate_size"},
	},
	Held: map[string]string{"attention_bias": "blk.0.attn_q.bias"},
	Habits: []family.Habit{
		{Ends: []string{".ffn_gate_exps", ".ffn_up_exps"}, Turned: true,
			Woven: []string{"gate_up_proj", "gate_proj", "up_proj"}},
		{Ends: []string{".ffn_gate_exps.bias", ".ffn_up_exps.bias"},
			Woven: []string{"gate_up_proj_bias", "gate_proj_bias", "up_proj_bias"}},
		{Ends: []string{".ffn_down_exps"}, Turned: true},
	},
	Bare: []string{".sinks", "experts.gate_up_proj", "experts.down_proj", "_bias"},
	Synonyms: map[string]string{".experts.gate_proj.bias": ".experts.gate_proj_bias",
		".experts.up_proj.bias": ".experts.up_proj_bias", ".experts.down_proj.bias": ".experts.down_proj_bias"},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "gpt-4o"},
	Expect: family.Expect{
		Theta: true,
		Eps:   []float64{1e-5},
		Parts: []family.Part{family.Router, family.QKVBias, family.OBias},
		Lacks: []family.Part{family.QKNorm, family.PostNorm, family.Scalar},
	},
}

// width gives experts the size named once in config.json.
func width(s family.Settings, _ *family.File) {
	if v := s["intermediate_size"]; v != nil && s["moe_intermediate_size"] == nil {
		s["moe_intermediate_size"] = v
	}
}
