package lfm2

import (
	"slices"

	"github.com/karat-run/karat/internal/family"
)

// Family is what files of LFM2 are like.
//
// Source: transformers 5.17, models/lfm2/configuration_lfm2.py; llama.cpp,
// conversion/lfm2.py and src/models/lfm2.cpp.
var Family = family.Family{
	Name:  "lfm2",
	Title: "LFM2",
	Model: family.Of(New),

	Types: []family.Type{{Name: "lfm2", Class: "Lfm2ForCausalLM", Window: family.Listed, Defaults: map[string]any{
		"rms_norm_eps": 1e-5, "tie_word_embeddings": true, "max_position_embeddings": 128000., "num_attention_heads": 32., "num_key_value_heads": 8.,
		"conv_L_cache": 3., "conv_bias": false, "block_auto_adjust_ff_dim": true, "block_multiple_of": 256., "block_ffn_dim_multiplier": 1.}, Period: 1}},
	Fixed: map[string]any{"conv_bias": false, "block_auto_adjust_ff_dim": false},
	Idle: []string{"full_attn_idxs", "block_dim", "block_mlp_init_scale", "block_out_init_scale",
		"block_use_swiglu", "block_use_xavier_init", "conv_dim", "conv_dim_out", "conv_use_xavier_init", "use_pos_enc", "num_heads"},
	Normal: adjust,
	Spell:  spell,
	Kinds:  map[string]string{"conv": family.LinearAttention, family.LinearAttention: family.LinearAttention, family.FullAttention: family.FullAttention},
	Limits: []family.Limit{{Key: "conv_L_cache", Min: 2, Max: 1 << 10, Rule: family.Required | family.Whole}},
	Rope:   family.Rope{Full: map[string]any{"rope_theta": 1e6}},
	Spelling: map[string][]string{"rms_norm_eps": {"norm_eps", "block_norm_eps"}, "intermediate_size": {"intermediate_size", "block_ff_dim"},
		"tie_word_embeddings": {"tie_word_embeddings", "tie_embedding"}, "rope_theta": {"rope_theta", "theta"}},
	Indexes: "full_attn_idxs",

	Keys: []family.Key{
		{Setting: "vocab_size"},
		{Setting: "conv_L_cache", GGUF: "shortconv.l_cache"},
	},
	Habits: []family.Habit{{Ends: []string{".shortconv.conv"}, Form: family.Depthwise}},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "lfm2", BOS: true},
	Expect: family.Expect{
		Parts: []family.Part{{GGUF: "shortconv.in_proj", HF: "conv.in_proj"}},
		Tied:  true,
		Theta: true,
		Eps:   []float64{1e-5},
	},
	// The published 1.2B: llama.cpp's src/models/lfm2.cpp knows it by the width of its MLPs, and transformers'
	// configuration_lfm2.py makes that of 12288.
	Synth: family.Synth{Short: true, QKNorm: true, Last: "token_embd_norm", Shapes: []family.Shape{
		{Name: "1.2b", Hidden: 2048, Layers: 16, Heads: 32, KVHeads: 8, HeadDim: 64, FF: 8192, Vocab: 65536, Context: 128000,
			Pattern: "MM*MM*MM*M*M*M*M", Kernel: 3, RopeBase: 1e6, Epsilon: 1e-5},
		{Name: "tiny", Hidden: 256, Layers: 4, Heads: 8, KVHeads: 2, HeadDim: 32, FF: 512, Vocab: 2048, Context: 4096,
			Pattern: "MM*M", Kernel: 3, RopeBase: 1e6, Epsilon: 1e-5},
	}},
}

// adjust gives the width that the library makes of the one that a config.json has.
func adjust(s map[string]any) {
	number := func(key string) float64 { v, _ := s[key].(float64); return v }
	width, by, of := number("intermediate_size"), number("block_ffn_dim_multiplier"), int(min(max(number("block_multiple_of"), 1), 1<<24))
	if s["block_auto_adjust_ff_dim"] == true && width > 0 && width < 1<<24 && by > 0 && by < 1<<10 {
		n := int(by * float64(int(2*width/3)))
		s["intermediate_size"] = float64((n + of - 1) / of * of)
	}
	s["block_auto_adjust_ff_dim"] = false
	delete(s, "block_ffn_dim_multiplier")
	delete(s, "block_multiple_of")
}

// spell writes the kinds of layers as config.json has them.
func spell(s map[string]any) {
	types, _ := s["layer_types"].([]any)
	types = slices.Clone(types)
	for i, t := range types {
		if t == family.LinearAttention {
			types[i] = "conv"
		}
	}
	s["layer_types"] = types
}
