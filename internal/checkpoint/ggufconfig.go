package checkpoint

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/gguf"
)

// ggufKeys are GGUF's spellings, behind the architecture's prefix, of canonical
// settings that families share. Those of the second list need more than copying.
var ggufKeys = map[string]string{
	"vocab_size":                  "vocab_size",
	"num_hidden_layers":           "block_count",
	"max_position_embeddings":     "context_length",
	"hidden_size":                 "embedding_length",
	"num_attention_heads":         "attention.head_count",
	"rms_norm_eps":                "attention.layer_norm_rms_epsilon",
	"layer_norm_eps":              "attention.layer_norm_epsilon",
	"sliding_window":              "attention.sliding_window",
	"num_kv_shared_layers":        "attention.shared_kv_layers",
	"hidden_size_per_layer_input": "embedding_length_per_layer_input",
	"final_logit_softcapping":     "final_logit_softcapping",
	"num_experts":                 "expert_count",
	"top_k_experts":               "expert_used_count",
	"moe_intermediate_size":       "expert_feed_forward_length",
}

var moreGGUFKeys = map[string]string{
	"intermediate_size":   "feed_forward_length",
	"num_key_value_heads": "attention.head_count_kv",
	"head_dim":            "attention.key_length",
	"layer_types":         "attention.sliding_window_pattern",

	"rope_parameters.full_attention.rope_theta":                       "rope.freq_base",
	"rope_parameters.full_attention.rope_type":                        "rope.scaling.type",
	"rope_parameters.full_attention.factor":                           "rope.scaling.factor",
	"rope_parameters.full_attention.original_max_position_embeddings": "rope.scaling.original_context_length",
	"rope_parameters.sliding_attention.rope_theta":                    "rope.freq_base_swa",
}

// yarnKeys are the numbers of a yarn.
var yarnKeys = []struct {
	setting, gguf string
	whole         bool
}{
	{"factor", "rope.scaling.factor", false},
	{"original_max_position_embeddings", "rope.scaling.original_context_length", true},
	{"attention_factor", "rope.scaling.yarn_attn_factor", false},
	{"beta_fast", "rope.scaling.yarn_beta_fast", false},
	{"beta_slow", "rope.scaling.yarn_beta_slow", false},
}

// yarnMultiplier is a tenth of both multipliers of a yarn, where latents are stored.
const yarnMultiplier = "rope.scaling.yarn_log_multiplier"

// ownKey is the name in GGUF of a key of a family.
func ownKey(k family.Key) string {
	if k.GGUF == "" {
		return ggufKeys[k.Setting]
	}
	return k.GGUF
}

// canonicalKey is the canonical name of GGUF's key, or the key.
func canonicalKey(f *family.Family, own string) string {
	for _, k := range f.Keys {
		if k.GGUF == own && k.Setting != "" {
			return k.Setting
		}
	}
	for _, list := range []map[string]string{ggufKeys, moreGGUFKeys} {
		for key, name := range list {
			if name == own {
				return key
			}
		}
	}
	return own
}

// ggufReader translates metadata. Facts that GGUF has no key for are read off
// the tensors.
type ggufReader struct {
	*Checkpoint
	meta
	fullDim float64 // head size of full layers
}

// parseGGUF translates f's metadata.
func (c *Checkpoint) parseGGUF(f *gguf.File) error {
	r := &ggufReader{Checkpoint: c, meta: meta{metadata: f.Metadata, of: c.family, used: map[string]bool{}}}
	for _, list := range []map[string]string{ggufKeys, moreGGUFKeys} {
		for key, own := range list {
			c.spelling[key] = c.Arch + "." + own
		}
	}
	for _, k := range c.family.Keys {
		if k.Setting != "" {
			c.spelling[k.Setting] = c.Arch + "." + ownKey(k)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(ggufKeys)) {
		if key == "sliding_window" && c.family.Windows() == family.FromLayer {
			continue // nothing says which layers would slide: noted as unread
		}
		if c.family.Lacks(key) {
			r.value(ggufKeys[key]) // 0, since readers want the key
			continue
		}
		if n, ok := r.number(ggufKeys[key]); ok {
			c.settings[key] = n
		}
	}
	r.next()
	r.embedding()
	r.presence()
	r.pattern()
	r.heads()
	r.own()
	r.widths()
	r.perLayer()
	r.rope()
	r.pad()
	if err := errors.Join(r.errs...); err != nil {
		return fmt.Errorf("%s: %w", c.Path, err)
	}
	r.noteUnread()
	return nil
}

// presence reads off the tensors what the format has no key for, and fills in
// what all models of the family have.
func (r *ggufReader) presence() {
	s := r.settings
	_, own := r.tensors["output"]
	s["tie_word_embeddings"] = !own
	s.Fill("vocab_size", r.rows("token_embd"))
	for key, tensor := range r.family.Held {
		_, s[key] = r.tensors[tensor]
		if strings.HasPrefix(tensor, ".") {
			s[key] = slices.ContainsFunc(r.names, func(name string) bool { return strings.HasSuffix(name, tensor) })
		}
	}
	for _, list := range []map[string]any{r.family.Fixed, r.family.Absent} {
		for key, v := range list {
			s.Fill(key, v)
		}
	}
}

// pad reads which token pads, if the positions of the type count from its row.
func (r *ggufReader) pad() {
	const key = "tokenizer.ggml.padding_token_id"
	kind := r.typeHF()
	if !kind.Padded {
		return
	}
	r.settings["pad_token_id"], r.spelling["pad_token_id"] = kind.Defaults["pad_token_id"], key
	if _, ok := r.metadata.Lookup(key); ok {
		id, err := r.metadata.Uint(key)
		r.settings["pad_token_id"], r.errs = float64(id), append(r.errs, err)
	}
}

// rows is the number of rows of a tensor, as a setting; nil without the tensor.
func (c *Checkpoint) rows(name string) any {
	t, ok := c.tensors[name]
	switch {
	case !ok || len(t.Shape) == 0:
		return nil
	case len(t.Shape) == 1:
		return 1.
	}
	return float64(t.Shape[0])
}

// pattern reads which layers slide: a period, or a flag for each layer.
func (r *ggufReader) pattern() {
	const key = "attention.sliding_window_pattern"
	s := r.settings
	window := s.Int("sliding_window") > 0
	if r.family.Windows() == family.Listed {
		r.listed()
		return
	}
	if !r.family.Periodic() {
		fillLayers(s, func(int) bool { return window })
		return
	}
	own, period := r.windowKey()
	kind := own.Kind
	if kind == family.Count { // no key: all models have one period
		fillLayers(s, func(i int) bool { return window && r.family.Slides(i, period) })
		return
	}
	switch v := r.value(key).(type) {
	case []bool:
		if len(v) != s.Int("num_hidden_layers") {
			r.errorf(key, "has %d values for %s layers", len(v), family.Show(s["num_hidden_layers"]))
			return
		}
		fillLayers(s, func(i int) bool { return v[i] })
	case nil:
		if kind == family.Flags && !own.Unusual {
			r.errorf(key, "is missing")
			return
		}
		if !window { // the converter's way to say that none slides
			fillLayers(s, func(int) bool { return false })
			return
		}
		if !own.Unusual {
			r.Notes = append(r.Notes, fmt.Sprintf("the file has no key %s.%s: assuming that every %dth layer is full", r.Arch, key, period))
		}
		fillLayers(s, func(i int) bool { return r.family.Slides(i, period) })
	default:
		n, _ := numbers(v)
		if len(n) != 1 || !(n[0] >= 1 && n[0] <= family.MaxLayers) {
			r.errorf(key, "is %s, expected a number from 1 to %d", family.Show(v), family.MaxLayers)
			return
		}
		fillLayers(s, func(i int) bool { return r.family.Slides(i, int(n[0])) })
	}
}

// windowKey is the key for full layers, of kind Count where there is none, and the
// family's usual period.
func (r *ggufReader) windowKey() (own family.Key, period int) {
	for _, k := range r.family.Keys {
		if k.Kind == family.Period || k.Kind == family.Flags {
			own = k
		}
	}
	return own, r.family.Types[0].Period
}

// heads reads the attention's sizes. Where full layers have a size of their own,
// sliding ones' lies under another key.
func (r *ggufReader) heads() {
	if r.family.Latent() {
		r.latentHeads()
		return
	}
	s := r.settings
	if n, ok := r.number("attention.key_length"); ok {
		s["head_dim"] = n
	}
	s.Fill("num_key_value_heads", s["num_attention_heads"])
	if err := r.fillHeadDim(s); err != nil {
		r.errs = append(r.errs, err)
	}
	r.fullDim, _ = s["head_dim"].(float64)
	if r.family.Lacks("num_key_value_heads") {
		r.evenHeads()
	}
	r.sameDim(r.fullDim, "attention.value_length")
	if !r.family.Partial() {
		r.sameDim(r.fullDim, "rope.dimension_count")
	}
	if r.family.KeyOf(family.SlidingDim) != "" {
		if n, ok := r.number("attention.key_length_swa"); ok {
			s["head_dim"] = n
			r.spelling["head_dim"] = r.Arch + ".attention.key_length_swa"
		}
		dim, _ := s["head_dim"].(float64)
		r.sameDim(dim, "attention.value_length_swa", "rope.dimension_count_swa")
	}
}

// evenHeads refuses files of families without settings for it that have fewer heads of
// keys, or heads of another size than an even share of the width.
func (r *ggufReader) evenHeads() {
	heads, hidden := r.settings["num_attention_heads"], r.settings.Int("hidden_size")
	for _, n := range r.numbers("attention.head_count_kv") {
		if n != heads {
			r.errorf("attention.head_count_kv", "is %v, but there are %s heads, and in models of architecture %s each has keys of its own", n, family.Show(heads), r.Arch)
			return
		}
	}
	if n := r.settings.Int("num_attention_heads"); n > 0 && r.fullDim*float64(n) != float64(hidden) {
		r.errorf("attention.key_length", "is %v, but %d heads share a width of %d evenly in models of architecture %s", r.fullDim, n, hidden, r.Arch)
	}
}

// sameDim refuses files whose values are of another size than their keys, or
// whose heads turn in part: these architectures do not describe them.
func (r *ggufReader) sameDim(dim float64, keys ...string) {
	for _, key := range keys {
		if n, ok := r.number(key); ok && n != dim {
			r.errorf(key, "is %v, but a head's keys have %v features", n, dim)
		}
	}
}

// widths reads the sizes that may differ between layers.
func (r *ggufReader) widths() {
	s := r.settings
	for _, key := range []string{"intermediate_size", "num_key_value_heads"} {
		own := moreGGUFKeys[key]
		n := r.numbers(own)
		if len(n) == 0 || r.family.Lacks(key) || r.family.Latent() && key == "num_key_value_heads" {
			continue
		}
		s[key] = n[0]
		if r.family.Windows() == family.Listed {
			s[key] = slices.Max(n)
			n = slices.DeleteFunc(n, func(v float64) bool { return v == 0 })
		}
		if len(n) == 0 {
			continue
		}
		if slices.Min(n) == slices.Max(n) {
			continue
		}
		if !r.family.Model.Reads("per_layer_config") || len(n) != s.Int("num_hidden_layers") {
			what := ""
			if r.family.Model.Reads("per_layer_config") {
				what = fmt.Sprintf(", or one for each of %s layers", family.Show(s["num_hidden_layers"]))
			}
			r.errorf(own, "is %s, expected a number%s", family.Show(n), what)
			continue
		}
		for i, v := range n {
			if v != n[0] {
				r.override(i, key, v, own)
			}
		}
	}
}

// perLayer reads the head size that full layers have of their own.
func (r *ggufReader) perLayer() {
	if r.family.KeyOf(family.SlidingDim) == "" || r.fullDim == r.settings["head_dim"] {
		return
	}
	for i, t := range r.settings.List("layer_types") {
		if t == full {
			r.override(i, "head_dim", r.fullDim, "attention.key_length")
		}
	}
}

// override sets what differs in layer i.
func (r *ggufReader) override(i int, key string, v float64, own string) {
	layer := strconv.Itoa(i)
	r.settings.Fill("per_layer_config", family.Settings{})
	per := r.settings["per_layer_config"].(family.Settings)
	per.Fill(layer, family.Settings{})
	per[layer].(family.Settings)[key] = v
	r.spelling["per_layer_config."+layer+"."+key] = r.Arch + "." + own
}

// noteUnread lists the keys of the architecture that nothing asked for, and
// notes the ones that are likely to matter.
func (r *ggufReader) noteUnread() {
	for _, key := range r.metadata.Keys() {
		if !strings.HasPrefix(key, r.Arch+".") || r.used[key] {
			continue
		}
		v, _ := r.metadata.Lookup(key)
		var x any = fmt.Sprintf("an array of %d %v", v.Len(), v.Elem())
		if v.Type() != gguf.Array {
			var err error
			if x, err = v.Any(); err != nil {
				continue
			}
			if n, ok := number(reflect.ValueOf(x)); ok {
				x = n
			}
		}
		r.left = append(r.left, Entry{key, family.Show(x)})
		if matters(key, x) {
			r.unread = append(r.unread, fmt.Sprintf("metadata key %s = %s is not read by architecture %s", key, family.Show(x), r.Arch))
		}
	}
}
