package deepseek2

import (
	"maps"
	"slices"

	"github.com/karat-run/karat/internal/family"
)

// Sparse describes files of DeepSeek V3.2, with an indexer in each layer, of halves.
//
// published.json: that of V3 (testdata/README.md), with an indexer's settings, alike in several public readers.
//
// Source: transformers 5.17, models/deepseek_v32; llama.cpp, conversion/deepseek.py and src/models/deepseek32.cpp.
var Sparse = indexed("deepseek32", "DeepSeek V3.2", family.Type{Name: "deepseek_v32", Class: "DeepseekV32ForCausalLM",
	Defaults: indexDefaults(map[string]any{"max_position_embeddings": 163840., "index_n_heads": 64.,
		"indexer_rope_interleave": false})})

// GLM describes files of GLM-5. Layers may take the choice of the last layer with an indexer (GLM-5.2).
//
// published.json: transformers' print of GLM-5.1's settings, and ai-dynamo/aiconfigurator's file of GLM-5-FP8.
// published-5.2.json: the whole file of GLM-5.3 in a public test; GLM-5.2's values, where found, are the same, as in
// huggingface/transformers, issue 46739, on head_dim.
//
// Source: transformers 5.17, models/glm_moe_dsa; llama.cpp, conversion/glm.py and src/models/glm-dsa.cpp.
var GLM = glm()

// indexed returns the family of models with indexers.
func indexed(name, title string, t family.Type) family.Family {
	f := Family
	f.Name, f.Title, f.Types = name, title, []family.Type{t}
	f.Coarse = func(family.Settings) float64 { return 1.5e-2 } // rows that choose other positions, as in binary16
	f.Fixed = maps.Clone(f.Fixed)
	for _, key := range []string{"indexer_rope_interleave", "scoring_func"} {
		f.Fixed[key] = t.Defaults[key]
	}
	f.Layers.Kinds = map[string]string{"deepseek_sparse_attention": family.FullAttention}
	f.Idle = append(slices.Clip(f.Idle), "scoring_func", "index_topk_freq", "index_skip_topk_offset",
		"index_topk_pattern", "index_share_for_mtp_iteration", "moe_router_dtype")
	must := family.Required | family.Whole // no tensor has index_topk, the length of a value of every row
	f.Limits = append(slices.Clip(f.Limits), family.Limit{Key: "index_topk", Min: 1, Max: 1 << 14, Rule: must},
		family.Limit{Key: "index_n_heads", Min: 1, Max: 1 << 16, Rule: must},
		family.Limit{Key: "index_head_dim", Min: 2, Max: 1 << 14, Rule: must},
		family.Limit{Key: "index_topk_freq", Min: 0, Max: family.MaxLayers, Rule: family.Whole},
		family.Limit{Key: "index_skip_topk_offset", Min: 0, Max: family.MaxLayers, Rule: family.Whole})
	f.Keys = append(slices.Clip(f.Keys), family.Key{Setting: "index_n_heads", GGUF: "attention.indexer.head_count"},
		family.Key{Setting: "index_head_dim", GGUF: "attention.indexer.key_length"},
		family.Key{Setting: "index_topk", GGUF: "attention.indexer.top_k"})
	return f
}

func glm() family.Family {
	f := indexed("glm-dsa", "GLM-5", family.Type{Name: "glm_moe_dsa", Class: "GlmMoeDsaForCausalLM",
		Defaults: indexDefaults(map[string]any{"max_position_embeddings": 202752., "rms_norm_eps": 1e-5,
			"q_lora_rank": 2048., "qk_nope_head_dim": 192., "v_head_dim": 256., "n_group": 1., "topk_group": 1.,
			"index_n_heads": 32., "indexer_rope_interleave": true})})
	f.Keys = append(f.Keys, family.Key{Setting: "indexer_types", GGUF: "attention.indexer.types",
		Kind: family.EachLayer, Words: []string{"shared", "full"}})
	f.Tokenizer = family.Tokenizer{Model: "gpt2", Pre: "glm4"}
	f.Expect.Turns = nil
	f.FromConfig = func(s family.Settings, file *family.File) {
		if s["head_dim"] == s["qk_nope_head_dim"] { // as in GLM-5.2; nothing has this size
			s["head_dim"] = s["qk_rope_head_dim"]
		}
		follow(s, file)
		every := max(int(s.Number("index_topk_freq")), 1)
		first := 2
		if s["index_skip_topk_offset"] != nil {
			first = s.Int("index_skip_topk_offset")
		}
		share(s, every, first)
	}
	f.FromGGUF = func(s family.Settings, file *family.File) {
		method(s, file)
		every := 1 // before GLM-5.2, with its 2^20 positions
		if s.Number("max_position_embeddings") >= 1<<20 {
			every = 4
		}
		share(s, every, 3)
	}
	return f
}

// share fills the kinds of indexers: by the pattern's letters, else full in every so many layers, with a number of the
// first.
func share(s family.Settings, every, first int) {
	if s["indexer_types"] != nil {
		return
	}
	pattern, given := s["index_topk_pattern"].(string)
	for i := 0; !given && i < min(s.Int("num_hidden_layers"), family.MaxLayers); i++ {
		pattern += string("FS"[min(max(i-first+1, 0)%every, 1)])
	}
	var types []any
	for _, letter := range pattern {
		types = append(types, map[rune]any{'F': "full", 'S': "shared"}[letter])
	}
	s["indexer_types"] = types
}

// indexDefaults returns the defaults of V3 with an indexer's, and a type's own.
func indexDefaults(own map[string]any) map[string]any {
	all := maps.Clone(third)
	maps.Copy(all, map[string]any{"index_topk": 2048., "index_head_dim": 128.})
	maps.Copy(all, own)
	return all
}
