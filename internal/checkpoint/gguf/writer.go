package gguf

import (
	"fmt"
	"strconv"

	"github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/family"
	file "github.com/karat-run/karat/internal/gguf"
)

// writer translates settings into metadata.
type writer struct {
	*settings.Model
	out  []file.KeyValue
	errs []error
}

// Factors is a tensor of divisors of rotary frequencies, in GGUF alone.
type Factors struct {
	Name   string
	Values []float32
}

func (w *writer) put(key string, v any) {
	w.out = append(w.out, file.KeyValue{Key: w.Arch + "." + key, Value: v})
}

func (w *writer) count(key string) { w.put(keys[key], uint32(w.Values.Int(key))) }

func (w *writer) float(key string) {
	if v, ok := w.Values[key].(float64); ok && v != 0 {
		w.put(keys[key], float32(v))
	}
}

func (w *writer) errorf(key, format string, args ...any) {
	w.errs = append(w.errs, fmt.Errorf("configuration key %s %s", w.Key(key), fmt.Sprintf(format, args...)))
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

// kind returns the kind of layer i.
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
