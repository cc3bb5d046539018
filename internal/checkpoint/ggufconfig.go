package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/tensor"
)

// keys are GGUF's spellings, behind the architecture's prefix, of settings
// that are one number in both formats.
var keys = map[string]string{
	"vocab_size":                       "vocab_size",
	"block_count":                      "num_hidden_layers",
	"context_length":                   "max_position_embeddings",
	"embedding_length":                 "hidden_size",
	"attention.head_count":             "num_attention_heads",
	"attention.layer_norm_rms_epsilon": "rms_norm_eps",
	"attention.sliding_window":         "sliding_window",
	"attention.shared_kv_layers":       "num_kv_shared_layers",
	"embedding_length_per_layer_input": "hidden_size_per_layer_input",
	"final_logit_softcapping":          "final_logit_softcapping",
	"expert_count":                     "num_experts",
	"expert_used_count":                "top_k_experts",
	"expert_feed_forward_length":       "moe_intermediate_size",
}

// meta reads one architecture's metadata and remembers what was asked for.
type meta struct {
	f    *gguf.File
	arch string
	used map[string]bool
	errs []error
}

func (m *meta) value(key string) any {
	key = m.arch + "." + key
	m.used[key] = true
	v, ok := m.f.Metadata.Lookup(key)
	if !ok {
		return nil
	}
	x, err := v.Any()
	if err != nil {
		m.errs = append(m.errs, err)
	}
	return x
}

// numbers is the value of key as numbers, one for a scalar; nil where it is absent.
func (m *meta) numbers(key string) []float64 {
	x := m.value(key)
	if x == nil {
		return nil
	}
	n, ok := numbers(x)
	if !ok {
		m.errs = append(m.errs, fmt.Errorf("key %s.%s: %T is no number", m.arch, key, x))
	}
	return n
}

// number is the value of key, which must be one number; 0 where it is absent.
func (m *meta) number(key string) float64 {
	n := m.numbers(key)
	if len(n) > 1 && slices.Min(n) != slices.Max(n) {
		m.errs = append(m.errs, fmt.Errorf("key %s.%s: %d different numbers where one is expected", m.arch, key, len(n)))
	}
	if len(n) == 0 {
		return 0
	}
	return n[0]
}

func (m *meta) text(key string) string {
	s, _ := m.value(key).(string)
	return s
}

// numbers widens any numeric metadata value.
func numbers(x any) ([]float64, bool) {
	switch x := x.(type) {
	case uint8:
		return []float64{float64(x)}, true
	case int8:
		return []float64{float64(x)}, true
	case uint16:
		return []float64{float64(x)}, true
	case int16:
		return []float64{float64(x)}, true
	case uint32:
		return []float64{float64(x)}, true
	case int32:
		return []float64{float64(x)}, true
	case uint64:
		return []float64{float64(x)}, true
	case int64:
		return []float64{float64(x)}, true
	case float64:
		return []float64{x}, true
	case float32:
		return []float64{shortest(x)}, true
	case []uint32:
		return widen(x), true
	case []int32:
		return widen(x), true
	case []uint64:
		return widen(x), true
	case []int64:
		return widen(x), true
	case []float32:
		return widen(x), true
	}
	return nil, false
}

func widen[T uint32 | int32 | uint64 | int64 | float32](x []T) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

// shortest is the float64 with the shortest decimal form among those that
// round to x: the number that a config.json said before GGUF narrowed it.
func shortest(x float32) float64 {
	v, _ := strconv.ParseFloat(strconv.FormatFloat(float64(x), 'g', -1, 32), 64)
	return v
}

// parseGGUF translates f's metadata. Facts that GGUF has no key for are read
// off the tensors that has tells of.
func (c *Checkpoint) parseGGUF(f *gguf.File) error {
	m := &meta{f: f, arch: c.Arch, used: map[string]bool{}}
	s := settings{}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if n := m.number(key); n != 0 {
			s[keys[key]] = n
		}
	}
	s.fill("num_key_value_heads", s["num_attention_heads"])
	s.fill("vocab_size", c.rows("token_embd"))
	if heads := s.integer("num_attention_heads"); heads > 0 {
		s["head_dim"] = math.Floor(float64(s.integer("hidden_size")) / float64(heads))
	}
	_, own := c.tensors["output"]
	s["tie_word_embeddings"] = !own
	if c.Arch == "llama" {
		_, s["attention_bias"] = c.tensors["blk.0.attn_q.bias"]
		_, s["mlp_bias"] = c.tensors["blk.0.ffn_gate.bias"]
	}
	s.activation(c.Arch)
	c.settings = s
	c.heads(m)
	c.perLayerGGUF(m)
	c.rotary(m)
	if len(m.errs) > 0 {
		return fmt.Errorf("checkpoint: %s: %w", c.Path, errors.Join(m.errs...))
	}
	c.unreadGGUF(m)
	return nil
}

// rows is the number of rows of a tensor, as a setting; nil without the tensor.
func (c *Checkpoint) rows(name string) any {
	if t, ok := c.tensors[name]; ok && len(t.Shape) > 0 {
		return float64(t.Shape[0])
	}
	return nil
}

// unreadGGUF notes the keys of the architecture that nothing asked for.
func (c *Checkpoint) unreadGGUF(m *meta) {
	for _, key := range m.f.Metadata.Keys() {
		if !strings.HasPrefix(key, c.Arch+".") || m.used[key] {
			continue
		}
		v, _ := m.f.Metadata.Lookup(key)
		if x, err := v.Any(); err == nil {
			if n, ok := numbers(x); ok && len(n) == 1 {
				x = n[0]
			}
			if matters(key, x) {
				c.unread = append(c.unread, fmt.Sprintf("metadata key %s = %v is not read by architecture %s", key, x, c.Arch))
			}
		}
	}
}

// heads reads the attention's sizes, which lie under their own keys for
// sliding layers where there are two kinds.
func (c *Checkpoint) heads(m *meta) {
	s := c.settings
	if n := m.number("attention.key_length"); n != 0 {
		s["head_dim"] = n
	}
	if v := m.number("attention.value_length"); v != 0 && v != s["head_dim"] {
		m.errs = append(m.errs, fmt.Errorf("key %s.attention.value_length: %v, but keys have length %v", c.Arch, v, s["head_dim"]))
	}
	if c.Arch != "gemma3" {
		return
	}
	scale := m.number("attention.scale")
	if scale == 0 {
		s["query_pre_attn_scalar"] = s["head_dim"]
		if s.integer("num_hidden_layers") == 62 { // 27B
			s["query_pre_attn_scalar"] = math.Floor(float64(s.integer("hidden_size")) / float64(max(1, s.integer("num_attention_heads"))))
		}
		c.Notes = append(c.Notes, fmt.Sprintf("the file has no key gemma3.attention.scale: assuming 1/sqrt(%v)", s["query_pre_attn_scalar"]))
		return
	}
	q := 1 / (scale * scale)
	if r := math.Round(q); math.Abs(q-r) < 1e-5*r { // the key is a rounded root of a whole number
		q = r
	}
	s["query_pre_attn_scalar"] = q
}

// perLayerGGUF reads what differs between layers: which slide, and Gemma 4's
// head sizes, key and value heads and MLP widths.
func (c *Checkpoint) perLayerGGUF(m *meta) {
	s := c.settings
	layers := s.integer("num_hidden_layers")
	c.pattern(m)
	ff, kv := m.numbers("feed_forward_length"), m.numbers("attention.head_count_kv")
	for name, v := range map[string][]float64{"intermediate_size": ff, "num_key_value_heads": kv} {
		if len(v) > 1 && len(v) != layers {
			m.errs = append(m.errs, fmt.Errorf("key %s.%s: %d numbers for %d layers", c.Arch, c.spell(name)[len(c.Arch)+1:], len(v), layers))
			return
		}
		if len(v) > 0 {
			s[name] = v[0]
			if c.Arch != "gemma4" && slices.Min(v) != slices.Max(v) {
				m.errs = append(m.errs, fmt.Errorf("key %s: differs between layers", c.spell(name)))
			}
		}
	}
	if c.Arch != "gemma4" {
		return
	}
	types, _ := s["layer_types"].([]any)
	full, sliding := s["head_dim"], m.number("attention.key_length_swa")
	if v := m.number("attention.value_length_swa"); v != sliding {
		m.errs = append(m.errs, fmt.Errorf("key gemma4.attention.value_length_swa: %v, but keys have length %v", v, sliding))
	}
	per := map[string]any{}
	for i, t := range types {
		o := map[string]any{}
		if len(ff) > 1 && ff[i] != ff[0] {
			o["intermediate_size"] = ff[i]
		}
		if len(kv) > 1 && kv[i] != kv[0] {
			o["num_key_value_heads"] = kv[i]
		}
		if t == "full_attention" && sliding != 0 {
			o["head_dim"] = full
		}
		if len(o) > 0 {
			per[strconv.Itoa(i)] = o
		}
	}
	if sliding != 0 {
		s["head_dim"] = sliding
	}
	s["per_layer_config"] = per
	s["enable_moe_block"] = s.integer("num_experts") > 0
	s.fill("vocab_size_per_layer_input", c.rows("per_layer_token_embd"))
	for i, t := range types { // the format has no key for K=V
		_, k := c.tensors[fmt.Sprintf("blk.%d.attn_k", i)]
		if _, v := c.tensors[fmt.Sprintf("blk.%d.attn_v", i)]; t == "full_attention" && k && !v {
			s["attention_k_eq_v"] = true
		}
	}
}

// pattern reads which layers slide: a period, or a flag for each layer.
func (c *Checkpoint) pattern(m *meta) {
	if c.Arch != "gemma3" && c.Arch != "gemma4" {
		c.settings.fillLayers(func(int) bool { return false })
		return
	}
	switch v := m.value("attention.sliding_window_pattern").(type) {
	case []bool:
		types := make([]any, len(v))
		for i, slides := range v {
			types[i] = "full_attention"
			if slides {
				types[i] = "sliding_attention"
			}
		}
		c.settings["layer_types"] = types
	case nil:
		if c.Arch == "gemma4" {
			m.errs = append(m.errs, errors.New("key gemma4.attention.sliding_window_pattern: missing"))
			return
		}
		c.Notes = append(c.Notes, "the file has no key gemma3.attention.sliding_window_pattern: assuming that every 6th layer is full")
		c.settings.fillLayers(func(i int) bool { return i%6 != 5 })
	default:
		n, _ := numbers(v)
		if len(n) != 1 || !(n[0] >= 1 && n[0] <= maxDimension) {
			m.errs = append(m.errs, fmt.Errorf("key %s.attention.sliding_window_pattern: %v", c.Arch, v))
			return
		}
		c.settings.fillLayers(func(i int) bool { return (i+1)%int(n[0]) != 0 })
	}
}

// rotary reads the rope keys, and the tensor that holds Llama 3's scaling or
// the part of the pairs that turn.
func (c *Checkpoint) rotary(m *meta) {
	full, sliding := settings{}, settings{}
	for kind, suffix := range map[*settings]string{&full: "", &sliding: "_swa"} {
		if n := m.number("rope.freq_base" + suffix); n != 0 {
			(*kind)["rope_theta"] = n
		}
		m.number("rope.dimension_count" + suffix) // checked below
	}
	full.fill("rope_theta", 10000.0)
	if typ := m.text("rope.scaling.type"); typ != "" && typ != "none" {
		full["rope_type"], full["factor"] = typ, m.number("rope.scaling.factor")
		full["original_max_position_embeddings"] = m.number("rope.scaling.original_context_length")
	} else {
		m.number("rope.scaling.factor")
		m.number("rope.scaling.original_context_length")
	}
	c.turning(m, full)
	if t, ok := c.tensors["rope_freqs"]; ok {
		c.drop("rope_freqs")
		if err := factors(full, t); err != nil {
			m.errs = append(m.errs, err)
		}
	}
	sliding.fill("rope_theta", 10000.0)
	c.settings["rope_parameters"] = settings{"full_attention": full, "sliding_attention": sliding}
}

// turning checks that whole heads turn: a file where they do not is one that
// these architectures do not describe.
func (c *Checkpoint) turning(m *meta, full settings) {
	dim := m.number("attention.key_length")
	if dim == 0 {
		dim, _ = c.settings.number("head_dim")
	}
	if n := m.number("rope.dimension_count"); n != 0 && n != dim {
		m.errs = append(m.errs, fmt.Errorf("key %s.rope.dimension_count: %v, but heads have %v features", c.Arch, n, dim))
	}
}

// factors turns the rope_freqs tensor into settings: divisors of the
// frequencies, or the share of leading pairs that turn (1, then 1e30).
func factors(full settings, t tensor.Tensor) error {
	if t.DType != tensor.F32 {
		return fmt.Errorf("tensor rope_freqs: type %v, expected F32", t.DType)
	}
	f := make([]any, len(t.Data)/4)
	turning, still := 0, 0
	for i := range f {
		v := float64(math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:])))
		if !(v > 0) || math.IsInf(v, 0) {
			return fmt.Errorf("tensor rope_freqs: element %d is %v, expected a positive number", i, v)
		}
		f[i] = v
		switch {
		case v == 1 && still == 0:
			turning++
		case v >= 1e29:
			still++
		}
	}
	if turning+still == len(f) && still > 0 {
		full["rope_type"], full["partial_rotary_factor"] = "proportional", float64(turning)/float64(len(f))
		return nil
	}
	full["rope_type"], full["factors"] = "factors", f
	return nil
}

// spell is the file's own name of a canonical key, for errors.
func (c *Checkpoint) spell(name string) string {
	if c.Format != GGUF {
		return name
	}
	more := map[string]string{"head_dim": "attention.key_length", "num_key_value_heads": "attention.head_count_kv",
		"intermediate_size": "feed_forward_length", "layer_types": "attention.sliding_window_pattern"}
	if k, ok := more[name]; ok {
		return c.Arch + "." + k
	}
	for k, n := range keys {
		if n == name {
			return c.Arch + "." + k
		}
	}
	return c.Arch + "." + name
}
