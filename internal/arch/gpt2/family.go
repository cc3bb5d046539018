package gpt2

import "github.com/karat-run/karat/internal/family"

// Family describes files of GPT-2.
//
// Source: transformers 5.17, models/gpt2/configuration_gpt2.py; llama.cpp, conversion/gpt2.py and src/models/gpt2.cpp.
var Family = family.Family{
	Name:  "gpt2",
	Title: "GPT-2",
	Model: family.Of(New),

	Types: []family.Type{{Name: "gpt2", Class: "GPT2LMHeadModel", Defaults: map[string]any{
		"layer_norm_eps": 1e-5, "hidden_act": "gelu_new", "tie_word_embeddings": true, "max_position_embeddings": 1024.,
		"vocab_size": 50257., "hidden_size": 768., "num_hidden_layers": 12., "num_attention_heads": 12.,
		"scale_attn_weights": true}}},
	Fixed: map[string]any{"hidden_act": "gelu_new", "scale_attn_weights": true},
	Idle: []string{"head_dim", "num_key_value_heads", "n_ctx", "summary_activation", "summary_first_dropout",
		"summary_proj_to_labels", "summary_type", "summary_use_proj", "embd_pdrop", "resid_pdrop",
		"reorder_and_upcast_attn"},
	FromConfig: inner,
	Spelling: map[string][]string{
		"hidden_size": {"n_embd"}, "intermediate_size": {"n_inner"}, "num_hidden_layers": {"n_layer"},
		"num_attention_heads": {"n_head"}, "max_position_embeddings": {"n_positions"},
		"layer_norm_eps": {"layer_norm_epsilon"}, "hidden_act": {"activation_function"},
	},
	Without: []string{"num_key_value_heads", "rms_norm_eps", "rope_parameters"},
	Habits:  []family.Habit{{Ends: []string{".attn_qkv", ".attn_output", ".ffn_up", ".ffn_down"}, Turned: true}},
	Rename:  family.Discard(".attn.bias", ".attn.masked_bias"),

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "gpt-2"},
	Expect:    family.Expect{Parts: []family.Part{{GGUF: "attn_qkv.bias", HF: "c_attn.bias"}}, Eps: []float64{1e-5}},
}

// inner sets the width of the MLP where the file says null.
func inner(s family.Settings, _ *family.File) {
	if n := s.Number("hidden_size"); n != 0 {
		s.Fill("intermediate_size", 4*n)
	}
}
