package jinja

// A signal is how a statement ended.
type signal uint8

const (
	signalNone signal = iota
	signalBreak
	signalContinue
)

// A stmt is a statement, which adds its text to out.
type stmt interface {
	exec(r *rendering, s *scope, out *text) signal
}

type (
	dataStmt struct{ text string }

	printStmt struct {
		x    expr
		line int
	}

	ifStmt struct {
		arms []ifArm
		els  []stmt
	}
	ifArm struct {
		test expr
		body []stmt
	}

	assignStmt struct {
		target *target
		x      expr
		line   int
	}

	// A captureStmt is {% set x %}, {% filter f %} or {% generation %}: the text of its body goes through the filters
	// into the target, or else to the statement's place.
	captureStmt struct {
		target *target // or nil
		given  int     // name under which the filters find the text
		filter expr    // or nil
		frame  *frame
		body   []stmt
		line   int
	}

	withStmt struct {
		targets []*target
		values  []expr
		frame   *frame
		body    []stmt
		line    int
	}

	jumpStmt struct{ signal signal }
)

// execute executes statements, up to a statement that jumps.
func execute(r *rendering, s *scope, body []stmt, out *text) signal {
	for _, x := range body {
		r.step(1)
		if sig := x.exec(r, s, out); sig != signalNone {
			return sig
		}
	}
	return signalNone
}

func (x *dataStmt) exec(_ *rendering, _ *scope, out *text) signal {
	out.raw(x.text)
	return signalNone
}

func (x *printStmt) exec(r *rendering, s *scope, out *text) signal {
	v := x.x.eval(r, s)
	r.line = x.line
	out.add(toStr(r, v))
	return signalNone
}

func (x *ifStmt) exec(r *rendering, s *scope, out *text) signal {
	for _, arm := range x.arms {
		if test(r, s, arm.test) {
			return execute(r, s, arm.body, out)
		}
	}
	return execute(r, s, x.els, out)
}

func (x *assignStmt) exec(r *rendering, s *scope, _ *text) signal {
	v := x.x.eval(r, s)
	r.line = x.line
	x.target.assign(r, s, v)
	return signalNone
}

func (x *captureStmt) exec(r *rendering, s *scope, out *text) signal {
	t := r.text()
	inner := newScope(r, s, x.frame)
	if sig := execute(r, inner, x.body, t); sig != signalNone {
		return sig
	}
	var v Value = t.str()
	if x.filter != nil {
		inner.set(r, x.given, v)
		v = x.filter.eval(r, inner)
	}
	r.line = x.line
	if x.target != nil {
		x.target.assign(r, s, v)
		return signalNone
	}
	out.join(v)
	return signalNone
}

// join adds a string: the text of a filter block or of a call is joined to the text around, not printed.
func (t *text) join(v Value) {
	s, ok := v.(str)
	if !ok {
		panic(typeError("sequence item: expected str instance, %s found", v.kind()))
	}
	t.add(s)
}

func (x *withStmt) exec(r *rendering, s *scope, out *text) signal {
	inner := newScope(r, s, x.frame)
	for i, v := range x.values {
		x.targets[i].assign(r, inner, v.eval(r, s))
	}
	return execute(r, inner, x.body, out)
}

func (x *jumpStmt) exec(*rendering, *scope, *text) signal { return x.signal }

// A target is the left side of an assignment: a name, an attribute of a namespace, or a tuple of targets.
type target struct {
	name  string
	id    int    // number of name
	attr  string // attribute of the namespace
	items []*target
	line  int
}

func (t *target) assign(r *rendering, s *scope, v Value) {
	switch {
	case t.items != nil:
		values := unpack(r, v, len(t.items))
		for i, x := range t.items {
			x.assign(r, s, values[i])
		}
	case t.attr != "":
		ns, ok := s.get(r, t.id).(*namespace)
		if !ok {
			panic(errorf(KindRuntime, "cannot assign attribute on non-namespace object"))
		}
		put(r, ns.attrs, unmarked(t.attr), v)
	default:
		s.set(r, t.id, v)
	}
}

// value reads an assigned target back.
func (t *target) value(r *rendering, s *scope) Value {
	if t.items == nil {
		return s.get(r, t.id)
	}
	all := tupleOf()
	for _, x := range t.items {
		all.items = append(all.items, x.value(r, s))
	}
	return all
}
