package qwen3vl

import "github.com/karat-run/karat/internal/family"

// Tower describes the towers of Qwen 3 VL and Qwen 3.5.
var Tower = family.Tower{
	Name: "qwen3vl_merger", Types: []string{"qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"},
	Model: family.Of(New),
	Defaults: map[string]any{"num_hidden_layers": 27., "hidden_size": 1152., "hidden_act": "gelu_pytorch_tanh",
		"intermediate_size": 4304., "num_attention_heads": 16., "patch_size": 16., "spatial_merge_size": 2.,
		"temporal_patch_size": 2., "num_position_embeddings": 2304., "layer_norm_eps": 1e-6, "rope_theta": 10000.},
	Image: "<|image_pad|>", Around: [2]string{"<|vision_start|>", "<|vision_end|>"},
	Marks: family.Enclose("", ""),
}
