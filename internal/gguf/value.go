package gguf

import (
	"encoding/binary"
	"fmt"

	"github.com/karat-run/karat/internal/mmap"
)

// Type is the type of a metadata value, with the numbers of the format.
type Type uint32

const (
	Uint8 Type = iota
	Int8
	Uint16
	Int16
	Uint32
	Int32
	Float32
	Bool
	String
	Array
	Uint64
	Int64
	Float64
	numTypes
)

// types holds for each type the name, the least bytes of a value, and the decoders of a value and of many values.
// String and Array have no fixed size and no decoders.
var types = [numTypes]struct {
	name string
	size int
	one  func([]byte) any
	many func([]byte) any
}{
	Uint8:   {"uint8", 1, decodeOne[uint8], decodeMany[uint8]},
	Int8:    {"int8", 1, decodeOne[int8], decodeMany[int8]},
	Uint16:  {"uint16", 2, decodeOne[uint16], decodeMany[uint16]},
	Int16:   {"int16", 2, decodeOne[int16], decodeMany[int16]},
	Uint32:  {"uint32", 4, decodeOne[uint32], decodeMany[uint32]},
	Int32:   {"int32", 4, decodeOne[int32], decodeMany[int32]},
	Float32: {"float32", 4, decodeOne[float32], decodeMany[float32]},
	Bool:    {"bool", 1, decodeOne[bool], decodeMany[bool]},
	String:  {name: "string", size: 8},
	Array:   {name: "array", size: 12},
	Uint64:  {"uint64", 8, decodeOne[uint64], decodeMany[uint64]},
	Int64:   {"int64", 8, decodeOne[int64], decodeMany[int64]},
	Float64: {"float64", 8, decodeOne[float64], decodeMany[float64]},
}

func (t Type) String() string {
	if t < numTypes {
		return types[t].name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

func decodeOne[E any](b []byte) any {
	var x E
	binary.Decode(b, le, &x) // b has the size of x
	return x
}

func decodeMany[E any](b []byte) any {
	var x E
	s := make([]E, len(b)/binary.Size(x))
	binary.Decode(b, le, s) // as above
	return s
}

// Value is an encoded metadata value: only a reader pays for decoding, so an unread vocabulary costs nothing.
type Value struct {
	key  string
	typ  Type
	elem Type
	n    int
	data []byte // as in the file, after the type
	off  int64
}

// Type returns the value's type.
func (v Value) Type() Type { return v.typ }

// Elem returns the type of an array's elements.
func (v Value) Elem() Type { return v.elem }

// Len returns the number of an array's elements, else 0.
func (v Value) Len() int { return v.n }

// Offset returns the first byte of the value in the file, after its type.
func (v Value) Offset() int64 { return v.off }

// Any decodes the value: uint8 to float64, bool or string; a slice of these for an array; []any, of slices, for an
// array of arrays. The result shares no memory with the file.
func (v Value) Any() (x any, err error) {
	err = mmap.Guard(func() error {
		// A mapped file may have changed since it was opened, so decode checks again.
		r := reader{data: v.data, size: len(v.data), base: v.off, of: keySubject(v.key)}
		x = r.decode(v.typ)
		return r.err
	})
	mmap.Drop(v.data) // x has all of the data
	return x, err
}

func keySubject(key string) subject { return subject{kind: "key", name: key} }

// describe names the value's type in errors.
func (v Value) describe() string {
	if v.typ == Array {
		return fmt.Sprintf("an array of %d %v", v.n, v.elem)
	}
	return v.typ.String()
}

// value skips and checks a value of type t.
func (r *reader) value(key string, t Type) Value {
	v := Value{key: key, typ: t, off: r.base + int64(r.off)}
	at := r.off
	if t == Array {
		v.elem, v.n = r.array(1)
	} else {
		r.skip(t, 1, 0)
	}
	if r.err != nil {
		return Value{}
	}
	v.data = r.data[at:r.off:r.off]
	return v
}

// array skips an array, nested in depth-1 others, and returns the type and number of its elements.
func (r *reader) array(depth int) (elem Type, n int) {
	at := r.off
	elem = Type(r.u32("the type of an array"))
	if r.err == nil && elem >= numTypes {
		r.fail(at, "unknown type of an array's elements", uint32(elem), fmt.Sprintf("0 to %d", numTypes-1))
	}
	if r.err == nil && depth > maxNesting {
		r.fail(at, "arrays are nested too deeply", depth, fmt.Sprintf("at most %d", maxNesting))
	}
	if r.err != nil {
		return 0, 0
	}
	n = r.count("number of an array's elements", maxElements, types[elem].size)
	r.skip(elem, n, depth)
	return elem, n
}

// skip skips n values of type t, which lie in depth arrays.
func (r *reader) skip(t Type, n, depth int) {
	switch t {
	case String:
		for i := 0; i < n && r.err == nil; i++ {
			r.str("a string", maxString)
		}
	case Array:
		for i := 0; i < n && r.err == nil; i++ {
			r.array(depth + 1)
		}
	default:
		at := r.off
		b := r.take(uint64(n)*uint64(types[t].size), "a value")
		if t == Bool {
			r.checkBools(at, b)
		}
	}
}

// checkBools holds a bool to 0 or 1: by the format, other values show that the file is invalid or wrongly read.
func (r *reader) checkBools(at int, b []byte) {
	for i, x := range b {
		if x > 1 {
			r.fail(at+i, "a bool is neither 0 nor 1", x, "0 or 1")
			return
		}
	}
}

// decode reads a value of type t.
func (r *reader) decode(t Type) any {
	switch t {
	case String:
		return string(r.str("a string", maxString))
	case Array:
		return r.decodeArray(1)
	}
	b := r.take(uint64(types[t].size), "a value")
	if b == nil {
		return nil
	}
	return types[t].one(b)
}

func (r *reader) decodeArray(depth int) any {
	at := r.off
	elem, n := r.array(depth)
	if r.err != nil {
		return nil
	}
	end := r.off
	r.off = at + types[Array].size
	body := r.data[r.off:end]
	switch elem {
	case String:
		r.off = end
		return r.substrings(string(body), n)
	case Array:
		s := make([]any, 0, n)
		for len(s) < n && r.err == nil {
			s = append(s, r.decodeArray(depth+1))
		}
		return s
	}
	r.off = end
	return types[elem].many(body)
}

// substrings splits a copy of an array's body into its n strings, without copying each.
func (r *reader) substrings(body string, n int) []string {
	s := make([]string, 0, n)
	for rest := body; len(s) < n; {
		if len(rest) < 8 || le64(rest) > uint64(len(rest)-8) {
			r.fail(r.off-len(rest), "the file changed while it was read", nil, nil)
			return nil
		}
		end := 8 + int(le64(rest))
		s = append(s, rest[8:end])
		rest = rest[end:]
	}
	return s
}

func le64(s string) uint64 {
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}
