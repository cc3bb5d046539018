package smollm3

import (
	"slices"

	"github.com/karat-run/karat/internal/family"
)

// Family describes files of SmolLM3.
//
// Source: transformers 5.17, models/smollm3/configuration_smollm3.py; llama.cpp,
// conversion/llama.py and src/models/smollm3.cpp.
var Family = family.Family{
	Name:  "smollm3",
	Title: "SmolLM3",
	Model: family.Of(New),

	Types: []family.Type{{Name: "smollm3", Class: "SmolLM3ForCausalLM", Defaults: map[string]any{
		"rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": true, "max_position_embeddings": 32768.,
		"num_key_value_heads": 4., "no_rope_layer_interval": 4.}}},
	Fixed: map[string]any{"hidden_act": "silu", "no_rope_layer_interval": 4., "mlp_bias": false,
		"use_sliding_window": false},
	Idle:       []string{"max_window_layers"}, // of windows, which the family lacks
	FromConfig: interval,
	Limits:     []family.Limit{{Key: "no_rope_layer_interval", Max: 1 << 10, Rule: family.Whole}},
	Rope:       family.Rope{Full: map[string]any{"rope_theta": 2e6}},

	Keys: []family.Key{
		{Setting: "vocab_size"},
		{GGUF: "rope.dimension_count", Kind: family.FullDim},
	},
	Habits: []family.Habit{
		{Ends: []string{".attn_q"}, Heads: "num_attention_heads"},
		{Ends: []string{".attn_k"}, Heads: "num_key_value_heads"},
	},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "smaug-bpe"},
}

// interval drops the list of layers where the list repeats the interval: GGUF has a meaning for the interval alone.
func interval(s family.Settings, _ *family.File) {
	list, every := s.List("no_rope_layers"), s.Number("no_rope_layer_interval")
	var same []any
	for i := range list {
		turns := 1.
		if every >= 1 && every <= 1<<10 && (i+1)%int(every) == 0 {
			turns = 0
		}
		same = append(same, turns)
	}
	if len(list) == s.Int("num_hidden_layers") && slices.Equal(list, same) {
		delete(s, "no_rope_layers")
	}
}
