package jinja

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// args are the arguments of a call.
type args struct {
	pos []Value
	kw  *Dict // nil without arguments by name
}

// argExprs are the arguments of a call in the template.
type argExprs struct {
	pos        []expr
	names      []string // names of named
	named      []expr
	rest, dict expr // *rest, **dict; may be nil
}

// arguments evaluates the arguments of a call.
func arguments(r *rendering, s *scope, x *argExprs) *args {
	a := &args{pos: evalAll(r, s, x.pos)}
	if x.rest != nil {
		a.pos = append(a.pos, collect(r, x.rest.eval(r, s))...)
	}
	r.allocItems(dictItem * len(x.named))
	for i, p := range x.named {
		a.name(x.names[i], p.eval(r, s))
	}
	if x.dict != nil {
		a.addNamed(r, x.dict.eval(r, s))
	}
	return a
}

func (a *args) name(name string, v Value) {
	if a.kw == nil {
		a.kw = NewDict()
	}
	a.kw.Set(name, v)
}

// addNamed adds **v.
func (a *args) addNamed(r *rendering, v Value) {
	d, ok := v.(*Dict)
	if !ok {
		panic(typeError("argument after ** must be a mapping, not %s", v.kind()))
	}
	r.allocItems(dictItem * d.Len())
	for i, k := range d.keys {
		s, ok := k.(str)
		if !ok {
			panic(typeError("keywords must be strings"))
		}
		if _, ok := a.kw.Get(s.s); ok {
			panic(typeError("got multiple values for keyword argument '%s'", s.s))
		}
		if a.kw == nil {
			a.kw = NewDict()
		}
		a.kw.put(d.hashes[i], s.unsafe(), d.values[i]) // with the marks of the key
	}
}

// without returns the arguments after the first.
func (a *args) without() *args { return &args{pos: slices.Clone(a.pos[1:]), kw: a.kw} }

// A builtin is a filter, a test, a method or a global function.
type builtin struct {
	name   string
	params []param
	fn     func(r *rendering, v Value, p []Value) Value
	raw    func(r *rendering, v Value, a *args) Value // in place of params and fn
	absent bool                                       // not supported
}

// A param is a parameter of a builtin.
type param struct {
	name     string // "" for a parameter by position alone
	missing  Value  // default, or nil
	required bool
}

// A row of a table has the name of a builtin, its parameters and its function of the value v and the arguments p.
// Parameters are names with a default, as in "width=4 first=false"; a question mark is a default of nil, and names
// before a slash are given by position alone. A row without a function is not supported.
type row struct {
	name, params string
	fn           func(r *rendering, v Value, p []Value) Value
}

// tabulate makes a table of rows. Errors name a row by the format called what.
func tabulate(what string, rows []row) map[string]*builtin {
	table := map[string]*builtin{}
	for _, w := range rows {
		b := &builtin{name: w.name, params: parseParams(w.params), fn: w.fn}
		if w.fn == nil {
			b.name, b.absent = fmt.Sprintf(what, w.name), true
		}
		table[w.name] = b
	}
	return table
}

func parseParams(list string) []param {
	var all []param
	for _, f := range strings.Fields(list) {
		if f == "/" {
			for i := range all {
				all[i].name = ""
			}
			continue
		}
		name, literal, ok := strings.Cut(f, "=")
		name, nothing := strings.CutSuffix(name, "?")
		p := param{name: name, required: !ok && !nothing}
		switch {
		case !ok:
		case literal == "true" || literal == "false":
			p.missing = boolean(literal == "true")
		case literal == "none":
			p.missing = None
		case literal[0] == '\'':
			p.missing = unmarked(strings.Trim(literal, "'"))
		default:
			n, _ := strconv.Atoi(literal)
			p.missing = integer(n)
		}
		all = append(all, p)
	}
	return all
}

// call returns the builtin's result for v.
func (b *builtin) call(r *rendering, v Value, a *args) Value {
	r.step(1)
	if b.absent {
		panic(unsupported("%s", b.name))
	}
	if b.raw != nil {
		return b.raw(r, v, a)
	}
	return b.fn(r, v, b.bind(a))
}

// bind returns the arguments in the order of the parameters.
func (b *builtin) bind(a *args) []Value {
	if len(a.pos) > len(b.params) {
		panic(typeError("%s() takes at most %d arguments (%d given)", b.name, len(b.params), len(a.pos)))
	}
	values := make([]Value, len(b.params))
	copy(values, a.pos)
	for i := range a.kw.Len() {
		name := a.kw.keys[i].(str).s
		at := slices.IndexFunc(b.params, func(p param) bool { return p.name == name && name != "" })
		switch {
		case at < 0:
			panic(typeError("%s() got an unexpected keyword argument '%s'", b.name, name))
		case at < len(a.pos):
			panic(typeError("%s() got multiple values for argument '%s'", b.name, name))
		}
		values[at] = a.kw.values[i]
	}
	for i, p := range b.params {
		if values[i] == nil && p.required {
			panic(typeError("%s() missing required argument '%s' (pos %d)", b.name, p.name, i+1))
		}
		values[i] = or(values[i], p.missing)
	}
	return values
}

// bound returns the method of v.
func (b *builtin) bound(v Value) Value {
	if b.absent {
		panic(unsupported("%s", b.name))
	}
	return &function{name: b.name, self: v, call: func(r *rendering, a *args) Value { return b.call(r, v, a) }}
}

// textArg returns an argument that must be a string.
func textArg(function string, v Value) str {
	s, ok := v.(str)
	if !ok {
		panic(typeError("%s argument must be str, not %s", function, v.kind()))
	}
	return s
}

// The tables of builtins. Parse makes the tables, so that a program that parses no template links none of the
// functions.
var (
	filters, tests map[string]*builtin
	methods        map[string]map[string]*builtin // by the kind of the owner
	globals        map[string]Value
)

func makeTables() {
	filters = tabulate("the filter '%s'", filterRows())
	for _, w := range []struct {
		name string
		fn   func(r *rendering, v Value, a *args) Value
	}{
		{"map", filterMap}, {"select", selector(true, false)}, {"reject", selector(false, false)},
		{"selectattr", selector(true, true)}, {"rejectattr", selector(false, true)}, {"format", filterFormat},
	} {
		filters[w.name] = &builtin{name: w.name, raw: w.fn}
	}
	tests = tabulate("the test '%s'", testRows())
	methods = methodTables()
	globals = globalTable()
}

// filter returns v | name(a).
func filter(r *rendering, name string, v Value, a *args) Value {
	f, ok := filters[name]
	if !ok {
		panic(errorf(KindRuntime, "No filter named '%s' found.", name))
	}
	r.watchArgs(v, a)
	return f.call(r, v, a)
}

// isTest returns v is name(a).
func isTest(r *rendering, name string, v Value, a *args) bool {
	f, ok := tests[name]
	if !ok {
		panic(errorf(KindRuntime, "No test named '%s' found.", name))
	}
	return bool(f.call(r, v, a).(boolean))
}

// watchArgs reports the arguments of a method or a filter of v to Options.Watch.
func (r *rendering) watchArgs(v Value, a *args) {
	if r.opt.Watch == nil {
		return
	}
	r.watchAll(v, a.pos)
	if a.kw != nil {
		r.watchAll(v, a.kw.values)
	}
}

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
	sep, used := or(joinerParams.bind(a)[0], unmarked(", ")), false
	return &function{name: "joiner", call: func(*rendering, *args) Value {
		if !used {
			used = true
			return str{}
		}
		return sep
	}}
}

func testRows() []row {
	relations := func(op string) func(*rendering, Value, []Value) Value {
		return func(r *rendering, v Value, p []Value) Value { return boolean(relation(r, op, v, p[0])) }
	}
	var rows []row
	for op, names := range map[string][]string{
		"==": {"==", "eq", "equalto"}, "!=": {"!=", "ne"}, "<": {"<", "lt", "lessthan"}, "<=": {"<=", "le"},
		">": {">", "gt", "greaterthan"}, ">=": {">=", "ge"}, "in": {"in"},
	} {
		for _, name := range names {
			rows = append(rows, row{name, "x /", relations(op)})
		}
	}
	for name, is := range map[string]func(Value) bool{
		"boolean":   func(v Value) bool { _, ok := v.(boolean); return ok },
		"callable":  isCallable,
		"defined":   func(v Value) bool { _, ok := v.(*undefined); return !ok },
		"escaped":   func(v Value) bool { s, ok := v.(str); return ok && s.safe },
		"false":     func(v Value) bool { return v == Bool(false) },
		"float":     func(v Value) bool { _, ok := v.(float); return ok },
		"integer":   func(v Value) bool { _, ok := v.(integer); return ok },
		"iterable":  isIterable,
		"mapping":   func(v Value) bool { _, ok := v.(*Dict); return ok },
		"none":      func(v Value) bool { _, ok := v.(none); return ok },
		"number":    func(v Value) bool { _, ok := numberOf(v); return ok },
		"sequence":  isSequence,
		"string":    func(v Value) bool { _, ok := v.(str); return ok },
		"true":      func(v Value) bool { return v == Bool(true) },
		"undefined": func(v Value) bool { _, ok := v.(*undefined); return ok },
	} {
		rows = append(rows, row{name, "", func(_ *rendering, v Value, _ []Value) Value { return boolean(is(v)) }})
	}
	return append(rows,
		row{"divisibleby", "num", func(r *rendering, v Value, p []Value) Value { return leaves(r, v, p[0], 0) }},
		row{"even", "", func(r *rendering, v Value, _ []Value) Value { return leaves(r, v, integer(2), 0) }},
		row{"odd", "", func(r *rendering, v Value, _ []Value) Value { return leaves(r, v, integer(2), 1) }},
		row{"lower", "", caseTest(isLowerText)},
		row{"upper", "", caseTest(isUpperText)},
		row{"sameas", "other", testSame},
		row{"filter", "", func(r *rendering, v Value, _ []Value) Value { return isNamed(r, filters, v) }},
		row{"test", "", func(r *rendering, v Value, _ []Value) Value { return isNamed(r, tests, v) }},
	)
}

func isCallable(v Value) bool {
	switch v.(type) {
	case *function, *macro, *loop, *undefined:
		return true
	}
	return false
}

// isSequence reports whether v has a length and items.
func isSequence(v Value) bool {
	switch v.(type) {
	case str, *list, *Dict, *rangeValue, *undefined:
		return true
	}
	return false
}

func isIterable(v Value) bool {
	switch v.(type) {
	case *view, *generator, *loop:
		return true
	}
	return isSequence(v)
}

func caseTest(is func(string) bool) func(*rendering, Value, []Value) Value {
	return func(r *rendering, v Value, _ []Value) Value {
		s := toStr(r, v)
		r.step(len(s.s) / 8)
		return boolean(is(s.s))
	}
}

// leaves returns v % by == want.
func leaves(r *rendering, v, by Value, want int64) Value {
	return boolean(equal(r, binary(r, "%", v, by), integer(want)))
}

// testSame returns Python's is. Equal numbers and strings of the same type are identical here; in Python their history
// decides.
func testSame(r *rendering, v Value, p []Value) Value {
	if hasIdentity(v) {
		return boolean(isIdentical(v, p[0]))
	}
	return boolean(v.kind() == p[0].kind() && equal(r, v, p[0]))
}

// isNamed reports whether v names a supported filter or test.
func isNamed(r *rendering, table map[string]*builtin, v Value) Value {
	mustHash(r, v)
	s, ok := v.(str)
	b := table[s.s]
	return boolean(ok && b != nil && !b.absent)
}
