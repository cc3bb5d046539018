package siglip

import (
	"fmt"
	"maps"

	"github.com/karat-run/karat/internal/family"
)

// AveragedTower describes the towers of Gemma 3.
var AveragedTower = family.Tower{
	Name: "gemma3", Types: []string{"gemma3"}, Model: family.Of(NewAveraged),
	Defaults: with(map[string]any{"mm_tokens_per_image": 256.}),
	Image:    "<start_of_image>", Marks: cropped,
	Projector: family.Projector{
		Keys: map[string]string{"projector.scale_factor": "pool"}, Plus: "mm.soft_emb_norm",
		Read: func(s family.Settings, _ func(string) []int) {
			pool, ok := s.Take("pool").(float64)
			if !ok {
				pool = 4
			}
			if patch := s.Int("patch_size"); patch > 0 && pool > 0 {
				side := s.Int("image_size") / patch / int(pool)
				s["mm_tokens_per_image"] = float64(side * side)
			}
		},
		Processor: func(s family.Settings) map[string]any {
			return map[string]any{"image_processor_type": "Gemma3ImageProcessor", "resample": 2,
				"size": map[string]any{"height": s["image_size"], "width": s["image_size"]}}
		},
		Order: []string{"clip.projector_type", "clip.vision.attention.layer_norm_epsilon", family.ActKey,
			"clip.vision.projector.scale_factor"},
		Half: "mm.input_projection",
		Write: func(s, _ family.Settings) {
			patch, root := s.Int("patch_size"), family.Root(s.Int("mm_tokens_per_image"))
			if pool := s.Int("image_size") / max(1, patch) / max(1, root); pool != 4 { // 4 is what readers assume
				s["pool"] = float64(pool)
			}
		},
	},
	Folder: family.Folder{
		Vision:   "siglip_vision_model",
		Forms:    []family.Composite{{Arch: "gemma3", Type: "gemma3", Class: "Gemma3ForConditionalGeneration"}},
		Settings: append([]string{"image_size"}, encoded...),
		Outer:    map[string]string{"mm_tokens_per_image": "mm_tokens_per_image"},
		Tokens: map[string]string{"image_token_index": "<image_soft_token>", "boi_token_index": "<start_of_image>",
			"eoi_token_index": "<end_of_image>"},
		Prefixes: [][2]string{{"model.vision_tower.", "vision_tower.vision_model."},
			{"model.multi_modal_projector.", "multi_modal_projector."}, {"model.", "language_model.model."},
			{"lm_head.", "language_model.lm_head."}},
		Bare: []string{".mm_input_projection_weight"},
	},
}

// encoded are the settings of all encoders.
var encoded = []string{"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "hidden_act",
	"patch_size", "layer_norm_eps"}

// ShuffledTower describes the towers of SmolVLM and Idefics 3.
var ShuffledTower = family.Tower{
	Name: "idefics3", Types: []string{"smolvlm", "idefics3"}, Model: family.Of(NewShuffled),
	Defaults: with(map[string]any{"hidden_size": 1152., "image_size": 224., "patch_size": 32.,
		"num_hidden_layers": 12., "num_attention_heads": 16., "spatial_merge_size": 2.}),
	Image: "<image>", Marks: tiled,
	Projector: family.Projector{
		Keys: map[string]string{"preproc_image_size": "longest"},
		Processor: func(s family.Settings) map[string]any {
			longest := s.Take("longest")
			if longest == nil {
				longest = 2048
			}
			return map[string]any{"image_processor_type": "SmolVLMImageProcessor", "resample": 1,
				"do_image_splitting": true, "size": map[string]any{"longest_edge": longest},
				"max_image_size": map[string]any{"longest_edge": s["image_size"]}}
		},
		Order: []string{"clip.projector_type", "clip.vision.attention.layer_norm_epsilon",
			"clip.vision.projector.scale_factor", family.ActKey, "clip.vision.preproc_image_size"},
		Write: func(s, processor family.Settings) {
			if size, _ := family.Object(processor["size"]); size != nil {
				s.Fill("longest", size["longest_edge"])
			}
		},
	},
	Folder: family.Folder{
		Vision: "smolvlm_vision",
		Forms: []family.Composite{
			{Arch: "llama", Type: "smolvlm", Class: "SmolVLMForConditionalGeneration", Text: "llama"}},
		Settings: append([]string{"image_size"}, encoded...),
		Outer:    map[string]string{"spatial_merge_size": "scale_factor"},
		Tokens:   map[string]string{"image_token_id": "<image>"},
		Prefixes: [][2]string{{"model.vision_model.", "model.vision_model."},
			{"model.connector.", "model.connector."}, {"model.", "model.text_model."}},
	},
}

// ResizedTower describes the towers of LFM2 VL.
var ResizedTower = family.Tower{
	Name: "lfm2", Types: []string{"lfm2_vl"}, Model: family.Of(NewResized),
	Defaults: with(map[string]any{"num_patches": 256., "spatial_merge_size": 2., "projector_hidden_size": 2560.,
		"projector_hidden_act": "gelu", "projector_use_layernorm": true, "projector_bias": true}),
	Image: "<image>", Marks: framed,
	Projector: family.Projector{
		Keys: map[string]string{"image_size": "side"}, Last: true, // no such setting in config.json
		Read: func(s family.Settings, shape func(string) []int) {
			if table := shape("v.position_embd"); len(table) == 2 {
				s["num_patches"] = float64(table[0])
			}
			if up := shape("mm.1"); len(up) == 2 {
				s["projector_hidden_size"] = float64(up[0])
			}
			s["projector_use_layernorm"] = shape("mm.input_norm") != nil
			s["projector_bias"] = shape("mm.1.bias") != nil
		},
		Processor: func(s family.Settings) map[string]any {
			return map[string]any{"image_processor_type": "Lfm2VlImageProcessor", "resample": 2,
				"do_image_splitting": true, "use_thumbnail": true, "encoder_patch_size": s["patch_size"],
				"downsample_factor": s["spatial_merge_size"], "min_image_tokens": 64, "max_image_tokens": 256,
				"max_pixels_tolerance": 2, "min_tiles": 2, "max_tiles": 10, "tile_size": 512}
		},
		Order: []string{"clip.projector_type", "clip.vision.attention.layer_norm_epsilon",
			"clip.vision.projector.scale_factor", family.ActKey},
		Write: func(s, _ family.Settings) { s["side"] = 256. },
	},
	Folder: family.Folder{
		Vision:   "siglip2_vision_model",
		Forms:    []family.Composite{{Arch: "lfm2", Type: "lfm2_vl", Class: "Lfm2VlForConditionalGeneration"}},
		Settings: append([]string{"num_patches"}, encoded...),
		Outer: map[string]string{"spatial_merge_size": "downsample_factor",
			"projector_hidden_size": "projector_hidden_size", "projector_hidden_act": "projector_hidden_act",
			"projector_use_layernorm": "projector_use_layernorm", "projector_bias": "projector_bias"},
		Tokens: map[string]string{"image_token_id": "<image>"},
		Prefixes: [][2]string{{"model.vision_tower.", "model.vision_tower.vision_model."},
			{"model.multi_modal_projector.", "model.multi_modal_projector."}, {"model.", "model.language_model."}},
	},
}

// with returns SigLIP's defaults and a family's own.
func with(own map[string]any) map[string]any {
	all := map[string]any{"hidden_size": 768., "intermediate_size": 3072., "num_hidden_layers": 12.,
		"num_attention_heads": 12., "image_size": 224., "patch_size": 16., "hidden_act": "gelu_pytorch_tanh",
		"layer_norm_eps": 1e-6}
	maps.Copy(all, own)
	return all
}

// cropped returns the marks of Gemma 3: the whole picture, and its crops behind.
func cropped(v family.View) (all []family.Mark) {
	rows := make([]int, len(v.Tiles)+1) // before a tile
	for i, g := range v.Tiles {
		rows[i+1] = rows[i] + g.Height*g.Width
	}
	last := len(v.Tiles) - 1
	for i := range v.Tiles {
		tile, before, after := last, "\n\n<start_of_image>", "<end_of_image>\n\n"
		switch i {
		case 0:
			if last > 0 {
				before = "Here is the original image " + before
				after += " and here are some crops to help you see better "
			}
		case last:
			tile = i - 1
		default:
			tile, after = i-1, after+" "
		}
		all = append(all, family.Mark{Text: before}, family.Mark{From: rows[tile], To: rows[tile+1]},
			family.Mark{Text: after})
	}
	return all
}

// tiled returns the marks of SmolVLM.
func tiled(v family.View) []family.Mark {
	var m family.Marks
	show := func(i int, label string) {
		m.Write("<fake_token_around_image>", label)
		m.Show(v.Tiles[i].Height * v.Tiles[i].Width)
	}
	for i := range v.Rows * v.Cols {
		show(i, fmt.Sprintf("<row_%d_col_%d>", i/v.Cols+1, i%v.Cols+1))
		if i%v.Cols == v.Cols-1 {
			m.Write("\n")
		}
	}
	if v.Rows > 0 {
		m.Write("\n")
	}
	show(len(v.Tiles)-1, "<global-img>")
	m.Write("<fake_token_around_image>")
	return m.List
}

// framed returns the marks of LFM2 VL.
func framed(v family.View) []family.Mark {
	var m family.Marks
	m.Write("<|image_start|>")
	for i, g := range v.Tiles {
		switch {
		case i < v.Rows*v.Cols:
			m.Write(fmt.Sprintf("<|img_row_%d_col_%d|>", i/v.Cols+1, i%v.Cols+1))
		case i > 0:
			m.Write("<|img_thumbnail|>")
		}
		m.Show(g.Height * g.Width)
	}
	m.Write("<|image_end|>")
	return m.List
}
