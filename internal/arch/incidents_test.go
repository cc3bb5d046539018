package arch_test

import (
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/tensor"
)

// An incident is a bad file: a model, spoiled as a Hugging Face folder or as
// GGUF, and the parts of the one error that must come of it.
type incident struct {
	row   string // of the list of incidents, and its special case
	model string
	hf    func(*model)
	gguf  func(*file)
	want  []string
}

// set is a Hugging Face setting.
func set(key string, v any) func(*model) { return func(m *model) { m.config[key] = v } }

// key is a GGUF key behind the architecture's prefix.
func key(name string, v any) func(*file) { return func(f *file) { f.set(name, v) } }

// is makes the error about a setting.
func is(key, text string) []string { return []string{"configuration key " + key + " is " + text} }

func TestIncidents(t *testing.T) {
	for _, list := range [][]incident{sizes, required, hostile, rotary, hostileGGUF, contradictions} {
		for _, c := range list {
			t.Run(c.row, func(t *testing.T) {
				m := synthetic(c.model)
				if c.gguf != nil {
					fails(t, toGGUF(t, m.write(t), c.gguf), c.want...)
					return
				}
				c.hf(m)
				fails(t, m.write(t), c.want...)
			})
		}
	}
}

// fails loads the model at path, which must fail with an error that has all
// the parts and no line twice, in less than a second and 64 MiB.
func fails(t *testing.T, path string, parts ...string) {
	t.Helper()
	err := cheaply(t, func() error {
		c, err := checkpoint.Open(path)
		if err != nil {
			return err
		}
		defer c.Close()
		_, _, err = arch.Load(c)
		return err
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error is %q\nwant %q in it", err, part)
		}
	}
	lines := strings.Split(err.Error(), "\n")
	slices.Sort(lines)
	if n := len(slices.Compact(slices.Clone(lines))); n != len(lines) {
		t.Errorf("%d of %d lines say the same: %q", len(lines)-n, len(lines), err)
	}
}

// cheaply calls f, which must need less than 64 MiB, in half a million pieces.
func cheaply(t *testing.T, f func() error) error {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := f()
	runtime.ReadMemStats(&after)
	if bytes, n := after.TotalAlloc-before.TotalAlloc, after.Mallocs-before.Mallocs; bytes > 64<<20 || n > 1<<19 {
		t.Errorf("%d bytes in %d allocations", bytes, n)
	}
	return err
}

// sizes is row A6: divisors and dividends.
var sizes = []incident{
	{row: "A6 head_count 0", model: "llama", hf: set("num_attention_heads", 0), want: is("num_attention_heads", "0, expected a whole number from 1 to")},
	{row: "A6 head_count 0 in GGUF", model: "llama", gguf: key("attention.head_count", uint32(0)), want: is("llama.attention.head_count", "0, expected a whole number from 1 to")},
	{row: "A6 head_count not dividing", model: "llama", hf: func(m *model) { m.config["num_attention_heads"] = 5; delete(m.config, "head_dim") },
		want: is("num_attention_heads", "5, no divisor of hidden_size, 32, and head_dim is missing")},
	{row: "A6 head_count not dividing in GGUF", model: "llama", gguf: func(f *file) { f.set("attention.head_count", uint32(5)); f.set("attention.key_length", nil) },
		want: is("llama.attention.head_count", "5, no divisor of llama.embedding_length, 32, and llama.attention.key_length is missing")},
	{row: "A6 head_count_kv 0", model: "qwen3", hf: set("num_key_value_heads", 0), want: is("num_key_value_heads", "0, expected")},
	{row: "A6 head_count_kv 0 in GGUF", model: "qwen3", gguf: key("attention.head_count_kv", uint32(0)), want: is("qwen3.attention.head_count_kv", "0, expected")},
	{row: "A6 head_count_kv not dividing", model: "qwen2", hf: set("num_key_value_heads", 3), want: is("num_key_value_heads", "3, no divisor of num_attention_heads, 4")},
	{row: "A6 head_count_kv not dividing in GGUF", model: "qwen2", gguf: key("attention.head_count_kv", uint32(3)),
		want: is("qwen2.attention.head_count_kv", "3, no divisor of qwen2.attention.head_count, 4")},
	{row: "A6 head_count_kv of a layer", model: "gemma4-31b", hf: set("num_global_key_value_heads", 3), want: is("num_global_key_value_heads", "3, no divisor of num_attention_heads, 4")},
	{row: "A6 head_count_kv of a layer in GGUF", model: "gemma4-31b", gguf: key("attention.head_count_kv", []int32{2, 0, 2, 1}),
		want: is("gemma4.attention.head_count_kv", "0, expected")},
	{row: "A6 head_dim 0", model: "llama", hf: set("head_dim", 0), want: is("head_dim", "0, expected")},
	{row: "A6 head_dim odd", model: "llama", hf: set("head_dim", 7), want: is("head_dim", "7, expected an even number")},
	{row: "A6 head_dim negative", model: "gemma3", hf: set("head_dim", -8), want: is("head_dim", "-8, expected")},
	{row: "A6 head_dim fractional", model: "gemma3", hf: set("head_dim", 7.5), want: is("head_dim", "7.5, expected a whole number")},
	{row: "A6 head_dim huge", model: "gemma4-e2b", hf: set("head_dim", 1e18), want: is("head_dim", "1000000000000000000, expected a whole number from 2 to 16384")},
	{row: "A6 global_head_dim odd", model: "gemma4-e2b", hf: set("global_head_dim", 15), want: is("global_head_dim", "15, expected an even number")},
	{row: "A6 global_head_dim negative", model: "gemma4-e2b", hf: set("global_head_dim", -16), want: is("global_head_dim", "-16, expected")},
	{row: "A6 head_dim of a layer", model: "gemma4-e2b", hf: func(m *model) { m.perLayer(map[string]any{"head_dim": 0}) }, want: is("per_layer_config.1.head_dim", "0, expected")},
	{row: "A6 key_length odd", model: "qwen3", gguf: func(f *file) { f.set("attention.key_length", uint32(7)); f.set("attention.value_length", uint32(7)) },
		want: is("qwen3.attention.key_length", "7, expected an even number")},
	{row: "A6 key_length_swa 0", model: "gemma4-31b", gguf: func(f *file) {
		for _, k := range []string{"attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa"} {
			f.set(k, uint32(0))
		}
	}, want: is("gemma4.attention.key_length_swa", "0, expected")},
}

// required is row A7: keys that are missing or of another type.
var required = func() (list []incident) {
	for k, own := range map[string]string{"vocab_size": "", "hidden_size": "embedding_length", "intermediate_size": "feed_forward_length",
		"num_hidden_layers": "block_count", "num_attention_heads": "attention.head_count"} {
		list = append(list, incident{row: "A7 no " + k, model: "llama", hf: func(m *model) { delete(m.config, k) }, want: is(k, "missing")})
		for _, v := range []any{"32", []any{32}, map[string]any{"x": 1}, true} {
			list = append(list, incident{row: fmt.Sprintf("A7 %s %v", k, v), model: "llama", hf: set(k, v), want: is(k, "")})
		}
		if own == "" { // the tensors tell
			continue
		}
		list = append(list, incident{row: "A7 no " + own, model: "llama", gguf: key(own, nil), want: is("llama."+own, "missing")})
		for _, v := range []any{"32", []int32{32, 33}, []string{"32"}, []any{[]int32{1}}, true, math.NaN(), float32(math.Inf(1))} {
			list = append(list, incident{row: fmt.Sprintf("A7 %s %v", own, v), model: "llama", gguf: key(own, v), want: []string{"key llama." + own + " is "}})
		}
	}
	for k, v := range map[string]any{"rms_norm_eps": "small", "tie_word_embeddings": "yes", "hidden_act": 3, "attention_bias": "no", "head_dim": []any{},
		"rope_scaling": "linear", "rope_parameters": []any{1}, "rope_theta": "10000", "layer_types": "full_attention", "text_config": []any{},
		"sliding_window": "wide", "max_position_embeddings": map[string]any{}, "partial_rotary_factor": true} {
		list = append(list, incident{row: fmt.Sprintf("A7 %s %v", k, v), model: "mistral", hf: set(k, v), want: []string{"key " + k}})
	}
	for k, v := range map[string]any{"per_layer_config": []any{}, "num_kv_shared_layers": "2", "attention_k_eq_v": 1, "enable_moe_block": "true",
		"final_logit_softcapping": "30", "use_double_wide_mlp": "x", "global_head_dim": "16", "hidden_activation": []any{}} {
		list = append(list, incident{row: fmt.Sprintf("A7 %s %v", k, v), model: "gemma4-e2b", hf: set(k, v), want: []string{"key " + k}})
	}
	for k, v := range map[string]any{"use_sliding_window": "yes", "max_window_layers": "all"} {
		list = append(list, incident{row: fmt.Sprintf("A7 %s %v", k, v), model: "qwen2", hf: set(k, v), want: []string{"key " + k + " is "}})
	}
	for _, v := range []any{nil, 7, "mpt", []any{}} {
		list = append(list, incident{row: fmt.Sprintf("A7 model_type %v", v), model: "llama", hf: set("model_type", v), want: []string{"model_type is "}})
	}
	return append(list,
		incident{row: "A7 no rms_norm_eps in GGUF", model: "llama", gguf: key("attention.layer_norm_rms_epsilon", nil), want: is("llama.attention.layer_norm_rms_epsilon", "missing")},
		incident{row: "A7 no architecture", model: "llama", gguf: func(f *file) { f.metadata[0].Key = "general.name" }, want: []string{"general.architecture"}},
		incident{row: "A7 architecture 7", model: "llama", gguf: func(f *file) { f.metadata[0].Value = uint32(7) }, want: []string{"general.architecture"}},
		incident{row: "A7 architecture mpt", model: "llama", gguf: func(f *file) { f.metadata[0].Value = "mpt" }, want: []string{`architecture "mpt" is not supported`}},
		incident{row: "A7 no pattern in Gemma 4", model: "gemma4-e2b", gguf: key("attention.sliding_window_pattern", nil), want: []string{"key gemma4.attention.sliding_window_pattern is missing"}})
}()

// hostile configurations ask for much memory, index out of range, or for
// numbers that end in NaN.
var hostile = []incident{
	{row: "A3 layers 1e9", model: "llama", hf: set("num_hidden_layers", 1e9), want: is("num_hidden_layers", "1000000000, expected a whole number from 1 to 1024")},
	{row: "A3 layers -1", model: "qwen2", hf: set("num_hidden_layers", -1), want: is("num_hidden_layers", "-1, expected")},
	{row: "A3 more layers than tensors", model: "qwen3", hf: set("num_hidden_layers", 1000), want: is("num_hidden_layers", "1000, but there are")},
	{row: "A3 sizes 2^62", model: "llama", hf: func(m *model) {
		for _, k := range []string{"vocab_size", "hidden_size", "intermediate_size", "num_key_value_heads"} {
			m.config[k] = 1 << 62
		}
	}, want: slices.Concat(is("vocab_size", "4611686018427388000, expected a whole number from 1 to 16777216"), is("hidden_size", "4"), is("intermediate_size", "4"), is("num_key_value_heads", "4"))},
	{row: "A3 an unread spelling of a key", model: "llama", hf: func(m *model) { delete(m.config, "num_hidden_layers"); m.config["num_hidden_layer\u017f"] = 1e9 }, // encoding/json takes ſ for s
		want: is("num_hidden_layers", "missing")},
	{row: "layer_types short", model: "gemma3", hf: set("layer_types", []any{"full_attention"}), want: is("layer_types", `["full_attention"], expected a list of 3`)},
	{row: "layer_types long", model: "qwen2", hf: set("layer_types", slices.Repeat([]any{"full_attention"}, 9)), want: is("layer_types", "")},
	{row: "layer_types unknown", model: "qwen3", hf: set("layer_types", []any{"full_attention", "chunked_attention", 3}), want: is("layer_types", `"chunked_attention" for layer 1`)},
	{row: "layer_types of llama", model: "llama", hf: set("layer_types", []any{"full_attention", "full_attention", "sliding_attention"}), want: []string{"key layer_types is", "all layers are alike"}},
	{row: "layers slide without a window", model: "qwen2", hf: set("layer_types", slices.Repeat([]any{"sliding_attention"}, 3)), want: is("sliding_window", "missing, but layer 0 slides")},
	{row: "window negative", model: "mistral", hf: set("sliding_window", -4), want: is("sliding_window", "-4, expected")},
	{row: "window 0", model: "gemma3", hf: set("sliding_window", 0), want: is("sliding_window", "0, but layer 0 slides")},
	{row: "window fractional", model: "gemma3", hf: set("sliding_window", 4.5), want: is("sliding_window", "4.5, expected")},
	{row: "window huge", model: "gemma3", hf: set("sliding_window", 1e300), want: is("sliding_window", "1e+300, expected")},
	{row: "period 0", model: "gemma3", hf: func(m *model) { delete(m.config, "layer_types"); m.config["sliding_window_pattern"] = 0 }, want: []string{"sliding_window_pattern is 0, expected"}},
	{row: "period fractional", model: "gemma3", hf: func(m *model) { delete(m.config, "layer_types"); m.config["sliding_window_pattern"] = 2.5 }, want: []string{"sliding_window_pattern is 2.5, expected"}},
	{row: "all layers share", model: "gemma4-e2b", hf: set("num_kv_shared_layers", 4), want: is("num_kv_shared_layers", "4, expected less than the 4 layers")},
	{row: "shared layers negative", model: "gemma4-e2b", hf: set("num_kv_shared_layers", -1), want: is("num_kv_shared_layers", "-1, expected")},
	{row: "shared layers without one to share with", model: "gemma4-e2b", hf: func(m *model) {
		m.config["num_kv_shared_layers"] = 3
	}, want: []string{"blk.1: no earlier layer stores the keys and values that this one shares"}},
	{row: "per-layer size negative", model: "gemma4-e2b", hf: set("hidden_size_per_layer_input", -4), want: is("hidden_size_per_layer_input", "-4, expected")},
	{row: "per_layer_config of no layer", model: "gemma4-e2b", hf: set("per_layer_config", map[string]any{"9": map[string]any{}, "-1": 1, "01": 2, "x": 3, "99999999999999999999": 4}),
		want: []string{`per_layer_config has a key "9", which is no layer`, `"-1"`, `"01"`, `"x"`, `"99999999999999999999"`}},
	{row: "per_layer_config of a number", model: "gemma4-e2b", hf: set("per_layer_config", map[string]any{"1": 16}), want: is("per_layer_config.1", "16, expected an object")},
	{row: "per_layer_config unknown", model: "gemma4-e2b", hf: func(m *model) { m.perLayer(map[string]any{"head_dim": 16, "sliding_window": 7}) }, want: is("per_layer_config.1.sliding_window", "7, but layers differ here only in")},
	{row: "top_k above experts", model: "gemma4-26b", hf: set("top_k_experts", 4), want: is("top_k_experts", "4, more than num_experts, 3")},
	{row: "top_k above experts in GGUF", model: "gemma4-26b", gguf: key("expert_used_count", uint32(4)), want: is("gemma4.expert_used_count", "4, more than gemma4.expert_count, 3")},
	{row: "top_k 0", model: "gemma4-26b", hf: set("top_k_experts", 0), want: is("top_k_experts", "0 in a model with experts")},
	{row: "experts missing", model: "gemma4-26b", hf: set("num_experts", nil), want: is("num_experts", "missing in a model with experts")},
	{row: "experts 2^40", model: "gemma4-26b", hf: set("num_experts", 1<<40), want: is("num_experts", "1099511627776, expected")},
	{row: "query_pre_attn_scalar 0", model: "gemma3", hf: set("query_pre_attn_scalar", 0), want: is("query_pre_attn_scalar", "0, expected")},
	{row: "query_pre_attn_scalar negative", model: "gemma3", hf: set("query_pre_attn_scalar", -256), want: is("query_pre_attn_scalar", "-256, expected")},
	{row: "softcap negative", model: "gemma4-e2b", hf: set("final_logit_softcapping", -30), want: is("final_logit_softcapping", "-30, expected")},
	{row: "softcap denormal", model: "gemma4-e2b", hf: set("final_logit_softcapping", 1e-300), want: is("final_logit_softcapping", "1e-300, expected")},
	{row: "eps 0", model: "qwen3", hf: set("rms_norm_eps", 0), want: is("rms_norm_eps", "0, expected")},
	{row: "eps 2", model: "qwen3", hf: set("rms_norm_eps", 2), want: is("rms_norm_eps", "2, expected")},
	{row: "context negative", model: "llama", hf: set("max_position_embeddings", -1), want: is("max_position_embeddings", "-1, expected")},
	{row: "activation unknown", model: "llama", hf: set("hidden_act", "relu"), want: []string{"configuration key hidden_act: ", `"relu" is not supported`}},
	{row: "bidirectional", model: "qwen3", hf: set("use_bidirectional_attention", true), want: is("use_bidirectional_attention", "true, which architecture qwen3 does not support")},
	{row: "bidirectional Gemma 4", model: "gemma4-31b", hf: set("use_bidirectional_attention", "all"), want: is("use_bidirectional_attention", `"all", which`)},
}

// rotary settings that end in frequencies of NaN, or that are not known.
var rotary = []incident{
	{row: "theta 0", model: "llama", hf: set("rope_theta", 0), want: is("rope_theta", "0, expected a number from 1 to 1e+30")},
	{row: "theta negative", model: "qwen2", hf: set("rope_theta", -1), want: is("rope_theta", "-1, expected")},
	{row: "theta local", model: "gemma3", hf: set("rope_local_base_freq", 0.5), want: is("rope_local_base_freq", "0.5, expected")},
	{row: "theta of sliding layers", model: "gemma4-e2b", hf: func(m *model) {
		m.config["rope_parameters"].(map[string]any)["sliding_attention"].(map[string]any)["rope_theta"] = 1e31
	}, want: is("rope_parameters.sliding_attention.rope_theta", "1e+31, expected")},
	{row: "theta missing", model: "gemma4-e2b", hf: set("rope_parameters", bothKinds(map[string]any{"rope_type": "default"})), want: is("rope_parameters.full_attention.rope_theta", "missing")},
	{row: "theta in GGUF", model: "llama", gguf: key("rope.freq_base", float32(0.5)), want: is("llama.rope.freq_base", "0.5, expected")},
	{row: "theta NaN", model: "llama", gguf: key("rope.freq_base", math.NaN()), want: []string{"key llama.rope.freq_base is NaN, expected a number"}},
	{row: "theta of sliding layers in GGUF", model: "gemma3", gguf: key("rope.freq_base_swa", float32(0)), want: is("gemma3.rope.freq_base_swa", "0, expected")},
	{row: "part above 1", model: "llama", hf: set("partial_rotary_factor", 2), want: is("partial_rotary_factor", "2, expected")},
	{row: "part 0", model: "gemma4-31b", hf: func(m *model) {
		m.config["rope_parameters"].(map[string]any)["full_attention"].(map[string]any)["partial_rotary_factor"] = 0
	}, want: is("rope_parameters.full_attention.partial_rotary_factor", "0, expected")},
	{row: "part of llama", model: "llama", hf: set("partial_rotary_factor", 0.5), want: is("partial_rotary_factor", "0.5: heads of architecture llama turn whole")},
	{row: "factor 0", model: "llama", hf: set("rope_scaling", map[string]any{"rope_type": "linear", "factor": 0}), want: []string{"factor is 0, expected a number from"}},
	{row: "factor negative", model: "llama", hf: set("rope_scaling", map[string]any{"rope_type": "linear", "factor": -8}), want: is("rope_scaling.factor", "-8, expected")},
	{row: "factor missing", model: "llama", hf: set("rope_scaling", map[string]any{"rope_type": "linear"}), want: []string{"factor is 0, expected a positive number"}},
	{row: "factor a string", model: "llama", hf: set("rope_scaling", map[string]any{"rope_type": "linear", "factor": "8"}), want: is("rope_scaling.factor", `"8", expected`)},
	{row: "type a number", model: "llama", hf: set("rope_scaling", map[string]any{"rope_type": 8}), want: is("rope_scaling.rope_type", "8, expected a string")},
	{row: "type unknown", model: "qwen3", hf: set("rope_scaling", map[string]any{"rope_type": "ntk", "factor": 4}), want: []string{`rope_type "ntk" is not supported`}},
	{row: "type unknown, old spelling", model: "qwen2", hf: set("rope_scaling", map[string]any{"type": "ntk", "factor": 4}), want: []string{`rope_type "ntk" is not supported`}},
	{row: "type unknown in GGUF", model: "qwen2", gguf: func(f *file) { f.set("rope.scaling.type", "ntk"); f.set("rope.scaling.factor", float32(4)) },
		want: []string{`key qwen2.rope.scaling.type is "ntk", supported are none, linear, yarn and longrope`}},
	{row: "magnitude in GGUF", model: "qwen2", gguf: key("rope.scaling.attn_factor", float32(2)), want: []string{"key qwen2.rope.scaling.attn_factor is 2, supported is 1"}},
	{row: "magnitude 0", model: "qwen3", hf: set("rope_scaling", map[string]any{"rope_type": "yarn", "factor": 4, "attention_factor": 0}), want: []string{"rope_scaling.attention_factor is 0, expected a number from"}},
	{row: "extrapolation in GGUF", model: "qwen2", gguf: func(f *file) {
		f.set("rope.scaling.type", "yarn")
		f.set("rope.scaling.yarn_ext_factor", float32(0))
	}, want: []string{"key qwen2.rope.scaling.yarn_ext_factor is 0, supported is 1"}},
	{row: "magnitude of a yarn in GGUF", model: "qwen2", gguf: func(f *file) {
		f.set("rope.scaling.type", "yarn")
		f.set("rope.scaling.yarn_attn_factor", float32(0))
	}, want: is("qwen2.rope.scaling.yarn_attn_factor", "0, expected")},
	{row: "type a number in GGUF", model: "qwen2", gguf: key("rope.scaling.type", uint32(2)), want: []string{"key qwen2.rope.scaling.type is 2, expected a string"}},
	{row: "type linear and rope_freqs", model: "llama", gguf: func(f *file) {
		f.set("rope.scaling.type", "linear")
		f.tensors = append(f.tensors, floats("rope_freqs.weight", []float32{1, 1, 8, 8}))
	}, want: []string{"key llama.rope.scaling.type is linear, but the file also has a tensor rope_freqs"}},
	{row: "rope_freqs short", model: "llama", gguf: func(f *file) { f.tensors = append(f.tensors, floats("rope_freqs.weight", []float32{1, 1, 8})) },
		want: []string{"tensor rope_freqs: F32 [3], expected F32 [4]"}},
	{row: "rope_freqs of sliding size", model: "gemma4-31b", gguf: func(f *file) { *f.tensor("rope_freqs") = floats("rope_freqs.weight", []float32{1, 1e30, 1e30, 1e30}) },
		want: []string{"tensor rope_freqs: F32 [4], expected F32 [8]"}},
	{row: "rope_freqs NaN", model: "llama", gguf: func(f *file) {
		f.tensors = append(f.tensors, floats("rope_freqs.weight", []float32{1, 1, float32(math.NaN()), 8}))
	},
		want: []string{"tensor rope_freqs: element 2 is NaN"}},
	{row: "rope_freqs 0", model: "llama", gguf: func(f *file) { f.tensors = append(f.tensors, floats("rope_freqs.weight", []float32{0, 1, 1, 8})) },
		want: []string{"tensor rope_freqs: element 0 is 0"}},
	{row: "two spellings", model: "llama", hf: func(m *model) {
		maps.Copy(m.config, config{"rope_scaling": map[string]any{"type": "linear", "factor": 2}, "rope_parameters": map[string]any{"rope_type": "default"}})
	}, want: []string{"key rope_scaling says something else than rope_parameters"}},
	{row: "scaling without a type", model: "llama", hf: set("rope_scaling", map[string]any{"factor": 8}), want: []string{"key rope_scaling.rope_type is missing, but factor is 8"}},
	{row: "attention softcap", model: "gemma3", hf: set("attn_logit_softcapping", 50), want: is("attn_logit_softcapping", "50, which architecture gemma3 does not support")},
	{row: "rope_freqs of Gemma 4 missing", model: "gemma4-e2b", gguf: func(f *file) {
		f.tensors = slices.DeleteFunc(f.tensors, func(t tensor.Tensor) bool { return t.Name == "rope_freqs.weight" })
	}, want: []string{"tensor rope_freqs: missing"}},
	{row: "two kinds in llama", model: "llama", hf: set("rope_parameters", map[string]any{"full_attention": map[string]any{}, "sliding_attention": map[string]any{"rope_theta": 7}}),
		want: []string{"rope_parameters differs between kinds of layers"}},
	{row: "one kind in Gemma 4", model: "gemma4-e2b", hf: set("rope_parameters", map[string]any{"full_attention": map[string]any{"rope_theta": 1e6}}), want: []string{"rope_parameters.sliding_attention is missing"}},
	{row: "flat in Gemma 4", model: "gemma4-e2b", hf: set("rope_parameters", map[string]any{"rope_theta": 1e6}), want: []string{"key rope_parameters is"}},
	{row: "a kind that is a number", model: "gemma4-e2b", hf: set("rope_parameters", map[string]any{"full_attention": 3, "sliding_attention": map[string]any{}}), want: []string{"rope_parameters.full_attention is 3, expected an object"}},
}

// hostileGGUF is what only metadata can say.
var hostileGGUF = []incident{
	{row: "A5 pattern of 4 million", model: "gemma4-e2b", gguf: key("attention.sliding_window_pattern", make([]bool, 1<<22)), want: []string{"gemma4.attention.sliding_window_pattern is an array of 4194304 bool"}},
	{row: "A5 heads of 4 million", model: "llama", gguf: key("attention.head_count", make([]uint64, 1<<22)), want: []string{"llama.attention.head_count is an array of 4194304 uint64"}},
	{row: "pattern short", model: "gemma4-e2b", gguf: key("attention.sliding_window_pattern", []bool{true}), want: []string{"sliding_window_pattern has 1 values for 4 layers"}},
	{row: "pattern 0", model: "gemma3", gguf: key("attention.sliding_window_pattern", uint32(0)), want: []string{"sliding_window_pattern is 0, expected"}},
	{row: "pattern NaN", model: "gemma3", gguf: key("attention.sliding_window_pattern", float32(math.NaN())), want: []string{"sliding_window_pattern is NaN, expected"}},
	{row: "pattern empty", model: "gemma3", gguf: key("attention.sliding_window_pattern", []uint32{}), want: []string{"sliding_window_pattern is [], expected"}},
	{row: "widths short", model: "gemma4-e2b", gguf: key("feed_forward_length", []int32{40, 80}), want: []string{"key gemma4.feed_forward_length is [40,80], expected"}},
	{row: "widths of llama", model: "llama", gguf: key("feed_forward_length", []int32{40, 40, 80}), want: []string{"key llama.feed_forward_length is [40,40,80], expected"}},
	{row: "scale 0", model: "gemma3", gguf: key("attention.scale", float32(0)), want: []string{"key gemma3.attention.scale is 0, expected"}},
	{row: "scale NaN", model: "gemma3", gguf: key("attention.scale", float32(math.NaN())), want: []string{"key gemma3.attention.scale is NaN, expected"}},
	{row: "eps NaN", model: "qwen3", gguf: key("attention.layer_norm_rms_epsilon", math.NaN()), want: []string{"key qwen3.attention.layer_norm_rms_epsilon is NaN, expected"}},
	{row: "window negative in GGUF", model: "mistral", gguf: key("attention.sliding_window", int32(-4)), want: is("llama.attention.sliding_window", "-4, expected")},
	{row: "window 2^64-1", model: "mistral", gguf: key("attention.sliding_window", uint64(math.MaxUint64)), want: is("llama.attention.sliding_window", "18446744073709552000, expected")},
	{row: "softcap infinite", model: "gemma4-e2b", gguf: key("final_logit_softcapping", float32(math.Inf(1))), want: []string{"key gemma4.final_logit_softcapping is +Inf, expected"}},
	{row: "values of another length", model: "llama", gguf: key("attention.value_length", uint32(16)), want: []string{"key llama.attention.value_length is 16, but a head's keys have 8 features"}},
	{row: "values of another length in sliding layers", model: "gemma4-31b", gguf: key("attention.value_length_swa", uint32(16)), want: []string{"key gemma4.attention.value_length_swa is 16, but"}},
	{row: "heads turn in part", model: "qwen2", gguf: key("rope.dimension_count", uint32(4)), want: []string{"key qwen2.rope.dimension_count is 4, but a head's keys have 8 features"}},
	{row: "sliding heads turn in part", model: "gemma4-31b", gguf: key("rope.dimension_count_swa", uint32(4)), want: []string{"key gemma4.rope.dimension_count_swa is 4, but"}},
	{row: "shared layers in GGUF", model: "gemma4-e2b", gguf: key("attention.shared_kv_layers", uint32(9)), want: is("gemma4.attention.shared_kv_layers", "9, expected less than the 4 layers")},
	{row: "norms in blocks", model: "gemma3", gguf: func(f *file) {
		x := f.tensor("output_norm")
		x.DType, x.Data = tensor.Q8_0, make([]byte, 34)
	}, want: []string{"tensor output_norm.weight: type Q8_0 is not supported for norms"}},
	{row: "weights of integers", model: "llama", gguf: func(f *file) { f.tensor("output_norm").DType = tensor.I32 }, want: []string{"tensor output_norm.weight: type I32 is not supported for weights"}},
	{row: "two names of one tensor", model: "llama", gguf: func(f *file) { f.tensors = append(f.tensors, floats("output_norm", make([]float32, hidden))) }, want: []string{"tensor output_norm: two tensors have this name"}},
}

// drop, rename and reshape spoil tensors.
func spoil(drop, rename, reshape string) func(*model) {
	return func(m *model) {
		m.drop(drop)
		m.tensor(rename).Name += "d"
		x := m.tensor(reshape)
		x.Shape = tensor.Shape{x.Shape[0] * 2, x.Shape[1] / 2}
	}
}

// contradictions are files whose tensors disagree with their configuration:
// rule 5, and every problem in one error.
var contradictions = []incident{
	{row: "all problems at once", model: "llama", hf: spoil("model.layers.0.mlp.up_proj", "model.norm", "model.layers.2.self_attn.o_proj"), want: []string{
		"tensor model.layers.0.mlp.up_proj: missing", "tensor model.norm: missing", "tensor model.norm.weightd: the file holds it, but no weight of the architecture claims it",
		"tensor model.layers.2.self_attn.o_proj.weight: shape [64 16], the configuration says [32 32]"}},
	{row: "all problems at once in GGUF", model: "gemma4-26b", gguf: func(f *file) {
		f.tensor("blk.0.attn_q").Name = "blk.0.attn_z.weight"
		f.tensor("blk.1.attn_k").Shape = tensor.Shape{32, 16}
	}, want: []string{"tensor blk.0.attn_q: missing", "tensor blk.0.attn_z: the file holds it, but no weight", "tensor blk.1.attn_k.weight: shape [32 16], the configuration says [16 32]"}},
	{row: "biases on, none there", model: "llama", hf: set("attention_bias", true), want: []string{"tensor model.layers.2.self_attn.v_proj.bias: missing, but the configuration says that attention_bias is true"}},
	{row: "biases off, but there", model: "llama", hf: func(m *model) { m.vector("model.layers.0.mlp.up_proj.bias", width) },
		want: []string{"tensor model.layers.0.mlp.up_proj.bias: the file holds it, but the configuration says that mlp_bias is false"}},
	{row: "biases in one of many layers", model: "llama", gguf: func(f *file) { f.tensors = append(f.tensors, floats("blk.0.attn_q.bias", make([]float32, 32))) },
		want: []string{"tensor blk.1.attn_q.bias: missing, but the configuration says that attention_bias is true"}},
	{row: "biases on in qwen3", model: "qwen3", hf: set("attention_bias", true), want: is("attention_bias", "true, which architecture qwen3 does not support")},
	{row: "biases in qwen3", model: "qwen3", hf: func(m *model) { m.vector("model.layers.0.self_attn.q_proj.bias", heads*dim) }, want: []string{"q_proj.bias: the file holds it, but no weight of the architecture claims it"}},
	{row: "biases missing in qwen2", model: "qwen2", hf: func(m *model) { m.drop("model.layers.1.self_attn.k_proj.bias") }, want: []string{"tensor model.layers.1.self_attn.k_proj.bias: missing"}},
	{row: "norms in llama", model: "llama", hf: func(m *model) { m.vector("model.layers.0.self_attn.q_norm", dim) }, want: []string{"q_norm: the file holds it, but no weight of the architecture claims it"}},
	{row: "norms missing in qwen3", model: "qwen3", hf: func(m *model) { m.drop("model.layers.0.self_attn.q_norm") }, want: []string{"tensor model.layers.0.self_attn.q_norm: missing"}},
	{row: "tied, another head", model: "gemma3", hf: func(m *model) { m.matrix("lm_head", vocab, hidden) }, want: []string{"tensor lm_head: the file holds it, but the configuration says that tie_word_embeddings is true"}},
	{row: "untied, no head", model: "gemma4-31b", hf: set("tie_word_embeddings", false), want: []string{"tensor lm_head: missing, but the configuration says that tie_word_embeddings is false"}},
	{row: "per-layer embeddings off, but there", model: "gemma4-e2b", hf: set("hidden_size_per_layer_input", 0), want: []string{
		"tensor model.embed_tokens_per_layer: the file holds it, but the configuration says that hidden_size_per_layer_input is 0", "tensor model.layers.3.per_layer_input_gate: the file holds it"}},
	{row: "per-layer embeddings off in GGUF", model: "gemma4-e2b", gguf: key("embedding_length_per_layer_input", uint32(0)),
		want: []string{"tensor per_layer_token_embd: the file holds it, but the configuration says that gemma4.embedding_length_per_layer_input is 0"}},
	{row: "per-layer embeddings by default", model: "gemma4-31b", hf: func(m *model) { delete(m.config, "hidden_size_per_layer_input") },
		want: []string{"tensor model.embed_tokens_per_layer: missing, but the configuration says that hidden_size_per_layer_input is 256"}},
	{row: "K=V, but V", model: "gemma4-31b", hf: func(m *model) { m.matrix("model.layers.1.self_attn.v_proj", fullDim, hidden) },
		want: []string{"tensor model.layers.1.self_attn.v_proj.weight: the file holds it, but the configuration says that attention_k_eq_v is true"}},
	{row: "no K=V, no V", model: "gemma4-31b", hf: func(m *model) {
		m.perLayer(map[string]any{"head_dim": fullDim, "num_key_value_heads": 1})
		m.config["attention_k_eq_v"] = false
	},
		want: []string{"tensor model.layers.1.self_attn.v_proj: missing, the configuration says that it has shape [16 32]"}},
	{row: "no V in a sliding layer", model: "gemma4-31b", hf: func(m *model) { m.drop("model.layers.0.self_attn.v_proj") }, want: []string{"tensor model.layers.0.self_attn.v_proj: missing, the configuration says that it has shape [16 32]"}},
	{row: "no K", model: "gemma4-e2b", hf: func(m *model) { m.drop("model.layers.1.self_attn.k_proj"); m.drop("model.layers.1.self_attn.k_norm") },
		want: []string{"tensor model.layers.1.self_attn.k_proj: missing", "tensor model.layers.1.self_attn.k_norm: missing"}},
	{row: "experts off, but there", model: "gemma4-26b", hf: set("enable_moe_block", false), want: []string{"tensor model.layers.0.router.proj: the file holds it, but the configuration says that enable_moe_block is false"}},
	{row: "experts on, none there", model: "gemma4-31b", hf: func(m *model) {
		maps.Copy(m.config, config{"enable_moe_block": true, "num_experts": 3, "top_k_experts": 2, "moe_intermediate_size": 24})
	}, want: []string{"tensor model.layers.3.experts.down_proj: missing, but the configuration says that enable_moe_block is true"}},
	{row: "two names of one tensor in a folder", model: "gemma3", hf: func(m *model) {
		m.nest("gemma3", "language_model.")
		m.copy("language_model.model.norm", "model.language_model.norm.weight")
	}, want: []string{"two tensors have this name"}},
	{row: "a stray tensor in a multimodal folder", model: "gemma3", hf: func(m *model) { m.nest("gemma3", "language_model."); m.vector("model.layers.0.mlp.extra", 4) },
		want: []string{"tensor model.layers.0.mlp.extra: the file holds it, but no weight"}},
	{row: "A3 many tensors", model: "llama", hf: func(m *model) {
		for i := range 30000 {
			m.tensors = append(m.tensors, floats(fmt.Sprintf("model.layers.%d.x", i), []float32{1}))
		}
	}, want: []string{"tensor model.layers.0.x: the file holds it", "and 25000 more"}},
	{row: "A3 a thousand layers", model: "gemma4-e2b", hf: func(m *model) {
		for i := range 1024 {
			m.tensors = append(m.tensors, floats(fmt.Sprintf("x.%d", i), []float32{1}))
		}
		m.config["num_hidden_layers"], m.config["layer_types"] = 1024, nil
	}, want: []string{"tensor model.layers.4.self_attn.q_proj: missing", "more"}},
	{row: "no elements", model: "llama", hf: func(m *model) { x := m.tensor("model.norm"); x.Shape, x.Data = tensor.Shape{0}, nil }, want: []string{"tensor model.norm.weight: shape [0] has no elements"}},
}
