package jinja

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

// testSame returns Python's is. Equal numbers and strings of one type are the same, which in Python depends on how they
// came about.
func testSame(r *rendering, v Value, p []Value) Value {
	if hasIdentity(v) {
		return boolean(same(v, p[0]))
	}
	return boolean(v.kind() == p[0].kind() && equal(r, v, p[0]))
}

// isNamed reports whether v names a filter or test that is supported.
func isNamed(r *rendering, table map[string]*builtin, v Value) Value {
	mustHash(r, v)
	s, ok := v.(str)
	b := table[s.s]
	return boolean(ok && b != nil && !b.absent)
}
