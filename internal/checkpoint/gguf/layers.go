package gguf

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/family"
)

// readPattern reads which layers slide: a period, or a flag for each layer.
func (r *reader) readPattern() {
	const key = "attention.sliding_window_pattern"
	s := r.Values
	window := s.Int("sliding_window") > 0
	if r.Family.Windows() == family.Listed {
		r.readListed()
		return
	}
	if !r.Family.Periodic() {
		settings.FillLayers(s, func(int) bool { return window })
		return
	}
	own, period := r.windowKey()
	kind := own.Kind
	if kind == family.Count { // no key: all models have the same period
		settings.FillLayers(s, func(i int) bool { return window && r.Family.Slides(i, period) })
		return
	}
	switch v := r.value(key).(type) {
	case []bool:
		if len(v) != s.Int("num_hidden_layers") {
			r.errorf(key, "has %d values for %s layers", len(v), family.Show(s["num_hidden_layers"]))
			return
		}
		settings.FillLayers(s, func(i int) bool { return v[i] })
	case nil:
		if kind == family.Flags && !own.Unusual {
			r.errorf(key, "is missing")
			return
		}
		if !window { // the converter leaves the window out if no layer slides
			settings.FillLayers(s, func(int) bool { return false })
			return
		}
		if !own.Unusual {
			r.Notes = append(r.Notes,
				fmt.Sprintf("the file has no key %s.%s: assuming that every %dth layer is full", r.Arch, key, period))
		}
		settings.FillLayers(s, func(i int) bool { return r.Family.Slides(i, period) })
	default:
		n, _ := numbers(v)
		if n = ofLayers(r, n); len(n) > 1 && len(n) == s.Int("num_hidden_layers") { // flags as numbers
			settings.FillLayers(s, func(i int) bool { return n[i] != 0 })
			return
		}
		if len(n) != 1 || !(n[0] >= 1 && n[0] <= family.MaxLayers) {
			r.errorf(key, "is %s, expected a number from 1 to %d", family.Show(v), family.MaxLayers)
			return
		}
		settings.FillLayers(s, func(i int) bool { return r.Family.Slides(i, int(n[0])) })
	}
}

// ofLayers returns a key's numbers of the model's layers, without the numbers of layers behind the last.
func ofLayers(r *reader, n []float64) []float64 {
	if layers := len(n) - r.behind; layers >= 0 && layers == r.Values.Int("num_hidden_layers") {
		n = n[:layers]
	}
	return n
}

// windowKey returns the key for full layers, of kind Count where there is none, and the family's usual period.
func (r *reader) windowKey() (own family.Key, period int) {
	for _, k := range r.Family.Keys {
		if k.Kind == family.Period || k.Kind == family.Flags {
			own = k
		}
	}
	return own, r.Family.Types[0].Period
}

// readListed derives the kinds of layers from the keys that are 0 for other layers.
func (r *reader) readListed() {
	if r.Family.KeyOf(family.Interval).GGUF != "" {
		r.readInterval()
		return
	}
	kv, ff := r.numbers("attention.head_count_kv"), r.numbers("feed_forward_length")
	other := "" // kind with a feed-forward part alone
	for _, kind := range []string{family.MLPAlone, family.ExpertsAlone} {
		if r.Family.Layers.Kinds[kind] != "" {
			other = kind
		}
	}
	counted := func(own string, n int) {
		if layers := r.Values.Int("num_hidden_layers"); n > 1 && n != layers {
			r.errorf(own, "has %d values for %d layers", n, layers)
		}
	}
	counted("attention.head_count_kv", len(kv))
	counted("feed_forward_length", len(ff))
	at := func(n []float64, i int) float64 {
		if len(n) == 0 {
			return 0
		}
		return n[min(i, len(n)-1)]
	}
	r.Values.FillKinds(func(i int) string {
		switch {
		case at(kv, i) > 0:
			return family.FullAttention
		case other != "" && at(ff, i) > 0:
			return other
		}
		return family.LinearAttention
	})
}

// readInterval reads which layers are full.
func (r *reader) readInterval() {
	flags, _ := r.value(recurrent).([]bool)
	every := r.Family.Types[0].Period
	if n, ok := r.number(r.Family.KeyOf(family.Interval).GGUF); ok {
		every = int(n)
	}
	if n := r.Values.Int("num_hidden_layers"); every < 1 || flags != nil && len(flags) < n {
		r.errorf(recurrent, "has %d values for %d layers, or an interval of %d", len(flags), n, every)
		return
	}
	r.Values.FillKinds(func(i int) string {
		if flags != nil && flags[i] || flags == nil && (i+1)%every != 0 {
			return family.LinearAttention
		}
		return family.FullAttention
	})
}

// writePerLayer writes a setting that may differ between layers: a number, or a list with a number for each layer. The
// setting "" is the one head of latents.
func (w *writer) writePerLayer(key, own string) {
	n := make([]int32, w.Values.Int("num_hidden_layers"))
	listed := w.listedKinds(key)
	for i := range n {
		if listed == nil || slices.Contains(listed, w.kind(i)) {
			n[i] = 1 // of latents
			if key != "" {
				n[i] = int32(w.layer(i, key))
			}
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
	case key == "num_key_value_heads" || key == "":
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

// writeInterval writes the interval of full layers, the usual one with flags for each layer where there is none.
func (w *writer) writeInterval(k family.Key) {
	flags := make([]bool, w.Values.Int("num_hidden_layers"))
	for i := range flags {
		flags[i] = w.kind(i) != family.FullAttention
	}
	isEvery := func(every int) bool {
		for i, flag := range flags {
			if flag != ((i+1)%every != 0) {
				return false
			}
		}
		return true
	}
	usual := w.Family.Types[0].Period
	if every := slices.Index(flags, false) + 1; every > 0 && !isEvery(usual) && isEvery(every) {
		usual = every
	}
	if w.put(k.GGUF, uint32(usual)); !isEvery(usual) {
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
	if !w.Family.Uses("head_dim") {
		w.put("attention.value_length", uint32(n("kv_lora_rank")))
	}
	w.put("attention.key_length_mla", uint32(n("qk_nope_head_dim")+n("qk_rope_head_dim")))
	w.put("attention.value_length_mla", uint32(n("v_head_dim")))
}
