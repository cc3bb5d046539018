package falcon

import "github.com/karat-run/karat/internal/family"

// Family describes files of Falcon's models with rotary positions.
//
// Source: transformers 5.17, models/falcon/configuration_falcon.py; llama.cpp,
// conversion/falcon.py and src/models/falcon.cpp.
var Family = family.Family{
	Name:  "falcon",
	Title: "Falcon",
	Model: family.Of(New),

	Types: []family.Type{{Name: "falcon", Class: "FalconForCausalLM", Defaults: map[string]any{
		"layer_norm_eps": 1e-5, "hidden_act": "gelu", "tie_word_embeddings": true, "max_position_embeddings": 2048.,
		"vocab_size": 65024., "num_attention_heads": 71., "alibi": false, "bias": false, "parallel_attn": true}}},
	Fixed: map[string]any{"hidden_act": "gelu", "alibi": false, "bias": false, "parallel_attn": true,
		"apply_residual_connection_post_layernorm": false},
	Idle:       []string{"multi_query"}, // where FromConfig leaves it
	FromConfig: normal,
	ToConfig:   spell,
	Rope:       family.Rope{Full: map[string]any{"rope_theta": 1e4}, Silent: true},
	Spelling: map[string][]string{
		"layer_norm_eps": {"layer_norm_epsilon"}, "hidden_act": {"activation"},
		"intermediate_size":   {"ffn_hidden_size"},
		"num_attention_heads": {"num_attention_heads", "n_head"}, "num_hidden_layers": {"num_hidden_layers", "n_layer"},
		"num_key_value_heads": {"num_kv_heads", "n_head_kv"},
	},
	Without: []string{"rms_norm_eps"},

	Keys: []family.Key{{GGUF: "tensor_data_layout", Kind: family.Word, Text: "jploski"}},
	Held: map[string]string{"num_ln_in_parallel_attn": "blk.0.attn_norm_2"},
	Habits: []family.Habit{{Ends: []string{".attn_qkv"},
		Fused: &family.Fused{Heads: "num_attention_heads", Groups: "num_key_value_heads"}}},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "falcon"},
	Expect:    family.Expect{Theta: true, Eps: []float64{1e-5}},
	Frugal:    true,
}

// normal says the heads of keys and the norms in one way. Before the newer architecture a model has one head of keys or
// one for each query, and one norm.
func normal(s family.Settings, f *family.File) {
	for _, key := range []string{"new_decoder_architecture", "multi_query"} {
		if _, ok := s[key].(bool); s[key] != nil && !ok {
			f.Report(key, "is %s, expected true or false", family.Show(s[key]))
		}
	}
	newer, _ := s.Take("new_decoder_architecture").(bool)
	if newer {
		s.Fill("num_key_value_heads", s["num_attention_heads"])
	} else {
		multi, given := s.Take("multi_query").(bool)
		own, heads := s["num_key_value_heads"], s["num_attention_heads"]
		if s["num_key_value_heads"] = heads; multi || !given {
			s["num_key_value_heads"] = 1.
		}
		if own != nil && own != heads && own != s["num_key_value_heads"] {
			f.Report("num_key_value_heads", "is %s, and by multi_query %v", family.Show(own), s["num_key_value_heads"])
		}
	}
	norms := s.Take("num_ln_in_parallel_attn")
	s["num_ln_in_parallel_attn"] = newer && (norms == nil || norms == 2.)
	if norms != nil && norms != 1. && norms != 2. {
		f.Report("num_ln_in_parallel_attn", "is %s, expected 1 or 2", family.Show(norms))
	}
	if n := s.Number("hidden_size"); n != 0 {
		s.Fill("intermediate_size", 4*n)
	}
}

// spell is the inverse of normal.
func spell(s family.Settings) {
	two := s.Take("num_ln_in_parallel_attn") == true
	s["multi_query"] = s["num_key_value_heads"] == 1.
	if s["new_decoder_architecture"] = two || s["num_key_value_heads"] != 1.; s["new_decoder_architecture"] == true {
		s["num_ln_in_parallel_attn"] = map[bool]float64{false: 1, true: 2}[two]
	}
}
