package jinja

import (
	"slices"
	"strings"
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

// getattr returns v.name: an attribute, else an item, else undefined.
func getattr(r *rendering, v Value, name string) Value {
	if x := attribute(r, v, name); x != nil {
		return x
	}
	if x := index(r, v, unmarked(name)); x != nil {
		return x
	}
	return &undefined{owner: v, name: unmarked(name)}
}

// getitem returns v[i]: an item, else an attribute, else undefined.
func getitem(r *rendering, v, i Value) Value {
	if x := index(r, v, i); x != nil {
		return x
	}
	if name, ok := i.(str); ok {
		if x := attribute(r, v, name.s); x != nil {
			return x
		}
	}
	return &undefined{owner: v, name: i}
}

// denyAttribute makes what a denied attribute gives: an undefined value, which fails when a template uses it.
func denyAttribute(v Value, name string) Value {
	return &undefined{unsafe: true, owner: v, name: unmarked(name),
		hint: "access to attribute " + brief(unmarked(name)) + " of '" + v.kind() + "' object is unsafe."}
}

// hiddenNames lists attributes of Python's objects. The sandbox denies these names, and they hide a dict's items of the
// same names.
var hiddenNames = strings.Fields(`__class__ __delattr__ __dir__ __doc__ __eq__ __format__ __ge__ __getattribute__
	__getstate__ __gt__ __hash__ __init__ __init_subclass__ __le__ __lt__ __ne__ __new__ __reduce__ __reduce_ex__
	__repr__ __setattr__ __sizeof__ __str__ __subclasshook__ __class_getitem__ __contains__ __delitem__ __getitem__
	__ior__ __iter__ __len__ __or__ __reversed__ __ror__ __setitem__`)

// mutators are the methods that the immutable sandbox denies.
var mutators = map[string][]string{
	"dict": {"clear", "pop", "popitem", "setdefault", "update"},
	"list": {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"},
}

// attribute returns what Python's getattr finds behind the sandbox, or nil.
func attribute(r *rendering, v Value, name string) Value {
	r.step(len(name) / 64)
	if strings.HasPrefix(name, "_") {
		switch v.(type) {
		case *function, *macro:
			return denyAttribute(v, name)
		}
		if slices.Contains(hiddenNames, name) {
			return denyAttribute(v, name)
		}
		if !strings.HasPrefix(name, "__") {
			need(v)
		}
		return nil
	}
	need(v)
	if slices.Contains(mutators[v.kind()], name) {
		return denyAttribute(v, name)
	}
	switch v := v.(type) {
	case *namespace:
		x, _ := v.attrs.Get(name)
		return x
	case *loop:
		return v.attribute(r, name)
	case *macro:
		return v.attribute(name)
	}
	if m, ok := methods[v.kind()][name]; ok {
		return m.bound(v)
	}
	return nil
}

// index returns Python's v[i], or nil where Python has a TypeError or a LookupError.
func index(r *rendering, v, i Value) Value {
	switch v := v.(type) {
	case *Dict:
		x, _ := find(r, v, i)
		return x
	case *list:
		if at := position(len(v.items), i); at >= 0 {
			return v.items[at]
		}
	case str:
		r.step(len(v.s) / 4)
		if at := position(v.length(), i); at >= 0 {
			from := v.offset(at)
			_, w := utf8.DecodeRuneInString(v.s[from:])
			return v.sub(from, from+w)
		}
	case *rangeValue:
		if at := position(v.length(), i); at >= 0 {
			return v.at(at)
		}
	case *undefined:
		panic(v.fail())
	}
	return nil
}

// position returns index i, which may count from the end, of n items, or -1.
func position(n int, i Value) int {
	at, ok := intOf(i)
	if at < 0 {
		at += int64(n)
	}
	if !ok || at < 0 || at >= int64(n) {
		return -1
	}
	return int(at)
}

// slice returns Python's v[start:stop:step].
func slice(r *rendering, v, start, stop, step Value) Value {
	need(v)
	switch v.(type) {
	case str, *list, *rangeValue:
	case *Dict:
		panic(typeError("unhashable type: 'slice'"))
	default:
		panic(typeError("'%s' object is not subscriptable", v.kind()))
	}
	from, count, by := sliceIndices(mustSize(r, v), start, stop, step)
	switch v := v.(type) {
	case str:
		return substring(r, v, from, count, by)
	case *rangeValue:
		return &rangeValue{v.start + int64(from)*v.step, v.start + int64(from+count*by)*v.step, v.step * int64(by)}
	case *list:
		r.allocItems(count)
		picked := make([]Value, count)
		for i := range picked {
			picked[i] = v.items[from+i*by]
		}
		return &list{picked, v.tuple}
	}
	return nil
}

// sliceIndices returns the first index, the number of items and the step of a slice of n items.
func sliceIndices(n int, start, stop, step Value) (from, count, by int) {
	by = 1
	if step != None {
		if by = sliceIndex(step); by == 0 {
			panic(valueError("slice step cannot be zero"))
		}
		by = max(min(by, n+1), -n-1) // a longer step gives the same
	}
	low, high := 0, n
	if by < 0 {
		low, high = -1, n-1
	}
	clamp := func(v Value, missing int) int {
		if v == None {
			return missing
		}
		i := sliceIndex(v)
		if i < 0 {
			i = max(i, -n-1) + n
		}
		return min(max(i, low), high)
	}
	if by > 0 {
		from = clamp(start, low)
		if to := clamp(stop, high); from < to {
			count = (to-from-1)/by + 1
		}
		return from, count, by
	}
	from = clamp(start, high)
	if to := clamp(stop, low); from > to {
		count = (from-to-1)/-by + 1
	}
	return from, count, by
}

func sliceIndex(v Value) int {
	if _, ok := intOf(v); !ok {
		panic(typeError("slice indices must be integers or None or have an __index__ method"))
	}
	return toInt(v)
}

// substring returns every by-th of the code points of s from from on.
func substring(r *rendering, s str, from, count, by int) Value {
	r.step(len(s.s) / 4)
	if count == 0 {
		return s.sub(0, 0)
	}
	if by == 1 {
		rest := s.sub(s.offset(from), len(s.s))
		return rest.sub(0, rest.offset(count))
	}
	r.allocItems(s.length())
	starts := make([]int, 0, s.length()+1)
	for i := range s.s {
		starts = append(starts, i)
	}
	starts = append(starts, len(s.s))
	t := r.text()
	for i := range count {
		at := from + i*by
		t.add(s.sub(starts[at], starts[at+1]))
	}
	return t.strAs(s.safe)
}
