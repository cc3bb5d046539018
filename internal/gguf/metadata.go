package gguf

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/mmap"
)

// Metadata holds a file's keys and values. A getter's error names the key. The error is ErrNoKey for an absent key, an
// *Error for a value of another type, and mmap.Guard's error if the mapped file has vanished.
type Metadata struct {
	keys   []string
	values map[string]Value
}

var (
	integers = []Type{Uint8, Int8, Uint16, Int16, Uint32, Int32, Uint64, Int64}
	floats   = []Type{Float32, Float64}
)

// Keys lists the keys in the order of the file.
func (m Metadata) Keys() []string { return slices.Clone(m.keys) }

// Lookup returns the value of key, and whether there is any.
func (m Metadata) Lookup(key string) (Value, bool) {
	v, ok := m.values[key]
	return v, ok
}

// String returns a string.
func (m Metadata) String(key string) (string, error) {
	return get[string](m, key, false, String)
}

// Bool returns a bool.
func (m Metadata) Bool(key string) (bool, error) {
	return get[bool](m, key, false, Bool)
}

// Strings returns an array of strings. All of the strings share a copy of the array.
func (m Metadata) Strings(key string) ([]string, error) {
	return get[[]string](m, key, true, String)
}

// Int returns an integer of any width, if the value fits an int64.
func (m Metadata) Int(key string) (int64, error) {
	return firstOf(m.ints(key, false))
}

// Ints returns an array of integers of any width, if an int64 holds each.
func (m Metadata) Ints(key string) ([]int64, error) { return m.ints(key, true) }

// Uint returns an integer of any width, if the value is not negative.
func (m Metadata) Uint(key string) (uint64, error) {
	v := m.values[key]
	if v.typ == Uint64 {
		return get[uint64](m, key, false, Uint64)
	}
	i, err := m.Int(key)
	if err == nil && i < 0 {
		return 0, v.problem("negative integer", fmt.Sprint(i), "0 and above")
	}
	return uint64(i), err
}

// Float returns a float32 or a float64.
func (m Metadata) Float(key string) (float64, error) {
	return firstOf(m.floats(key, false))
}

// Floats returns an array of float32 or of float64.
func (m Metadata) Floats(key string) ([]float64, error) { return m.floats(key, true) }

// find returns the value of key, of an allowed type or, if array is set, an array of such.
func (m Metadata) find(key string, array bool, allowed ...Type) (Value, error) {
	v, ok := m.values[key]
	if !ok {
		return v, fmt.Errorf("key %q: %w", key, ErrNoKey)
	}
	t := v.typ
	if array {
		t = v.elem
	}
	if array == (v.typ == Array) && slices.Contains(allowed, t) {
		return v, nil
	}
	names := make([]string, len(allowed))
	for i, t := range allowed {
		names[i] = t.String()
	}
	want := strings.Join(names, " or ")
	if array {
		want = "an array of " + want
	}
	return v, v.problem("wrong type", v.describe(), want)
}

// get decodes the value of key, of GGUF's type t and Go's type E.
func get[E any](m Metadata, key string, array bool, t Type) (e E, err error) {
	v, err := m.find(key, array, t)
	if err != nil {
		return e, err
	}
	x, err := v.Any()
	if err != nil {
		return e, err
	}
	e, ok := x.(E)
	if !ok {
		return e, v.changedError()
	}
	return e, nil
}

// changedError returns the error for a value that has changed since the file was opened.
func (v Value) changedError() error {
	return v.problem("the file changed after it was opened", "", "")
}

func firstOf[E any](s []E, err error) (e E, _ error) {
	if err != nil {
		return e, err
	}
	return s[0], nil
}

// ints decodes an array of integers, or an integer as an array.
func (m Metadata) ints(key string, array bool) ([]int64, error) {
	v, err := m.find(key, array, integers...)
	if err != nil {
		return nil, err
	}
	x, err := v.numbers()
	if err != nil {
		return nil, err
	}
	switch x := x.(type) {
	case []uint8:
		return convert[int64](x), nil
	case []int8:
		return convert[int64](x), nil
	case []uint16:
		return convert[int64](x), nil
	case []int16:
		return convert[int64](x), nil
	case []uint32:
		return convert[int64](x), nil
	case []int32:
		return convert[int64](x), nil
	case []int64:
		return x, nil
	case []uint64:
		for _, u := range x {
			if u > math.MaxInt64 {
				return nil,
					v.problem("integer is too large", fmt.Sprint(u), fmt.Sprintf("at most %d", int64(math.MaxInt64)))
			}
		}
		return convert[int64](x), nil
	}
	return nil, v.changedError()
}

// floats decodes an array of floats, or a float as an array.
func (m Metadata) floats(key string, array bool) ([]float64, error) {
	v, err := m.find(key, array, floats...)
	if err != nil {
		return nil, err
	}
	x, err := v.numbers()
	if err != nil {
		return nil, err
	}
	switch x := x.(type) {
	case []float32:
		return convert[float64](x), nil
	case []float64:
		return x, nil
	}
	return nil, v.changedError()
}

// numbers decodes an array of numbers, or a number as an array.
func (v Value) numbers() (x any, err error) {
	if v.typ == Array {
		return v.Any()
	}
	err = mmap.Guard(func() error {
		x = types[v.typ].many(v.data)
		return nil
	})
	return x, err
}

func (v Value) problem(what, declared, allowed string) error {
	return &Error{Name: keySubject(v.key).String(), Offset: v.off, What: what, Declared: declared, Allowed: allowed}
}

type number interface {
	~uint8 | ~int8 | ~uint16 | ~int16 | ~uint32 | ~int32 | ~uint64 | ~int64 | ~float32 | ~float64
}

func convert[To, From number](s []From) []To {
	out := make([]To, len(s))
	for i, x := range s {
		out[i] = To(x)
	}
	return out
}
