package starcoder2

import "github.com/karat-run/karat/internal/family"

// Family is what files of StarCoder 2 are like. The key of the window is Karat's:
// llama.cpp's converter and graph have none.
//
// Source: transformers 5.17, models/starcoder2/configuration_starcoder2.py; llama.cpp,
// conversion/starcoder.py and src/models/starcoder2.cpp.
var Family = family.Family{
	Name:  "starcoder2",
	Title: "StarCoder 2",
	Model: family.Of(New),

	Types: []family.Type{{Name: "starcoder2", Class: "Starcoder2ForCausalLM", Window: family.Everywhere, Defaults: map[string]any{
		"layer_norm_eps": 1e-5, "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": true, "max_position_embeddings": 4096.,
		"num_key_value_heads": 2., "use_bias": true}}},
	Fixed:    map[string]any{"hidden_act": "gelu_pytorch_tanh"},
	Idle:     []string{"residual_dropout", "embedding_dropout"},
	Rope:     family.Rope{Full: map[string]any{"rope_theta": 1e4}},
	Spelling: map[string][]string{"layer_norm_eps": {"norm_epsilon"}},
	Without:  []string{"rms_norm_eps"},

	Held: map[string]string{"use_bias": "blk.0.attn_q.bias"},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "starcoder"},
	Expect:    family.Expect{Eps: []float64{1e-5}},
	Synth: family.Synth{Ungated: true, Norms: []string{"attn_norm", "ffn_norm"},
		Biased: []string{"output_norm", "attn_norm", "ffn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down"},
		Shapes: []family.Shape{
			{Name: "3b", Hidden: 3072, Layers: 30, Heads: 24, KVHeads: 2, HeadDim: 128, FF: 12288, Vocab: 49152, Context: 16384, RopeBase: 999999.4420358813, Epsilon: 1e-5},
			{Name: "7b", Hidden: 4608, Layers: 32, Heads: 36, KVHeads: 4, HeadDim: 128, FF: 18432, Vocab: 49152, Context: 16384, RopeBase: 1e6, Epsilon: 1e-5},
			{Name: "tiny", Hidden: 256, Layers: 4, Heads: 4, KVHeads: 2, HeadDim: 64, FF: 1024, Vocab: 2048, Context: 4096, RopeBase: 1e6, Epsilon: 1e-5},
		}},
}
