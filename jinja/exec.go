package jinja

// A signal is how a statement ended.
type signal uint8

const (
	signalNone signal = iota
	signalBreak
	signalContinue
)

// A stmt is a compiled statement.
type stmt interface {
	exec(m *machine, e *env, out *text) (signal, error)
}

// An env holds the variables of one call of a codeFunc. A nil slot is unset.
type env struct {
	slots []Value
	up    *env // of the function around
	scope *scope
	seen  epoch
}

func (m *machine) env(fn *codeFunc, up *env, s *scope) (*env, error) {
	if err := m.allocItems(len(fn.slots)); err != nil {
		return nil, err
	}
	e := &env{slots: make([]Value, len(fn.slots)), up: up, scope: s}
	m.live.envs = append(m.live.envs, e)
	return e, nil
}

func (e *env) at(r ref) *Value {
	for ; r.up > 0; r.up-- {
		e = e.up
	}
	return &e.slots[r.slot]
}

// A scope has the variables of the template by name: those given to it, and
// those assigned at its top level.
type scope struct {
	vars   map[string]Value
	parent *scope
	blocks map[string]*codeBlock
	seen   epoch
}

func (s *scope) resolve(name string) Value {
	for ; s != nil; s = s.parent {
		if v, ok := s.vars[name]; ok {
			return v
		}
	}
	return nil
}

func (e *env) enter(entries []entry) {
	for _, n := range entries {
		switch n.kind {
		case loadResolve:
			e.slots[n.slot] = e.scope.resolve(n.name)
		case loadAlias:
			e.slots[n.slot] = *e.at(n.from)
		default:
			e.slots[n.slot] = nil
		}
	}
}

func (e *env) leave(slots []int) {
	for _, s := range slots {
		e.slots[s] = nil
	}
}

// block runs a template's or a block's body.
func (m *machine) block(b *codeBlock, s *scope, out *text) error {
	if err := m.call(); err != nil {
		return err
	}
	defer m.leave()
	e, err := m.env(b.fn, nil, s)
	if err != nil {
		return err
	}
	if b.self != nil {
		*e.at(*b.self) = &templateRef{s}
	}
	if b.super != nil {
		*e.at(*b.super) = &undefined{hint: "there is no parent block", name: plain("super")}
	}
	e.enter(b.enter)
	_, err = m.exec(b.body, e, out)
	return err
}

func (m *machine) exec(body []stmt, e *env, out *text) (signal, error) {
	for _, s := range body {
		if err := m.step(1); err != nil {
			return signalNone, err
		}
		before := m.live.begin()
		sig, err := s.exec(m, e, out)
		m.live.end(before, m.calls > 1)
		if sig != signalNone || err != nil {
			return sig, err
		}
	}
	return signalNone, nil
}

// capture runs a body and returns its text.
func (m *machine) capture(body []stmt, e *env) (str, signal, error) {
	out := m.text()
	sig, err := m.exec(body, e, out)
	if err != nil {
		return str{}, sig, err
	}
	s, err := out.str()
	return s, sig, err
}

type (
	outputStmt struct{ parts []outputPart }

	ifStmt struct {
		arms []ifArm
		els  []stmt
	}
	ifArm struct {
		test expr
		body []stmt
	}

	assignStmt struct {
		target  *target
		x       expr
		exports []export
		line    int
	}
	export struct {
		name string
		ref  ref
	}

	scopeStmt struct {
		enter []entry
		body  []stmt
		leave []int
	}

	setBlockStmt struct {
		scopeStmt
		target  *target
		filter  expr // or nil
		exports []export
		line    int
	}

	filterBlockStmt struct {
		scopeStmt
		filter expr
		line   int
	}

	withStmt struct {
		scopeStmt
		targets []*target
		values  []expr
		line    int
	}

	blockStmt struct {
		name   string
		scoped bool
		locals []export
		line   int
	}

	autoescapeStmt struct {
		scopeStmt
		x    expr
		line int
	}

	jumpStmt struct{ stop bool }

	failStmt struct {
		line    int
		kind    Kind
		message string
	}
)

func (s *outputStmt) exec(m *machine, e *env, out *text) (signal, error) {
	for _, p := range s.parts {
		if p.x == nil {
			out.raw(p.data)
		} else if err := m.print(p.x, e, out); err != nil {
			return signalNone, at(err, p.line)
		}
		if out.err != nil {
			return signalNone, at(out.err, p.line)
		}
	}
	return signalNone, nil
}

func (m *machine) print(x expr, e *env, out *text) error {
	v, err := x.eval(m, e)
	if err != nil {
		return err
	}
	s, err := m.str(v)
	out.add(s)
	return err
}

func (s *ifStmt) exec(m *machine, e *env, out *text) (signal, error) {
	for _, arm := range s.arms {
		ok, err := m.test(arm.test, e)
		if err != nil {
			return signalNone, err
		}
		if ok {
			return m.exec(arm.body, e, out)
		}
	}
	return m.exec(s.els, e, out)
}

// test is bool(x).
func (m *machine) test(x expr, e *env) (bool, error) {
	v, err := x.eval(m, e)
	if err != nil {
		return false, err
	}
	return m.truth(v)
}

func (s *assignStmt) exec(m *machine, e *env, out *text) (signal, error) {
	if err := s.target.check(e); err != nil {
		return signalNone, at(err, s.line)
	}
	v, err := s.x.eval(m, e)
	if err == nil {
		err = m.assign(s.target, v, e)
	}
	if err != nil {
		return signalNone, at(err, s.line)
	}
	e.export(s.exports)
	return signalNone, nil
}

func (e *env) export(exports []export) {
	for _, x := range exports {
		e.scope.vars[x.name] = *e.at(x.ref)
	}
}

func (s *setBlockStmt) exec(m *machine, e *env, out *text) (signal, error) {
	e.enter(s.enter)
	text, sig, err := m.capture(s.body, e)
	if err != nil || sig != signalNone {
		return sig, err
	}
	var v Value = text
	if s.filter != nil {
		v, err = m.filterText(s.filter, text, e)
	}
	if err == nil {
		err = m.assign(s.target, v, e)
	}
	if err != nil {
		return signalNone, at(err, s.line)
	}
	e.export(s.exports)
	e.leave(s.leave)
	return signalNone, nil
}

func (s *filterBlockStmt) exec(m *machine, e *env, out *text) (signal, error) {
	e.enter(s.enter)
	text, sig, err := m.capture(s.body, e)
	if err != nil || sig != signalNone {
		return sig, err
	}
	v, err := m.filterText(s.filter, text, e)
	if err == nil {
		err = out.join(v)
	}
	if err != nil {
		return signalNone, at(err, s.line)
	}
	e.leave(s.leave)
	return signalNone, out.err
}

func (s *withStmt) exec(m *machine, e *env, out *text) (signal, error) {
	e.enter(s.enter)
	for i, x := range s.values {
		v, err := x.eval(m, e)
		if err == nil {
			err = m.assign(s.targets[i], v, e)
		}
		if err != nil {
			return signalNone, at(err, s.line)
		}
	}
	sig, err := m.exec(s.body, e, out)
	if sig == signalNone {
		e.leave(s.leave)
	}
	return sig, err
}

func (s *autoescapeStmt) exec(m *machine, e *env, out *text) (signal, error) {
	e.enter(s.enter)
	ok, err := m.test(s.x, e)
	if err == nil && ok {
		err = errorf(KindRuntime, "autoescape is not supported")
	}
	if err != nil {
		return signalNone, at(err, s.line)
	}
	sig, err := m.exec(s.body, e, out)
	if sig == signalNone {
		e.leave(s.leave)
	}
	return sig, err
}

func (s *blockStmt) exec(m *machine, e *env, out *text) (signal, error) {
	inner := e.scope
	if s.scoped {
		if err := m.allocItems(dictItem * len(s.locals)); err != nil {
			return signalNone, at(err, s.line)
		}
		locals := &scope{vars: map[string]Value{}, parent: inner}
		for _, x := range s.locals {
			if v := *e.at(x.ref); v != nil {
				locals.vars[x.name] = v
			}
		}
		inner = &scope{vars: map[string]Value{}, parent: locals, blocks: inner.blocks}
	}
	return signalNone, at(m.block(inner.blocks[s.name], inner, out), s.line)
}

func (s *jumpStmt) exec(*machine, *env, *text) (signal, error) {
	if s.stop {
		return signalBreak, nil
	}
	return signalContinue, nil
}

func (s *failStmt) exec(*machine, *env, *text) (signal, error) {
	return signalNone, at(errorf(s.kind, "%s", s.message), s.line)
}

// A target is what a value is assigned to.
type target struct {
	ref   ref
	attr  string // of the namespace in ref
	items []*target
}

// check reports the first namespace that is none.
func (t *target) check(e *env) error {
	for _, x := range t.items {
		if err := x.check(e); err != nil {
			return err
		}
	}
	if t.attr != "" {
		if _, ok := (*e.at(t.ref)).(*namespace); !ok {
			return errorf(KindRuntime, "cannot assign attribute on non-namespace object")
		}
	}
	return nil
}

func (m *machine) assign(t *target, v Value, e *env) error {
	switch {
	case t.items != nil:
		values, err := m.unpack(v, len(t.items))
		if err != nil {
			return err
		}
		for i, x := range t.items {
			if err := m.assign(x, values[i], e); err != nil {
				return err
			}
		}
	case t.attr != "":
		ns, ok := (*e.at(t.ref)).(*namespace)
		if !ok {
			return errorf(KindRuntime, "cannot assign attribute on non-namespace object")
		}
		m.live.store()
		return m.put(ns.attrs, plain(t.attr), v)
	default:
		*e.at(t.ref) = v
	}
	return nil
}

// value reads an assigned variable back.
func (t *target) value(e *env) Value {
	if t.items == nil {
		return *e.at(t.ref)
	}
	all := &tuple{}
	for _, x := range t.items {
		all.items = append(all.items, x.value(e))
	}
	return all
}

// unpack gives the n items of v.
func (m *machine) unpack(v Value, n int) ([]Value, error) {
	next, err := m.iterate(v)
	if err != nil {
		if is(err, KindType) {
			return nil, typeError("cannot unpack non-iterable %s object", v.kind())
		}
		return nil, err
	}
	values := make([]Value, 0, n)
	for {
		x, ok, err := next()
		switch {
		case err != nil:
			return nil, err
		case !ok && len(values) == n:
			return values, nil
		case !ok:
			return nil, valueError("not enough values to unpack (expected %d, got %d)", n, len(values))
		case len(values) == n:
			return nil, valueError("too many values to unpack (expected %d)", n)
		}
		values = append(values, x)
	}
}
