package jinja

// maxRange is the longest range that Jinja2's sandbox allows.
const maxRange = 100000

type (
	// cycler gives its items in turn.
	cycler struct {
		items []Value
		at    int
	}

	// joiner gives nothing the first time, then a separator.
	joiner struct {
		sep  Value
		used bool
	}
)

func (*cycler) kind() string { return "Cycler" }
func (*joiner) kind() string { return "Joiner" }

// globals are the functions that every template finds.
var globals map[string]Value

func setGlobals() {
	globals = map[string]Value{
		"range":     &function{name: "range", class: "type", fn: makeRange},
		"dict":      &function{name: "dict", class: "type", fn: func(m *machine, a *args) (Value, error) { return m.makeDict("dict", a) }},
		"namespace": &function{name: "namespace", class: "type", fn: makeNamespace},
		"cycler":    &function{name: "cycler", class: "type", fn: makeCycler},
		"joiner":    &function{name: "joiner", class: "type", fn: makeJoiner},
		"lipsum": &function{name: "lipsum", class: "function", fn: func(*machine, *args) (Value, error) {
			return nil, errorf(KindRuntime, "lipsum is not supported")
		}},
	}
}

var rangeParams = params("a b? c? /")

func makeRange(_ *machine, a *args) (Value, error) {
	p, err := a.bind("range", rangeParams)
	if err != nil {
		return nil, err
	}
	n := [3]int64{0, 0, 1}
	for i, v := range p {
		if v == nil {
			continue
		}
		x, ok := intOf(v)
		if !ok {
			return nil, typeError("'%s' object cannot be interpreted as an integer", v.kind())
		}
		if x.big != nil || x.small > 1<<62 || x.small < -1<<62 {
			return nil, valueError("Python int too large to convert to C ssize_t")
		}
		n[i] = x.small
	}
	if p[1] == nil {
		n[0], n[1] = 0, n[0]
	}
	if n[2] == 0 {
		return nil, valueError("range() arg 3 must not be zero")
	}
	r := &rangeValue{n[0], n[1], n[2]}
	if r.length() > maxRange {
		return nil, valueError("Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", maxRange)
	}
	return r, nil
}

// makeDict is dict(mapping or pairs, name=value, ...).
func (m *machine) makeDict(function string, a *args) (*Dict, error) {
	if len(a.pos) > 1 {
		return nil, typeError("%s expected at most 1 argument, got %d", function, len(a.pos))
	}
	d := newDict()
	for _, v := range a.pos {
		switch v := v.(type) {
		case *Dict:
			c, err := m.copyDict(v)
			if err != nil {
				return nil, err
			}
			d = c
		case *undefined:
			return nil, v.fail()
		default:
			if err := m.addPairs(d, v); err != nil {
				return nil, err
			}
		}
	}
	for i := range a.kw.Len() {
		if err := m.put(d, a.kw.keys[i], a.kw.values[i]); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (m *machine) addPairs(d *Dict, v Value) error {
	pairs, err := m.collect(v)
	if err != nil {
		return err
	}
	for _, pair := range pairs {
		both, err := m.unpack(pair, 2)
		if err != nil {
			return err
		}
		if err := m.put(d, both[0], both[1]); err != nil {
			return err
		}
	}
	return nil
}

func makeNamespace(m *machine, a *args) (Value, error) {
	d, err := m.makeDict("namespace", a)
	if err != nil {
		return nil, err
	}
	return &namespace{d}, nil
}

func makeCycler(m *machine, a *args) (Value, error) {
	if a.kw.Len() > 0 {
		return nil, typeError("Cycler.__init__() got an unexpected keyword argument")
	}
	if len(a.pos) == 0 {
		return nil, errorf(KindRuntime, "at least one item has to be provided")
	}
	return &cycler{items: a.pos}, nil
}

func (c *cycler) attribute(name string) Value {
	method := func(f func() Value) Value {
		return &function{name: name, class: "method", self: c, fn: func(_ *machine, a *args) (Value, error) {
			_, err := a.bind(name, noParams)
			return f(), err
		}}
	}
	switch name {
	case "items":
		return &tuple{items: c.items}
	case "pos":
		return Int(int64(c.at))
	case "current":
		return c.items[c.at]
	case "next":
		return method(func() Value {
			v := c.items[c.at]
			c.at = (c.at + 1) % len(c.items)
			return v
		})
	case "reset":
		return method(func() Value {
			c.at = 0
			return None
		})
	}
	return nil
}

var joinerParams = params("sep?")

func makeJoiner(_ *machine, a *args) (Value, error) {
	p, err := a.bind("Joiner", joinerParams)
	if err != nil {
		return nil, err
	}
	if p[0] == nil {
		p[0] = plain(", ")
	}
	return &joiner{sep: p[0]}, nil
}

func (j *joiner) call(a *args) (Value, error) {
	if _, err := a.bind("Joiner.__call__", noParams); err != nil {
		return nil, err
	}
	if !j.used {
		j.used = true
		return str{}, nil
	}
	return j.sep, nil
}

func (j *joiner) attribute(name string) Value {
	switch name {
	case "sep":
		return j.sep
	case "used":
		return boolean(j.used)
	}
	return nil
}
