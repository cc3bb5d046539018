package gemma4v

import "github.com/karat-run/karat/internal/family"

// Tower describes the towers of Gemma 4.
var Tower = family.Tower{
	Name: "gemma4v", Types: []string{"gemma4"}, Model: family.Of(New),
	Defaults: map[string]any{"hidden_size": 768., "intermediate_size": 3072., "num_hidden_layers": 16.,
		"num_attention_heads": 12., "num_key_value_heads": 12., "head_dim": 64., "hidden_act": "gelu_pytorch_tanh",
		"layer_norm_eps": 1e-6, "patch_size": 16., "position_embedding_size": 10240., "spatial_merge_size": 3.,
		"rope_theta": 100.},
	Image: "<|image|>", Marks: family.Enclose("<|image>", "<image|>"), Padded: true,
	Projector: family.Projector{
		Last: true,
		Read: func(s family.Settings, shape func(string) []int) {
			s["num_key_value_heads"] = s["num_attention_heads"]
			if n := s.Int("num_attention_heads"); n > 0 {
				s["head_dim"] = float64(s.Int("hidden_size") / n)
			}
			if table := shape("v.position_embd"); len(table) == 3 {
				s["position_embedding_size"] = float64(table[1])
			}
			s["standardize"] = shape("v.std_bias") != nil
			s["use_clipped_linears"] = shape("v.blk.0.attn_q.input_min") != nil
		},
		Processor: func(s family.Settings) map[string]any {
			return map[string]any{"image_processor_type": "Gemma4ImageProcessor", "resample": 3, "do_normalize": false,
				"patch_size": s["patch_size"], "pooling_kernel_size": s["spatial_merge_size"], "max_soft_tokens": 280}
		},
		Order: []string{"clip.vision.projector_type", "clip.vision.attention.layer_norm_epsilon"},
		Write: func(s, _ family.Settings) { s.Fill("image_size", 224.) },
	},
	Folder: family.Folder{
		Vision: "gemma4_vision",
		Forms:  []family.Composite{{Arch: "gemma4", Type: "gemma4", Class: "Gemma4ForConditionalGeneration"}},
		Settings: []string{"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
			"num_key_value_heads", "head_dim", "hidden_act", "layer_norm_eps", "patch_size",
			"position_embedding_size", "spatial_merge_size", "standardize", "use_clipped_linears"},
		Inner: map[string]string{"hidden_act": "hidden_activation", "layer_norm_eps": "rms_norm_eps",
			"spatial_merge_size": "pooling_kernel_size"},
		Tokens: map[string]string{"image_token_id": "<|image|>", "boi_token_id": "<|image>",
			"eoi_token_id": "<image|>", "video_token_id": "<|video|>", "audio_token_id": "<|audio|>"},
		Prefixes: [][2]string{{"model.vision_tower.", "model.vision_tower."},
			{"model.embed_vision.", "model.embed_vision."}, {"model.", "model.language_model."}},
		Bare: []string{".input_min", ".input_max", ".output_min", ".output_max", ".std_bias", ".std_scale",
			".position_embedding_table"},
	},
}
