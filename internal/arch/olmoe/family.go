package olmoe

import "github.com/karat-run/karat/internal/family"

// Family describes files of OLMoE.
//
// Source: transformers 5.17, models/olmoe/configuration_olmoe.py; llama.cpp, conversion/olmo.py and
// src/models/olmoe.cpp.
var Family = family.Family{
	Name:  "olmoe",
	Title: "OLMoE",
	Model: family.Of(New),

	Types: []family.Type{{Name: "olmoe", Class: "OlmoeForCausalLM", Defaults: map[string]any{
		"rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false, "max_position_embeddings": 4096.,
		"num_experts": 64., "top_k_experts": 8., "norm_topk_prob": false}}},
	Fixed:    map[string]any{"hidden_act": "silu", "norm_topk_prob": false},
	Idle:     []string{"output_router_logits", "router_aux_loss_coef"},
	Rope:     family.Rope{Full: map[string]any{"rope_theta": 1e4}},
	Spelling: map[string][]string{"top_k_experts": {"num_experts_per_tok"}},

	Habits: []family.Habit{{Ends: []string{".ffn_gate_exps", ".ffn_up_exps", ".ffn_down_exps"}, Joined: "mlp.experts"}},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "olmo"},
	Expect: family.Expect{
		Parts: []family.Part{family.QKNorm, family.Router},
		Theta: true,
		Eps:   []float64{1e-5},
	},
}
