package jinja

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// A lookup says what Python's getattr would find.
type lookup uint8

const (
	absent lookup = iota
	found
	denied // it is there, but the sandbox does not give it
)

// getattr is v.name: an attribute, else an item, else undefined.
func (m *machine) getattr(v Value, name string) (Value, error) {
	x, l, err := m.attribute(v, name)
	switch {
	case err != nil:
		return nil, err
	case l == found:
		return x, nil
	case l == denied:
		return unsafe(v, name), nil
	}
	x, err = m.index(v, plain(name))
	if is(err, KindType, KindLookup) {
		return &undefined{owner: v, name: plain(name)}, nil
	}
	return x, err
}

// getitem is v[i]: an item, else an attribute, else undefined.
func (m *machine) getitem(v, i Value) (Value, error) {
	x, err := m.index(v, i)
	if err == nil || !is(err, KindType, KindLookup) {
		return x, err
	}
	if name, ok := i.(str); ok {
		x, l, err := m.attribute(v, name.s)
		switch {
		case err != nil:
			return nil, err
		case l == found:
			return x, nil
		case l == denied:
			return unsafe(v, name.s), nil
		}
	}
	return &undefined{owner: v, name: i}, nil
}

// unsafe is what a denied attribute gives: nothing, until it is used.
func unsafe(v Value, name string) Value {
	return &undefined{unsafe: true, owner: v, name: plain(name),
		hint: "access to attribute " + brief(plain(name)) + " of '" + v.kind() + "' object is unsafe."}
}

// objectNames are the attributes that all of Python's objects have, dictNames
// what dicts have beside them. Only for dicts does it matter, whose items of
// such a name are hidden.
var (
	objectNames = strings.Fields(`__class__ __delattr__ __dir__ __doc__ __eq__ __format__ __ge__ __getattribute__
		__getstate__ __gt__ __hash__ __init__ __init_subclass__ __le__ __lt__ __ne__ __new__ __reduce__
		__reduce_ex__ __repr__ __setattr__ __sizeof__ __str__ __subclasshook__`)
	dictNames = strings.Fields(`__class_getitem__ __contains__ __delitem__ __getitem__ __ior__ __iter__ __len__
		__or__ __reversed__ __ror__ __setitem__`)
	undefinedNames = strings.Fields(`_undefined_hint _undefined_obj _undefined_name _undefined_exception
		_undefined_message _fail_with_undefined_error __add__ __bool__ __call__ __getitem__ __iter__ __len__`)
)

// attribute is Python's getattr behind the sandbox.
func (m *machine) attribute(v Value, name string) (Value, lookup, error) {
	if strings.HasPrefix(name, "_") {
		return underscored(v, name)
	}
	if err := m.step(len(name) / 64); err != nil {
		return nil, absent, err
	}
	var x Value
	var err error
	switch v := v.(type) {
	case str:
		x = bound(v, name, strMethods, "builtin_function_or_method")
		if x == nil && v.safe {
			x = bound(v, name, markupMethods, "method")
		}
	case *Dict:
		if slices.Contains(dictMutators, name) {
			return nil, denied, nil
		}
		x = bound(v, name, dictMethods, "builtin_function_or_method")
	case *list:
		if slices.Contains(listMutators, name) {
			return nil, denied, nil
		}
		x = bound(v, name, listMethods, "builtin_function_or_method")
	case *tuple:
		if i := slices.Index(v.names, name); i >= 0 {
			x = v.items[i]
		} else {
			x = bound(v, name, tupleMethods, "builtin_function_or_method")
		}
	case boolean, integer, float:
		x = numberAttribute(v, name)
	case *namespace:
		x, _ = v.attrs.Get(name)
	case *loop:
		x, err = v.attribute(name)
	case *macro:
		x = v.attribute(name)
	case *rangeValue:
		if x = v.attribute(name); x == nil {
			x = bound(v, name, rangeMethods, "builtin_function_or_method")
		}
	case *cycler:
		x = v.attribute(name)
	case *joiner:
		x = v.attribute(name)
	case *blockRef:
		if name == "name" {
			x = plain(v.name)
		}
	case *undefined:
		err = v.fail()
	}
	if x == nil || err != nil {
		return nil, absent, err
	}
	return x, found, nil
}

func underscored(v Value, name string) (Value, lookup, error) {
	special := slices.Contains(objectNames, name)
	switch v := v.(type) {
	case *Dict:
		special = special || slices.Contains(dictNames, name)
	case *undefined:
		special = special || slices.Contains(undefinedNames, name)
		if !special && !strings.HasPrefix(name, "__") {
			return nil, absent, v.fail()
		}
	case *namespace:
		if x, ok := v.attrs.Get(name); ok && x != nil {
			return nil, denied, nil
		}
		special = name == "__class__" || name == "_Namespace__attrs"
	case *function, *macro:
		special = true
	}
	if special {
		return nil, denied, nil
	}
	return nil, absent, nil
}

// A method is a built-in method of a type.
type method func(m *machine, self Value, a *args) (Value, error)

func bound(self Value, name string, methods map[string]method, class string) Value {
	f, ok := methods[name]
	if !ok {
		return nil
	}
	return &function{name: name, class: class, self: self, fn: func(m *machine, a *args) (Value, error) { return f(m, self, a) }}
}

// index is Python's v[i].
func (m *machine) index(v, i Value) (Value, error) {
	switch v := v.(type) {
	case *Dict:
		x, ok, err := m.find(v, i)
		if err == nil && !ok {
			err = lookupError("%s", brief(i))
		}
		return x, err
	case *list:
		return itemAt(v, v.items, i)
	case *tuple:
		return itemAt(v, v.items, i)
	case str:
		return m.charAt(v, i)
	case *rangeValue:
		n, err := position(v, v.length(), i)
		if err != nil {
			return nil, err
		}
		return v.at(n), nil
	case *templateRef:
		if s, ok := i.(str); ok && v.scope.blocks[s.s] != nil {
			return &blockRef{s.s, v.scope}, nil
		}
		return nil, lookupError("%s", brief(i))
	case *undefined:
		return nil, v.fail()
	}
	return nil, typeError("'%s' object is not subscriptable", v.kind())
}

func itemAt(v Value, items []Value, i Value) (Value, error) {
	n, err := position(v, len(items), i)
	if err != nil {
		return nil, err
	}
	return items[n], nil
}

// position is index i, which may count from the end, of n items.
func position(v Value, n int, i Value) (int, error) {
	if _, ok := intOf(i); !ok {
		return 0, typeError("%s indices must be integers or slices, not %s", v.kind(), i.kind())
	}
	at, err := indexOf(i)
	if at < 0 {
		at += n
	}
	if at < 0 || at >= n {
		return 0, lookupError("%s index out of range", v.kind())
	}
	return at, err
}

func (m *machine) charAt(s str, i Value) (Value, error) {
	if err := m.step(len(s.s) / 4); err != nil {
		return nil, err
	}
	n, err := position(s, s.length(), i)
	if err != nil {
		return nil, err
	}
	from := s.offset(n)
	_, w := utf8.DecodeRuneInString(s.s[from:])
	return s.sub(from, from+w), nil
}

// slice is Python's v[start:stop:step].
func (m *machine) slice(v, start, stop, step Value) (Value, error) {
	switch v := v.(type) {
	case str, *list, *tuple, *rangeValue:
	case *undefined:
		return nil, v.fail()
	case *Dict:
		return nil, typeError("unhashable type: 'slice'")
	default:
		return nil, typeError("'%s' object is not subscriptable", v.kind())
	}
	n, err := m.mustSize(v)
	if err != nil {
		return nil, err
	}
	from, count, by, err := sliceIndices(n, start, stop, step)
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case str:
		return m.substring(v, from, count, by)
	case *rangeValue:
		return &rangeValue{v.start + int64(from)*v.step, v.start + int64(from+count*by)*v.step, v.step * int64(by)}, nil
	case *tuple:
		items, err := m.picked(v.items, from, count, by)
		return &tuple{items: items}, err
	case *list:
		items, err := m.picked(v.items, from, count, by)
		return &list{items: items}, err
	}
	return nil, nil
}

// sliceIndices gives the first index, the number of items and the step of a
// slice of n items.
func sliceIndices(n int, start, stop, step Value) (from, count, by int, err error) {
	by = 1
	if step != None {
		if by, err = sliceIndex(step); err != nil {
			return
		}
		if by == 0 {
			return 0, 0, 0, valueError("slice step cannot be zero")
		}
		by = max(min(by, n+1), -n-1) // a longer step gives the same
	}
	low, high := 0, n
	if by < 0 {
		low, high = -1, n-1
	}
	clamp := func(v Value, missing int) int {
		if v == None || err != nil {
			return missing
		}
		var i int
		if i, err = sliceIndex(v); i < 0 {
			i = max(i, -n-1) + n
		}
		return min(max(i, low), high)
	}
	first, last := low, high
	if by < 0 {
		first, last = high, low
	}
	from = clamp(start, first)
	to := clamp(stop, last)
	if by > 0 && from < to {
		count = (to-from-1)/by + 1
	} else if by < 0 && from > to {
		count = (from-to-1)/-by + 1
	}
	return
}

func sliceIndex(v Value) (int, error) {
	i, err := indexOf(v)
	if err != nil {
		return 0, typeError("slice indices must be integers or None or have an __index__ method")
	}
	return i, nil
}

func (m *machine) picked(items []Value, from, count, by int) ([]Value, error) {
	if err := m.allocItems(count); err != nil {
		return nil, err
	}
	picked := make([]Value, count)
	for i := range picked {
		picked[i] = items[from+i*by]
	}
	return picked, nil
}

// substring is every by-th of the code points from from on.
func (m *machine) substring(s str, from, count, by int) (Value, error) {
	if err := m.step(len(s.s) / 4); err != nil {
		return nil, err
	}
	if count == 0 {
		return s.sub(0, 0), nil
	}
	if by == 1 {
		i := s.offset(from)
		rest := s.sub(i, len(s.s))
		return rest.sub(0, rest.offset(count)), nil
	}
	if err := m.allocItems(s.length()); err != nil {
		return nil, err
	}
	starts := make([]int, 0, s.length()+1)
	for i := range s.s {
		starts = append(starts, i)
	}
	starts = append(starts, len(s.s))
	t := m.text()
	for i := range count {
		at := from + i*by
		t.add(s.sub(starts[at], starts[at+1]))
	}
	sub, err := t.str()
	sub.safe = s.safe
	return sub, err
}
