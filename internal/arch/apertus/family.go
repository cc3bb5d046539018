package apertus

import (
	"slices"

	"github.com/karat-run/karat/internal/family"
)

// Family describes files of Apertus. GGUF has the numbers of xIELU among its keys.
//
// Source: transformers 5.17, models/apertus/configuration_apertus.py; llama.cpp, conversion/llama.py and
// src/models/apertus.cpp.
var Family = family.Family{
	Name:  "apertus",
	Title: "Apertus",
	Model: family.Of(New),

	Types: []family.Type{{Name: "apertus", Class: "ApertusForCausalLM", Defaults: map[string]any{
		"rms_norm_eps": 1e-5, "hidden_act": "xielu", "tie_word_embeddings": false, "max_position_embeddings": 65536.,
		"vocab_size": 131072.}}},
	Fixed: map[string]any{"hidden_act": "xielu", "attention_bias": false, "mlp_bias": false, "post_norm": false,
		"qk_norm": true},
	FromConfig: initial,
	Rope: family.Rope{Full: map[string]any{"rope_type": "llama3", "rope_theta": 12e6, "factor": 8.,
		"original_max_position_embeddings": 8192., "low_freq_factor": 1., "high_freq_factor": 4.}},

	Keys: []family.Key{
		{Setting: "vocab_size"},
		{GGUF: "rope.dimension_count", Kind: family.FullDim},
	},
	Numbers: map[string]family.PerLayer{
		"xielu.alpha_p": {End: "mlp.act_fn.alpha_p", Shape: []int{1}},
		"xielu.alpha_n": {End: "mlp.act_fn.alpha_n", Shape: []int{1}},
		"xielu.beta":    {End: "mlp.act_fn.beta"},
		"xielu.eps":     {End: "mlp.act_fn.eps"},
	},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "tekken", BOS: true},
	Expect:    family.Expect{Parts: []family.Part{family.QKNorm}, Eps: []float64{1e-5}},
}

// initial sets the numbers of a model before its training, for a config.json without tensors.
func initial(s family.Settings, _ *family.File) {
	layers := max(0, min(s.Int("num_hidden_layers"), family.MaxLayers))
	for key, v := range map[string]float64{"xielu.alpha_p": 0.2035, "xielu.alpha_n": -1.0502, "xielu.beta": 0.5,
		"xielu.eps": -1e-6} {
		s.Fill(key, slices.Repeat([]any{v}, layers))
	}
}
