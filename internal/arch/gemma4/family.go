package gemma4

import (
	"maps"
	"strconv"

	"github.com/karat-run/karat/internal/family"
)

// defaults are config.json's. Sizes given by every published file are left out.
var defaults = map[string]any{
	"rms_norm_eps": 1e-6, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": true,
	"max_position_embeddings": 131072., "vocab_size": 262144., "num_attention_heads": 8., "num_key_value_heads": 4.,
	"head_dim": 256., "global_head_dim": 512., "hidden_size_per_layer_input": 256.,
	"vocab_size_per_layer_input": 262144., "sliding_window": 512.,
}

// unified are those of the 12B, whose text has no embeddings by layer.
var unified = func() map[string]any {
	d := maps.Clone(defaults)
	d["hidden_size_per_layer_input"], d["sliding_window"], d["max_position_embeddings"] = 0., 1024., 262144.
	return d
}()

// Family describes files of Gemma 4.
//
// Source: transformers 5.17, models/gemma4/configuration_gemma4.py and
// models/gemma4_unified/modular_gemma4_unified.py; llama.cpp, conversion/gemma.py.
var Family = family.Family{
	Name:  "gemma4",
	Title: "Gemma 4",
	Model: family.Of(New),

	Types: []family.Type{
		{Name: "gemma4_text", Class: "Gemma4ForCausalLM", Window: family.Periodic, Period: 6, LastFull: true,
			Defaults: defaults},
		{Name: "gemma4", Window: family.Periodic, Period: 6, LastFull: true, Defaults: defaults},
		{Name: "gemma4_unified_text", Class: "Gemma4UnifiedForCausalLM", Window: family.Periodic, Period: 6,
			LastFull: true, Defaults: unified},
		{Name: "gemma4_unified", Window: family.Periodic, Period: 6, LastFull: true, Defaults: unified},
	},
	Fixed:      map[string]any{"hidden_activation": "gelu_pytorch_tanh"},
	Idle:       []string{"vocab_size_per_layer_input"},
	FromConfig: sizes,
	ToConfig:   spell,
	FromGGUF:   detect,
	ToGGUF:     widths,
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
		{Setting: "moe_intermediate_size"},
		{GGUF: "rope.dimension_count", Kind: family.FullDim},
		{GGUF: "rope.dimension_count_swa", Kind: family.SlidingDim},
		{Setting: "enable_moe_block", Kind: family.Experts},
	},
	Bare: []string{".per_expert_scale", ".layer_scalar", ".experts.gate_up_proj", ".experts.down_proj"},

	Tokenizer: family.Tokenizer{Model: "gemma4", Merged: true, BOS: true},
	Expect: family.Expect{
		Parts:   []family.Part{family.Scalar},
		Tied:    true,
		Softcap: 30,
		Published: []family.Published{{Layers: 35, Hidden: 1536, Shared: 20}, {Layers: 42, Hidden: 2560, Shared: 18},
			{Layers: 30, Hidden: 2816}, {Layers: 48, Hidden: 3840}, {Layers: 60, Hidden: 5376}},
		Turns:       []family.Turns{{Name: "Gemma 4's", Marks: []string{"<|turn>", "<turn|>"}, Only: true}},
		TurnsAsText: true,
	},
}

// sizes gives full layers the sizes that config.json names for them, unless config.json has settings by layer.
func sizes(s family.Settings, f *family.File) {
	global := map[string]string{"head_dim": "global_head_dim", "num_key_value_heads": "num_global_key_value_heads"}
	full := family.Settings{}
	for key, from := range global {
		v := s.Take(from)
		if key == "head_dim" || s["attention_k_eq_v"] == true { // the library reads the number of heads only then
			full.Fill(key, v)
		}
	}
	if s["per_layer_config"] != nil {
		return
	}
	per := map[string]any{}
	for i, kind := range s.List("layer_types") {
		if kind != family.FullAttention {
			continue
		}
		layer := strconv.Itoa(i)
		per[layer] = maps.Clone(full)
		for key, from := range global {
			f.Spelling["per_layer_config."+layer+"."+key] = from
		}
	}
	s["per_layer_config"] = per
}

// detect reads off the tensors the settings without a key in GGUF.
func detect(s family.Settings, f *family.File) {
	s.Fill("vocab_size_per_layer_input", f.Rows("per_layer_token_embd"))
	for i, kind := range s.List("layer_types") {
		layer := "blk." + strconv.Itoa(i)
		if kind == family.FullAttention && f.Has(layer+".attn_k") && !f.Has(layer+".attn_v") {
			s["attention_k_eq_v"] = true
		}
	}
}

// widths writes by layer the double width of layers with shared keys and values, and drops settings that the
// tensors tell.
func widths(s family.Settings) {
	if s.Take("use_double_wide_mlp") == true {
		wide := s.Number("intermediate_size") * 2
		by, _ := family.Object(s["per_layer_config"])
		per := map[string]any(maps.Clone(by))
		if per == nil {
			per = map[string]any{}
		}
		for i := max(s.Int("num_hidden_layers")-s.Int("num_kv_shared_layers"), 0); i < s.Int("num_hidden_layers"); i++ {
			layer, _ := family.Object(per[strconv.Itoa(i)])
			if layer = maps.Clone(layer); layer == nil {
				layer = family.Settings{}
			}
			layer.Fill("intermediate_size", wide)
			per[strconv.Itoa(i)] = layer
		}
		s["per_layer_config"] = per
	}
	if s["enable_moe_block"] != true {
		delete(s, "moe_intermediate_size")
	}
	delete(s, "attention_k_eq_v")
}

// spell writes the double width of layers with shared keys and values as a single setting, in the place of
// widths by layer, and writes the settings that readers would assume differently.
func spell(s family.Settings) {
	defer s.Say(map[string]any{"attention_k_eq_v": false, "enable_moe_block": false, "use_double_wide_mlp": false,
		"num_kv_shared_layers": 0., "hidden_size_per_layer_input": 0.})
	per, _ := family.Object(s["per_layer_config"])
	layers, wide := s.Int("num_hidden_layers"), 0
	for i := range layers {
		layer, _ := family.Object(per[strconv.Itoa(i)])
		n := layer.Int("intermediate_size")
		switch shared := i >= layers-s.Int("num_kv_shared_layers"); {
		case n == 0 && !shared:
		case n == 2*s.Int("intermediate_size") && shared:
			wide++
		default:
			return
		}
	}
	if wide == 0 {
		return
	}
	s["use_double_wide_mlp"] = true
	others := map[string]any{}
	for i, v := range per {
		layer, _ := family.Object(v)
		layer = maps.Clone(layer)
		delete(layer, "intermediate_size")
		if len(layer) > 0 {
			others[i] = layer
		}
	}
	s["per_layer_config"] = others
}
