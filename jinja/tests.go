package jinja

// A testFunc is v is name(arguments).
type testFunc func(m *machine, v Value, a *args) (bool, error)

// tests are Jinja2's, which setTests sets: one of them asks for them.
var tests map[string]testFunc

func setTests() {
	relation := func(op string) testFunc {
		return func(m *machine, v Value, a *args) (bool, error) {
			p, err := a.bind(op, oneParam)
			if err != nil {
				return false, err
			}
			return m.relation(op, v, p[0])
		}
	}
	eq, ne, lt, le, gt, ge := relation("=="), relation("!="), relation("<"), relation("<="), relation(">"), relation(">=")
	tests = map[string]testFunc{
		"==": eq, "eq": eq, "equalto": eq, "!=": ne, "ne": ne,
		"<": lt, "lt": lt, "lessthan": lt, "<=": le, "le": le,
		">": gt, "gt": gt, "greaterthan": gt, ">=": ge, "ge": ge,
		"in":          takes("in", "name", testIn),
		"even":        remainder(2, 0),
		"odd":         remainder(2, 1),
		"divisibleby": takes("divisibleby", "num", testDivisible),
		"sameas":      takes("sameas", "other", testSame),
		"defined":     kindTest(func(v Value) bool { _, ok := v.(*undefined); return !ok }),
		"undefined":   kindTest(func(v Value) bool { _, ok := v.(*undefined); return ok }),
		"none":        kindTest(func(v Value) bool { return isNone(v) }),
		"boolean":     kindTest(func(v Value) bool { _, ok := v.(boolean); return ok }),
		"true":        kindTest(func(v Value) bool { b, ok := v.(boolean); return ok && bool(b) }),
		"false":       kindTest(func(v Value) bool { b, ok := v.(boolean); return ok && !bool(b) }),
		"integer":     kindTest(func(v Value) bool { _, ok := v.(integer); return ok }),
		"float":       kindTest(func(v Value) bool { _, ok := v.(float); return ok }),
		"number":      kindTest(func(v Value) bool { _, ok := numberOf(v); return ok }),
		"string":      kindTest(func(v Value) bool { _, ok := v.(str); return ok }),
		"escaped":     kindTest(func(v Value) bool { s, ok := v.(str); return ok && s.safe }),
		"mapping":     kindTest(func(v Value) bool { _, ok := v.(*Dict); return ok }),
		"sequence":    kindTest(isSequence),
		"iterable":    kindTest(isIterable),
		"callable":    kindTest(isCallable),
		"lower":       caseTest(isLowerText),
		"upper":       caseTest(isUpperText),
		"filter":      nameTest(func(name string) bool { _, ok := filters[name]; return ok }),
		"test":        nameTest(func(name string) bool { _, ok := tests[name]; return ok }),
	}
}

// isTest is v is name(a).
func (m *machine) isTest(name string, v Value, a *args) (bool, error) {
	f, ok := tests[name]
	if !ok {
		return false, errorf(KindRuntime, "No test named '%s' found.", name)
	}
	if err := m.step(1); err != nil {
		return false, err
	}
	return f(m, v, a)
}

func isNone(v Value) bool { _, ok := v.(none); return ok }

func kindTest(f func(Value) bool) testFunc {
	return func(_ *machine, v Value, a *args) (bool, error) {
		_, err := a.bind("test", noParams)
		return f(v), err
	}
}

// isSequence reports whether v has a length and items.
func isSequence(v Value) bool {
	switch v.(type) {
	case str, *list, *tuple, *Dict, *rangeValue, *undefined:
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

func caseTest(f func(string) bool) testFunc {
	return takes("test", "", func(m *machine, v Value, _ []Value) (bool, error) {
		s, err := m.str(v)
		if err != nil {
			return false, err
		}
		return f(s.s), m.step(len(s.s) / 8)
	})
}

// nameTest asks whether v names something.
func nameTest(f func(string) bool) testFunc {
	return takes("test", "", func(m *machine, v Value, _ []Value) (bool, error) {
		if _, err := m.hash(v); err != nil {
			return false, err
		}
		s, ok := v.(str)
		return ok && f(s.s), nil
	})
}

func testIn(m *machine, v Value, p []Value) (bool, error) {
	return m.contains(p[0], v)
}

func remainder(by, want int64) testFunc {
	return takes("test", "", func(m *machine, v Value, _ []Value) (bool, error) {
		return m.leaves(v, Int(by), want)
	})
}

// leaves is v % by == want.
func (m *machine) leaves(v, by Value, want int64) (bool, error) {
	r, err := m.binary("%", v, by)
	if err != nil {
		return false, err
	}
	return m.equal(r, Int(want))
}

func testDivisible(m *machine, v Value, p []Value) (bool, error) {
	return m.leaves(v, p[0], 0)
}

// testSame is Python's is. Equal numbers and strings of one type are the same,
// which in Python depends on how they came about.
func testSame(m *machine, v Value, p []Value) (bool, error) {
	switch v.(type) {
	case str, none, boolean, integer, float:
		if v.kind() != p[0].kind() {
			return false, nil
		}
		return m.equal(v, p[0])
	}
	return same(v, p[0]), nil
}
