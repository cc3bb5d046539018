package jinja

import (
	"context"
	"maps"
	"math/big"
	"slices"
	"unicode/utf8"
)

// A Value is a value of the template language. Only this package makes them:
// None, Bool, Int, Float, String, List, *Dict, Function, Vars and DecodeJSON. No
// value holds a Go object, and none leads to one.
type Value interface {
	kind() string // the name of its type in Python
}

type (
	none    struct{}
	boolean bool
	float   float64

	// integer holds big only where small would overflow.
	integer struct {
		small int64
		big   *big.Int
	}

	list struct {
		items []Value
		seen  epoch
	}
	tuple struct {
		items []Value
		names []string // attributes of the items, or nil
		seen  epoch
	}

	// undefined is what a missing name, key or branch gives. It prints as
	// nothing, and names the missing value when it is used.
	undefined struct {
		hint   string
		owner  Value // what has no such attribute, or nil
		name   Value
		unsafe bool
	}

	// function is a host's function, a built-in one or a bound method.
	function struct {
		name  string
		class string
		self  Value // of a bound method
		fn    func(m *machine, a *args) (Value, error)
	}

	namespace struct{ attrs *Dict }

	rangeValue struct{ start, stop, step int64 }

	// view is dict.keys(), dict.values() or dict.items().
	view struct {
		d    *Dict
		what string
	}
)

// None is Python's None.
var None Value = none{}

// Bool makes True or False.
func Bool(b bool) Value { return boolean(b) }

// Int makes an integer.
func Int(n int64) Value { return integer{small: n} }

// Float makes a float.
func Float(f float64) Value { return float(f) }

// String makes a string. Each invalid byte of s becomes U+FFFD.
func String(s string) Value { return plain(valid(s)) }

// List makes a list of values, none of which may be nil.
func List(items ...Value) Value { return &list{items, given} }

// Function makes a function that templates can call by position: fewer
// arguments than least, more than most or any by name are an error. fn may
// return Raise.
func Function(name string, least, most int, fn func(args []Value) (Value, error)) Value {
	return &function{name: name, class: "function", fn: func(m *machine, a *args) (Value, error) {
		if a.kw.Len() > 0 {
			return nil, typeError("%s() takes no keyword arguments", name)
		}
		if len(a.pos) < least || len(a.pos) > most {
			return nil, typeError("%s() takes %d to %d arguments (%d given)", name, least, most, len(a.pos))
		}
		v, err := fn(a.pos)
		if err == nil && v == nil {
			v = None
		}
		return v, err
	}}
}

// Text returns the text of a string, and whether v is one.
func Text(v Value) (string, bool) {
	s, ok := v.(str)
	return s.s, ok
}

// Items returns the values of a list, and whether v is one.
func Items(v Value) ([]Value, bool) {
	l, ok := v.(*list)
	if !ok {
		return nil, false
	}
	return append([]Value(nil), l.items...), true
}

// Mark returns a copy of v in which all strings are marked: those in lists,
// dicts and tuples, and keys, too. Marks follow the text through every
// operation of the language; see Template.Segments.
func Mark(v Value) Value { return MarkAs(v, 0) }

// MarkAs is Mark with an origin, which Segment.Origin tells.
func MarkAs(v Value, origin int) Value {
	all := func(list []Value) []Value {
		marked := make([]Value, len(list))
		for i, x := range list {
			marked[i] = MarkAs(x, origin)
		}
		return marked
	}
	switch v := v.(type) {
	case str:
		return v.mark(origin)
	case *list:
		return &list{all(v.items), given}
	case *tuple:
		return &tuple{all(v.items), v.names, given}
	case *Dict:
		return &Dict{hashes: slices.Clip(v.hashes), index: maps.Clone(v.index), keys: all(v.keys), values: all(v.values)}
	}
	return v
}

func (none) kind() string        { return "NoneType" }
func (boolean) kind() string     { return "bool" }
func (float) kind() string       { return "float" }
func (integer) kind() string     { return "int" }
func (*list) kind() string       { return "list" }
func (*tuple) kind() string      { return "tuple" }
func (*undefined) kind() string  { return "Undefined" }
func (f *function) kind() string { return f.class }
func (*namespace) kind() string  { return "Namespace" }
func (*rangeValue) kind() string { return "range" }
func (v *view) kind() string     { return "dict_" + v.what }

// length is the number of items of the range.
func (r *rangeValue) length() int {
	switch {
	case r.step > 0 && r.start < r.stop:
		return int((uint64(r.stop)-uint64(r.start)-1)/uint64(r.step) + 1)
	case r.step < 0 && r.start > r.stop:
		return int((uint64(r.start)-uint64(r.stop)-1)/(-uint64(r.step)) + 1)
	}
	return 0
}

func (r *rangeValue) at(i int) Value { return Int(r.start + int64(i)*r.step) }

// valid replaces bytes that are not UTF-8.
func valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}

// undefinedName is a variable that does not exist.
func undefinedName(name string) *undefined { return &undefined{name: plain(name)} }

// fail is the error of using an undefined value.
func (u *undefined) fail() error {
	switch {
	case u.unsafe:
		return errorf(KindSecurity, "%s", u.hint)
	case u.hint != "":
		return errorf(KindUndefined, "%s", u.hint)
	case u.owner == nil:
		return errorf(KindUndefined, "%s is undefined", brief(u.name))
	}
	owner := u.owner.kind() + " object"
	if u.owner == None {
		owner = "None"
	}
	if _, ok := u.name.(str); ok {
		return errorf(KindUndefined, "'%s' has no attribute %s", owner, brief(u.name))
	}
	return errorf(KindUndefined, "%s has no element %s", owner, brief(u.name))
}

// brief is a name for a message: a string's or number's repr, else its type.
func brief(v Value) string {
	switch v := v.(type) {
	case str:
		if len(v.s) > 100 {
			return "str"
		}
		return quote(v.s, false)
	case boolean, integer, float, none:
		return scalarText(v)
	}
	return v.kind()
}

// Format is str(v), or the name of its type if that is too long to be a message.
func Format(v Value) string {
	m := newMachine(context.Background(), Options{MaxMemory: 1 << 20}, nil)
	s, err := m.str(v)
	if err != nil {
		return v.kind()
	}
	return s.s
}
