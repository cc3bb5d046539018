package pixtral

import "github.com/karat-run/karat/internal/family"

// Tower describes the towers of Mistral 3.
var Tower = family.Tower{
	Name: "pixtral", Types: []string{"mistral3"}, Model: family.Of(New),
	Defaults: map[string]any{"hidden_size": 1024., "intermediate_size": 4096., "num_hidden_layers": 24.,
		"num_attention_heads": 16., "patch_size": 16., "hidden_act": "gelu", "rope_theta": 10000.,
		"spatial_merge_size": 2., "vision_feature_layer": -1., "projector_hidden_act": "gelu",
		"text_rms_norm_eps": 1e-6},
	Image: "[IMG]", Marks: broken,
	Projector: family.Projector{
		Permuted: true,
		Read: func(s family.Settings, _ func(string) []int) {
			s["text_rms_norm_eps"] = s["layer_norm_eps"]
			if n := s.Int("num_attention_heads"); n > 0 {
				s["head_dim"] = float64(s.Int("hidden_size") / n)
			}
		},
		Processor: func(s family.Settings) map[string]any {
			side := s.Int("patch_size") * s.Int("spatial_merge_size")
			return map[string]any{"image_processor_type": "PixtralImageProcessor", "resample": 3, "patch_size": side,
				"size": map[string]any{"longest_edge": s["image_size"]}}
		},
		Order: []string{"clip.projector_type", "clip.vision.attention.layer_norm_epsilon", family.ActKey,
			"clip.vision.spatial_merge_size"},
		Write: func(s, _ family.Settings) { s.Fill("layer_norm_eps", 1e-5) },
	},
	Folder: family.Folder{
		Vision: "pixtral",
		Forms: []family.Composite{
			{Arch: "mistral3", Type: "mistral3", Class: "Mistral3ForConditionalGeneration"},
			{Arch: "llama", Type: "mistral3", Class: "Mistral3ForConditionalGeneration", Text: "mistral"}},
		Settings: []string{"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "head_dim",
			"hidden_act", "patch_size", "image_size"},
		Outer: map[string]string{"spatial_merge_size": "spatial_merge_size",
			"vision_feature_layer": "vision_feature_layer", "projector_hidden_act": "projector_hidden_act",
			"multimodal_projector_bias": "multimodal_projector_bias"},
		Tokens: map[string]string{"image_token_index": "[IMG]"},
		Prefixes: [][2]string{{"model.vision_tower.", "vision_tower."},
			{"model.multi_modal_projector.", "multi_modal_projector."}, {"model.", "language_model.model."},
			{"lm_head.", "language_model.lm_head."}},
	},
}

// broken returns rows with a mark behind each.
func broken(v family.View) []family.Mark {
	var m family.Marks
	for _, g := range v.Tiles {
		for i := range g.Height {
			if m.Show(g.Width); i < g.Height-1 {
				m.Write("[IMG_BREAK]")
			}
		}
		m.Write("[IMG_END]")
	}
	return m.List
}
