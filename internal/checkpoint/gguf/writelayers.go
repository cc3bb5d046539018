package gguf

import (
	"slices"
	"strconv"

	"github.com/karat-run/karat/internal/family"
)

// writePerLayer writes a setting that may differ between layers: a number, or a list with a number for each layer.
func (w *writer) writePerLayer(key, own string) {
	n := make([]int32, w.Values.Int("num_hidden_layers"))
	listed := w.listedKinds(key)
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

// listedKinds returns the kinds of layers with the setting, whose key is 0 for others; nil for all kinds.
func (w *writer) listedKinds(key string) []string {
	switch {
	case w.Family.Windows() != family.Listed || w.Family.KeyOf(family.Interval).GGUF != "":
	case key == "num_key_value_heads":
		return []string{family.FullAttention}
	case w.Family.Layers.Kinds[family.MLPAlone] != "" || w.Family.Layers.Kinds[family.ExpertsAlone] != "":
		return []string{family.MLPAlone, family.ExpertsAlone}
	}
	return nil
}

// fullDim returns the head size of full layers, GGUF's plain key.
func (w *writer) fullDim() int {
	dim := w.Values.Int("head_dim")
	slides, found := w.slides(), false
	for i, s := range slides {
		switch own := w.layer(i, "head_dim"); {
		case s && own != w.Values.Int("head_dim"):
			w.errorf("per_layer_config."+strconv.Itoa(i)+".head_dim",
				"is %d in a sliding layer: GGUF has one head size for all of these", own)
		case !s && found && own != dim:
			w.errorf("per_layer_config."+strconv.Itoa(i)+".head_dim",
				"is %d, and %d in other full layers: GGUF has one head size for all of these", own, dim)
		case !s:
			dim, found = own, true
		}
	}
	return dim
}

// writeInterval writes the usual interval of full layers, and flags for each layer where the interval is wrong.
func (w *writer) writeInterval(k family.Key) {
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

// writePeriod writes which layers are full, as a number if they have a period. Where no layer slides, the converter
// leaves the window out.
func (w *writer) writePeriod(k family.Key) {
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

// writeLatentHeads writes the keys that readLatentHeads reads.
func (w *writer) writeLatentHeads() {
	n := w.Values.Int
	w.put("attention.key_length", uint32(n("kv_lora_rank")+n("qk_rope_head_dim")))
	w.put("attention.value_length", uint32(n("kv_lora_rank")))
	w.put("attention.key_length_mla", uint32(n("qk_nope_head_dim")+n("qk_rope_head_dim")))
	w.put("attention.value_length_mla", uint32(n("v_head_dim")))
}
