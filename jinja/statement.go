package jinja

import "slices"

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

type (
	forStmt struct {
		line      int
		recursive bool
		loop      int // name of the variable loop
		target    *target
		iter      expr
		filter    expr   // or nil
		test      *frame // frame of filter
		frame     *frame
		body, els []stmt
		hasElse   bool
		elseFrame *frame
	}

	// A loop is the variable loop.
	loop struct {
		r                      *rendering
		over                   Value
		next                   iterator
		index, depth           int   // from 0
		total                  int   // number of items, or -1
		before, current, after Value // after is looked at in advance, or nil
		changed                *list // arguments of the last loop.changed
		recurse                func(over Value, depth int) str
	}
)

func (*loop) kind() string { return "LoopContext" }

func (x *forStmt) exec(r *rendering, s *scope, out *text) signal {
	over := x.iter.eval(r, s)
	r.line = x.line
	if !x.recursive {
		return x.run(r, s, over, nil, 0, out)
	}
	var recurse func(over Value, depth int) str
	recurse = func(over Value, depth int) str {
		r.enter()
		t := r.text()
		x.run(r, s, over, recurse, depth, t)
		r.leave()
		return t.str()
	}
	out.add(recurse(over, 0))
	return signalNone
}

func (x *forStmt) run(r *rendering, s *scope, over Value, recurse func(Value, int) str, depth int, out *text) signal {
	if x.filter != nil {
		over = &generator{x.filterTurns(r, s, over)}
	}
	l := &loop{r: r, over: over, next: iterate(r, over), index: -1, total: -1, depth: depth, recurse: recurse}
	inner := newScope(r, s, x.frame)
	completed := false // whether a turn reached the end of the body
turns:
	for r.line = x.line; l.advance(); inner.begin(r, x.frame) {
		x.target.assign(r, inner, l.current)
		inner.set(r, x.loop, l)
		switch execute(r, inner, x.body, out) {
		case signalBreak:
			break turns
		case signalNone:
			completed = true
		}
		r.line = x.line
	}
	if x.hasElse && !completed {
		return execute(r, newScope(r, s, x.elseFrame), x.els, out)
	}
	return signalNone
}

// filterTurns returns the items that pass the if of the loop, as Python reads them back from the target.
func (x *forStmt) filterTurns(r *rendering, s *scope, over Value) iterator {
	inner, next := &scope{parent: s}, iterate(r, over)
	return func() (Value, bool) {
		for v, ok := next(); ok; v, ok = next() {
			inner.begin(r, x.test)
			x.target.assign(r, inner, v)
			if test(r, inner, x.filter) {
				return x.target.value(r, inner), true
			}
		}
		return nil, false
	}
}

// advance moves to the next item, and reports whether there is any.
func (l *loop) advance() bool {
	v := l.peek()
	if v == nil {
		return false
	}
	l.after = nil
	l.index++
	l.before, l.current = l.current, v
	return true
}

// peek looks at the next item; nil is the end.
func (l *loop) peek() Value {
	if l.after == nil {
		l.after, _ = l.next()
	}
	return l.after
}

// length returns loop.length, for which a generator runs to its end.
func (l *loop) length() int {
	if l.total >= 0 {
		return l.total
	}
	if n, ok := size(l.r, l.over); ok {
		l.total = n
		return n
	}
	if inner, ok := l.over.(*loop); ok {
		return inner.length()
	}
	rest := drain(l.r, l.next)
	l.next = overItems(rest)
	l.total = len(rest) + l.index + 1
	if l.after != nil {
		l.total++
	}
	return l.total
}

// attribute returns loop.name, or nil.
func (l *loop) attribute(r *rendering, name string) Value {
	switch name {
	case "index":
		return integer(l.index + 1)
	case "index0":
		return integer(l.index)
	case "first":
		return boolean(l.index == 0)
	case "depth":
		return integer(l.depth + 1)
	case "depth0":
		return integer(l.depth)
	case "length":
		return integer(l.length())
	case "revindex":
		return integer(l.length() - l.index)
	case "revindex0":
		return integer(l.length() - l.index - 1)
	case "last":
		return boolean(l.peek() == nil)
	case "nextitem":
		return or(l.peek(), &undefined{hint: "there is no next item"})
	case "previtem":
		if l.index == 0 {
			return &undefined{hint: "there is no previous item"}
		}
		return l.before
	case "cycle":
		return &function{name: name, self: l, call: l.cycle}
	case "changed":
		return &function{name: name, self: l, call: l.isChanged}
	}
	return nil
}

func (l *loop) cycle(_ *rendering, a *args) Value {
	n := len(a.pos)
	if n == 0 || a.kw.Len() > 0 {
		panic(typeError("no items for cycling given"))
	}
	return a.pos[(l.index%n+n)%n]
}

func (l *loop) isChanged(r *rendering, a *args) Value {
	if a.kw.Len() > 0 {
		panic(typeError("LoopContext.changed() got an unexpected keyword argument"))
	}
	now := tupleOf(a.pos...)
	if l.changed != nil && equal(r, l.changed, now) {
		return boolean(false)
	}
	l.changed = now
	return boolean(true)
}

// call returns loop(over).
func (l *loop) call(a *args) Value {
	if len(a.pos) != 1 || a.kw.Len() > 0 {
		panic(typeError("LoopContext.__call__() takes 1 argument"))
	}
	if l.recurse == nil {
		panic(typeError("The loop must have the 'recursive' marker to be called recursively."))
	}
	return l.recurse(a.pos[0], l.depth+1)
}

type (
	// A macroDef is the code of a macro or call block.
	macroDef struct {
		name     string // "" for a call block
		params   []int  // numbers of the parameters
		names    []string
		defaults []expr // defaults of the last params
		frame    *frame
		body     []stmt
		line     int

		// Numbers of the special variables read by the body, or -1.
		caller, kwargs, varargs int
	}

	// A macro is a macroDef with the scope around it.
	macro struct {
		def   *macroDef
		scope *scope
	}

	macroStmt struct {
		def *macroDef
		id  int
	}

	// A callStmt passes its body as caller to a call.
	callStmt struct {
		def  *macroDef
		call *callExpr
		line int
	}
)

func (*macro) kind() string { return "Macro" }

func (x *macroStmt) exec(r *rendering, s *scope, _ *text) signal {
	s.set(r, x.id, &macro{x.def, s})
	return signalNone
}

func (x *callStmt) exec(r *rendering, s *scope, out *text) signal {
	v := x.call.with(r, s, &macro{x.def, s})
	r.line = x.line
	out.join(v)
	return signalNone
}

// call returns f(a): the text of the macro's body.
func (f *macro) call(r *rendering, a *args) Value {
	r.enter()
	s := newScope(r, f.scope, f.def.frame)
	f.bind(r, a, s)
	out := r.text()
	execute(r, s, f.def.body, out)
	r.leave()
	return out.str()
}

// bind sets the parameters, as jinja2.runtime.Macro does.
func (f *macro) bind(r *rendering, a *args, s *scope) {
	d := f.def
	rest := NewDict()
	foundCaller := slices.Contains(d.names, "caller")
	for i, k := range a.kw.Keys() {
		if at := slices.Index(d.names, k); at >= len(a.pos) {
			s.set(r, d.params[at], a.kw.values[i])
		} else if k != "caller" || d.caller < 0 || foundCaller {
			rest.Set(k, a.kw.values[i])
		}
	}
	if d.caller >= 0 && !foundCaller {
		v, ok := a.kw.Get("caller")
		if !ok || v == None {
			v = &undefined{hint: "No caller defined", name: unmarked("caller")}
		}
		s.set(r, d.caller, v)
	}
	switch {
	case d.kwargs >= 0:
		s.set(r, d.kwargs, rest)
	case slices.Contains(rest.Keys(), "caller"):
		panic(typeError("macro '%s' was invoked with two values for the special caller argument. "+
			"This is most likely a bug.", d.name))
	case rest.Len() > 0:
		panic(typeError("macro '%s' takes no keyword argument '%s'", d.name, rest.Keys()[0]))
	}
	more := a.pos[min(len(d.params), len(a.pos)):]
	if d.varargs >= 0 {
		s.set(r, d.varargs, tupleOf(more...))
	} else if len(more) > 0 {
		panic(typeError("macro '%s' takes not more than %d argument(s)", d.name, len(d.params)))
	}
	f.setDefaults(r, a, s)
}

// setDefaults sets the parameters by position and, in their order, the parameters that were not given.
func (f *macro) setDefaults(r *rendering, a *args, s *scope) {
	d := f.def
	first := len(d.params) - len(d.defaults)
	for i, p := range d.params {
		switch {
		case i < len(a.pos):
			s.set(r, p, a.pos[i])
		case s.place(p) >= 0:
		case i < first:
			s.set(r, p, &undefined{hint: "parameter '" + d.names[i] + "' was not provided", name: unmarked(d.names[i])})
		default:
			r.line = d.line
			s.set(r, p, d.defaults[i-first].eval(r, s))
		}
	}
}

// attribute returns macro.name, or nil.
func (f *macro) attribute(name string) Value {
	switch name {
	case "name":
		if f.def.name == "" {
			return None
		}
		return unmarked(f.def.name)
	case "arguments":
		t := tupleOf()
		for _, a := range f.def.names {
			t.items = append(t.items, unmarked(a))
		}
		return t
	case "catch_kwargs":
		return boolean(f.def.kwargs >= 0)
	case "catch_varargs":
		return boolean(f.def.varargs >= 0)
	case "caller":
		return boolean(f.def.caller >= 0)
	case "explicit_caller":
		return boolean(slices.Contains(f.def.names, "caller"))
	}
	return nil
}
