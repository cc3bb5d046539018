package checkpoint

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"

	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/rope"
)

// idle are settings of a config.json that no forward pass depends on: they tell
// of training, of the library, or repeat what other files say.
var idle = map[string]bool{
	"architectures": true, "model_type": true, "transformers_version": true, "torch_dtype": true, "dtype": true, "_name_or_path": true,
	"auto_map": true, "use_cache": true, "return_dict": true, "output_attentions": true, "output_hidden_states": true, "_attn_implementation": true,
	"initializer_range": true, "attention_dropout": true, "hidden_dropout": true, "pretraining_tp": true, "cache_implementation": true,
	"bos_token_id": true, "eos_token_id": true, "pad_token_id": true, "unk_token_id": true, "sep_token_id": true, "cls_token_id": true, "mask_token_id": true,
	"do_sample": true, "temperature": true, "top_k": true, "top_p": true, "min_p": true, "repetition_penalty": true, "suppress_tokens": true,
	"_sliding_window_pattern": true, "vocab_size_per_layer_input": true, "task_specific_params": true, "id2label": true, "label2id": true,
	"tokenizer_class": true, "finetuning_task": true, "problem_type": true, "unsloth_fixed": true, "unsloth_version": true, "initializer_factor": true,
	"embd_pdrop": true, "resid_pdrop": true, "classifier_dropout": true, "chunk_size_feed_forward": true, "max_length": true, "min_length": true, "num_beams": true,
}

// Idle reports whether a setting, in the file's spelling, is none that a forward
// pass reads, or one that is converted all the same.
func (c *Checkpoint) Idle(key string) bool {
	return idle[key] || key == c.Key("max_position_embeddings") || key == c.Key("layer_types")
}

// read are the canonical settings that ggufWriter writes under no key of ggufKeys:
// as tensors that are there or not, or as part of other keys.
var read = map[string]bool{
	"tie_word_embeddings": true, "attention_bias": true, "mlp_bias": true, "attention_k_eq_v": true, "enable_moe_block": true,
	"use_double_wide_mlp": true, "per_layer_config": true, "rope_parameters": true, "hidden_act": true, "hidden_activation": true,
}

// ggufWriter translates settings into metadata.
type ggufWriter struct {
	*Checkpoint
	out  []gguf.KeyValue
	errs []error
}

// MetadataGGUF translates the configuration of a Hugging Face folder into the keys
// that llama.cpp's converter writes for the architecture (set_gguf_parameters in
// its conversion folder), and the divisors of the tensor rope_freqs, nil where the
// model needs none. Besides, it writes keys that the converter lacks and that are
// read here: gemma3.attention.sliding_window_pattern and attention.scale,
// and llama.attention.sliding_window. A setting that has no key is an error.
func (c *Checkpoint) MetadataGGUF() (keys []gguf.KeyValue, ropeFreqs []float32, err error) {
	w := &ggufWriter{Checkpoint: c}
	w.refuse()
	for _, key := range []string{"num_hidden_layers", "max_position_embeddings", "hidden_size"} {
		w.count(key)
	}
	w.perLayer("intermediate_size", "feed_forward_length")
	w.count("num_attention_heads")
	w.perLayer("num_key_value_heads", "attention.head_count_kv")
	ropeFreqs = w.rope()
	w.float("rms_norm_eps")
	if c.settings["enable_moe_block"] == true {
		w.count("num_experts")
		w.count("top_k_experts")
	}
	dim := uint32(w.fullDim())
	w.put("attention.key_length", dim)
	w.put("attention.value_length", dim)
	if c.settings.integer("sliding_window") > 0 && slices.Contains(w.slides(), true) {
		w.count("sliding_window")
	}
	switch c.Arch {
	case "llama":
		w.count("vocab_size")
		w.put("rope.dimension_count", dim)
	case "gemma3":
		w.gemma3()
	case "gemma4":
		w.gemma4(dim)
	}
	if err = errors.Join(w.errs...); err != nil {
		return nil, nil, fmt.Errorf("checkpoint: %s: %w", c.Path, err)
	}
	return w.out, ropeFreqs, nil
}

func (w *ggufWriter) put(key string, v any) {
	w.out = append(w.out, gguf.KeyValue{Key: w.Arch + "." + key, Value: v})
}

func (w *ggufWriter) count(key string) { w.put(ggufKeys[key], uint32(w.settings.integer(key))) }

func (w *ggufWriter) float(key string) {
	if v, ok := w.settings[key].(float64); ok && v != 0 {
		w.put(ggufKeys[key], float32(v))
	}
}

func (w *ggufWriter) errorf(key, format string, args ...any) {
	w.errs = append(w.errs, fmt.Errorf("configuration key %s %s", w.Key(key), fmt.Sprintf(format, args...)))
}

// refuse names the settings that GGUF has no key for.
func (w *ggufWriter) refuse() {
	s := w.settings
	for _, key := range slices.Sorted(maps.Keys(s)) {
		_, plain := ggufKeys[key]
		_, more := moreGGUFKeys[key]
		if !plain && !more && !read[key] && !idle[key] && !neutral(s[key]) {
			w.errorf(key, "is %s: no rule of architecture %s takes it to GGUF", show(s[key]), w.Arch)
		}
	}
	for _, act := range []string{"hidden_act", "hidden_activation"} {
		v, want := s[act], defaults[w.Arch][act]
		if alias := map[any]any{"swish": "silu", "gelu_tanh": "gelu_pytorch_tanh"}[v]; alias != nil {
			v = alias
		}
		if v != nil && v != want {
			w.errorf(act, "is %s: GGUF has no key for it, and %s models have %s", show(v), w.Arch, show(want))
		}
	}
	if i := slices.Index(w.slides(), true); i >= 0 && (w.Arch == "qwen2" || w.Arch == "qwen3") {
		w.errorf("layer_types", "lets layer %d slide: GGUF has no key that says which layers of %s slide", i, w.Arch)
	}
}

// slides tells which layers have a window.
func (w *ggufWriter) slides() []bool {
	types, _ := w.settings["layer_types"].([]any)
	out := make([]bool, len(types))
	for i, t := range types {
		out[i] = t == sliding
	}
	return out
}

// layer is a setting of layer i.
func (w *ggufWriter) layer(i int, key string) int {
	per, _ := object(w.settings["per_layer_config"])
	own, _ := object(per[strconv.Itoa(i)])
	if n := settings(own).integer(key); n > 0 {
		return n
	}
	n := w.settings.integer(key)
	if key == "intermediate_size" && w.settings["use_double_wide_mlp"] == true && i >= w.settings.integer("num_hidden_layers")-w.settings.integer("num_kv_shared_layers") {
		n *= 2
	}
	return n
}

// perLayer writes a setting that may differ between layers: one number, or one
// for each layer.
func (w *ggufWriter) perLayer(key, own string) {
	n := make([]int32, w.settings.integer("num_hidden_layers"))
	for i := range n {
		n[i] = int32(w.layer(i, key))
	}
	if slices.Min(n) == slices.Max(n) {
		w.put(own, uint32(n[0]))
		return
	}
	w.put(own, n)
}

// fullDim is the head size of full layers, which GGUF has under the plain keys.
func (w *ggufWriter) fullDim() int {
	dim := w.settings.integer("head_dim")
	slides, found := w.slides(), false
	for i, s := range slides {
		switch own := w.layer(i, "head_dim"); {
		case s && own != w.settings.integer("head_dim"):
			w.errorf("per_layer_config."+strconv.Itoa(i)+".head_dim", "is %d in a sliding layer: GGUF has one head size for all of these", own)
		case !s && found && own != dim:
			w.errorf("per_layer_config."+strconv.Itoa(i)+".head_dim", "is %d, and %d in other full layers: GGUF has one head size for all of these", own, dim)
		case !s:
			dim, found = own, true
		}
	}
	return dim
}

// rope writes the bases and a linear scaling, and returns the divisors of other ones.
func (w *ggufWriter) rope() []float32 {
	var p, s rope.Params
	params := w.ropeParameters()
	for kind, to := range map[string]*rope.Params{full: &p, sliding: &s} {
		if v, ok := object(params[kind]); ok {
			if err := w.decode(reflect.ValueOf(to).Elem(), v, "rope_parameters."+kind); err != nil {
				w.errs = append(w.errs, err)
			}
		}
	}
	if p.Type == "" {
		p.Type = p.OldType
	}
	if p.Type == "linear" {
		w.put("rope.scaling.type", "linear")
		w.put("rope.scaling.factor", float32(p.Factor))
	}
	w.put("rope.freq_base", float32(p.Theta))
	if s.Type == "" {
		s.Type = s.OldType
	}
	if w.Arch == "gemma3" || w.Arch == "gemma4" {
		w.put("rope.freq_base_swa", float32(s.Theta))
		if s.Type != "" && s.Type != "default" || s.Part != 0 && s.Part != 1 {
			w.errorf("rope_parameters."+sliding, "scales the rotation: GGUF has keys for that of full layers only")
		}
	}
	factors, err := p.GGUF(w.fullDim())
	if err != nil {
		w.errs = append(w.errs, err)
	}
	return factors
}

// gemma3 writes what only Gemma 3 has. A period of full layers is one number; where
// no layer slides, the converter leaves the window out.
func (w *ggufWriter) gemma3() {
	w.float("final_logit_softcapping")
	slides := w.slides()
	if slices.Contains(slides, true) {
		period := slices.Index(slides, false) + 1
		if period == 0 {
			period = len(slides) + 1
		}
		var v any = uint32(period)
		for i, s := range slides {
			if s != ((i+1)%period != 0) {
				v = slides
			}
		}
		w.put("attention.sliding_window_pattern", v)
	}
	q, _ := w.settings["query_pre_attn_scalar"].(float64)
	w.put("attention.scale", float32(1/math.Sqrt(q)))
}

// gemma4 writes what only Gemma 4 has; dim is the head size of full layers.
func (w *ggufWriter) gemma4(dim uint32) {
	swa := uint32(w.settings.integer("head_dim"))
	w.float("final_logit_softcapping")
	w.count("num_kv_shared_layers")
	w.count("hidden_size_per_layer_input")
	w.put("attention.sliding_window_pattern", w.slides())
	w.put("attention.key_length_swa", swa)
	w.put("attention.value_length_swa", swa)
	if w.settings["enable_moe_block"] == true {
		w.count("moe_intermediate_size")
	}
	w.put("rope.dimension_count", dim)
	w.put("rope.dimension_count_swa", swa)
}
