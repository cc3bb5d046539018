// Package gguf translates the metadata of GGUF files into settings, and back.
//
// Files in reading order: tokenizer.go, read.go, familykeys.go, layers.go, rope.go, reader.go, write.go,
// writelayers.go, writerope.go, writer.go, keys.go.
package gguf

import "github.com/karat-run/karat/internal/family"

// keys maps canonical settings that families share to GGUF's keys without the architecture's prefix. The settings of
// moreKeys need more than copying.
var keys = map[string]string{
	"vocab_size":                  "vocab_size",
	"num_hidden_layers":           "block_count",
	"max_position_embeddings":     "context_length",
	"hidden_size":                 "embedding_length",
	"num_attention_heads":         "attention.head_count",
	"rms_norm_eps":                "attention.layer_norm_rms_epsilon",
	"layer_norm_eps":              "attention.layer_norm_epsilon",
	"sliding_window":              "attention.sliding_window",
	"num_kv_shared_layers":        "attention.shared_kv_layers",
	"hidden_size_per_layer_input": "embedding_length_per_layer_input",
	"final_logit_softcapping":     "final_logit_softcapping",
	"num_experts":                 "expert_count",
	"top_k_experts":               "expert_used_count",
	"moe_intermediate_size":       "expert_feed_forward_length",
}

var moreKeys = map[string]string{
	"intermediate_size":   "feed_forward_length",
	"num_key_value_heads": "attention.head_count_kv",
	"head_dim":            "attention.key_length",
	"layer_types":         "attention.sliding_window_pattern",

	"rope_parameters.full_attention.rope_theta":                       "rope.freq_base",
	"rope_parameters.full_attention.rope_type":                        "rope.scaling.type",
	"rope_parameters.full_attention.factor":                           "rope.scaling.factor",
	"rope_parameters.full_attention.original_max_position_embeddings": "rope.scaling.original_context_length",
	"rope_parameters.sliding_attention.rope_theta":                    "rope.freq_base_swa",
}

// yarnKeys are the numbers of a yarn.
var yarnKeys = []struct {
	setting, gguf string
	whole         bool
}{
	{"factor", "rope.scaling.factor", false},
	{"original_max_position_embeddings", "rope.scaling.original_context_length", true},
	{"attention_factor", "rope.scaling.yarn_attn_factor", false},
	{"beta_fast", "rope.scaling.yarn_beta_fast", false},
	{"beta_slow", "rope.scaling.yarn_beta_slow", false},
}

// yarnMultiplier is a tenth of both multipliers of a yarn, where latents are stored.
const yarnMultiplier = "rope.scaling.yarn_log_multiplier"

// ownKey returns the name in GGUF of a key of a family.
func ownKey(k family.Key) string {
	if k.GGUF == "" {
		return keys[k.Setting]
	}
	return k.GGUF
}

// canonicalKey returns the canonical name of GGUF's key, or the key.
func canonicalKey(f *family.Family, own string) string {
	for _, k := range f.Keys {
		if k.GGUF == own && k.Setting != "" {
			return k.Setting
		}
	}
	for _, list := range []map[string]string{keys, moreKeys} {
		for key, name := range list {
			if name == own {
				return key
			}
		}
	}
	return own
}

// longFactors lists the tensors of longrope's divisors, in the converter's order, with their settings.
var longFactors = []struct{ tensor, setting string }{
	{"rope_factors_long", "long_factor"}, {"rope_factors_short", "short_factor"},
}

// recurrent is the key with a flag for each layer, for files whose full layers are at no interval.
const recurrent = "attention.recurrent_layers"
