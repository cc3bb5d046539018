package gguf

import (
	"slices"
	"strconv"

	"github.com/karat-run/karat/internal/family"
)

// perLayer writes a setting that may differ between layers: one number, or one
// for each layer.
func (w *writer) perLayer(key, own string) {
	n := make([]int32, w.Values.Int("num_hidden_layers"))
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

// lists returns the kinds of layers that have the setting where its key is 0 for others; nil where all do.
func (w *writer) lists(key string) []string {
	switch {
	case w.Family.Windows() != family.Listed || w.Family.KeyOf(family.Interval) != "":
	case key == "num_key_value_heads":
		return []string{family.FullAttention}
	case w.Family.Layers.Kinds[family.MLPAlone] != "" || w.Family.Layers.Kinds[family.ExpertsAlone] != "":
		return []string{family.MLPAlone, family.ExpertsAlone}
	}
	return nil
}

// kind returns what layer i does.
func (w *writer) kind(i int) string {
	types, _ := w.Values["layer_types"].([]any)
	kind, _ := types[i].(string)
	return kind
}

// layer returns a setting of layer i.
func (w *writer) layer(i int, key string) int {
	per, _ := family.Object(w.Values["per_layer_config"])
	own, _ := family.Object(per[strconv.Itoa(i)])
	if n := family.Settings(own).Int(key); n > 0 {
		return n
	}
	return w.Values.Int(key)
}

// slides reports which layers have a window.
func (w *writer) slides() []bool {
	types, _ := w.Values["layer_types"].([]any)
	out := make([]bool, len(types))
	for i, t := range types {
		out[i] = t == family.SlidingAttention
	}
	return out
}

// fullDim returns the head size of full layers, which GGUF has under the plain keys.
func (w *writer) fullDim() int {
	dim := w.Values.Int("head_dim")
	slides, found := w.slides(), false
	for i, s := range slides {
		switch own := w.layer(i, "head_dim"); {
		case s && own != w.Values.Int("head_dim"):
			w.errorf("per_layer_config."+strconv.Itoa(i)+".head_dim", "is %d in a sliding layer: GGUF has one head size for all of these", own)
		case !s && found && own != dim:
			w.errorf("per_layer_config."+strconv.Itoa(i)+".head_dim", "is %d, and %d in other full layers: GGUF has one head size for all of these", own, dim)
		case !s:
			dim, found = own, true
		}
	}
	return dim
}

// interval writes which layers are full: the usual interval, and a flag for each layer where it is wrong.
func (w *writer) interval(k family.Key) {
	every := w.Family.Types[0].Period
	w.put(k.GGUF, uint32(every))
	flags, usual := make([]bool, w.Values.Int("num_hidden_layers")), true
	for i := range flags {
		flags[i] = w.kind(i) != family.FullAttention
		usual = usual && flags[i] == ((i+1)%every != 0)
	}
	if !usual {
		w.put(recurrent, flags)
	}
}

// period writes which layers are full: the period as one number where there is one. Where
// no layer slides, the converter leaves the window out.
func (w *writer) period(k family.Key) {
	slides := w.slides()
	if !slices.Contains(slides, true) {
		return
	}
	period := slices.Index(slides, false) + 1
	if w.Family.Windows() == family.PeriodicFirst {
		period = slices.Index(slides[1:], false) + 1
	}
	if period == 0 {
		period = len(slides) + 1
	}
	var v any = uint32(period)
	for i, s := range slides {
		if s != w.Family.Slides(i, period) {
			v = slides
		}
	}
	if n, one := v.(uint32); k.Unusual && one && int(n) == w.Family.Types[0].Period {
		return
	}
	w.put(k.GGUF, v)
}

// latentHeads is the inverse of the reader's.
func (w *writer) latentHeads() {
	n := w.Values.Int
	w.put("attention.key_length", uint32(n("kv_lora_rank")+n("qk_rope_head_dim")))
	w.put("attention.value_length", uint32(n("kv_lora_rank")))
	w.put("attention.key_length_mla", uint32(n("qk_nope_head_dim")+n("qk_rope_head_dim")))
	w.put("attention.value_length_mla", uint32(n("v_head_dim")))
}
