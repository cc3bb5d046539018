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
	},
}
