package cohere2

import "github.com/karat-run/karat/internal/family"

// Family describes files of Command R7B and Command A. The key of the pattern is Karat's, for models beyond
// the assumptions of other readers.
//
// Source: transformers 5.17, models/cohere2/configuration_cohere2.py; llama.cpp,
// conversion/command_r.py and src/models/cohere2.cpp.
var Family = family.Family{
	Name:  "cohere2",
	Title: "Command R7B",
	Model: family.Of(New),

	Types: []family.Type{{Name: "cohere2", Class: "Cohere2ForCausalLM", Window: family.Periodic, Period: 4,
		Defaults: map[string]any{
			"layer_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": true, "max_position_embeddings": 8192.,
			"vocab_size": 256000., "sliding_window": 4096., "logit_scale": 0.0625}}},
	Without: []string{"rms_norm_eps"},
	Fixed:   map[string]any{"hidden_act": "silu", "rotary_pct": 1.},
	Idle: []string{"rotary_pct", "layer_switch", "order_of_interleaved_layers", "position_embedding_type",
		"use_embedding_sharing", "use_gated_activation", "use_parallel_block", "use_parallel_embedding"},
	Limits: []family.Limit{{Key: "logit_scale", Min: 1e-6, Max: 1e6, Rule: family.Required}},
	Rope:   family.Rope{Full: map[string]any{"rope_theta": 1e4}},

	Keys: []family.Key{
		{Setting: "logit_scale", GGUF: "logit_scale", Kind: family.Number},
		{GGUF: "attention.sliding_window_pattern", Kind: family.Period, Unusual: true},
		{Setting: "vocab_size"},
		{GGUF: "rope.dimension_count", Kind: family.FullDim},
		{GGUF: "rope.scaling.type", Kind: family.Word, Text: "none"},
	},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "command-r", BOS: true},
	Expect: family.Expect{
		Tied:  true,
		Theta: true,
		Eps:   []float64{1e-5},
	},
}
