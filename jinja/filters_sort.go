package jinja

import (
	"sort"
	"strings"
)

// sortKey returns the value that v is compared by.
type sortKey func(v Value) (Value, error)

// keyOf reads the arguments attribute and case_sensitive of filters.
func (m *machine) keyOf(attribute, caseSensitive, other Value) (sortKey, error) {
	exact, err := m.flag(caseSensitive)
	if err != nil {
		return nil, err
	}
	parts := path(attribute)
	return func(v Value) (Value, error) {
		v, err := m.follow(v, parts, other)
		if err != nil || exact {
			return v, err
		}
		return m.ignoreCase(v)
	}, nil
}

func (m *machine) mapKeys(items []Value, key sortKey) ([]Value, error) {
	if err := m.allocItems(len(items)); err != nil {
		return nil, err
	}
	keys := make([]Value, len(items))
	for i, x := range items {
		k, err := key(x)
		if err != nil {
			return nil, err
		}
		keys[i] = k
	}
	return keys, nil
}

// sortedBy is the stable order of keys, as positions.
func (m *machine) sortedBy(keys []Value, backwards bool) ([]int, error) {
	if err := m.allocItems(len(keys)); err != nil {
		return nil, err
	}
	order := make([]int, len(keys))
	for i := range order {
		order[i] = i
	}
	var failed error
	sort.SliceStable(order, func(i, j int) bool {
		if failed != nil {
			return false
		}
		a, b := keys[order[i]], keys[order[j]]
		if backwards {
			a, b = b, a
		}
		less, err := m.compare("<", a, b)
		failed = err
		return less
	})
	return order, failed
}

func (m *machine) sorted(items []Value, key sortKey, backwards bool) ([]Value, error) {
	keys, err := m.mapKeys(items, key)
	if err != nil {
		return nil, err
	}
	order, err := m.sortedBy(keys, backwards)
	if err != nil {
		return nil, err
	}
	out := make([]Value, len(items))
	for i, j := range order {
		out[i] = items[j]
	}
	return out, nil
}

func filterSort(m *machine, v Value, p []Value) (Value, error) {
	backwards, err := m.flag(p[0])
	if err != nil {
		return nil, err
	}
	attributes := []Value{p[2]}
	if s, ok := p[2].(str); ok {
		attributes = nil
		for _, one := range strings.Split(s.s, ",") {
			attributes = append(attributes, plain(one))
		}
	}
	var keys []sortKey
	for _, attribute := range attributes {
		k, err := m.keyOf(attribute, p[1], None)
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	items, err := m.collect(v)
	if err != nil {
		return nil, err
	}
	items, err = m.sorted(items, func(v Value) (Value, error) {
		all := &list{items: make([]Value, len(keys))}
		for i, k := range keys {
			if all.items[i], err = k(v); err != nil {
				return nil, err
			}
		}
		return all, m.allocItems(len(keys))
	}, backwards)
	return &list{items: items}, err
}

func filterDictsort(m *machine, v Value, p []Value) (Value, error) {
	at := 0
	if p[1] != nil {
		switch s, _ := p[1].(str); s.s {
		case "key":
		case "value":
			at = 1
		default:
			return nil, errorf(KindRuntime, `You can only sort by either "key" or "value"`)
		}
	}
	backwards, err := m.flag(p[2])
	if err != nil {
		return nil, err
	}
	exact, err := m.flag(p[0])
	if err != nil {
		return nil, err
	}
	d, ok := v.(*Dict)
	if u, isUndefined := v.(*undefined); isUndefined {
		return nil, u.fail()
	}
	if !ok {
		return nil, errorf(KindAttribute, "'%s' object has no attribute 'items'", v.kind())
	}
	items, err := m.collect(&view{d, "items"})
	if err != nil {
		return nil, err
	}
	items, err = m.sorted(items, func(v Value) (Value, error) {
		x := v.(*tuple).items[at]
		if exact {
			return x, nil
		}
		return m.ignoreCase(x)
	}, backwards)
	return &list{items: items}, err
}

var uniqueParams = params("case_sensitive? attribute?")

func filterUnique(m *machine, v Value, a *args) (Value, error) {
	p, err := a.bind("unique", uniqueParams)
	if err != nil {
		return nil, err
	}
	return m.lazily(v, a, func() (iterator, error) {
		get, err := m.keyOf(p[1], p[0], None)
		if err != nil {
			return nil, err
		}
		next, err := m.iterate(v)
		if err != nil {
			return nil, err
		}
		seen := map[key]bool{}
		return m.keep(next, func(x Value) (bool, error) {
			k, err := get(x)
			if err != nil {
				return false, err
			}
			h, err := m.hash(k)
			if err != nil || seen[h] {
				return false, err
			}
			seen[h] = true
			return true, m.alloc(64)
		}), nil
	}), nil
}

// keep gives the items that pass.
func (m *machine) keep(next iterator, pass func(Value) (bool, error)) iterator {
	return func() (Value, bool, error) {
		for {
			v, ok, err := next()
			if !ok || err != nil {
				return nil, false, err
			}
			if ok, err := pass(v); ok || err != nil {
				return v, ok, err
			}
		}
	}
}

// extreme is min or max.
func extreme(name, op string) func(*machine, Value, *args) (Value, error) {
	return takes(name, "case_sensitive? attribute?", func(m *machine, v Value, p []Value) (Value, error) {
		items, err := m.collect(v)
		if err != nil {
			return nil, err
		}
		if len(items) == 0 {
			return &undefined{hint: "No aggregated item, sequence was empty."}, nil
		}
		key, err := m.keyOf(p[1], p[0], None)
		if err != nil {
			return nil, err
		}
		keys, err := m.mapKeys(items, key)
		if err != nil {
			return nil, err
		}
		best := 0
		for i := 1; i < len(keys); i++ {
			better, err := m.compare(op, keys[i], keys[best])
			if err != nil {
				return nil, err
			}
			if better {
				best = i
			}
		}
		return items[best], nil
	})
}

func filterGroupBy(m *machine, v Value, p []Value) (Value, error) {
	other := orNone(p[1])
	key, err := m.keyOf(p[0], p[2], other)
	if err != nil {
		return nil, err
	}
	items, err := m.collect(v)
	if err != nil {
		return nil, err
	}
	if items, err = m.sorted(items, key, false); err != nil {
		return nil, err
	}
	keys, err := m.mapKeys(items, key)
	if err != nil {
		return nil, err
	}
	groups := &list{items: []Value{}}
	for from := 0; from < len(items); {
		to := from + 1
		for ; to < len(items); to++ {
			if ok, err := m.equal(keys[from], keys[to]); err != nil {
				return nil, err
			} else if !ok {
				break
			}
		}
		name, err := m.follow(items[from], path(p[0]), other)
		if err != nil {
			return nil, err
		}
		groups.items = append(groups.items, &tuple{items: []Value{name, &list{items: items[from:to:to]}}, names: groupNames})
		from = to
	}
	return groups, m.allocItems(8 * len(groups.items))
}

var groupNames = []string{"grouper", "list"}
