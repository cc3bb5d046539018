package jinja

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
