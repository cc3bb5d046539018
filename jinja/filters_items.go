package jinja

import "strings"

// lazily is a generator whose iterator is made when the first item is wanted, as
// by a Python function that yields. It holds v and the arguments.
func (m *machine) lazily(v Value, a *args, start func() (iterator, error)) Value {
	var next iterator
	ended := false
	holds := append([]Value{v}, a.pos...)
	if a.kw != nil {
		holds = append(holds, a.kw)
	}
	return m.generator(func() (Value, bool, error) {
		if ended {
			return nil, false, nil
		}
		defer m.unnest() // generators can be made of generators, at any depth
		if err := m.nest(); err != nil {
			return nil, false, err
		}
		if next == nil {
			var err error
			if next, err = start(); err != nil {
				ended = true
				return nil, false, err
			}
		}
		v, ok, err := next()
		ended = !ok || err != nil
		return v, ok, err
	}, holds...)
}

// path is an attribute such as "a.b.0" of filters, taken apart.
func path(attribute Value) []Value {
	s, ok := attribute.(str)
	if !ok {
		if attribute == nil || attribute == None {
			return nil
		}
		return []Value{attribute}
	}
	var parts []Value
	for _, p := range strings.Split(s.s, ".") {
		if i, err := parseInt(p, 10); err == nil && everyRune(isDigit)(p) {
			parts = append(parts, i)
		} else {
			parts = append(parts, plain(p))
		}
	}
	return parts
}

// follow looks a path up; an undefined value becomes the default, if that is not None.
func (m *machine) follow(v Value, parts []Value, other Value) (Value, error) {
	for _, p := range parts {
		var err error
		if v, err = m.getitem(v, p); err != nil {
			return nil, err
		}
		if _, ok := v.(*undefined); ok && other != None {
			v = other
		}
	}
	return v, nil
}

// ignoreCase is v, a string in lower case.
func (m *machine) ignoreCase(v Value) (Value, error) {
	if s, ok := v.(str); ok {
		return m.mapText(s, lower)
	}
	return v, nil
}

func filterJoin(m *machine, v Value, p []Value) (Value, error) {
	var err error
	sep := str{}
	if p[0] != nil {
		if sep, err = m.str(p[0]); err != nil {
			return nil, err
		}
	}
	next, err := m.iterate(v)
	if err != nil {
		return nil, err
	}
	parts := path(p[1])
	t := m.text()
	for i := 0; ; i++ {
		x, ok, err := next()
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		if x, err = m.follow(x, parts, None); err != nil {
			return nil, err
		}
		s, err := m.str(x)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			t.add(sep)
		}
		t.add(s)
	}
	s, err := t.str()
	return s, err
}

func filterSum(m *machine, v Value, p []Value) (Value, error) {
	total := p[1]
	if total == nil {
		total = Int(0)
	}
	if _, ok := total.(str); ok {
		return nil, typeError("sum() can't sum strings [use ''.join(seq) instead]")
	}
	items, err := m.collect(v)
	if err != nil {
		return nil, err
	}
	parts := path(p[0])
	for _, x := range items {
		if x, err = m.follow(x, parts, None); err != nil {
			return nil, err
		}
		if total, err = m.binary("+", total, x); err != nil {
			return nil, err
		}
	}
	return total, nil
}

func filterFirst(m *machine, v Value, _ []Value) (Value, error) {
	next, err := m.iterate(v)
	if err != nil {
		return nil, err
	}
	x, ok, err := next()
	if !ok && err == nil {
		x = &undefined{hint: "No first item, sequence was empty."}
	}
	return x, err
}

func filterLast(m *machine, v Value, _ []Value) (Value, error) {
	next, err := m.reversed(v)
	if err != nil {
		return nil, err
	}
	x, ok, err := next()
	if !ok && err == nil {
		x = &undefined{hint: "No last item, sequence was empty."}
	}
	return x, err
}

func filterList(m *machine, v Value, _ []Value) (Value, error) {
	items, err := m.collect(v)
	return &list{items: items}, err
}

func filterItems(m *machine, v Value, a *args) (Value, error) {
	if _, err := a.bind("items", noParams); err != nil {
		return nil, err
	}
	return m.lazily(v, a, func() (iterator, error) {
		switch v := v.(type) {
		case *undefined:
			return overItems(nil), nil
		case *Dict:
			return m.iterate(&view{v, "items"})
		}
		return nil, typeError("Can only get item pairs from a mapping.")
	}), nil
}

func filterReverse(m *machine, v Value, _ []Value) (Value, error) {
	if s, ok := v.(str); ok {
		return m.slice(s, None, None, Int(-1))
	}
	if next, err := m.reversed(v); err == nil {
		g := m.generator(next, v)
		g.class = v.kind() + "_reverseiterator"
		return g, m.alloc(64)
	} else if !is(err, KindType) {
		return nil, err
	}
	items, err := m.collect(v)
	if err != nil {
		if is(err, KindType) {
			return nil, errorf(KindRuntime, "argument must be iterable")
		}
		return nil, err
	}
	reverse(items)
	return &list{items: items}, nil
}

var batchParams = params("linecount fill_with?")

func filterBatch(m *machine, v Value, a *args) (Value, error) {
	p, err := a.bind("batch", batchParams)
	if err != nil {
		return nil, err
	}
	return m.lazily(v, a, func() (iterator, error) {
		next, err := m.iterate(v)
		if err != nil {
			return nil, err
		}
		size, err := indexOf(p[0])
		if err != nil {
			return nil, err
		}
		var carried []Value // the item that did not fit
		return func() (Value, bool, error) {
			row := carried
			carried = nil
			for {
				x, ok, err := next()
				if err != nil {
					return nil, false, err
				}
				if !ok {
					break
				}
				if len(row) == size {
					carried = []Value{x}
					return &list{items: row}, true, m.allocItems(len(row) + 4)
				}
				row = append(row, x)
			}
			if len(row) == 0 {
				return nil, false, nil
			}
			row, err = m.filled(row, size, orNone(p[1]))
			return &list{items: row}, true, err
		}, nil
	}), nil
}

// filled brings a row to a size.
func (m *machine) filled(row []Value, size int, with Value) ([]Value, error) {
	if with == None || len(row) >= size {
		return row, nil
	}
	if err := m.allocItems(size - len(row)); err != nil {
		return nil, err
	}
	for len(row) < size {
		row = append(row, with)
	}
	return row, nil
}

var sliceParams = params("slices fill_with?")

func filterSlice(m *machine, v Value, a *args) (Value, error) {
	p, err := a.bind("slice", sliceParams)
	if err != nil {
		return nil, err
	}
	return m.lazily(v, a, func() (iterator, error) {
		items, err := m.collect(v)
		if err != nil {
			return nil, err
		}
		n, err := indexOf(p[0])
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, valueError("integer division or modulo by zero")
		}
		size, extra := len(items)/n, len(items)%n
		i, at := 0, 0
		return func() (Value, bool, error) {
			if i >= n {
				return nil, false, m.step(1)
			}
			end := at + size
			if i < extra {
				end++
			}
			row := append([]Value{}, items[at:end]...)
			if i >= extra && p[1] != nil && p[1] != None {
				row = append(row, p[1])
			}
			i, at = i+1, end
			return &list{items: row}, true, m.allocItems(len(row) + 4)
		}, nil
	}), nil
}

func filterMap(m *machine, v Value, a *args) (Value, error) {
	return m.lazily(v, a, func() (iterator, error) {
		if ok, err := m.truth(v); !ok || err != nil {
			return overItems(nil), err
		}
		f, err := m.mapper(a)
		if err != nil {
			return nil, err
		}
		next, err := m.iterate(v)
		if err != nil {
			return nil, err
		}
		return func() (Value, bool, error) {
			x, ok, err := next()
			if !ok || err != nil {
				return nil, false, err
			}
			x, err = f(x)
			return x, err == nil, err
		}, nil
	}), nil
}

// mapper is what the map filter does to each item.
func (m *machine) mapper(a *args) (sortKey, error) {
	if attribute, ok := a.kw.Get("attribute"); ok && len(a.pos) == 0 {
		other, ok := a.kw.Get("default")
		n := 1
		if ok {
			n = 2
		}
		if a.kw.Len() > n {
			return nil, errorf(KindRuntime, "Unexpected keyword argument")
		}
		parts := path(attribute)
		return func(v Value) (Value, error) { return m.follow(v, parts, orNone(other)) }, nil
	}
	if len(a.pos) == 0 {
		return nil, errorf(KindRuntime, "map requires a filter argument")
	}
	name, _ := a.pos[0].(str)
	return func(v Value) (Value, error) { return m.filter(name.s, v, a.without(1)) }, nil
}

// without drops the first n positional arguments.
func (a *args) without(n int) *args {
	return &args{pos: append([]Value{}, a.pos[n:]...), kw: a.kw}
}

// selector is select, reject, selectattr or rejectattr.
func selector(want, attribute bool) func(*machine, Value, *args) (Value, error) {
	return func(m *machine, v Value, a *args) (Value, error) {
		return m.lazily(v, a, func() (iterator, error) {
			if ok, err := m.truth(v); !ok || err != nil {
				return overItems(nil), err
			}
			var parts []Value
			a := a
			if attribute {
				if len(a.pos) == 0 {
					return nil, errorf(KindRuntime, "Missing parameter for attribute name")
				}
				parts = path(a.pos[0])
				a = a.without(1)
			}
			next, err := m.iterate(v)
			if err != nil {
				return nil, err
			}
			return m.keep(next, func(x Value) (bool, error) {
				x, err := m.follow(x, parts, None)
				if err != nil {
					return false, err
				}
				ok, err := m.passes(x, a)
				return ok == want, err
			}), nil
		}), nil
	}
}

// passes applies the test that the arguments name, or bool.
func (m *machine) passes(v Value, a *args) (bool, error) {
	if len(a.pos) == 0 {
		return m.truth(v)
	}
	name, _ := a.pos[0].(str)
	return m.isTest(name.s, v, a.without(1))
}
