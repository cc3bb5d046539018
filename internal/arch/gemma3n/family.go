package gemma3n

import (
	"math"

	"github.com/karat-run/karat/internal/family"
)

// Family describes files of Gemma 3n's text models. GGUF has the bounds of gates in deviations, not in shares.
//
// Source: transformers 5.17, models/gemma3n/configuration_gemma3n.py; llama.cpp, conversion/gemma.py.
var Family = family.Family{
	Name:  "gemma3n",
	Title: "Gemma 3n",
	Model: family.Of(New),

	Types: []family.Type{
		{Name: "gemma3n_text", Class: "Gemma3nForCausalLM", Window: family.Periodic, Period: 5, Defaults: defaults},
		{Name: "gemma3n", Window: family.Periodic, Period: 5, Defaults: defaults},
	},
	Fixed:  map[string]any{"hidden_activation": "gelu_pytorch_tanh", "altup_correct_scale": true},
	Absent: map[string]any{"final_logit_softcapping": 30.},
	Idle:   []string{"altup_coef_clip", "altup_lr_multiplier", "vocab_size_per_layer_input"}, // of training
	Limits: []family.Limit{
		{Key: "altup_num_inputs", Min: 2, Max: 64, Rule: family.Required | family.Whole},
		{Key: "altup_active_idx", Min: 0, Max: 63, Rule: family.Whole},
		{Key: "laurel_rank", Min: 1, Max: 1 << 16, Rule: family.Required | family.Whole},
		{Key: "hidden_size_per_layer_input", Min: 1, Max: 1 << 16, Rule: family.Required | family.Whole},
	},
	FromConfig: alike,
	FromGGUF: func(s family.Settings, f *family.File) {
		s.Fill("vocab_size_per_layer_input", f.Rows("per_layer_token_embd"))
		if rank := f.Rows("blk.0.laurel_l"); rank != nil {
			s["laurel_rank"] = rank
		}
		s.Each("activation_sparsity_pattern", share)
	},
	ToGGUF: func(s family.Settings) {
		s.Each("activation_sparsity_pattern", func(x float64) float64 { return float64(deviations(x)) })
	},
	ToConfig: func(s family.Settings) {
		widths := make([]any, s.Int("num_hidden_layers"))
		for i := range widths {
			widths[i] = s["intermediate_size"]
		}
		s["intermediate_size"] = widths
	},
	Rope: family.Rope{Full: map[string]any{"rope_theta": 1e6}, Sliding: map[string]any{"rope_theta": 1e4},
		Local: "rope_local_base_freq"},

	Keys: []family.Key{
		{Setting: "final_logit_softcapping", Kind: family.Number},
		{Setting: "altup_active_idx", GGUF: "altup.active_idx"},
		{Setting: "altup_num_inputs", GGUF: "altup.num_inputs"},
		{Setting: "hidden_size_per_layer_input"}, {Setting: "num_kv_shared_layers"},
		{Setting: "activation_sparsity_pattern", GGUF: "activation_sparsity_scale", Kind: family.EachLayer},
		{GGUF: "attention.sliding_window_pattern", Kind: family.Flags},
	},
	Held: map[string]string{"laurel_rank": ".laurel_l"},
	Habits: []family.Habit{{Ends: []string{"altup_proj"}, Joined: "altup_projections"},
		{Ends: []string{"altup_unembd_proj"}, Joined: "altup_unembed_projections"},
		{Ends: []string{"per_layer_token_embd"}, Filled: "vocab_size"}},
	Bare: []string{".correct_output_scale"},

	Tokenizer: family.Tokenizer{Model: "llama", Pre: "default", BOS: true},
	Expect: family.Expect{Parts: []family.Part{{GGUF: "laurel_l", HF: "laurel.linear_left"}}, Tied: true, Softcap: 30,
		CapsVary: true,
		Turns:    []family.Turns{{Name: "Gemma's", Marks: []string{"<start_of_turn>", "<end_of_turn>"}, Only: true}}},
}

// defaults are config.json's.
var defaults = map[string]any{
	"rms_norm_eps": 1e-6, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": true, "vocab_size": 262400.,
	"vocab_size_per_layer_input": 262144., "hidden_size": 2048., "hidden_size_per_layer_input": 256.,
	"max_position_embeddings": 32768., "num_attention_heads": 8., "num_key_value_heads": 2., "head_dim": 256.,
	"sliding_window": 512., "num_kv_shared_layers": 15., "altup_num_inputs": 4., "altup_active_idx": 0.,
	"altup_correct_scale": true, "laurel_rank": 64., "final_logit_softcapping": 30.}

// alike takes lists of equal widths for a width, and a share of all layers for a list.
func alike(s family.Settings, f *family.File) {
	if widths := s.List("intermediate_size"); widths != nil {
		for i, w := range widths {
			if w != widths[0] || len(widths) != s.Int("num_hidden_layers") {
				f.Report("intermediate_size", "has %s in layer %d, want a width for each layer, and all alike",
					family.Show(w), i)
				break
			}
		}
		if len(widths) > 0 {
			s["intermediate_size"] = widths[0]
		}
	}
	shares := s["activation_sparsity_pattern"]
	if _, ok := shares.([]any); ok {
		return
	}
	if shares == nil {
		shares = 0.
	}
	list := make([]any, min(s.Int("num_hidden_layers"), family.MaxLayers))
	for i := range list {
		list[i] = shares
	}
	s["activation_sparsity_pattern"] = list
}

// deviations returns how many deviations above the mean a share of normal numbers ends, with PyTorch's roundings to
// float32: Normal.icdf.
func deviations(share float64) float32 {
	x := float32(math.Erfinv(float64(2*float32(share) - 1)))
	return x * float32(math.Sqrt2)
}

// share inverts deviations for shares of up to six decimals.
func share(by float64) float64 {
	p := math.Erfc(-by/math.Sqrt2) / 2
	return math.Round(p*1e6) / 1e6
}
