package hunyuandense

import "github.com/karat-run/karat/internal/family"

// Family describes files of Hunyuan's dense models. Their "dynamic" rotation with an alpha is a larger base, whatever
// the length; GGUF has that base, and the 262144 tokens that it is good for.
//
// Source: transformers 5.17, models/hunyuan_v1_dense/configuration_hunyuan_v1_dense.py;
// llama.cpp, conversion/hunyuan.py and src/models/hunyuan-dense.cpp.
var Family = family.Family{
	Name:  "hunyuan-dense",
	Title: "Hunyuan",
	Model: family.Of(New),

	Types: []family.Type{{Name: "hunyuan_v1_dense", Class: "HunYuanDenseV1ForCausalLM", Defaults: map[string]any{
		"rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false, "max_position_embeddings": 2048.,
		"vocab_size": 290943.}}},
	Fixed: map[string]any{"hidden_act": "silu", "use_qk_norm": true, "use_rotary_pos_emb": true,
		"norm_type": "rms", "use_cla": false},
	Idle: []string{"cla_share_factor", "dense_list", "org_vocab_size", "pool_type", "im_start_id", "im_end_id",
		"im_newline_id", "text_start_id", "text_end_id", "mask_init_id"},
	FromConfig: family.Enlarge,
	Rope:       family.Rope{Full: map[string]any{"rope_theta": 1e4}},
	Spelling:   map[string][]string{"head_dim": {"head_dim", "attention_head_dim"}},

	Keys: []family.Key{{GGUF: "rope.scaling.type", Kind: family.Word, Text: "none"}},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "hunyuan-dense", BOS: true},
	Expect: family.Expect{
		Parts: []family.Part{{GGUF: "attn_q_norm", HF: "query_layernorm"}},
		Eps:   []float64{1e-5},
	},
}
