package gemma3

import "github.com/karat-run/karat/internal/family"

// defaults are config.json's; published files omit even the heads. Sizes given by every published file are left out.
var defaults = map[string]any{
	"rms_norm_eps": 1e-6, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": true,
	"max_position_embeddings": 131072., "vocab_size": 262208., "num_attention_heads": 8., "num_key_value_heads": 4.,
	"head_dim": 256., "query_pre_attn_scalar": 256., "sliding_window": 4096.,
}

// Family describes files of Gemma 3. The keys of the pattern and the scale are Karat's: llama.cpp's
// converter writes neither.
//
// Source: transformers 5.17, models/gemma3/configuration_gemma3.py; llama.cpp, conversion/gemma.py.
var Family = family.Family{
	Name:  "gemma3",
	Title: "Gemma 3",
	Model: family.Of(New),

	Types: []family.Type{
		{Name: "gemma3_text", Class: "Gemma3ForCausalLM", Window: family.Periodic, Period: 6, Defaults: defaults},
		{Name: "gemma3", Window: family.Periodic, Period: 6, Defaults: defaults},
	},
	Fixed:  map[string]any{"hidden_activation": "gelu_pytorch_tanh"},
	Limits: []family.Limit{{Key: "query_pre_attn_scalar", Min: 1e-3, Max: 1 << 24, Rule: family.Required}},
	Rope: family.Rope{
		Full:    map[string]any{"rope_theta": 1e6},
		Sliding: map[string]any{"rope_theta": 1e4},
		Local:   "rope_local_base_freq",
	},

	Keys: []family.Key{
		{Setting: "final_logit_softcapping", Kind: family.Number},
		{GGUF: "attention.sliding_window_pattern", Kind: family.Period},
		{Setting: "query_pre_attn_scalar", GGUF: "attention.scale", Kind: family.Number,
			Scale: &family.Scale{Min: 1e-4, Max: 10, Absent: scaled}},
	},
	Habits: []family.Habit{{Ends: []string{"norm"}, Plus: 1}},

	Tokenizer: family.Tokenizer{Model: "llama", Pre: "default", BOS: true},
	Expect: family.Expect{
		Parts: []family.Part{family.PostNorm, family.QKNorm},
		Lacks: []family.Part{family.Scalar},
		Tied:  true,
		Published: []family.Published{{Layers: 18, Hidden: 640}, {Layers: 26, Hidden: 1152},
			{Layers: 34, Hidden: 2560}, {Layers: 48, Hidden: 3840}, {Layers: 62, Hidden: 5376}},
		Turns: []family.Turns{{Name: "Gemma's", Marks: []string{"<start_of_turn>", "<end_of_turn>"}, Only: true}},
		Assumed: []family.Assumed{
			{Key: "attention.sliding_window_pattern", ID: "gemma3-pattern",
				What: "the file does not say which layers have full attention",
				Means: "llama.cpp's converter writes no such key: every reader assumes every sixth layer, which " +
					"holds for the published models only",
				Fix: "convert with karat convert, which writes the key, or add " +
					"gemma3.attention.sliding_window_pattern"},
			{Key: "attention.scale", ID: "gemma3-scale", What: "the file does not say the attention scale",
				Means: "llama.cpp's converter writes no such key: readers assume 1/sqrt(head size), or " +
					"1/sqrt(hidden/heads) for 62 layers; with another scale logits are off (by 4.0 in tiny-gemma3)",
				Fix: "convert with karat convert, which writes the key, or add gemma3.attention.scale"},
		},
	},
}

// scaled returns query_pre_attn_scalar where GGUF has no key: the head size, but in the 27B, of 62 layers,
// the width of a head if all are as wide as the model.
func scaled(s family.Settings) float64 {
	if heads := s.Int("num_attention_heads"); s.Number("num_hidden_layers") == 62 && heads >= 1 {
		return float64(s.Int("hidden_size") / heads)
	}
	return s.Number("head_dim")
}
