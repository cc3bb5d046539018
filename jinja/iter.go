package jinja

import "unicode/utf8"

// An iterator gives the next item, or false at the end.
type iterator func() (Value, bool, error)

// A generator gives its items once, when asked for.
type generator struct {
	next  iterator
	class string
	holds []Value // the values that it runs over
	bytes int     // made by next so far, which may still hold them
	seen  epoch
}

func (g *generator) kind() string { return g.class }

func (m *machine) generator(next iterator, holds ...Value) *generator {
	g := &generator{class: "generator", holds: holds}
	g.next = func() (Value, bool, error) {
		before := m.live.temporary
		v, ok, err := next()
		g.bytes += max(m.live.temporary-before, 0)
		return v, ok, err
	}
	return g
}

// iterate is iter(v); each item costs a step.
func (m *machine) iterate(v Value) (iterator, error) {
	next, err := m.items(v)
	if err != nil {
		return nil, err
	}
	return func() (Value, bool, error) {
		if err := m.step(1); err != nil {
			return nil, false, err
		}
		return next()
	}, nil
}

func (m *machine) items(v Value) (iterator, error) {
	switch v := v.(type) {
	case *list:
		return overItems(v.items), nil
	case *tuple:
		return overItems(v.items), nil
	case *Dict:
		return overItems(v.keys), nil
	case str:
		return overText(v), nil
	case *undefined:
		return overItems(nil), nil
	case *rangeValue:
		i, n := 0, v.length()
		return func() (Value, bool, error) {
			if i == n {
				return nil, false, nil
			}
			i++
			return v.at(i - 1), true, nil
		}, nil
	case *view:
		return v.iterate(), nil
	case *generator:
		return v.next, nil
	case *loop:
		return func() (Value, bool, error) {
			ok, err := v.advance()
			if !ok || err != nil {
				return nil, false, err
			}
			return &tuple{items: []Value{v.current, v}}, true, nil
		}, nil
	}
	return nil, typeError("'%s' object is not iterable", v.kind())
}

func overItems(items []Value) iterator {
	i := 0
	return func() (Value, bool, error) {
		if i == len(items) {
			return nil, false, nil
		}
		i++
		return items[i-1], true, nil
	}
}

// overText gives the code points of s.
func overText(s str) iterator {
	at := 0
	s.safe = false
	return func() (Value, bool, error) {
		if at == len(s.s) {
			return nil, false, nil
		}
		from := at
		_, n := utf8.DecodeRuneInString(s.s[at:])
		at += n
		return s.sub(from, at), true, nil
	}
}

func (v *view) iterate() iterator {
	switch v.what {
	case "keys":
		return overItems(v.d.keys)
	case "values":
		return overItems(v.d.values)
	}
	i := 0
	return func() (Value, bool, error) {
		if i == v.d.Len() {
			return nil, false, nil
		}
		i++
		return &tuple{items: []Value{v.d.keys[i-1], v.d.values[i-1]}}, true, nil
	}
}

// collect is list(v).
func (m *machine) collect(v Value) ([]Value, error) {
	next, err := m.iterate(v)
	if err != nil {
		return nil, err
	}
	return m.drain(next)
}

func (m *machine) drain(next iterator) ([]Value, error) {
	items := []Value{}
	for {
		v, ok, err := next()
		if err != nil {
			return nil, err
		}
		if !ok {
			return items, nil
		}
		if err := m.alloc(64); err != nil {
			return nil, err
		}
		items = append(items, v)
	}
}

// size is len(v), and whether v has one. It pays for counting a string's characters.
func (m *machine) size(v Value) (n int, ok bool, err error) {
	switch v := v.(type) {
	case str:
		return v.length(), true, m.step(len(v.s) / 64)
	case *list:
		return len(v.items), true, nil
	case *tuple:
		return len(v.items), true, nil
	case *Dict:
		return v.Len(), true, nil
	case *view:
		return v.d.Len(), true, nil
	case *rangeValue:
		return v.length(), true, nil
	case *undefined:
		return 0, true, nil
	}
	return 0, false, nil
}

// mustSize is size of a value that must have one.
func (m *machine) mustSize(v Value) (int, error) {
	n, ok, err := m.size(v)
	if !ok {
		err = typeError("object of type '%s' has no len()", v.kind())
	}
	return n, err
}

// truth is bool(v).
func (m *machine) truth(v Value) (bool, error) {
	switch v := v.(type) {
	case boolean:
		return bool(v), nil
	case none:
		return false, nil
	case integer:
		return v.big != nil || v.small != 0, nil
	case float:
		return v != 0, nil
	case str:
		return v.s != "", nil
	case *loop:
		n, err := v.length()
		return n > 0, err
	}
	n, ok, err := m.size(v)
	return !ok || n > 0, err
}

// reversed is reversed(v), for what has an order that can be walked backwards.
func (m *machine) reversed(v Value) (iterator, error) {
	var items []Value
	switch v := v.(type) {
	case *list:
		items = v.items
	case *tuple:
		items = v.items
	case *Dict:
		items = v.keys
	case str, *view, *rangeValue, *undefined:
		all, err := m.collect(v)
		if err != nil {
			return nil, err
		}
		items = all
	default:
		return nil, typeError("'%s' object is not reversible", v.kind())
	}
	i := len(items)
	return func() (Value, bool, error) {
		if i == 0 {
			return nil, false, nil
		}
		i--
		return items[i], true, nil
	}, nil
}
