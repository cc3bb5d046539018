package gguf

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"

	"github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/family"
	file "github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/tensor"
)

// reader translates metadata into settings. Facts without a key are derived from the tensors.
type reader struct {
	*settings.Model
	meta
	set     *tensor.Set
	fullDim float64 // head size of full layers
	behind  int     // layers behind the last
}

// meta reads a family's metadata and remembers the keys it has read.
type meta struct {
	metadata file.Metadata
	of       *family.Family

	used map[string]bool
	errs []error
}

func (m *meta) errorf(key, format string, args ...any) {
	m.errs = append(m.errs, settings.NewError(canonicalKey(m.of, key),
		fmt.Sprintf("key %s.%s %s", m.of.Name, key, fmt.Sprintf(format, args...))))
}

// value returns the value of key; nil if absent. An array has at most a value for each layer.
func (m *meta) value(key string) any {
	own := m.of.Name + "." + key
	m.used[own] = true
	v, ok := m.metadata.Lookup(own)
	if !ok {
		return nil
	}
	if elem := v.Elem(); v.Type() == file.Array &&
		(v.Len() > family.MaxLayers || elem == file.String || elem == file.Array) {
		m.errorf(key, "is an array of %d %v, expected a number for each layer", v.Len(), elem)
		return nil
	}
	x, err := v.Any()
	if err != nil {
		m.errs = append(m.errs, err)
	}
	return x
}

// numbers returns the value of key as a list of numbers; nil if absent.
func (m *meta) numbers(key string) []float64 {
	x := m.value(key)
	if x == nil {
		return nil
	}
	n, ok := numbers(x)
	if !ok || len(n) == 0 || slices.ContainsFunc(n, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }) {
		m.errorf(key, "is %s, expected a number", family.Show(x))
		return nil
	}
	return n
}

// number returns the value of key, a single number; false if absent.
func (m *meta) number(key string) (float64, bool) {
	n := m.numbers(key)
	if len(n) == 0 {
		return 0, false
	}
	if slices.Min(n) != slices.Max(n) {
		m.errorf(key, "is %s, but architecture %s has one number for all layers", family.Show(n), m.of.Name)
	}
	return n[0], true
}

// str returns the value of key, a string; "" if absent.
func (m *meta) str(key string) string {
	x := m.value(key)
	s, ok := x.(string)
	if x != nil && !ok {
		m.errorf(key, "is %s, expected a string", family.Show(x))
	}
	return s
}

// numbers widens a numeric metadata value, or an array of numbers.
func numbers(x any) ([]float64, bool) {
	v := reflect.ValueOf(x)
	if v.Kind() != reflect.Slice {
		n, ok := number(v)
		return []float64{n}, ok
	}
	y := make([]float64, v.Len())
	for i := range y {
		n, ok := number(v.Index(i))
		if !ok {
			return nil, false
		}
		y[i] = n
	}
	return y, true
}

func number(v reflect.Value) (float64, bool) {
	switch {
	case v.Kind() == reflect.Float32:
		return shortest(float32(v.Float())), true
	case v.CanFloat():
		return v.Float(), true
	case v.CanInt():
		return float64(v.Int()), true
	case v.CanUint():
		return float64(v.Uint()), true
	}
	return 0, false
}

// shortest returns the float64 with the shortest decimal form among the numbers that round to x: config.json's number,
// before GGUF narrowed it.
func shortest(x float32) float64 {
	v, _ := strconv.ParseFloat(strconv.FormatFloat(float64(x), 'g', -1, 32), 64)
	return v
}
