package llama4

import (
	"reflect"

	"github.com/karat-run/karat/internal/family"
)

// Family describes files of Llama 4's text models. The keys of the window, of the temperature and of the
// norm are Karat's, for models beyond the assumptions of other readers.
//
// Source: transformers 5.17, models/llama4/configuration_llama4.py; llama.cpp,
// conversion/llama.py and src/models/llama4.cpp.
var Family = family.Family{
	Name:  "llama4",
	Title: "Llama 4",
	Model: family.Of(New),

	Types: []family.Type{{Name: "llama4_text", Class: "Llama4ForCausalLM", Window: family.Periodic, Period: 4,
		Defaults: map[string]any{
			"rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false,
			"max_position_embeddings": 131072., "head_dim": 128., "intermediate_size": 8192.,
			"intermediate_size_mlp": 16384., "num_experts": 16., "top_k_experts": 1., "interleave_moe_layer_step": 1.,
			"no_rope_layer_interval": 4., "sliding_window": 8192., "use_qk_norm": true,
			"attn_temperature_tuning": true, "floor_scale": 8192., "attn_scale": 0.1}}},
	Fixed:      map[string]any{"hidden_act": "silu", "attn_temperature_tuning": true, "no_rope_layer_interval": 4.},
	Absent:     map[string]any{"sliding_window": 8192., "floor_scale": 8192., "attn_scale": 0.1},
	Idle:       []string{"output_router_logits", "router_aux_loss_coef", "router_jitter_noise", "for_llm_compressor"},
	FromConfig: normal,
	ToConfig:   spell,
	FromGGUF:   norm,
	Limits: []family.Limit{
		{Key: "interleave_moe_layer_step", Min: 1, Max: 1 << 10, Rule: family.Required | family.Whole},
		{Key: "floor_scale", Min: 1, Max: 1 << 30, Rule: family.Required | family.Whole},
		{Key: "attn_scale", Min: 0, Max: 1e3},
	},
	Rope: family.Rope{Full: map[string]any{"rope_theta": 5e5}},
	Spelling: map[string][]string{"num_experts": {"num_local_experts"}, "top_k_experts": {"num_experts_per_tok"},
		"sliding_window": {"attention_chunk_size"}},

	Keys: []family.Key{
		{Setting: "num_experts"},
		{Setting: "top_k_experts"},
		{Setting: "vocab_size"},
		{GGUF: "rope.dimension_count", Kind: family.FullDim},
		{Setting: "interleave_moe_layer_step", GGUF: "interleave_moe_layer_step"},
		{Setting: "moe_intermediate_size"},
		{Setting: "sliding_window", Unusual: true},
		{GGUF: "attention.sliding_window_pattern", Kind: family.Period, Unusual: true},
		{Setting: "floor_scale", GGUF: "attention.temperature_length", Unusual: true},
		{Setting: "attn_scale", GGUF: "attention.temperature_scale", Kind: family.Number, Unusual: true},
		{Setting: "use_qk_norm", GGUF: "attention.qk_norm", Kind: family.Truth, Unusual: true},
	},
	Habits: []family.Habit{
		{Ends: []string{".ffn_gate_exps", ".ffn_up_exps"}, Turned: true, Runs: true,
			Woven: []string{"experts.gate_up_proj", "experts.gate_proj", "experts.up_proj"}},
		{Ends: []string{".ffn_down_exps"}, Turned: true},
	},
	Bare: []string{"experts.gate_up_proj", "experts.down_proj"},

	Tokenizer: family.Tokenizer{Model: "gpt2", Pre: "llama4", BOS: true},
	Expect:    family.Expect{Theta: true, Eps: []float64{1e-5}},
}

// normal calls a chunk a window, gives the widths the names of other families, and drops the lists of layers
// that repeat the types and the step: GGUF has keys for types and step alone.
func normal(s family.Settings, f *family.File) {
	f.Follows(s, "moe_layers", mixed(s))
	s["moe_intermediate_size"], s["intermediate_size"] = s["intermediate_size"], s["intermediate_size_mlp"]
	delete(s, "intermediate_size_mlp")
	if n, ok := s["attn_temperature_tuning"].(float64); ok { // published files have a number
		s["attn_temperature_tuning"] = n != 0
	}
	types := s.List("layer_types")
	var turning []any
	for i := range types {
		turns := 0.
		if types[i] == "chunked_attention" {
			types[i] = "sliding_attention"
		}
		if types[i] == "sliding_attention" {
			turns = 1
		}
		turning = append(turning, turns)
	}
	// transformers takes an empty list for none
	if own, ok := s["no_rope_layers"].([]any); ok && (len(own) == 0 || reflect.DeepEqual(own, turning)) {
		delete(s, "no_rope_layers")
	}
	delete(s, "moe_layers")
}

// mixed returns the layers with experts, according to the step.
func mixed(s family.Settings) any {
	step, layers := s.Number("interleave_moe_layer_step"), s.Number("num_hidden_layers")
	if !(step >= 1 && layers <= 1<<10) {
		return nil
	}
	experts := []any{}
	for i := step - 1; i < layers; i += step {
		experts = append(experts, i)
	}
	return experts
}

// spell inverts normal.
func spell(s family.Settings) {
	s["intermediate_size_mlp"], s["intermediate_size"] = s["intermediate_size"], s.Take("moe_intermediate_size")
	s.NameKinds(map[any]string{"sliding_attention": "chunked_attention"})
}

// norm sets the assumption of GGUF's readers: the model with 128 experts has no norm of queries and keys.
func norm(s family.Settings, _ *family.File) {
	if s["use_qk_norm"] == nil {
		s["use_qk_norm"] = s["num_experts"] != 128.
	}
}
