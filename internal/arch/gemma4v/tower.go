package gemma4v

import "github.com/karat-run/karat/internal/family"

// Tower describes the towers of Gemma 4.
var Tower = family.Tower{
	Name: "gemma4v", Types: []string{"gemma4"}, Model: family.Of(New),
	Defaults: map[string]any{"hidden_size": 768., "intermediate_size": 3072., "num_hidden_layers": 16.,
		"num_attention_heads": 12., "num_key_value_heads": 12., "head_dim": 64., "hidden_act": "gelu_pytorch_tanh",
		"layer_norm_eps": 1e-6, "patch_size": 16., "position_embedding_size": 10240., "spatial_merge_size": 3.,
		"rope_theta": 100.},
	Image: "<|image|>", Marks: family.Enclose("<|image>", "<image|>"),
}
