package qwen25vl

import "github.com/karat-run/karat/internal/family"

// Tower describes the towers of Qwen 2.5 VL.
var Tower = family.Tower{
	Name: "qwen2.5vl_merger", Types: []string{"qwen2_5_vl"}, Model: family.Of(New),
	Defaults: map[string]any{"num_hidden_layers": 32., "hidden_size": 3584., "hidden_act": "silu",
		"intermediate_size": 3420., "num_attention_heads": 16., "patch_size": 14., "spatial_merge_size": 2.,
		"temporal_patch_size": 2., "window_size": 112., "fullatt_block_indexes": []any{7., 15., 23., 31.},
		"layer_norm_eps": 1e-6, "rope_theta": 10000.},
	Image: "<|image_pad|>", Around: [2]string{"<|vision_start|>", "<|vision_end|>"},
	Marks: family.Enclose("", ""),
	Projector: family.Projector{
		Keys: map[string]string{"n_wa_pattern": "pattern"}, Times: true, Apart: true,
		Read: func(s family.Settings, _ func(string) []int) {
			whole := []any{} // every n-th layer sees the whole picture; without a pattern all do
			n, _ := s.Take("pattern").(float64)
			layers := s.Int("num_hidden_layers")
			for i := range min(layers, family.MaxLayers) {
				if every := int(n); every < 1 || (i+1)%every == 0 {
					whole = append(whole, float64(i))
				}
			}
			s["fullatt_block_indexes"] = whole
		},
		Processor: func(s family.Settings) map[string]any {
			return map[string]any{"image_processor_type": "Qwen2VLImageProcessor", "resample": 3,
				"patch_size": s["patch_size"], "merge_size": s["spatial_merge_size"], "temporal_patch_size": 2,
				"min_pixels": 3136, "max_pixels": 12845056}
		},
		Order: []string{"clip.projector_type", family.ActKey, "clip.vision.n_wa_pattern",
			"clip.vision.attention.layer_norm_epsilon"},
		Write: func(s, _ family.Settings) {
			s.Fill("image_size", 560.)
			if whole := s.List("fullatt_block_indexes"); len(whole) > 0 && len(whole) < s.Int("num_hidden_layers") {
				first, _ := whole[0].(float64)
				s["pattern"] = first + 1
			}
		},
	},
	Folder: family.Folder{
		Forms: []family.Composite{{Arch: "qwen2vl", Type: "qwen2_5_vl", Class: "Qwen2_5_VLForConditionalGeneration",
			Text: "qwen2_5_vl_text", Rope: map[string]any{"rope_type": "default"}}},
		Settings: []string{"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
			"hidden_act", "patch_size", "temporal_patch_size", "spatial_merge_size", "window_size",
			"fullatt_block_indexes", "out_hidden_size"},
		Inner: map[string]string{"num_hidden_layers": "depth", "num_attention_heads": "num_heads"},
		Tokens: map[string]string{"image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>",
			"vision_start_token_id": "<|vision_start|>", "vision_end_token_id": "<|vision_end|>"},
		Prefixes: [][2]string{{"model.visual.", "visual."}},
	},
}
