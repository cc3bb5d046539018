package mistral4

import "github.com/karat-run/karat/internal/family"

// Family describes files of Mistral Small 4. llama.cpp's converter leaves out the growth of queries, for which its
// reader of this architecture has keys: a factor and a length, which is the context that yarn extends.
//
// Source: transformers 5.17, models/mistral4/configuration_mistral4.py; llama.cpp, conversion/mistral3.py and
// src/models/deepseek2.cpp.
var Family = family.Family{
	Name:  "mistral4",
	Title: "Mistral Small 4",
	Model: family.Of(New),

	Types: []family.Type{{Name: "mistral4", Class: "Mistral4ForCausalLM", Defaults: map[string]any{
		"hidden_act": "silu", "tie_word_embeddings": false, "rms_norm_eps": 1e-6, "kv_lora_rank": 256.,
		"q_lora_rank": 1024., "qk_nope_head_dim": 64., "qk_rope_head_dim": 64., "v_head_dim": 128., "n_group": 1.,
		"topk_group": 1., "max_position_embeddings": 1048576., "first_k_dense_replace": 0., "n_shared_experts": 1.,
		"routed_scaling_factor": 1., "norm_topk_prob": true, "rope_interleave": true}}},
	Fixed:      map[string]any{"hidden_act": "silu", "rope_interleave": true},
	FromConfig: follow,
	FromGGUF:   length,
	ToConfig: func(s family.Settings) {
		s["head_dim"] = s.Number("qk_nope_head_dim") + s.Number("qk_rope_head_dim")
		delete(s, "temperature_length")
	},
	Coarse: func(family.Settings) float64 { return 1.04e-3 }, // rows that change their experts
	Idle:   []string{"qk_head_dim", "num_key_value_heads", "head_dim", "pretraining_tp"},
	Limits: []family.Limit{
		{Key: "q_lora_rank", Min: 1, Max: 1 << 24, Rule: family.Required | family.Whole},
		{Key: "first_k_dense_replace", Min: 0, Max: 1 << 10, Rule: family.Whole},
		{Key: "n_shared_experts", Min: 1, Max: 1 << 10, Rule: family.Required | family.Whole},
		{Key: "routed_scaling_factor", Min: 1e-6, Max: 1e6}, {Key: "llama_4_scaling_beta", Min: 0, Max: 1e3},
	},
	Rope: family.Rope{Full: map[string]any{"rope_theta": 1e4},
		With: []string{"llama_4_scaling_beta"}},
	Spelling: map[string][]string{"num_experts": {"n_routed_experts"}, "top_k_experts": {"num_experts_per_tok"}},

	Keys: []family.Key{
		{Setting: "first_k_dense_replace", GGUF: "leading_dense_block_count"}, {Setting: "vocab_size"},
		{Setting: "q_lora_rank", GGUF: "attention.q_lora_rank"},
		{Setting: "kv_lora_rank", GGUF: "attention.kv_lora_rank", Kind: family.Rank},
		{Setting: "moe_intermediate_size"}, {Setting: "n_shared_experts", GGUF: "expert_shared_count"},
		{Setting: "n_group", GGUF: "expert_group_count", Nil: true},
		{Setting: "topk_group", GGUF: "expert_group_used_count", Nil: true},
		{Setting: "routed_scaling_factor", GGUF: "expert_weights_scale", Kind: family.Number},
		{Setting: "norm_topk_prob", GGUF: "expert_weights_norm", Kind: family.Truth},
		{GGUF: "rope.dimension_count", Kind: family.FullDim},
		{Setting: "llama_4_scaling_beta", GGUF: "attention.temperature_scale", Kind: family.Number},
		{Setting: "temperature_length", GGUF: "attention.temperature_length"},
	},
	Bare: []string{".experts.gate_up_proj", ".experts.down_proj"},
	Synonyms: map[string]string{".self_attn.embed_q": ".self_attn.k_b_proj",
		".self_attn.unembed_out": ".self_attn.v_b_proj"},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "tekken", BOS: true},
	Expect: family.Expect{Theta: true, Eps: []float64{1e-6, 1e-5},
		Parts: []family.Part{{GGUF: "attn_kv_a_mqa", HF: "kv_a_proj_with_mqa"}}},
}

// follow checks settings repeating others, and sets the library's rotation where the file is silent.
func follow(s family.Settings, f *family.File) {
	turning := s.Number("qk_rope_head_dim")
	dim := s.Number("qk_nope_head_dim") + turning
	if s["rope_parameters"] == nil && s["rope_scaling"] == nil && s["rope_theta"] == nil {
		s["rope_parameters"] = map[string]any{"rope_type": "yarn", "rope_theta": 1e4, "factor": 128.,
			"original_max_position_embeddings": 8192., "beta_fast": 32., "beta_slow": 1., "mscale": 1.,
			"mscale_all_dim": 1., "llama_4_scaling_beta": 0.1}
	}
	if p, _ := family.Object(s["rope_parameters"]); p != nil {
		f.Follows(p, "partial_rotary_factor", turning/dim)
		delete(p, "partial_rotary_factor")
		delete(p, "max_position_embeddings") // the model's
	}
	for _, key := range []string{"head_dim", "qk_head_dim"} {
		f.Follows(s, key, dim)
	}
	f.Follows(s, "num_key_value_heads", s["num_attention_heads"])
	s["head_dim"] = turning // of the stored key that turns
	length(s, f)
}

// length sets the positions of a step in which queries grow.
func length(s family.Settings, _ *family.File) {
	for _, key := range []string{"rope_parameters", "rope_scaling"} {
		p, _ := family.Object(s[key])
		if full, ok := family.Object(p[family.FullAttention]); ok {
			p = full
		}
		s.Fill("temperature_length", p["original_max_position_embeddings"])
	}
}
