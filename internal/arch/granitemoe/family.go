package granitemoe

import "github.com/karat-run/karat/internal/family"

// Family describes files of Granite 3's models with experts.
//
// Source: transformers 5.17, models/granitemoe and models/granitemoeshared, configuration_*.py;
// llama.cpp, conversion/granite.py and src/models/granite-moe.cpp.
var Family = family.Family{
	Name:  "granitemoe",
	Title: "Granite",
	Model: family.Of(New),

	Types: []family.Type{
		{Name: "granitemoeshared", Class: "GraniteMoeSharedForCausalLM", Needs: []string{"shared_intermediate_size"},
			Defaults: defaults},
		{Name: "granitemoe", Class: "GraniteMoeForCausalLM", Lacks: []string{"shared_intermediate_size"},
			Defaults: defaults},
	},
	Fixed:  map[string]any{"hidden_act": "silu"},
	Absent: map[string]any{"embedding_multiplier": 1., "residual_multiplier": 1.},
	Idle:   []string{"output_router_logits", "router_aux_loss_coef"},
	Limits: []family.Limit{
		{Key: "shared_intermediate_size", Max: 1 << 24, Rule: family.Whole},
		{Key: "embedding_multiplier", Min: 1e-6, Max: 1e6, Rule: family.Required},
		{Key: "attention_multiplier", Min: 1e-6, Max: 1e3, Rule: family.Required},
		{Key: "residual_multiplier", Min: 1e-6, Max: 1e3, Rule: family.Required},
		{Key: "logits_scaling", Min: 1e-6, Max: 1e6, Rule: family.Required},
	},
	FromGGUF: family.PlainScale,
	Rope:     family.Rope{Full: map[string]any{"rope_theta": 1e4}, Switch: "rope.scaling.finetuned"},
	Spelling: map[string][]string{"num_experts": {"num_local_experts"}, "top_k_experts": {"num_experts_per_tok"}},

	Keys: []family.Key{
		{Setting: "vocab_size"},
		{GGUF: "rope.dimension_count", Kind: family.FullDim},
		{Setting: "attention_multiplier", GGUF: "attention.scale", Kind: family.Number},
		{Setting: "embedding_multiplier", GGUF: "embedding_scale", Kind: family.Number},
		{Setting: "residual_multiplier", GGUF: "residual_scale", Kind: family.Number},
		{Setting: "logits_scaling", GGUF: "logit_scale", Kind: family.Number},
		{Setting: "shared_intermediate_size", GGUF: "expert_shared_feed_forward_length", Nil: true},
	},
	Habits: []family.Habit{
		{Ends: []string{".attn_q"}, Heads: "num_attention_heads"},
		{Ends: []string{".attn_k"}, Heads: "num_key_value_heads"},
		{Ends: []string{".ffn_gate_exps", ".ffn_up_exps", ".ffn_gate_shexp", ".ffn_up_shexp"},
			Woven: []string{"input_linear", "gate_linear", "up_linear"}, Runs: true},
	},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "refact"},
	Expect:    family.Expect{Theta: true, Eps: []float64{1e-6, 1e-5}},
}

var defaults = map[string]any{
	"rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": false, "max_position_embeddings": 2048.,
	"embedding_multiplier": 1., "attention_multiplier": 1., "residual_multiplier": 1., "logits_scaling": 1.,
	"num_experts": 8., "top_k_experts": 2., "shared_intermediate_size": 0.}
