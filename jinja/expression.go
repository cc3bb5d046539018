package jinja

import "slices"

// An expr is an expression; eval returns its value in a scope.
type expr interface {
	eval(r *rendering, s *scope) Value
}

type (
	nameExpr struct {
		name string
		id   int
		line int
	}

	constExpr struct{ v Value }

	listExpr struct {
		items []expr
		tuple bool
	}

	dictExpr struct{ items []expr } // key, value, key, value, ...

	condExpr struct {
		then, test, els expr // els may be nil
		line            int
	}

	logicExpr struct {
		or          bool
		left, right expr
	}

	notExpr struct{ x expr }

	signExpr struct {
		op   string
		x    expr
		line int
	}

	binaryExpr struct {
		op          string
		left, right expr
		line        int
	}

	concatExpr struct {
		items []expr
		line  int
	}

	// A compareExpr is x op[0] y[0] and y[0] op[1] y[1] ...
	compareExpr struct {
		x    expr
		ops  []string
		ys   []expr
		line int
	}

	attrExpr struct {
		x    expr
		name string
		line int
	}

	itemExpr struct {
		x, index expr
		line     int
	}

	// A sliceExpr is x[start:stop:step], whose parts may be nil.
	sliceExpr struct {
		x, start, stop, step expr
		line                 int
	}

	callExpr struct {
		f    expr
		args argExprs
		line int
	}

	filterExpr struct {
		x    expr
		name string
		args argExprs
		line int
	}

	testExpr struct {
		x    expr
		name string
		args argExprs
		line int
	}
)

func (x *nameExpr) eval(r *rendering, s *scope) Value {
	r.line = x.line
	r.step(1)
	if v := s.get(r, x.id); v != nil {
		return v
	}
	return &undefined{name: unmarked(x.name)}
}

func (x *constExpr) eval(r *rendering, _ *scope) Value {
	r.step(1)
	return x.v
}

func evalAll(r *rendering, s *scope, items []expr) []Value {
	r.allocItems(len(items))
	values := make([]Value, len(items))
	for i, x := range items {
		values[i] = x.eval(r, s)
	}
	return values
}

func (x *listExpr) eval(r *rendering, s *scope) Value { return &list{evalAll(r, s, x.items), x.tuple} }

func (x *dictExpr) eval(r *rendering, s *scope) Value {
	r.step(1)
	d := NewDict()
	for i := 0; i < len(x.items); i += 2 {
		k := x.items[i].eval(r, s)
		put(r, d, k, x.items[i+1].eval(r, s))
	}
	return d
}

func (x *condExpr) eval(r *rendering, s *scope) Value {
	switch {
	case test(r, s, x.test):
		return x.then.eval(r, s)
	case x.els != nil:
		return x.els.eval(r, s)
	}
	return &undefined{hint: "the inline if-expression on line " + scalarText(integer(x.line)) +
		" evaluated to false and no else section was defined."}
}

// test returns bool(x).
func test(r *rendering, s *scope, x expr) bool { return truth(r, x.eval(r, s)) }

func (x *logicExpr) eval(r *rendering, s *scope) Value {
	v := x.left.eval(r, s)
	if truth(r, v) == x.or {
		return v
	}
	return x.right.eval(r, s)
}

func (x *notExpr) eval(r *rendering, s *scope) Value { return boolean(!test(r, s, x.x)) }

func (x *signExpr) eval(r *rendering, s *scope) Value {
	v := x.x.eval(r, s)
	r.line = x.line
	need(v)
	n, ok := numberOf(v)
	switch {
	case !ok:
		panic(typeError("bad operand type for unary %s: '%s'", x.op, v.kind()))
	case n.isFloat && x.op == "-":
		return float(-n.f)
	case n.isFloat:
		return v
	case x.op == "-":
		return intArith("-", 0, n.i)
	}
	return integer(n.i)
}

func (x *binaryExpr) eval(r *rendering, s *scope) Value {
	a := x.left.eval(r, s)
	b := x.right.eval(r, s)
	r.line = x.line
	r.step(1)
	return binary(r, x.op, a, b)
}

// add returns a + b of values that are not numbers.
func add(r *rendering, a, b Value) Value {
	switch x := a.(type) {
	case str:
		y, ok := b.(str)
		if ok {
			return concat(r, x, y)
		}
		if !x.safe {
			panic(typeError(`can only concatenate str (not "%s") to str`, b.kind()))
		}
	case *list:
		y, ok := b.(*list)
		if !ok || x.tuple != y.tuple {
			panic(typeError(`can only concatenate %s (not "%s") to %[1]s`, a.kind(), b.kind()))
		}
		r.allocItems(len(x.items) + len(y.items))
		return &list{slices.Concat(x.items, y.items), x.tuple}
	}
	panic(misfit("+", a, b))
}

// repeat returns v * n of a sequence.
func repeat(r *rendering, v Value, n int64) Value {
	times := int(max(n, 0))
	switch v := v.(type) {
	case str:
		t := r.text()
		t.repeat(v, times)
		return t.strAs(v.safe)
	case *list:
		if len(v.items) == 0 {
			times = 0
		} else if times > r.memory/len(v.items) {
			r.alloc(-1)
		}
		r.allocItems(len(v.items) * times)
		return &list{slices.Repeat(v.items, times), v.tuple}
	}
	panic(misfit("*", v, integer(n)))
}

func (x *concatExpr) eval(r *rendering, s *scope) Value {
	items := evalAll(r, s, x.items)
	r.line = x.line
	t := r.continueText(toStr(r, items[0]))
	for _, v := range items[1:] {
		t.add(toStr(r, v))
	}
	return t.str()
}

func (x *compareExpr) eval(r *rendering, s *scope) Value {
	r.step(1)
	a := x.x.eval(r, s)
	for i, op := range x.ops {
		b := x.ys[i].eval(r, s)
		r.line = x.line
		if !relation(r, op, a, b) {
			return boolean(false)
		}
		a = b
	}
	return boolean(true)
}

func (x *attrExpr) eval(r *rendering, s *scope) Value {
	v := x.x.eval(r, s)
	r.line = x.line
	return getattr(r, v, x.name)
}

func (x *itemExpr) eval(r *rendering, s *scope) Value {
	v := x.x.eval(r, s)
	i := x.index.eval(r, s)
	r.line = x.line
	return getitem(r, v, i)
}

func (x *sliceExpr) eval(r *rendering, s *scope) Value {
	v := x.x.eval(r, s)
	parts := [3]Value{None, None, None}
	for i, p := range []expr{x.start, x.stop, x.step} {
		if p != nil {
			parts[i] = p.eval(r, s)
		}
	}
	r.line = x.line
	return slice(r, v, parts[0], parts[1], parts[2])
}

func (x *filterExpr) eval(r *rendering, s *scope) Value {
	v := x.x.eval(r, s)
	a := arguments(r, s, &x.args)
	r.line = x.line
	return filter(r, x.name, v, a)
}

func (x *testExpr) eval(r *rendering, s *scope) Value {
	v := x.x.eval(r, s)
	a := arguments(r, s, &x.args)
	r.line = x.line
	return boolean(isTest(r, x.name, v, a))
}

func (x *callExpr) eval(r *rendering, s *scope) Value { return x.with(r, s, nil) }

// with calls; caller is the macro of a call block, or nil.
func (x *callExpr) with(r *rendering, s *scope, caller Value) Value {
	f := x.f.eval(r, s)
	a := arguments(r, s, &x.args)
	r.line = x.line
	if caller != nil {
		if _, ok := a.kw.Get("caller"); ok {
			panic(typeError("got multiple values for keyword argument 'caller'"))
		}
		a.name("caller", caller)
	}
	r.step(1)
	switch f := f.(type) {
	case *function:
		return f.call(r, a)
	case *macro:
		return f.call(r, a)
	case *loop:
		return f.call(a)
	}
	need(f)
	panic(typeError("'%s' object is not callable", f.kind()))
}
