package jinja

import "math/bits"

var (
	dictMutators = []string{"clear", "pop", "popitem", "setdefault", "update"}
	listMutators = []string{"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"}
)

var (
	noParams   = params("")
	oneParam   = params("x /")
	getParams  = params("key default? /")
	fromParams = params("iterable value? /")
	findParams = params("value start? stop? /")
)

var dictMethods map[string]method

func setDictMethods() {
	dictMethods = map[string]method{
		"get": func(m *machine, self Value, a *args) (Value, error) {
			p, err := a.bind("get", getParams)
			if err != nil {
				return nil, err
			}
			v, ok, err := m.find(self.(*Dict), p[0])
			if ok || err != nil {
				return v, err
			}
			if p[1] == nil {
				return None, nil
			}
			return p[1], nil
		},
		"items":  viewMethod("items"),
		"keys":   viewMethod("keys"),
		"values": viewMethod("values"),
		"copy": func(m *machine, self Value, a *args) (Value, error) {
			if _, err := a.bind("copy", noParams); err != nil {
				return nil, err
			}
			return m.copyDict(self.(*Dict))
		},
		"fromkeys": func(m *machine, _ Value, a *args) (Value, error) {
			p, err := a.bind("fromkeys", fromParams)
			if err != nil {
				return nil, err
			}
			keys, err := m.collect(p[0])
			if err != nil {
				return nil, err
			}
			if p[1] == nil {
				p[1] = None
			}
			d := newDict()
			for _, k := range keys {
				if err := m.put(d, k, p[1]); err != nil {
					return nil, err
				}
			}
			return d, nil
		},
	}
}

func viewMethod(what string) method {
	return func(_ *machine, self Value, a *args) (Value, error) {
		_, err := a.bind(what, noParams)
		return &view{self.(*Dict), what}, err
	}
}

var listMethods map[string]method

func setListMethods() {
	listMethods = map[string]method{
		"copy": func(m *machine, self Value, a *args) (Value, error) {
			if _, err := a.bind("copy", noParams); err != nil {
				return nil, err
			}
			items, err := m.joined(self.(*list).items, nil)
			return &list{items: items}, err
		},
		"count": takes("count", "x /", countItems),
		"index": takes("index", "value start? stop? /", indexItem),
	}
}

var tupleMethods map[string]method

func setTupleMethods() {
	tupleMethods = map[string]method{"count": takes("count", "x /", countItems), "index": takes("index", "value start? stop? /", indexItem)}
}

// rangeMethods look through the numbers, of which there are few.
var rangeMethods map[string]method

func setRangeMethods() {
	rangeMethods = map[string]method{
		"count": overRange("count", takes("count", "x /", countItems)),
		"index": overRange("index", takes("index", "value start? stop? /", indexItem)),
	}
}

func overRange(name string, f method) method {
	return func(m *machine, self Value, a *args) (Value, error) {
		if _, err := a.bind(name, oneParam); err != nil {
			return nil, err
		}
		items, err := m.collect(self)
		if err != nil {
			return nil, err
		}
		v, err := f(m, &list{items: items}, a)
		if is(err, KindValue) {
			err = valueError("%s is not in range", brief(a.pos[0]))
		}
		return v, err
	}
}

func itemsOf(v Value) []Value {
	switch v := v.(type) {
	case *list:
		return v.items
	case *tuple:
		return v.items
	}
	return nil
}

func countItems(m *machine, self Value, p []Value) (Value, error) {
	n := int64(0)
	for _, x := range itemsOf(self) {
		ok, err := m.equal(x, p[0])
		if err != nil {
			return nil, err
		}
		if ok || same(x, p[0]) {
			n++
		}
	}
	return Int(n), nil
}

func indexItem(m *machine, self Value, p []Value) (Value, error) {
	items := itemsOf(self)
	from, to, err := window(len(items), p[1], p[2])
	if err != nil {
		return nil, err
	}
	for i := from; i < to; i++ {
		ok, err := m.equal(items[i], p[0])
		if err != nil {
			return nil, err
		}
		if ok || same(items[i], p[0]) {
			return Int(int64(i)), nil
		}
	}
	return nil, valueError("%s is not in %s", brief(p[0]), self.kind())
}

// window is [start:stop] of n items, where nil and None are the ends.
func window(n int, start, stop Value) (from, to int, err error) {
	if start == nil {
		start = None
	}
	if stop == nil {
		stop = None
	}
	from, count, _, err := sliceIndices(n, start, stop, None)
	if i, ok := intOf(start); ok && count == 0 && i.big == nil && i.small > int64(n) {
		return n + 1, n, err // beyond the end not even an empty string is found
	}
	return from, from + count, err
}

func numberAttribute(v Value, name string) Value {
	n, _ := numberOf(v)
	self := func(x Value) Value {
		return &function{name: name, class: "builtin_function_or_method", fn: func(_ *machine, a *args) (Value, error) {
			_, err := a.bind(name, noParams)
			return x, err
		}}
	}
	plainNumber := Value(n.i)
	if n.isFloat {
		plainNumber = v
	}
	switch name {
	case "real":
		return plainNumber
	case "imag":
		if n.isFloat {
			return float(0)
		}
		return Int(0)
	case "conjugate":
		return self(plainNumber)
	}
	switch {
	case n.isFloat && name == "is_integer":
		i, err := truncate(n.f)
		if err != nil {
			return self(boolean(false))
		}
		c, _ := compareNumbers(n, number{i: i})
		return self(boolean(c == 0))
	case !n.isFloat && name == "numerator":
		return plainNumber
	case !n.isFloat && name == "denominator":
		return Int(1)
	case !n.isFloat && name == "bit_length":
		return self(Int(int64(n.i.bits())))
	case !n.isFloat && name == "bit_count":
		count := 0
		for _, w := range n.i.wide().Bits() {
			count += bits.OnesCount(uint(w))
		}
		return self(Int(int64(count)))
	}
	return nil
}

func (r *rangeValue) attribute(name string) Value {
	switch name {
	case "start":
		return Int(r.start)
	case "stop":
		return Int(r.stop)
	case "step":
		return Int(r.step)
	}
	return nil
}
