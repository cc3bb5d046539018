package checkpoint

import (
	"math"

	"github.com/karat-run/karat/internal/family"
)

// listed reads what each layer does off the keys that are 0 for other layers.
func (r *ggufReader) listed() {
	if r.family.KeyOf(family.Interval) != "" {
		r.interval()
		return
	}
	kv, ff := r.numbers("attention.head_count_kv"), r.numbers("feed_forward_length")
	other := "" // the kind that has a feed-forward part alone
	for _, kind := range []string{family.MLPAlone, family.ExpertsAlone} {
		if r.family.Layers.Kinds[kind] != "" {
			other = kind
		}
	}
	counted := func(own string, n int) {
		if layers := r.settings.Int("num_hidden_layers"); n > 1 && n != layers {
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
	r.settings.FillKinds(func(i int) string {
		switch {
		case at(kv, i) > 0:
			return full
		case other != "" && at(ff, i) > 0:
			return other
		}
		return family.LinearAttention
	})
}

// flip reads a Switch.
func (r *ggufReader) flip(k family.Key) {
	switch v := r.value(k.GGUF).(type) {
	case nil:
		r.settings[k.Setting] = k.Text
	case bool:
		if v {
			r.settings[k.Setting] = k.Text
		}
	default:
		r.errorf(k.GGUF, "is %s, expected true or false", family.Show(v))
	}
}

// divide reads a Product.
func (r *ggufReader) divide(k family.Key, n float64) {
	of, _ := r.settings[k.Of].(float64)
	if !(of >= 1) || n/of != math.Trunc(n/of) {
		r.errorf(k.GGUF, "is %v, no multiple of %s, %s", n, r.Key(k.Of), family.Show(r.settings[k.Of]))
		return
	}
	r.settings[k.Setting] = n / of
}
