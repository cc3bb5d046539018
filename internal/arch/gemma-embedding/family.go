package gemmaembedding

import "github.com/karat-run/karat/internal/family"

// Family describes files of EmbeddingGemma. The config.json is Gemma 3's. The keys of the pattern and the
// scale are Karat's: llama.cpp's converter writes neither.
//
// Source: transformers 5.17, models/gemma3/configuration_gemma3.py; llama.cpp, conversion/gemma.py.
var Family = family.Family{
	Name:  "gemma-embedding",
	Title: "EmbeddingGemma",
	Model: family.Of(New),

	Types: []family.Type{{Name: "gemma3_text", Class: "Gemma3TextModel", If: "use_bidirectional_attention",
		Window: family.Periodic, Period: 6,
		Defaults: map[string]any{"rms_norm_eps": 1e-6, "hidden_activation": "gelu_pytorch_tanh",
			"tie_word_embeddings": true, "max_position_embeddings": 131072., "vocab_size": 262208.,
			"num_attention_heads": 8., "num_key_value_heads": 4., "head_dim": 256., "query_pre_attn_scalar": 256.,
			"sliding_window": 4096.}}},
	Fixed:  map[string]any{"hidden_activation": "gelu_pytorch_tanh", "use_bidirectional_attention": true},
	Idle:   []string{"tie_word_embeddings"},
	Limits: []family.Limit{{Key: "query_pre_attn_scalar", Min: 1e-3, Max: 1 << 24, Rule: family.Required}},
	Rope: family.Rope{
		Full:    map[string]any{"rope_theta": 1e6},
		Sliding: map[string]any{"rope_theta": 1e4},
		Local:   "rope_local_base_freq",
	},

	Keys: []family.Key{
		{GGUF: "attention.sliding_window_pattern", Kind: family.Period, Unusual: true},
		{Setting: "query_pre_attn_scalar", GGUF: "attention.scale", Kind: family.Number,
			Scale: &family.Scale{Min: 1e-4, Max: 10,
				Absent: func(s family.Settings) float64 { return s.Number("head_dim") }}},
	},
	Habits: []family.Habit{{Ends: []string{"norm"}, Plus: 1}},

	Tokenizer: family.Tokenizer{Model: "llama", Pre: "default", BOS: true},
	Expect: family.Expect{
		Parts:     []family.Part{family.PostNorm, family.QKNorm},
		Tied:      true,
		Published: []family.Published{{Layers: 24, Hidden: 768}},
		Assumed: []family.Assumed{{Key: "attention.scale", ID: "embeddinggemma-scale",
			What: "the file does not say the attention scale",
			Means: "llama.cpp's converter writes no such key: readers assume 1/sqrt(head size); with another scale " +
				"the vectors are off",
			Fix: "convert with karat convert, which writes the key, or add gemma-embedding.attention.scale"}},
	},
}
