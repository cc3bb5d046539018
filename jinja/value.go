package jinja

import (
	"context"
	"unicode/utf8"
)

// A Value is a value of the template language. Only this package makes values: None, Bool, Int, Float, String, List,
// *Dict, Function and DecodeJSON. No value holds a Go object, and none leads to a Go object.
type Value interface {
	kind() string // name of the value's type in Python
}

type (
	none    struct{}
	boolean bool
	integer int64
	float   float64

	// list is a list or a tuple of Python.
	list struct {
		items []Value
		tuple bool
	}

	// undefined is the value of a missing name, key or branch. An undefined value prints as nothing, and names the
	// missing thing when a template uses the value.
	undefined struct {
		hint   string
		owner  Value // value without the requested attribute, or nil
		name   Value
		unsafe bool
	}

	// function is a host's function, a built-in one or a bound method.
	function struct {
		name string
		self Value // owner of a bound method, or nil
		call func(r *rendering, a *args) Value
	}

	namespace struct{ attrs *Dict }

	rangeValue struct{ start, stop, step int64 }

	// view is dict.keys(), dict.values() or dict.items().
	view struct {
		d    *Dict
		what string
	}

	// generator returns its items once.
	generator struct{ next iterator }
)

// None is Python's None.
var None Value = none{}

// Bool makes True or False.
func Bool(b bool) Value { return boolean(b) }

// Int makes an integer.
func Int(n int64) Value { return integer(n) }

// Float makes a float.
func Float(f float64) Value { return float(f) }

// String makes a string. Each invalid byte of s becomes U+FFFD.
func String(s string) Value { return unmarked(toUTF8(s)) }

// List makes a list of values. No value may be nil.
func List(items ...Value) Value { return &list{items: items} }

// Function makes a function that templates can call by position: fewer arguments than least, more than most or any by
// name are an error. fn may return Raise.
func Function(name string, least, most int, fn func(args []Value) (Value, error)) Value {
	return &function{name: name, call: func(_ *rendering, a *args) Value {
		if a.kw.Len() > 0 {
			panic(typeError("%s() takes no keyword arguments", name))
		}
		if len(a.pos) < least || len(a.pos) > most {
			panic(typeError("%s() takes %d to %d arguments (%d given)", name, least, most, len(a.pos)))
		}
		v, err := fn(a.pos)
		if err != nil {
			panic(hostError(err))
		}
		return or(v, None)
	}}
}

// or returns v, or d without v.
func or(v, d Value) Value {
	if v == nil {
		return d
	}
	return v
}

// Text returns the text of a string, and whether v is a string.
func Text(v Value) (string, bool) {
	s, ok := v.(str)
	return s.s, ok
}

// Items returns the values of a list, and whether v is a list.
func Items(v Value) ([]Value, bool) {
	l, ok := v.(*list)
	if !ok || l.tuple {
		return nil, false
	}
	return append([]Value(nil), l.items...), true
}

// Mark returns a copy of v in which all strings are marked, also in lists and dicts, keys included. Marks follow the
// text through every operation of the language; see Template.Segments.
func Mark(v Value) Value { return MarkAs(v, 0) }

// MarkAs marks as Mark does, with an origin for Segment.Origin.
func MarkAs(v Value, origin int) Value {
	switch v := v.(type) {
	case str:
		return v.mark(origin)
	case *list:
		marked := &list{make([]Value, len(v.items)), v.tuple}
		for i, x := range v.items {
			marked.items[i] = MarkAs(x, origin)
		}
		return marked
	case *Dict:
		marked := NewDict()
		for i, k := range v.keys {
			marked.put(v.hashes[i], MarkAs(k, origin), MarkAs(v.values[i], origin))
		}
		return marked
	}
	return v
}

func (none) kind() string        { return "NoneType" }
func (boolean) kind() string     { return "bool" }
func (float) kind() string       { return "float" }
func (integer) kind() string     { return "int" }
func (*undefined) kind() string  { return "Undefined" }
func (*namespace) kind() string  { return "Namespace" }
func (*rangeValue) kind() string { return "range" }
func (*generator) kind() string  { return "generator" }
func (v *view) kind() string     { return "dict_" + v.what }

func (l *list) kind() string {
	if l.tuple {
		return "tuple"
	}
	return "list"
}

func (f *function) kind() string {
	if f.self != nil {
		return "builtin_function_or_method"
	}
	return "function"
}

// tupleOf makes a tuple.
func tupleOf(items ...Value) *list { return &list{items, true} }

// length returns the number of items of the range.
func (v *rangeValue) length() int {
	switch {
	case v.step > 0 && v.start < v.stop:
		return int((uint64(v.stop)-uint64(v.start)-1)/uint64(v.step) + 1)
	case v.step < 0 && v.start > v.stop:
		return int((uint64(v.start)-uint64(v.stop)-1)/(-uint64(v.step)) + 1)
	}
	return 0
}

func (v *rangeValue) at(i int) Value { return integer(v.start + int64(i)*v.step) }

// toUTF8 replaces bytes that are not UTF-8.
func toUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}

// fail makes the error of using an undefined value.
func (u *undefined) fail() *Error {
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

// need fails for an undefined value.
func need(values ...Value) {
	for _, v := range values {
		if u, ok := v.(*undefined); ok {
			panic(u.fail())
		}
	}
}

// brief names a value in a message: by the repr of a string or number, else by the type.
func brief(v Value) string {
	switch v := v.(type) {
	case str:
		if len(v.s) <= 100 {
			return quote(v.s)
		}
		return "str"
	case boolean, integer, float, none:
		return scalarText(v)
	}
	return v.kind()
}

// Format returns str(v), or the name of v's type if the text is too long for a message.
func Format(v Value) (text string) {
	r := newRendering(context.Background(), Options{MaxMemory: 1 << 20}, nil)
	var err error
	defer func() {
		if err != nil {
			text = v.kind()
		}
	}()
	defer catch(&err, &r.line)
	return toStr(r, v).s
}
