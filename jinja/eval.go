package jinja

import "math"

func (x *nameExpr) eval(m *machine, e *env) (Value, error) {
	if err := m.step(1); err != nil {
		return nil, at(err, x.line)
	}
	if m.folding {
		return nil, notConstant()
	}
	if v := *e.at(x.ref); v != nil {
		return v, nil
	}
	return undefinedName(x.name), nil
}

// notConstant ends an attempt to fold.
func notConstant() error { return errorf(KindRuntime, "not a constant") }

func (x *constExpr) eval(m *machine, _ *env) (Value, error) { return x.v, m.step(1) }

func (m *machine) all(items []expr, e *env) ([]Value, error) {
	if err := m.allocItems(len(items)); err != nil {
		return nil, err
	}
	values := make([]Value, len(items))
	for i, x := range items {
		v, err := x.eval(m, e)
		if err != nil {
			return nil, err
		}
		values[i] = v
	}
	return values, nil
}

func (x *tupleExpr) eval(m *machine, e *env) (Value, error) {
	items, err := m.all(x.items, e)
	if err != nil {
		return nil, err
	}
	return &tuple{items: items}, nil
}

func (x *listExpr) eval(m *machine, e *env) (Value, error) {
	items, err := m.all(x.items, e)
	if err != nil {
		return nil, err
	}
	return &list{items: items}, nil
}

func (x *dictExpr) eval(m *machine, e *env) (Value, error) {
	d := newDict()
	for i := 0; i < len(x.items); i += 2 {
		k, err := x.items[i].eval(m, e)
		if err != nil {
			return nil, err
		}
		v, err := x.items[i+1].eval(m, e)
		if err != nil {
			return nil, err
		}
		if err := m.put(d, k, v); err != nil {
			return nil, err
		}
	}
	return d, m.step(1)
}

func (x *condExpr) eval(m *machine, e *env) (Value, error) {
	ok, err := m.test(x.test, e)
	switch {
	case err != nil:
		return nil, at(err, x.line)
	case ok:
		return x.then.eval(m, e)
	case x.els != nil:
		return x.els.eval(m, e)
	case m.folding:
		return nil, notConstant()
	}
	return &undefined{hint: "the inline if-expression on line " + scalarText(Int(int64(x.line))) +
		" evaluated to false and no else section was defined."}, nil
}

func (x *logicExpr) eval(m *machine, e *env) (Value, error) {
	v, err := x.left.eval(m, e)
	if err != nil {
		return nil, err
	}
	ok, err := m.truth(v)
	if err != nil || ok == x.or {
		return v, err
	}
	return x.right.eval(m, e)
}

func (x *notExpr) eval(m *machine, e *env) (Value, error) {
	ok, err := m.test(x.x, e)
	return boolean(!ok), err
}

func (x *signExpr) eval(m *machine, e *env) (Value, error) {
	v, err := x.x.eval(m, e)
	if err == nil {
		v, err = m.signed(x.op, v)
	}
	return v, at(err, x.line)
}

func (m *machine) signed(op string, v Value) (Value, error) {
	if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	n, ok := numberOf(v)
	switch {
	case !ok:
		return nil, typeError("bad operand type for unary %s: '%s'", op, v.kind())
	case n.isFloat && op == "-":
		return float(-n.f), nil
	case n.isFloat:
		return v, nil
	case op == "-":
		return m.intArith("-", integer{}, n.i)
	}
	return n.i, nil
}

func (x *binaryExpr) eval(m *machine, e *env) (Value, error) {
	a, err := x.left.eval(m, e)
	if err != nil {
		return nil, err
	}
	b, err := x.right.eval(m, e)
	if err != nil {
		return nil, err
	}
	if err := m.step(1); err != nil {
		return nil, at(err, x.line)
	}
	v, err := m.binary(x.op, a, b)
	return v, at(err, x.line)
}

// binary is a op b for + - * / // % **.
func (m *machine) binary(op string, a, b Value) (Value, error) {
	x, ok1 := numberOf(a)
	y, ok2 := numberOf(b)
	if ok1 && ok2 {
		switch op {
		case "/":
			return divide(x, y)
		case "**":
			return m.power(x, y)
		}
		return m.arith(op, x, y)
	}
	if s, ok := a.(str); ok && op == "%" {
		return m.percent(s, b)
	}
	if u, ok := firstUndefined(a, b); ok {
		return nil, u.fail()
	}
	switch op {
	case "+":
		return m.add(a, b)
	case "*":
		if n, ok := intOf(b); ok {
			return m.repeat(a, n)
		}
		if n, ok := intOf(a); ok {
			return m.repeat(b, n)
		}
	case "%":
		if s, ok := b.(str); ok && s.safe {
			break
		}
	}
	return nil, unsupported(op, a, b)
}

func unsupported(op string, a, b Value) error {
	if op == "**" {
		op = "** or pow()"
	}
	return typeError("unsupported operand type(s) for %s: '%s' and '%s'", op, a.kind(), b.kind())
}

// add is a + b for values that are not numbers.
func (m *machine) add(a, b Value) (Value, error) {
	switch x := a.(type) {
	case str:
		y, ok := b.(str)
		if !ok && x.safe {
			return nil, unsupported("+", a, b)
		}
		if !ok {
			return nil, typeError(`can only concatenate str (not "%s") to str`, b.kind())
		}
		return m.concat(x, y)
	case *list:
		y, ok := b.(*list)
		if !ok {
			return nil, typeError(`can only concatenate list (not "%s") to list`, b.kind())
		}
		items, err := m.joined(x.items, y.items)
		return &list{items: items}, err
	case *tuple:
		y, ok := b.(*tuple)
		if !ok {
			return nil, typeError(`can only concatenate tuple (not "%s") to tuple`, b.kind())
		}
		items, err := m.joined(x.items, y.items)
		return &tuple{items: items}, err
	}
	return nil, unsupported("+", a, b)
}

func (m *machine) joined(a, b []Value) ([]Value, error) {
	if err := m.allocItems(len(a) + len(b)); err != nil {
		return nil, err
	}
	return append(append(make([]Value, 0, len(a)+len(b)), a...), b...), nil
}

// repeat is v * n of a sequence.
func (m *machine) repeat(v Value, n integer) (Value, error) {
	times, err := indexOf(n)
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case str:
		t := m.text()
		t.repeat(v, times)
		s, err := t.str()
		s.safe = v.safe
		return s, err
	case *list:
		items, err := m.repeated(v.items, times)
		return &list{items: items}, err
	case *tuple:
		items, err := m.repeated(v.items, times)
		return &tuple{items: items}, err
	}
	return nil, unsupported("*", v, n)
}

func (m *machine) repeated(items []Value, n int) ([]Value, error) {
	if n <= 0 || len(items) == 0 {
		return []Value{}, nil
	}
	if n > math.MaxInt32 {
		n = math.MaxInt32
	}
	if err := m.allocItems(len(items) * n); err != nil {
		return nil, err
	}
	all := make([]Value, 0, len(items)*n)
	for range n {
		all = append(all, items...)
	}
	return all, nil
}

func (x *concatExpr) eval(m *machine, e *env) (Value, error) {
	items, err := m.all(x.items, e)
	if err != nil {
		return nil, err
	}
	first, err := m.str(items[0])
	if err != nil {
		return nil, err
	}
	t := m.continued(first)
	for _, v := range items[1:] {
		s, err := m.str(v)
		if err != nil {
			return nil, err
		}
		t.add(s)
	}
	s, err := t.str()
	return s, err
}

func (x *compareExpr) eval(m *machine, e *env) (Value, error) {
	a, err := x.x.eval(m, e)
	if err != nil {
		return nil, err
	}
	for i, op := range x.ops {
		b, err := x.ys[i].eval(m, e)
		if err != nil {
			return nil, err
		}
		ok, err := m.relation(op, a, b)
		if err != nil {
			return nil, at(err, x.line)
		}
		if !ok {
			return boolean(false), nil
		}
		a = b
	}
	return boolean(true), m.step(1)
}

func (m *machine) relation(op string, a, b Value) (bool, error) {
	switch op {
	case "==":
		return m.equal(a, b)
	case "!=":
		ok, err := m.equal(a, b)
		return !ok, err
	case "in":
		return m.contains(b, a)
	case "not in":
		ok, err := m.contains(b, a)
		return !ok, err
	}
	return m.compare(op, a, b)
}

func (x *attrExpr) eval(m *machine, e *env) (Value, error) {
	v, err := x.x.eval(m, e)
	if err == nil {
		v, err = m.getattr(v, x.name)
	}
	return v, at(err, x.line)
}

func (x *itemExpr) eval(m *machine, e *env) (Value, error) {
	v, err := x.x.eval(m, e)
	if err != nil {
		return nil, err
	}
	i, err := x.index.eval(m, e)
	if err == nil {
		v, err = m.getitem(v, i)
	}
	return v, at(err, x.line)
}

func (x *sliceExpr) eval(m *machine, e *env) (Value, error) {
	v, err := x.x.eval(m, e)
	if err != nil {
		return nil, err
	}
	parts := make([]Value, 3)
	for i, p := range []expr{x.start, x.stop, x.step} {
		if parts[i] = None; p != nil {
			if parts[i], err = p.eval(m, e); err != nil {
				return nil, err
			}
		}
	}
	s, err := m.slice(v, parts[0], parts[1], parts[2])
	if m.folding && is(err, KindType, KindLookup) {
		return &undefined{owner: v, name: None}, nil // the compiler asks like x[i]
	}
	return s, at(err, x.line)
}

func (x *filterExpr) eval(m *machine, e *env) (Value, error) {
	v, err := x.x.eval(m, e)
	if err != nil {
		return nil, err
	}
	if m.folding && filters[x.name].lazy {
		return nil, notConstant()
	}
	return x.apply(m, v, e)
}

// apply is the filter's result for v.
func (x *filterExpr) apply(m *machine, v Value, e *env) (Value, error) {
	a, err := m.arguments(&x.args, e)
	if err == nil {
		v, err = m.filter(x.name, v, a)
	}
	return v, at(err, x.line)
}

// filterText applies the filters of a block to its text.
func (m *machine) filterText(x expr, s str, e *env) (Value, error) {
	f := x.(*filterExpr)
	if f.x == nil {
		return f.apply(m, s, e)
	}
	v, err := m.filterText(f.x, s, e)
	if err != nil {
		return nil, err
	}
	return f.apply(m, v, e)
}

func (x *testExpr) eval(m *machine, e *env) (Value, error) {
	v, err := x.x.eval(m, e)
	if err != nil {
		return nil, err
	}
	a, err := m.arguments(&x.args, e)
	if err != nil {
		return nil, at(err, x.line)
	}
	ok, err := m.isTest(x.name, v, a)
	return boolean(ok), at(err, x.line)
}

// eval computes constants as Jinja2's compiler does, where a slice of what has
// none is undefined; if that fails, x is code like any other. Constants that
// Python's source cannot spell are errors.
func (x *foldExpr) eval(m *machine, e *env) (Value, error) {
	if m.folding {
		return x.x.eval(m, e)
	}
	m.folding = true
	v, err := x.x.eval(m, e)
	m.folding = false
	switch {
	case is(err, KindLimit, KindCanceled):
		return nil, at(err, x.line)
	case err != nil:
		return x.x.eval(m, e)
	case x.output:
		return v, nil
	}
	switch err := safeRepr(v); {
	case is(err, KindRuntime):
		return nil, at(err, x.line)
	case err != nil:
		return x.x.eval(m, e)
	}
	return v, nil
}

// safeRepr reports whether a constant can be written as Python source: nil if it
// can, KindRuntime if it makes wrong source, KindType if it is not tried.
func safeRepr(v Value) error {
	switch v := v.(type) {
	case none, boolean, str:
		return nil
	case integer:
		_, err := v.text()
		if err != nil {
			return errorf(KindRuntime, "%v", err)
		}
		return nil
	case float:
		if math.IsInf(float64(v), 0) || math.IsNaN(float64(v)) {
			return errorf(KindRuntime, "name '%s' is not defined", formatFloat(float64(v)))
		}
		return nil
	case *list:
		return safeReprs(v.items)
	case *tuple:
		if v.names == nil {
			return safeReprs(v.items)
		}
	case *Dict:
		if err := safeReprs(v.keys); err != nil {
			return err
		}
		return safeReprs(v.values)
	}
	return typeError("not a constant")
}

func safeReprs(items []Value) error {
	var wrong error
	for _, x := range items {
		if err := safeRepr(x); is(err, KindType) {
			return err
		} else if err != nil {
			wrong = err
		}
	}
	return wrong
}
