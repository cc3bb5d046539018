package gemma4

import "github.com/karat-run/karat/internal/family"

// defaults are config.json's. Sizes that every published file gives are not
// among them.
var defaults = map[string]any{
	"rms_norm_eps": 1e-6, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": true, "max_position_embeddings": 131072.,
	"vocab_size": 262144., "num_attention_heads": 8., "num_key_value_heads": 4., "head_dim": 256., "global_head_dim": 512.,
	"hidden_size_per_layer_input": 256., "vocab_size_per_layer_input": 262144., "sliding_window": 512.,
}

// Family is what files of Gemma 4 are like.
//
// Source: transformers 5.17, models/gemma4/configuration_gemma4.py; llama.cpp,
// conversion/gemma.py.
var Family = family.Family{
	Name:  "gemma4",
	Title: "Gemma 4",
	Model: family.Of(New),

	Types: []family.Type{
		{Name: "gemma4_text", Class: "Gemma4ForCausalLM", Window: family.Periodic, Period: 6, LastFull: true, Defaults: defaults},
		{Name: "gemma4", Window: family.Periodic, Period: 6, LastFull: true, Defaults: defaults},
	},
	Fixed: map[string]any{"hidden_activation": "gelu_pytorch_tanh"},
	Explicit: map[string]any{"attention_k_eq_v": false, "enable_moe_block": false, "use_double_wide_mlp": false,
		"num_kv_shared_layers": 0., "hidden_size_per_layer_input": 0.},
	Full:   map[string]string{"head_dim": "global_head_dim", "num_key_value_heads": "num_global_key_value_heads"},
	FullIf: map[string]string{"num_key_value_heads": "attention_k_eq_v"},
	Rope: family.Rope{
		Full:    map[string]any{"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
		Sliding: map[string]any{"rope_theta": 1e4},
		ByKind:  true,
	},
	Keys: []family.Key{
		{Setting: "final_logit_softcapping", Kind: family.Number},
		{Setting: "num_kv_shared_layers"},
		{Setting: "hidden_size_per_layer_input"},
		{GGUF: "attention.sliding_window_pattern", Kind: family.Flags},
		{GGUF: "attention.key_length_swa", Kind: family.SlidingDim},
		{GGUF: "attention.value_length_swa", Kind: family.SlidingDim},
		{Setting: "moe_intermediate_size", If: "enable_moe_block"},
		{GGUF: "rope.dimension_count", Kind: family.FullDim},
		{GGUF: "rope.dimension_count_swa", Kind: family.SlidingDim},
	},
	Rows: map[string]string{"vocab_size_per_layer_input": "per_layer_token_embd"},
	MoE:  "enable_moe_block",
	KIsV: "attention_k_eq_v",
	Wide: "use_double_wide_mlp",
	Bare: []string{".per_expert_scale", ".layer_scalar", ".experts.gate_up_proj", ".experts.down_proj"},

	Tokenizer: family.Tokenizer{Model: "gemma4", Merged: true, BOS: true},
	Expect: family.Expect{
		Parts:       []family.Part{family.Scalar},
		Tied:        true,
		Softcap:     30,
		Published:   []family.Published{{Layers: 35, Hidden: 1536, Shared: 20}, {Layers: 42, Hidden: 2560, Shared: 18}, {Layers: 30, Hidden: 2816}, {Layers: 48, Hidden: 3840}, {Layers: 60, Hidden: 5376}},
		Turns:       []family.Turns{{Name: "Gemma 4's", Marks: []string{"<|turn>", "<turn|>"}, Only: true}},
		TurnsAsText: true,
	},
}
