package gemma2

import "github.com/karat-run/karat/internal/family"

// Family describes files of Gemma 2. The keys of the pattern and the scale are Karat's: llama.cpp's
// converter writes neither.
//
// Source: transformers 5.17, models/gemma2/configuration_gemma2.py; llama.cpp,
// conversion/gemma.py and src/models/gemma2.cpp.
var Family = family.Family{
	Name:  "gemma2",
	Title: "Gemma 2",
	Model: family.Of(New),

	Types: []family.Type{{Name: "gemma2", Class: "Gemma2ForCausalLM", Window: family.Periodic, Period: 2,
		Defaults: map[string]any{
			"rms_norm_eps": 1e-6, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": true,
			"max_position_embeddings": 8192., "vocab_size": 256000., "num_attention_heads": 8.,
			"num_key_value_heads": 4., "head_dim": 256., "query_pre_attn_scalar": 256., "sliding_window": 4096.,
			"attn_logit_softcapping": 50., "final_logit_softcapping": 30.}}},
	Fixed:  map[string]any{"hidden_activation": "gelu_pytorch_tanh"},
	Absent: map[string]any{"sliding_window": 4096., "attn_logit_softcapping": 50., "final_logit_softcapping": 30.},
	Limits: []family.Limit{
		{Key: "attn_logit_softcapping", Min: 1e-3, Max: 1e6, Rule: family.OrZero},
		{Key: "query_pre_attn_scalar", Min: 1e-3, Max: 1 << 24, Rule: family.Required},
	},
	Rope:     family.Rope{Full: map[string]any{"rope_theta": 1e4}, Silent: true},
	Spelling: map[string][]string{"sliding_window": {"sliding_window", "sliding_window_size"}},

	Keys: []family.Key{
		{Setting: "attn_logit_softcapping", GGUF: "attn_logit_softcapping", Kind: family.Number},
		{Setting: "final_logit_softcapping", Kind: family.Number},
		{GGUF: "attention.sliding_window_pattern", Kind: family.Period, Unusual: true},
		{Setting: "query_pre_attn_scalar", GGUF: "attention.scale", Kind: family.Number,
			Scale: &family.Scale{Min: 1e-4, Max: 10, Absent: scaled}},
	},
	Habits: []family.Habit{{Ends: []string{"norm"}, Plus: 1}},

	Tokenizer: family.Tokenizer{Model: "llama", Pre: "default", BOS: true},
	Expect: family.Expect{
		Parts:    []family.Part{family.PostNorm},
		Lacks:    []family.Part{family.QKNorm, family.Scalar, family.QKVBias},
		Tied:     true,
		Theta:    true,
		Softcap:  30,
		CapsVary: true,
		Published: []family.Published{{Layers: 26, Hidden: 2304}, {Layers: 42, Hidden: 3584},
			{Layers: 46, Hidden: 4608}},
		Turns: []family.Turns{{Name: "Gemma's", Marks: []string{"<start_of_turn>", "<end_of_turn>"}, Only: true}},
		Assumed: []family.Assumed{{Key: "attention.scale", ID: "gemma2-scale",
			What: "the file does not say the attention scale",
			Means: "llama.cpp's converter writes no such key: readers assume 1/sqrt(head size), or " +
				"1/sqrt(hidden/heads) for 46 layers; with another scale all logits are off",
			Fix: "convert with karat convert, which writes the key, or add gemma2.attention.scale"}},
	},
}

// scaled returns query_pre_attn_scalar where GGUF has no key: the head size, but in the 27B, of 46 layers,
// the width of a head if all are as wide as the model.
func scaled(s family.Settings) float64 {
	if heads := s.Int("num_attention_heads"); s.Number("num_hidden_layers") == 46 && heads >= 1 {
		return float64(s.Int("hidden_size") / heads)
	}
	return s.Number("head_dim")
}
