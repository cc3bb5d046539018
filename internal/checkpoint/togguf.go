package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/rope"
)

// idle are settings of a config.json that no forward pass depends on: they tell
// of training, of the library and of generation (PretrainedConfig in transformers
// 4 and 5), or repeat what other files say.
var idle = words(`architectures model_type transformers_version torch_dtype dtype _name_or_path name_or_path auto_map
	use_cache return_dict output_attentions output_hidden_states torchscript use_bfloat16 _attn_implementation attn_implementation
	_attn_implementation_autoset cache_implementation _sliding_window_pattern
	initializer_range attention_dropout attn_dropout hidden_dropout resid_pdrop embd_pdrop attn_pdrop classifier_dropout pretraining_tp
	is_decoder is_encoder_decoder add_cross_attention cross_attention_hidden_size tie_encoder_decoder chunk_size_feed_forward
	finetuning_task problem_type id2label label2id task_specific_params pruned_heads prefix tokenizer_class
	bos_token_id eos_token_id pad_token_id unk_token_id sep_token_id cls_token_id mask_token_id decoder_start_token_id
	forced_bos_token_id forced_eos_token_id bad_words_ids begin_suppress_tokens suppress_tokens
	do_sample temperature top_k top_p min_p typical_p repetition_penalty length_penalty diversity_penalty no_repeat_ngram_size
	encoder_no_repeat_ngram_size num_beams num_beam_groups num_return_sequences early_stopping max_length min_length
	output_scores return_dict_in_generate remove_invalid_values exponential_decay_length_penalty
	unsloth_fixed unsloth_version transformers.js_config`)

// read are the canonical settings that ggufWriter writes under no key of ggufKeys:
// as tensors that are there or not, or as part of other keys.
var read = words(`tie_word_embeddings attention_bias mlp_bias per_layer_config rope_parameters hidden_act hidden_activation`)

// latentSizes are those of models that store latents.
var latentSizes = words(`qk_nope_head_dim qk_rope_head_dim v_head_dim`)

func words(text string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(text) {
		set[w] = true
	}
	return set
}

// Idle reports whether a setting, in the file's spelling, is none that a forward
// pass reads, or one that is converted all the same.
func (c *Checkpoint) Idle(key string) bool {
	own := func(k string) bool { return k == key || c.Key(k) == key }
	return idle[key] || slices.ContainsFunc(c.family.Idle, own) || c.family.Fixed[key] != nil ||
		key == c.Key("max_position_embeddings") || key == c.Key("layer_types")
}

// written reports whether a setting is taken to GGUF.
func (w *ggufWriter) written(key string) bool {
	f := w.family
	return ggufKeys[key] != "" || moreGGUFKeys[key] != "" || f.Uses(key) || read[key] || f.Fixed[key] != nil ||
		f.Held[key] != "" || f.Latent() && latentSizes[key]
}

// ggufWriter translates settings into metadata.
type ggufWriter struct {
	*Checkpoint
	out  []gguf.KeyValue
	errs []error
}

// MetadataGGUF translates the configuration of a Hugging Face folder into the keys
// that llama.cpp's converter writes for the architecture (set_gguf_parameters in
// its conversion folder), and the tensors of divisors that it makes of the rotary
// settings. Besides, it writes keys that the converter lacks and that are
// read here: of windows, and those of which the family says so. A setting that has no key is an error, unless
// it is set aside.
func (c *Checkpoint) MetadataGGUF(aside ...string) (keys []gguf.KeyValue, factors []Factors, err error) {
	own := *c
	if c = &own; c.family.ToGGUF != nil {
		c.settings = maps.Clone(c.settings)
		c.family.ToGGUF(c.settings)
	}
	w := &ggufWriter{Checkpoint: c}
	w.refuse(aside)
	w.count("num_hidden_layers")
	w.count("max_position_embeddings")
	w.count("hidden_size")
	if !c.family.Lacks("intermediate_size") || !c.family.Uses("num_experts") { // else all layers have experts
		w.perLayer("intermediate_size", "feed_forward_length")
	}
	w.count("num_attention_heads")
	switch {
	case c.family.Latent():
		w.put("attention.head_count_kv", uint32(1))
		w.latentHeads()
	case !c.family.Lacks("num_key_value_heads"):
		w.perLayer("num_key_value_heads", "attention.head_count_kv")
	}
	if !c.family.Lacks("rope_parameters") {
		factors = w.rope()
	}
	w.float("rms_norm_eps")
	w.float("layer_norm_eps")
	if c.family.Mixes(c.settings) {
		w.count("num_experts")
		w.count("top_k_experts")
	}
	dim := uint32(w.fullDim())
	if !c.derivedDim && !c.family.Latent() && !c.family.Lacks("num_key_value_heads") && dim > 0 { // else heads share the width evenly
		w.put("attention.key_length", dim)
		w.put("attention.value_length", dim)
	}
	if window := c.settings.Int("sliding_window") > 0 && slices.Contains(w.slides(), true); !c.family.Uses("sliding_window") && (window || c.family.Absent["sliding_window"] != nil) {
		w.count("sliding_window")
	}
	for _, k := range c.family.Keys {
		w.own(k, dim)
	}
	w.embedding()
	if err = errors.Join(w.errs...); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", c.Path, err)
	}
	return w.out, factors, nil
}

// Factors is a tensor of divisors of rotary frequencies, which only GGUF has.
type Factors struct {
	Name   string
	Values []float32
}

func (w *ggufWriter) put(key string, v any) {
	w.out = append(w.out, gguf.KeyValue{Key: w.Arch + "." + key, Value: v})
}

func (w *ggufWriter) count(key string) { w.put(ggufKeys[key], uint32(w.settings.Int(key))) }

func (w *ggufWriter) float(key string) {
	if v, ok := w.settings[key].(float64); ok && v != 0 {
		w.put(ggufKeys[key], float32(v))
	}
}

func (w *ggufWriter) errorf(key, format string, args ...any) {
	w.errs = append(w.errs, fmt.Errorf("configuration key %s %s", w.Key(key), fmt.Sprintf(format, args...)))
}

// refuse names the settings that GGUF has no key for.
func (w *ggufWriter) refuse(aside []string) {
	s := w.settings
	for _, key := range slices.Sorted(maps.Keys(s)) {
		if !w.written(key) && !w.Idle(key) && !Neutral(s[key]) && !slices.Contains(aside, w.Key(key)) {
			w.errorf(key, "is %s: no rule of architecture %s takes it to GGUF", family.Show(s[key]), w.Arch)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(w.family.Fixed)) {
		if !w.asFixed(key) {
			w.errorf(key, "is %s: GGUF has no key for it, and %s models have %s", family.Show(s[key]), w.Arch, family.Show(w.family.Fixed[key]))
		}
	}
	if i := slices.Index(w.slides(), true); i >= 0 && w.family.Windows() == family.FromLayer {
		w.errorf("layer_types", "lets layer %d slide: GGUF has no key that says which layers of %s slide", i, w.Arch)
	}
}

// asFixed reports whether a setting is as all models of the family have it.
func (c *Checkpoint) asFixed(key string) bool {
	v, want := c.settings[key], c.family.Fixed[key]
	if name, ok := v.(string); ok {
		if alias, ok := map[string]string{"swish": "silu", "gelu_tanh": "gelu_pytorch_tanh"}[name]; ok {
			v = alias
		}
	}
	return v == nil || reflect.DeepEqual(v, want)
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
	per, _ := family.Object(w.settings["per_layer_config"])
	own, _ := family.Object(per[strconv.Itoa(i)])
	if n := family.Settings(own).Int(key); n > 0 {
		return n
	}
	return w.settings.Int(key)
}

// perLayer writes a setting that may differ between layers: one number, or one
// for each layer.
func (w *ggufWriter) perLayer(key, own string) {
	n := make([]int32, w.settings.Int("num_hidden_layers"))
	listed := w.lists(key)
	for i := range n {
		if listed == nil || slices.Contains(listed, w.kind(i)) {
			n[i] = int32(w.layer(i, key))
		}
	}
	if listed == nil && slices.Min(n) == slices.Max(n) {
		w.put(own, uint32(n[0]))
		return
	}
	w.put(own, n)
}

// lists are the kinds of layers that have the setting where its key is 0 for others; nil where all do.
func (w *ggufWriter) lists(key string) []string {
	switch {
	case w.family.Windows() != family.Listed || w.family.KeyOf(family.Interval) != "":
	case key == "num_key_value_heads":
		return []string{full}
	case w.family.Layers.Kinds[family.MLPAlone] != "" || w.family.Layers.Kinds[family.ExpertsAlone] != "":
		return []string{family.MLPAlone, family.ExpertsAlone}
	}
	return nil
}

// kind is what layer i does.
func (w *ggufWriter) kind(i int) string {
	types, _ := w.settings["layer_types"].([]any)
	kind, _ := types[i].(string)
	return kind
}

// fullDim is the head size of full layers, which GGUF has under the plain keys.
func (w *ggufWriter) fullDim() int {
	dim := w.settings.Int("head_dim")
	slides, found := w.slides(), false
	for i, s := range slides {
		switch own := w.layer(i, "head_dim"); {
		case s && own != w.settings.Int("head_dim"):
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
func (w *ggufWriter) rope() (tensors []Factors) {
	var p, s rope.Params
	params := w.ropeParameters()
	for kind, to := range map[string]*rope.Params{full: &p, sliding: &s} {
		if v, ok := family.Object(params[kind]); ok {
			if err := w.decode(reflect.ValueOf(to).Elem(), v, "rope_parameters."+kind); err != nil {
				w.errs = append(w.errs, err)
			}
		}
	}
	if p.Type == "" {
		p.Type = p.OldType
	}
	switch {
	case p.Type == "linear":
		w.put("rope.scaling.type", "linear")
		w.put("rope.scaling.factor", float32(p.Factor))
	case p.Type == "yarn" && w.family.Rope.Yarn:
		w.yarn(p)
		p.Type = "default" // the divisors are those of no scaling
	case p.Type == "longrope" && w.family.Rope.Long:
		tensors = w.longrope(p)
		p.Type = "default"
	}
	if !w.family.Rope.Silent || p.Theta != 1e4 {
		w.put("rope.freq_base", float32(p.Theta))
	}
	if s.Type == "" {
		s.Type = s.OldType
	}
	if w.family.Rope.Sliding != nil && (!w.family.Rope.Yarn || slices.Contains(w.slides(), true)) {
		w.put("rope.freq_base_swa", float32(s.Theta))
		if s.Type != "" && s.Type != "default" || s.Part != 0 && s.Part != 1 {
			w.errorf("rope_parameters."+sliding, "scales the rotation: GGUF has keys for that of full layers only")
		}
	}
	if w.family.Partial() {
		p.Part = 0
	}
	factors, err := p.GGUF(w.fullDim())
	if err != nil {
		w.errs = append(w.errs, err)
	}
	if factors != nil {
		tensors = append(tensors, Factors{"rope_freqs", factors})
	}
	return tensors
}

// longrope writes the magnitude, 1 included, and returns both lists of divisors.
func (w *ggufWriter) longrope(p rope.Params) []Factors {
	if n := w.settings.Int("original_max_position_embeddings"); n > 0 {
		p.Context = float64(n)
	}
	r, err := rope.Resolve(w.fullDim(), rope.Context{Longest: w.settings.Int("max_position_embeddings")}, p)
	if err != nil {
		w.errs = append(w.errs, err)
		return nil
	}
	w.put("rope.scaling.attn_factor", float32(cmp.Or(r.Magnitude, 1)))
	return []Factors{{longFactors[0].tensor, p.Long}, {longFactors[1].tensor, p.Short}}
}

// yarn writes the numbers of a yarn. What GGUF has no key for must be as readers assume.
func (w *ggufWriter) yarn(p rope.Params) {
	params, _ := family.Object(w.ropeParameters()[full])
	if truncate := p.Truncate == nil || *p.Truncate; truncate != (w.family.Rope.Fixed["truncate"] != false) {
		w.errorf("rope_parameters."+full, "has truncate %v: GGUF has no key for it in architecture %s", truncate, w.Arch)
	}
	switch own := w.family.KeyOf(family.Multiplier); {
	case w.family.Latent() && p.Mscale == p.MscaleAllDim:
		if p.MscaleAllDim != 0 {
			w.put(yarnMultiplier, float32(0.1*p.MscaleAllDim))
		}
	case !w.family.Latent() && (p.Mscale == 0 || p.MscaleAllDim == 0): // the library reads neither
	case own != "" && p.Mscale == 1:
		w.put(own, float32(p.MscaleAllDim))
	default:
		w.errorf("rope_parameters."+full, "has mscale %v and mscale_all_dim %v: GGUF has no keys for them in architecture %s", p.Mscale, p.MscaleAllDim, w.Arch)
	}
	w.put("rope.scaling.type", "yarn")
	for _, k := range yarnKeys {
		v, ok := params[k.setting].(float64)
		switch {
		case ok && k.whole:
			w.put(k.gguf, uint32(v))
		case ok:
			w.put(k.gguf, float32(v))
		}
	}
}

// own writes a key that not all families have; dim is the head size of full layers.
func (w *ggufWriter) own(k family.Key, dim uint32) {
	v, there := w.settings[k.Setting].(float64)
	switch k.Kind {
	case family.Count, family.Rank:
		if there && !w.assumed(k) {
			w.put(ownKey(k), uint32(w.settings.Int(k.Setting)))
		}
	case family.Truth:
		if b := w.settings[k.Setting] == true; k.Unusual && !w.assumed(k) || b && !k.Unusual {
			w.put(ownKey(k), b)
		}
	case family.Choice:
		w.choice(k)
	case family.Number:
		if k.Scale != nil {
			if k.Unusual && v == k.Scale.Absent(w.settings) {
				return
			}
			v = 1 / math.Sqrt(v)
		}
		if (v != 0 || w.family.Absent[k.Setting] != nil) && !w.assumed(k) {
			w.put(ownKey(k), float32(v))
		}
	case family.FullDim:
		w.put(k.GGUF, dim)
	case family.SlidingDim:
		w.put(k.GGUF, uint32(w.settings.Int("head_dim")))
	case family.Turning:
		p, _ := family.Object(w.ropeParameters()[full])
		part, _ := p["partial_rotary_factor"].(float64)
		w.put(k.GGUF, uint32(float64(dim)*cmp.Or(part, 1)))
	case family.Never:
		w.put(k.GGUF, false)
	case family.Word:
		w.put(k.GGUF, k.Text)
	case family.Product:
		w.put(k.GGUF, uint32(w.settings.Int(k.Setting)*w.settings.Int(k.Of)))
	case family.Switch:
		w.put(k.GGUF, w.settings[k.Setting] == k.Text)
	case family.Flags:
		if !k.Unusual || slices.Contains(w.slides(), true) {
			w.put(k.GGUF, w.slides())
		}
	case family.Period:
		w.period(k)
	case family.Interval:
		w.interval(k)
	case family.Sections:
		list, _ := w.settings[k.Setting].([]any)
		n := make([]int32, 4)
		for i := range min(3, len(list)) {
			v, _ := list[i].(float64)
			n[i] = int32(v)
		}
		w.put(k.GGUF, n)
	}
}

// assumed reports whether a key that is written where it is unusual can be left out: readers
// find the same setting without it.
func (w *ggufWriter) assumed(k family.Key) bool {
	if !k.Unusual || k.Scale != nil {
		return false
	}
	s := maps.Clone(w.settings)
	delete(s, k.Setting)
	s.Fill(k.Setting, w.family.Absent[k.Setting])
	if w.family.FromGGUF != nil {
		w.family.FromGGUF(s, &family.File{})
	}
	return s[k.Setting] == w.settings[k.Setting]
}

// interval writes which layers are full: the usual interval, and a flag for each layer where it is wrong.
func (w *ggufWriter) interval(k family.Key) {
	every := w.family.Types[0].Period
	w.put(k.GGUF, uint32(every))
	flags, usual := make([]bool, w.settings.Int("num_hidden_layers")), true
	for i := range flags {
		flags[i] = w.kind(i) != full
		usual = usual && flags[i] == ((i+1)%every != 0)
	}
	if !usual {
		w.put(recurrent, flags)
	}
}

// choice writes a setting that is one of several words. The first is what readers assume.
func (w *ggufWriter) choice(k family.Key) {
	word, _ := w.settings[k.Setting].(string)
	switch i := slices.Index(k.Words, word); {
	case i < 1:
		w.errorf(k.Setting, "is %s: GGUF knows %q", family.Show(w.settings[k.Setting]), k.Words)
	case i > 1 || !k.Unusual:
		w.put(ownKey(k), uint32(i))
	}
}

// period writes which layers are full: the period as one number where there is one. Where
// no layer slides, the converter leaves the window out.
func (w *ggufWriter) period(k family.Key) {
	slides := w.slides()
	if !slices.Contains(slides, true) {
		return
	}
	period := slices.Index(slides, false) + 1
	if w.family.Windows() == family.PeriodicFirst {
		period = slices.Index(slides[1:], false) + 1
	}
	if period == 0 {
		period = len(slides) + 1
	}
	var v any = uint32(period)
	for i, s := range slides {
		if s != w.family.Slides(i, period) {
			v = slides
		}
	}
	if n, one := v.(uint32); k.Unusual && one && int(n) == w.family.Types[0].Period {
		return
	}
	w.put(k.GGUF, v)
}
