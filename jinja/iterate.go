package jinja

import (
	"slices"
	"unicode/utf8"
)

// An iterator gives the next item, or false at the end.
type iterator func() (Value, bool)

// items returns iter(v), and whether v has items.
func items(r *rendering, v Value) (iterator, bool) {
	switch v := v.(type) {
	case *list:
		return overItems(v.items), true
	case *Dict:
		return overItems(v.keys), true
	case str:
		return overText(v), true
	case *undefined:
		return overItems(nil), true
	case *rangeValue:
		return overIndex(v.length(), v.at), true
	case *view:
		return v.iterate(), true
	case *generator:
		return v.next, true
	case *loop:
		return func() (Value, bool) {
			if !v.advance() {
				return nil, false
			}
			return tupleOf(v.current, v), true
		}, true
	}
	return nil, false
}

// iterate returns iter(v); each item costs a step.
func iterate(r *rendering, v Value) iterator {
	next, ok := items(r, v)
	if !ok {
		panic(typeError("'%s' object is not iterable", v.kind()))
	}
	return func() (Value, bool) {
		r.step(1)
		return next()
	}
}

func overIndex(n int, at func(i int) Value) iterator {
	i := 0
	return func() (Value, bool) {
		if i == n {
			return nil, false
		}
		i++
		return at(i - 1), true
	}
}

func overItems(items []Value) iterator {
	return overIndex(len(items), func(i int) Value { return items[i] })
}

// overText gives the code points of s.
func overText(s str) iterator {
	at := 0
	s.safe = false
	return func() (Value, bool) {
		if at == len(s.s) {
			return nil, false
		}
		from := at
		_, n := utf8.DecodeRuneInString(s.s[at:])
		at += n
		return s.sub(from, at), true
	}
}

func (v *view) iterate() iterator {
	switch v.what {
	case "keys":
		return overItems(v.d.keys)
	case "values":
		return overItems(v.d.values)
	}
	return overIndex(v.d.Len(), func(i int) Value { return tupleOf(v.d.keys[i], v.d.values[i]) })
}

// collect returns list(v).
func collect(r *rendering, v Value) []Value { return drain(r, iterate(r, v)) }

func drain(r *rendering, next iterator) []Value {
	items := []Value{}
	for v, ok := next(); ok; v, ok = next() {
		r.alloc(64)
		items = append(items, v)
	}
	return items
}

// keepItems returns the items that pass.
func keepItems(next iterator, pass func(Value) bool) iterator {
	return func() (Value, bool) {
		for v, ok := next(); ok; v, ok = next() {
			if pass(v) {
				return v, true
			}
		}
		return nil, false
	}
}

// unpack returns the n items of v.
func unpack(r *rendering, v Value, n int) []Value {
	next, ok := items(r, v)
	if !ok {
		panic(typeError("cannot unpack non-iterable %s object", v.kind()))
	}
	values := make([]Value, 0, n)
	for x, ok := next(); ok; x, ok = next() {
		r.step(1)
		if len(values) == n {
			panic(valueError("too many values to unpack (expected %d)", n))
		}
		values = append(values, x)
	}
	if len(values) < n {
		panic(valueError("not enough values to unpack (expected %d, got %d)", n, len(values)))
	}
	return values
}

// size returns len(v), and whether v has a length. Counting a string's characters costs steps.
func size(r *rendering, v Value) (int, bool) {
	switch v := v.(type) {
	case str:
		r.step(len(v.s) / 64)
		return v.length(), true
	case *list:
		return len(v.items), true
	case *Dict:
		return v.Len(), true
	case *view:
		return v.d.Len(), true
	case *rangeValue:
		return v.length(), true
	case *undefined:
		return 0, true
	}
	return 0, false
}

// mustSize returns the length of a value that must have a length.
func mustSize(r *rendering, v Value) int {
	n, ok := size(r, v)
	if !ok {
		panic(typeError("object of type '%s' has no len()", v.kind()))
	}
	return n
}

// truth returns bool(v).
func truth(r *rendering, v Value) bool {
	switch v := v.(type) {
	case boolean:
		return bool(v)
	case none:
		return false
	case integer:
		return v != 0
	case float:
		return v != 0
	case str:
		return v.s != ""
	case *loop:
		return v.length() > 0
	}
	n, ok := size(r, v)
	return !ok || n > 0
}

// reverseItems returns the items of v backwards, and whether v has such an order.
func reverseItems(r *rendering, v Value) ([]Value, bool) {
	switch v.(type) {
	case *list, *Dict, str, *view, *rangeValue, *undefined:
		items := collect(r, v)
		slices.Reverse(items)
		return items, true
	}
	return nil, false
}
