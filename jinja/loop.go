package jinja

type (
	forStmt struct {
		line      int
		recursive bool
		fn        *codeFunc // where it runs
		loop      *ref      // of the variable loop, if it is used
		target    *target
		iter      expr
		filter    *loopFilter
		body      scopeStmt
		els       scopeStmt
		hasElse   bool
	}

	// loopFilter is the if of a loop.
	loopFilter struct {
		fn     *codeFunc
		enter  []entry
		target *target
		test   expr
	}

	// A loop is the variable loop.
	loop struct {
		m       *machine
		over    Value
		next    iterator
		index   int // from 0
		depth   int // from 0
		total   int // -1 until it is asked for
		current Value
		before  Value
		after   Value // looked at in advance, or nil
		changed *tuple
		rest    []Value // what length has run through
		env     *env    // around the loop
		seen    epoch
		recurse func(over Value, depth int) (str, error) // or nil
	}
)

func (*loop) kind() string { return "LoopContext" }

func (s *forStmt) exec(m *machine, e *env, out *text) (signal, error) {
	over, err := s.iter.eval(m, e)
	if err != nil {
		return signalNone, at(err, s.line)
	}
	if !s.recursive {
		sig, err := s.run(m, e, e, over, nil, 0, out)
		return sig, at(err, s.line)
	}
	t, err := s.render(m, e, over, 0)
	if err != nil {
		return signalNone, at(err, s.line)
	}
	out.add(t)
	return signalNone, out.err
}

// render runs a recursive loop in an env of its own, within e.
func (s *forStmt) render(m *machine, e *env, over Value, depth int) (str, error) {
	if err := m.call(); err != nil {
		return str{}, err
	}
	defer m.leave()
	own, err := m.env(s.fn, e, e.scope)
	if err != nil {
		return str{}, err
	}
	recurse := func(over Value, depth int) (str, error) { return s.render(m, e, over, depth) }
	out := m.text()
	if _, err := s.run(m, own, e, over, recurse, depth, out); err != nil {
		return str{}, err
	}
	return out.str()
}

// run loops in e; outer is the env around the loop.
func (s *forStmt) run(m *machine, e, outer *env, over Value, recurse func(Value, int) (str, error), depth int, out *text) (signal, error) {
	if s.filter != nil {
		next, err := s.filter.iterate(m, outer, over)
		if err != nil {
			return signalNone, err
		}
		over = m.generator(next, over)
	}
	next, err := m.iterate(over)
	if err != nil {
		return signalNone, err
	}
	l := &loop{m: m, over: over, next: next, index: -1, total: -1, depth: depth, recurse: recurse, env: outer}
	m.live.loops = append(m.live.loops, l)
	completed, err := s.iterations(m, e, l, out)
	if err != nil {
		return signalNone, err
	}
	e.leave(s.body.leave)
	if !s.hasElse || completed {
		return signalNone, nil
	}
	e.enter(s.els.enter)
	sig, err := m.exec(s.els.body, e, out)
	if sig == signalNone {
		e.leave(s.els.leave)
	}
	return sig, err
}

// iterations runs the body for each item, and reports whether one run of it came
// to its end.
func (s *forStmt) iterations(m *machine, e *env, l *loop, out *text) (completed bool, err error) {
	for {
		ok, err := l.advance()
		if !ok || err != nil {
			return completed, err
		}
		if err := m.assign(s.target, l.current, e); err != nil {
			return false, err
		}
		if s.loop != nil {
			*e.at(*s.loop) = l
		}
		e.enter(s.body.enter)
		switch sig, err := m.exec(s.body.body, e, out); {
		case err != nil:
			return false, err
		case sig == signalBreak:
			return completed, nil
		case sig == signalNone:
			completed = true
		}
	}
}

// iterate gives the items that pass.
func (f *loopFilter) iterate(m *machine, outer *env, over Value) (iterator, error) {
	next, err := m.iterate(over)
	if err != nil {
		return nil, err
	}
	e, err := m.env(f.fn, outer, outer.scope)
	if err != nil {
		return nil, err
	}
	entered := false
	return func() (Value, bool, error) {
		if !entered {
			entered = true
			e.enter(f.enter)
		}
		for {
			v, ok, err := next()
			if !ok || err != nil {
				return nil, false, err
			}
			if err := m.assign(f.target, v, e); err != nil {
				return nil, false, err
			}
			if ok, err := m.test(f.test, e); err != nil {
				return nil, false, err
			} else if ok {
				return f.target.value(e), true, nil
			}
		}
	}, nil
}

// advance moves to the next item.
func (l *loop) advance() (bool, error) {
	v := l.after
	if l.after = nil; v == nil {
		var ok bool
		var err error
		if v, ok, err = l.next(); !ok || err != nil {
			return false, err
		}
	}
	l.index++
	l.before, l.current = l.current, v
	return true, nil
}

// peek looks at the next item; nil is the end.
func (l *loop) peek() (Value, error) {
	if l.after != nil {
		return l.after, nil
	}
	v, ok, err := l.next()
	if !ok || err != nil {
		return nil, err
	}
	l.after = v
	return v, nil
}

// length is loop.length, for which a generator is run to its end.
func (l *loop) length() (int, error) {
	if l.total >= 0 {
		return l.total, nil
	}
	if n, ok, err := l.m.size(l.over); ok {
		l.total = n
		return n, err
	}
	if inner, ok := l.over.(*loop); ok {
		return inner.length()
	}
	rest, err := l.m.drain(l.next)
	if err != nil {
		return 0, err
	}
	l.rest = rest
	l.next = overItems(rest)
	l.total = len(rest) + l.index + 1
	if l.after != nil {
		l.total++
	}
	return l.total, nil
}

// attribute is loop.name.
func (l *loop) attribute(name string) (Value, error) {
	switch name {
	case "index":
		return Int(int64(l.index + 1)), nil
	case "index0":
		return Int(int64(l.index)), nil
	case "first":
		return boolean(l.index == 0), nil
	case "depth":
		return Int(int64(l.depth + 1)), nil
	case "depth0":
		return Int(int64(l.depth)), nil
	case "length", "revindex", "revindex0":
		n, err := l.length()
		if name != "length" {
			n -= l.index
		}
		if name == "revindex0" {
			n--
		}
		return Int(int64(n)), err
	case "last":
		v, err := l.peek()
		return boolean(v == nil), err
	case "nextitem":
		v, err := l.peek()
		if v == nil && err == nil {
			v = &undefined{hint: "there is no next item"}
		}
		return v, err
	case "previtem":
		if l.index == 0 {
			return &undefined{hint: "there is no previous item"}, nil
		}
		return l.before, nil
	case "cycle":
		return l.method("cycle", l.cycle), nil
	case "changed":
		return l.method("changed", l.isChanged), nil
	}
	return nil, nil
}

func (l *loop) method(name string, fn func(a *args) (Value, error)) Value {
	return &function{name: name, class: "method", self: l, fn: func(m *machine, a *args) (Value, error) {
		if a.kw.Len() > 0 {
			return nil, typeError("LoopContext.%s() got an unexpected keyword argument", name)
		}
		return fn(a)
	}}
}

func (l *loop) cycle(a *args) (Value, error) {
	if len(a.pos) == 0 {
		return nil, typeError("no items for cycling given")
	}
	n := len(a.pos)
	return a.pos[(l.index%n+n)%n], nil
}

func (l *loop) isChanged(a *args) (Value, error) {
	now := &tuple{items: a.pos}
	if l.changed != nil {
		ok, err := l.m.equal(l.changed, now)
		if ok || err != nil {
			return boolean(false), err
		}
	}
	l.changed = now
	return boolean(true), nil
}

// call is loop(over).
func (l *loop) call(a *args) (Value, error) {
	if len(a.pos) != 1 || a.kw.Len() > 0 {
		return nil, typeError("LoopContext.__call__() takes 1 argument")
	}
	if l.recurse == nil {
		return nil, typeError("The loop must have the 'recursive' marker to be called recursively.")
	}
	return l.recurse(a.pos[0], l.depth+1)
}
