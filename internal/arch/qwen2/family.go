package qwen2

import "github.com/karat-run/karat/internal/family"

// Family describes files of Qwen 2 and 2.5.
//
// Source: transformers 5.17, models/qwen2/configuration_qwen2.py; llama.cpp, conversion/qwen.py.
var Family = family.Family{
	Name:  "qwen2",
	Title: "Qwen",
	Model: family.Of(New),

	Types: []family.Type{{Name: "qwen2", Class: "Qwen2ForCausalLM", Window: family.FromLayer, Defaults: defaults}},
	Fixed: map[string]any{"hidden_act": "silu"},
	Idle:  []string{"attention_bias"}, // biases are always present
	Rope:  family.Rope{Full: map[string]any{"rope_theta": 1e4}},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "qwen2"},
	Expect: family.Expect{
		Parts: []family.Part{family.QKVBias},
		Lacks: []family.Part{family.OBias, family.QKNorm, family.Scalar},
		Eps:   []float64{1e-6, 1e-5},
	},
	Seventy: func(layers, _ int) bool { return layers == 80 },
}

// VLFamily describes the part for text of Qwen2-VL and Qwen2.5-VL.
//
// Source: transformers 5.17, models/qwen2_vl and models/qwen2_5_vl; llama.cpp, src/models/qwen2vl.cpp.
var VLFamily = family.Seeing(Family, "qwen2vl", 1e6, []any{16., 24., 24.},
	family.Type{Name: "qwen2_vl", Window: family.FromLayer, Defaults: defaults},
	family.Type{Name: "qwen2_vl_text", Window: family.FromLayer, Defaults: defaults},
	family.Type{Name: "qwen2_5_vl", Window: family.FromLayer, Defaults: defaults},
	family.Type{Name: "qwen2_5_vl_text", Window: family.FromLayer, Defaults: defaults})

// defaults are the library's, equal in all types.
var defaults = map[string]any{
	"rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": false, "max_position_embeddings": 32768.,
	"sliding_window": 4096., "max_window_layers": 28.}
