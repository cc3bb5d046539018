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
	Projector: family.Projector{
		Keys: map[string]string{"is_deepstack_layers": "deepstack"}, Times: true,
		Read: func(s family.Settings, shape func(string) []int) {
			if table := shape("v.position_embd"); len(table) == 2 {
				s["num_position_embeddings"] = float64(table[0])
			}
			deep := []any{}
			flags, _ := s.Take("deepstack").([]any)
			for i, on := range flags {
				if on == true {
					deep = append(deep, float64(i))
				}
			}
			s["deepstack_visual_indexes"] = deep
		},
		Processor: func(s family.Settings) map[string]any {
			return map[string]any{"image_processor_type": "Qwen2VLImageProcessor", "resample": 3,
				"patch_size": s["patch_size"], "merge_size": s["spatial_merge_size"], "temporal_patch_size": 2,
				"size": map[string]any{"shortest_edge": 65536, "longest_edge": 16777216}}
		},
	},
}
