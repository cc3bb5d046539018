package starcoder2

import "github.com/karat-run/karat/internal/family"

// Family describes files of StarCoder 2. The key of the window is Karat's: llama.cpp's converter and graph have none.
//
// Source: transformers 5.17, models/starcoder2/configuration_starcoder2.py; llama.cpp,
// conversion/starcoder.py and src/models/starcoder2.cpp.
var Family = family.Family{
	Name:  "starcoder2",
	Title: "StarCoder 2",
	Model: family.Of(New),

	Types: []family.Type{{Name: "starcoder2", Class: "Starcoder2ForCausalLM", Window: family.Everywhere,
		Defaults: map[string]any{
			"layer_norm_eps": 1e-5, "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": true,
			"max_position_embeddings": 4096., "num_key_value_heads": 2., "use_bias": true}}},
	Fixed: map[string]any{"hidden_act": "gelu_pytorch_tanh", "norm_type": "layer_norm", "mlp_type": "default"},
	Idle: []string{"residual_dropout", "embedding_dropout", "rms_norm_eps", // and of StarCoder 1's class:
		"activation_function", "layer_norm_epsilon", "scale_attn_weights", "attention_softmax_in_fp32",
		"scale_attention_softmax_in_fp32"},
	Rope:     family.Rope{Full: map[string]any{"rope_theta": 1e4}},
	Spelling: map[string][]string{"layer_norm_eps": {"norm_epsilon"}},
	Without:  []string{"rms_norm_eps"},

	Held: map[string]string{"use_bias": "blk.0.attn_q.bias"},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "starcoder"},
	Expect:    family.Expect{Eps: []float64{1e-5}},
}
