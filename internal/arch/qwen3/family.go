package qwen3

import "github.com/karat-run/karat/internal/family"

// Family describes files of Qwen 3's dense models.
//
// Source: transformers 5.17, models/qwen3/configuration_qwen3.py; llama.cpp, conversion/qwen.py.
var Family = family.Family{
	Name:  "qwen3",
	Title: "Qwen",
	Model: family.Of(New),

	Types: []family.Type{{Name: "qwen3", Class: "Qwen3ForCausalLM", Window: family.FromLayer, Defaults: map[string]any{
		"rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": false, "max_position_embeddings": 32768.,
		"sliding_window": 4096., "max_window_layers": 28., "head_dim": 128.}}},
	Fixed: map[string]any{"hidden_act": "silu"},
	Rope:  family.Rope{Full: map[string]any{"rope_theta": 1e4}},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "qwen2"},
	Expect: family.Expect{
		Parts: []family.Part{family.QKNorm},
		Lacks: []family.Part{family.PostNorm, family.Scalar, family.Router},
	},
}

// VLFamily describes the part for text of Qwen3-VL's dense models.
//
// Source: transformers 5.17, models/qwen3_vl; llama.cpp, conversion/qwen3vl.py and src/models/qwen3vl.cpp.
var VLFamily = family.Seeing(Family, "qwen3vl", 5e6, []any{24., 20., 20.}, family.Type{
	Name: "qwen3_vl_text", Window: family.FromLayer, Defaults: map[string]any{
		"rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": false,
		"max_position_embeddings": 128000., "sliding_window": 4096., "max_window_layers": 28., "head_dim": 128.}})
