package gguf

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/family"
	file "github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/tensor"
)

// Read translates a file's metadata, and drops tensors that are settings or lie behind the last layer.
func Read(c *settings.Model, set *tensor.Set, m file.Metadata) error {
	r := &reader{Model: c, meta: meta{metadata: m, of: c.Family, used: map[string]bool{}}, set: set}
	for _, list := range []map[string]string{keys, moreKeys} {
		for key, own := range list {
			c.Spelling[key] = c.Arch + "." + own
		}
	}
	for _, k := range c.Family.Keys {
		if k.Setting != "" {
			c.Spelling[k.Setting] = c.Arch + "." + ownKey(k)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if key == "sliding_window" && c.Family.Windows() == family.FromLayer {
			continue // no key says which layers would slide: noted as unread
		}
		if c.Family.Lacks(key) {
			r.value(keys[key]) // 0, since readers want the key
			continue
		}
		if n, ok := r.number(keys[key]); ok {
			c.Values[key] = n
		}
	}
	r.readNextLayers()
	if n, ok := r.number("pooling_type"); ok {
		r.Pooling = &n
	}
	for _, key := range []string{"dense_2_feat_in", "dense_2_feat_out", "dense_3_feat_in", "dense_3_feat_out"} {
		r.value(key) // also known from the tensors
	}
	r.readPresence()
	r.readPattern()
	r.readHeads()
	r.readFamilyKeys()
	r.readWidths()
	r.readFullDim()
	r.readRope()
	r.readPad()
	if err := errors.Join(r.errs...); err != nil {
		return fmt.Errorf("%s: %w", c.Path, err)
	}
	r.noteUnread()
	return nil
}

// readNextLayers counts the layers behind the last, predicting further tokens.
func (r *reader) readNextLayers() {
	next := r.Family.NextKey()
	if next == "" && !slices.ContainsFunc(r.set.Names, func(s string) bool { return strings.Contains(s, ".nextn.") }) {
		return // the key is unread
	}
	n, ok := r.number("nextn_predict_layers")
	if !ok {
		return
	}
	layers, _ := r.Values["num_hidden_layers"].(float64)
	if n < 0 || n >= layers {
		r.errorf("nextn_predict_layers", "is %v, expected less than the %v layers", n, layers)
		return
	}
	r.Values["num_hidden_layers"], r.behind = layers-n, int(n)
	if next == "" || !r.Family.Model.Reads(next) { // the model sets the layers aside
		for _, name := range slices.Clone(r.set.Names) {
			layer, ok := strings.CutPrefix(name, "blk.")
			layer, _, _ = strings.Cut(layer, ".")
			if i, err := strconv.Atoi(layer); ok && err == nil && float64(i) >= layers-n {
				r.set.Drop(name)
			}
		}
		return
	}
	behind, own := settings.CountBehind(r.set, "blk.", "nextn.", int(layers-n))
	if r.Values[next] = float64(behind); own >= 0 {
		r.errorf("nextn_predict_layers", "is %v, but layer %d has no tensors nextn.*, as layers that predict "+
			"further tokens have: it is one of the model's own", n, own)
	}
}

// readPresence derives settings without a key from the tensors, and fills in the settings that all models of the family
// share.
func (r *reader) readPresence() {
	s := r.Values
	_, own := r.set.ByName["output"]
	s["tie_word_embeddings"] = !own
	s.Fill("vocab_size", settings.Rows(r.set, "token_embd"))
	for key, tensor := range r.Family.Held {
		_, s[key] = r.set.ByName[tensor]
		if strings.HasPrefix(tensor, ".") {
			s[key] = slices.ContainsFunc(r.set.Names, func(name string) bool { return strings.HasSuffix(name, tensor) })
		}
	}
	if causal := "attention.causal"; !r.Family.Encodes() && r.value(causal) == false {
		s["is_causal"], r.Spelling["is_causal"] = false, r.Arch+"."+causal
	}
	for _, list := range []map[string]any{r.Family.Fixed, r.Family.Absent} {
		for key, v := range list {
			s.Fill(key, v)
		}
	}
}

// readPad reads the padding token, if the positions of the type count from its row.
func (r *reader) readPad() {
	const key = "tokenizer.ggml.padding_token_id"
	kind := r.Type()
	if !kind.Padded {
		return
	}
	r.Values["pad_token_id"], r.Spelling["pad_token_id"] = kind.Defaults["pad_token_id"], key
	if _, ok := r.metadata.Lookup(key); ok {
		id, err := r.metadata.Uint(key)
		r.Values["pad_token_id"], r.errs = float64(id), append(r.errs, err)
	}
}

// readHeads reads the attention's sizes. Where full layers have a separate size, the sliding layers' size has another
// key.
func (r *reader) readHeads() {
	if r.Family.Latent() {
		r.readLatentHeads()
		return
	}
	s := r.Values
	if n, ok := r.number("attention.key_length"); ok {
		s["head_dim"] = n
	}
	s.Fill("num_key_value_heads", s["num_attention_heads"])
	if err := r.FillHeadDim(s); err != nil {
		r.errs = append(r.errs, err)
	}
	r.fullDim, _ = s["head_dim"].(float64)
	if r.Family.Lacks("num_key_value_heads") {
		r.checkEvenHeads()
	}
	if n, ok := r.number("attention.value_length"); !r.Family.Model.Reads("v_head_dim") {
		r.checkDim(r.fullDim, "attention.value_length")
	} else if s["v_head_dim"] = r.fullDim; ok {
		s["v_head_dim"] = n
	}
	if !r.Family.Partial() {
		r.checkDim(r.fullDim, "rope.dimension_count")
	}
	if r.Family.KeyOf(family.SlidingDim).GGUF != "" {
		if n, ok := r.number("attention.key_length_swa"); ok {
			s["head_dim"] = n
			r.Spelling["head_dim"] = r.Arch + ".attention.key_length_swa"
		}
		dim, _ := s["head_dim"].(float64)
		r.checkDim(dim, "attention.value_length_swa", "rope.dimension_count_swa")
	}
}

// checkEvenHeads refuses fewer heads of keys, and heads of an uneven share of the width, for families without such
// settings.
func (r *reader) checkEvenHeads() {
	heads, hidden := r.Values["num_attention_heads"], r.Values.Int("hidden_size")
	for _, n := range r.numbers("attention.head_count_kv") {
		if n != heads {
			r.errorf("attention.head_count_kv",
				"is %v, but there are %s heads, and in models of architecture %s each has keys of its own", n,
				family.Show(heads), r.Arch)
			return
		}
	}
	if n := r.Values.Int("num_attention_heads"); n > 0 && r.fullDim*float64(n) != float64(hidden) {
		r.errorf("attention.key_length", "is %v, but %d heads share a width of %d evenly in models of architecture %s",
			r.fullDim, n, hidden, r.Arch)
	}
}

// checkDim refuses values of another size than their keys, and heads turning in part, which these architectures do not
// describe.
func (r *reader) checkDim(dim float64, keys ...string) {
	for _, key := range keys {
		if n, ok := r.number(key); ok && n != dim {
			r.errorf(key, "is %v, but a head's keys have %v features", n, dim)
		}
	}
}

// readLatentHeads reads the sizes of heads. The plain keys describe the heads seen by attention: a latent for all. Keys
// ending in mla describe the heads made from the latent. Old files have the latter under the plain keys, and attn_kv_b
// in one tensor.
func (r *reader) readLatentHeads() {
	const keys, values = "attention.key_length", "attention.value_length"
	s := r.Values
	turning, _ := r.number("rope.dimension_count")
	rank, _ := r.number("attention.kv_lora_rank")
	k, _ := r.number(keys)
	v, _ := r.number(values)
	if mla, ok := r.number(keys + "_mla"); ok {
		if k != rank+turning {
			r.errorf(keys, "is %v, expected the %v of a latent and the %v that turn", k, rank, turning)
		}
		if v != rank && !r.Family.Uses("head_dim") {
			r.errorf(values, "is %v, expected the %v of a latent", v, rank)
		}
		k = mla
		v, _ = r.number(values + "_mla")
		r.Spelling["qk_nope_head_dim"], r.Spelling["v_head_dim"] = r.Arch+"."+keys+"_mla", r.Arch+"."+values+"_mla"
	}
	s["head_dim"], s["qk_rope_head_dim"], s["qk_nope_head_dim"], s["v_head_dim"] = turning, turning, k-turning, v
	s["num_key_value_heads"] = s["num_attention_heads"]
	r.Spelling["head_dim"] = r.Arch + ".rope.dimension_count"
	r.Spelling["qk_rope_head_dim"] = r.Spelling["head_dim"]
	r.fullDim = turning
	if r.Family.Windows() == family.Listed { // 0 where there is no attention
		return
	}
	if n, ok := r.number("attention.head_count_kv"); ok && n != 1 && n != s["num_attention_heads"] {
		r.errorf("attention.head_count_kv", "is %v, expected 1 or the heads of queries, %s",
			n, family.Show(s["num_attention_heads"]))
	}
}

// readWidths reads the sizes that may differ between layers.
func (r *reader) readWidths() {
	s := r.Values
	for _, key := range []string{"intermediate_size", "num_key_value_heads"} {
		own := moreKeys[key]
		n := ofLayers(r, r.numbers(own))
		if len(n) == 0 || r.Family.Lacks(key) || r.Family.Latent() && key == "num_key_value_heads" {
			continue
		}
		s[key] = n[0]
		if r.Family.Windows() == family.Listed {
			s[key] = slices.Max(n)
			n = slices.DeleteFunc(n, func(v float64) bool { return v == 0 })
		}
		if len(n) == 0 {
			continue
		}
		if slices.Min(n) == slices.Max(n) {
			continue
		}
		if !r.Family.Model.Reads("per_layer_config") || len(n) != s.Int("num_hidden_layers") {
			what := ""
			if r.Family.Model.Reads("per_layer_config") {
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

// readFullDim reads the separate head size of full layers.
func (r *reader) readFullDim() {
	if r.Family.KeyOf(family.SlidingDim).GGUF == "" || r.fullDim == r.Values["head_dim"] {
		return
	}
	for i, t := range r.Values.List("layer_types") {
		if t == family.FullAttention {
			r.override(i, "head_dim", r.fullDim, "attention.key_length")
		}
	}
}

// override sets a setting of layer i alone.
func (r *reader) override(i int, key string, v float64, own string) {
	layer := strconv.Itoa(i)
	r.Values.Fill("per_layer_config", family.Settings{})
	per := r.Values["per_layer_config"].(family.Settings)
	per.Fill(layer, family.Settings{})
	per[layer].(family.Settings)[key] = v
	r.Spelling["per_layer_config."+layer+"."+key] = r.Arch + "." + own
}

// noteUnread lists the architecture's keys that were not read, and notes each key likely to matter.
func (r *reader) noteUnread() {
	for _, key := range r.metadata.Keys() {
		if !strings.HasPrefix(key, r.Arch+".") || r.used[key] {
			continue
		}
		v, _ := r.metadata.Lookup(key)
		var x any = fmt.Sprintf("an array of %d %v", v.Len(), v.Elem())
		if v.Type() != file.Array {
			var err error
			if x, err = v.Any(); err != nil {
				continue
			}
			if n, ok := number(reflect.ValueOf(x)); ok {
				x = n
			}
		}
		r.Left = append(r.Left, settings.Entry{Key: key, Value: family.Show(x)})
		if settings.Matters(key, x) {
			r.Ignored = append(r.Ignored,
				fmt.Sprintf("metadata key %s = %s is not read by architecture %s", key, family.Show(x), r.Arch))
		}
	}
}
