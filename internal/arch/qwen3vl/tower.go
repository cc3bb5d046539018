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
		Order: []string{"clip.projector_type", family.ActKey, "clip.vision.spatial_merge_size",
			"clip.vision.attention.layer_norm_epsilon", "clip.vision.is_deepstack_layers"},
		Write: func(s, _ family.Settings) {
			s["image_size"] = float64(family.Root(s.Int("num_position_embeddings")) * s.Int("patch_size"))
			flags := make([]any, min(s.Int("num_hidden_layers"), family.MaxLayers))
			for i := range flags {
				flags[i] = false
			}
			for _, at := range s.List("deepstack_visual_indexes") {
				if i, ok := at.(float64); ok && i >= 0 && int(i) < len(flags) {
					flags[int(i)] = true
				}
			}
			s["deepstack"] = flags
		},
	},
	Folder: family.Folder{
		Forms: []family.Composite{
			{Arch: "qwen3vl", Type: "qwen3_vl", Class: "Qwen3VLForConditionalGeneration", Text: "qwen3_vl_text",
				Rope: turned},
			{Arch: "qwen3vlmoe", Type: "qwen3_vl_moe", Class: "Qwen3VLMoeForConditionalGeneration",
				Text: "qwen3_vl_moe_text", Rope: turned},
			{Arch: "qwen35", Type: "qwen3_5", Class: "Qwen3_5ForConditionalGeneration"},
			{Arch: "qwen35moe", Type: "qwen3_5_moe", Class: "Qwen3_5MoeForConditionalGeneration"}},
		Settings: []string{"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
			"hidden_act", "patch_size", "temporal_patch_size", "spatial_merge_size", "num_position_embeddings",
			"out_hidden_size", "deepstack_visual_indexes"},
		Inner: map[string]string{"num_hidden_layers": "depth", "num_attention_heads": "num_heads"},
		Tokens: map[string]string{"image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>",
			"vision_start_token_id": "<|vision_start|>", "vision_end_token_id": "<|vision_end|>"},
		Prefixes: [][2]string{{"model.visual.", "model.visual."}, {"model.", "model.language_model."}},
	},
}

// turned are the settings of Qwen 3 VL's rotary positions.
var turned = map[string]any{"rope_type": "default", "mrope_interleaved": true}
