package ernie45moe

import (
	"strings"

	"github.com/karat-run/karat/internal/family"
)

// Family describes files of ERNIE 4.5's models with experts.
//
// Source: transformers 5.17, models/ernie4_5_moe/configuration_ernie4_5_moe.py; llama.cpp, conversion/ernie.py and
// src/models/ernie4-5-moe.cpp.
var Family = family.Family{
	Name:  "ernie4_5-moe",
	Title: "ERNIE 4.5",
	Model: family.Of(New),

	Types: []family.Type{{Name: "ernie4_5_moe", Class: "Ernie4_5_MoeForCausalLM", Defaults: map[string]any{
		"rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": true, "max_position_embeddings": 131072.,
		"num_attention_heads": 20., "num_key_value_heads": 4., "moe_intermediate_size": 1536., "num_experts": 64.,
		"top_k_experts": 6., "num_shared_experts": 2., "moe_layer_start_index": 1., "moe_layer_interval": 1.}}},
	Fixed:  map[string]any{"hidden_act": "silu", "use_bias": false, "moe_use_aux_free": true},
	Absent: map[string]any{"moe_layer_start_index": 0., "num_shared_experts": 0.},
	Coarse: func(family.Settings) float64 { return 3.2e-3 }, // rows that change their experts
	Idle: []string{"moe_norm_min", "moe_capacity", "moe_gate", "output_router_logits", "router_aux_loss_coef",
		"num_nextn_predict_layers"},
	FromConfig: func(s family.Settings, f *family.File) {
		if end, ok := s["moe_layer_end_index"].(float64); !ok || end != -1 && end < s.Number("num_hidden_layers") {
			f.Follows(s, "moe_layer_end_index", s.Number("num_hidden_layers")-1)
		}
		delete(s, "moe_layer_end_index")
	},
	Limits: []family.Limit{
		{Key: "moe_layer_start_index", Min: 0, Max: 1 << 10, Rule: family.Whole},
		{Key: "moe_layer_interval", Min: 1, Max: 1 << 10, Rule: family.Required | family.Whole},
		{Key: "num_shared_experts", Min: 0, Max: 1 << 10, Rule: family.Whole},
	},
	Rope: family.Rope{Full: map[string]any{"rope_theta": 5e5}},
	Spelling: map[string][]string{"num_experts": {"moe_num_experts"}, "top_k_experts": {"moe_k"},
		"num_shared_experts": {"moe_num_shared_experts"}},

	Keys: []family.Key{
		{Setting: "moe_layer_interval", GGUF: "interleave_moe_layer_step"},
		{Setting: "moe_layer_start_index", GGUF: "leading_dense_block_count"},
		{Setting: "moe_intermediate_size"},
		{Setting: "num_shared_experts", GGUF: "expert_shared_count"},
		{Setting: "num_shared_experts", GGUF: "expert_shared_feed_forward_length", Kind: family.Product,
			Of: "moe_intermediate_size"},
	},
	Habits: []family.Habit{
		{Ends: []string{".ffn_gate_exps", ".ffn_up_exps", ".ffn_down_exps"}, Joined: "mlp.experts"},
		{Ends: []string{".exp_probs_b.bias"}, Form: family.Lone},
	},
	Bare: []string{"e_score_correction_bias"},
	Rename: func(name string, _ func(string) bool) string { // layers predicting further tokens are set aside
		if strings.HasPrefix(name, "model.mtp_") {
			return ""
		}
		return name
	},

	Tokenizer: family.Tokenizer{Model: "llama", Pre: "llama-bpe", BOS: true},
	Expect:    family.Expect{Theta: true, Eps: []float64{1e-5}},
}
