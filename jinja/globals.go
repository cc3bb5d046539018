package jinja

// maxRange is the longest range that Jinja2's sandbox allows.
const maxRange = 100000

// globalTable makes the functions that every template finds.
func globalTable() map[string]Value {
	table := map[string]Value{}
	for name, call := range map[string]func(r *rendering, a *args) Value{
		"range": makeRange,
		"dict":  func(r *rendering, a *args) Value { return makeDict(r, "dict", a) },
		"namespace": func(r *rendering, a *args) Value {
			return &namespace{makeDict(r, "namespace", a)}
		},
		"joiner": makeJoiner,
		"cycler": func(*rendering, *args) Value { panic(unsupported("the function 'cycler'")) },
		"lipsum": func(*rendering, *args) Value { panic(unsupported("the function 'lipsum'")) },
	} {
		table[name] = &function{name: name, call: call}
	}
	return table
}

var (
	rangeParams  = &builtin{name: "range", params: parseParams("a b? c=1 /")}
	joinerParams = &builtin{name: "joiner", params: parseParams("sep?")}
)

func makeRange(_ *rendering, a *args) Value {
	p := rangeParams.bind(a)
	if p[1] == nil {
		p[0], p[1] = integer(0), p[0]
	}
	v := &rangeValue{int64(toInt(p[0])), int64(toInt(p[1])), int64(toInt(p[2]))}
	if v.step == 0 {
		panic(valueError("range() arg 3 must not be zero"))
	}
	const most = 1 << 62
	if max(v.start, v.stop, v.step) > most || min(v.start, v.stop, v.step) < -most || v.length() > maxRange {
		panic(valueError("Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", maxRange))
	}
	return v
}

// makeDict returns dict(mapping or pairs, name=value, ...).
func makeDict(r *rendering, function string, a *args) *Dict {
	if len(a.pos) > 1 {
		panic(typeError("%s expected at most 1 argument, got %d", function, len(a.pos)))
	}
	d := NewDict()
	for _, v := range a.pos {
		need(v)
		if from, ok := v.(*Dict); ok {
			d = copyDict(r, from)
			continue
		}
		for _, pair := range collect(r, v) {
			both := unpack(r, pair, 2)
			put(r, d, both[0], both[1])
		}
	}
	for i := range a.kw.Len() {
		put(r, d, a.kw.keys[i], a.kw.values[i])
	}
	return d
}

// makeJoiner returns a function that gives nothing the first time, then a separator.
func makeJoiner(_ *rendering, a *args) Value {
	sep, used := or(joinerParams.bind(a)[0], plain(", ")), false
	return &function{name: "joiner", call: func(*rendering, *args) Value {
		if !used {
			used = true
			return str{}
		}
		return sep
	}}
}
