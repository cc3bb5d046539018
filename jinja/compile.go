package jinja

import "slices"

// program is a template ready to run.
type program struct {
	main   *codeBlock
	blocks map[string]*codeBlock
}

// A codeBlock is the template or one of its {% block %}s.
type codeBlock struct {
	fn    *codeFunc
	self  *ref // of the variable self, if it is used
	super *ref
	enter []entry
	body  []stmt
}

// An entry gives a variable its value when a frame is entered.
type entry struct {
	slot int
	kind loadKind
	from ref    // of loadAlias
	name string // of loadResolve
}

// A frame is where in the template the compiler is.
type frame struct {
	syms     *symbols
	toplevel bool // assignments are seen by blocks
	soft     bool // in an if: missing filters and tests are found when they are reached
	inLoop   bool // break and continue have something to act on
	inFor    bool // the name loop cannot be assigned to
}

// inner is a frame within f, whose variables live in fn.
func (f *frame) inner(fn *codeFunc) *frame {
	return &frame{syms: newSymbols(fn, f.syms), inLoop: f.inLoop && fn == f.syms.fn, inFor: f.inFor}
}

func (f *frame) softly() *frame {
	g := *f
	g.soft = true
	return &g
}

type compiler struct {
	found  map[string]*foundBlock
	names  []string
	result program
	err    error
}

type foundBlock struct {
	node  *blockNode
	inFor bool
}

func compile(body []node) (*program, error) {
	c := &compiler{found: map[string]*foundBlock{}}
	c.result.blocks = map[string]*codeBlock{}
	c.result.main = c.block(body, true, false)
	for i := 0; i < len(c.names); i++ { // blocks in blocks make the list longer
		b := c.found[c.names[i]]
		c.result.blocks[b.node.name] = c.block(b.node.body, false, b.inFor)
	}
	return &c.result, c.err
}

func (c *compiler) fail(line int, format string, a ...any) {
	if c.err == nil {
		c.err = syntaxError(line, format, a...)
	}
}

func (c *compiler) block(body []node, toplevel, inFor bool) *codeBlock {
	fn := newFunc(nil)
	f := &frame{syms: newSymbols(fn, nil), toplevel: toplevel, inFor: inFor}
	b := &codeBlock{fn: fn}
	used := uses(body, "self", "super")
	if used["self"] {
		b.self = &ref{0, fn.slot(f.syms.param("self").name)}
	}
	if used["super"] && !toplevel {
		b.super = &ref{0, fn.slot(f.syms.param("super").name)}
	}
	f.syms.nodes(body)
	b.enter = c.enter(f)
	b.body = c.nodes(body, f)
	return b
}

// enter lists what to do when a frame is entered.
func (c *compiler) enter(f *frame) []entry {
	var entries []entry
	for _, v := range f.syms.order {
		l := f.syms.loads[v]
		if l.kind == loadParam {
			continue
		}
		e := entry{slot: f.syms.fn.slot(v.name), kind: l.kind, name: v.name.name}
		if l.kind == loadAlias {
			e.from = refFrom(f.syms.fn, l.from)
		}
		entries = append(entries, e)
	}
	return entries
}

// leave lists the slots that are unset when a frame is left.
func (c *compiler) leave(f *frame) []int {
	var slots []int
	for _, v := range f.syms.order {
		slots = append(slots, f.syms.fn.slot(v.name))
	}
	return slots
}

// refFrom is a variable seen from fn.
func refFrom(fn *codeFunc, v variable) ref {
	up := 0
	for fn != v.fn {
		fn = fn.up
		up++
	}
	return ref{up, v.fn.slot(v.name)}
}

func (c *compiler) ref(name string, line int, f *frame) ref {
	v, ok := f.syms.find(name)
	if !ok {
		c.fail(line, "the name '%s' is unknown to its frame", name)
		return ref{}
	}
	return refFrom(f.syms.fn, v)
}

func (c *compiler) nodes(body []node, f *frame) []stmt {
	var stmts []stmt
	for _, n := range body {
		if s := c.node(n, f); s != nil {
			stmts = append(stmts, s)
		}
	}
	return stmts
}

func (c *compiler) node(n node, f *frame) stmt {
	switch n := n.(type) {
	case *outputNode:
		return c.output(n, f)
	case *ifNode:
		return c.ifStmt(n, f.softly())
	case *forNode:
		return c.forStmt(n, f)
	case *assignNode:
		return c.assign(n, f)
	case *setBlockNode:
		return c.setBlock(n, f)
	case *filterBlockNode:
		inner := f.inner(f.syms.fn)
		inner.syms.nodes(n.body)
		inner.syms.expr(n.filter)
		return &filterBlockStmt{scopeStmt: c.scope(n.body, inner), filter: c.expr(n.filter, inner), line: n.line}
	case *withNode:
		return c.with(n, f)
	case *macroNode:
		return c.macroStmt(n, f)
	case *callNode:
		return c.callStmt(n, f)
	case *blockNode:
		return c.blockStmt(n, f)
	case *jumpNode:
		if !f.inLoop {
			c.fail(n.line, "break or continue outside a loop")
		}
		return &jumpStmt{n.stop}
	case *loadNode:
		if n.extends && !f.toplevel {
			c.fail(n.line, "cannot use extend from a non top-level scope")
		}
		return &failStmt{n.line, KindType, "no loader for this environment specified"}
	case *autoescapeNode:
		inner := f.inner(f.syms.fn)
		inner.syms.expr(n.x)
		inner.syms.nodes(n.body)
		return &autoescapeStmt{x: c.expr(n.x, inner), scopeStmt: c.scope(n.body, inner), line: n.line}
	}
	return nil
}

// scope compiles a body whose names are already noted in f.
func (c *compiler) scope(body []node, f *frame) scopeStmt {
	return scopeStmt{enter: c.enter(f), body: c.nodes(body, f), leave: c.leave(f)}
}

func (c *compiler) output(n *outputNode, f *frame) stmt {
	s := &outputStmt{parts: make([]outputPart, len(n.parts))}
	for i, p := range n.parts {
		if p.x != nil {
			p.x = c.expr(p.x, f)
			if fold, ok := p.x.(*foldExpr); ok {
				fold.output = true
			}
		}
		s.parts[i] = p
	}
	return s
}

func (c *compiler) ifStmt(n *ifNode, f *frame) stmt {
	s := &ifStmt{}
	for _, arm := range append([]*ifNode{n}, n.elifs...) {
		s.arms = append(s.arms, ifArm{c.expr(arm.test, f), c.nodes(arm.body, f)})
	}
	s.els = c.nodes(n.els, f)
	return s
}

func (c *compiler) forStmt(n *forNode, f *frame) stmt {
	s := &forStmt{line: n.line, recursive: n.recursive, fn: f.syms.fn}
	if n.recursive {
		s.fn = newFunc(f.syms.fn)
	}
	body, els := f.inner(s.fn), f.inner(s.fn)
	els.inLoop = f.inLoop && !n.recursive
	body.inLoop, body.inFor, els.inFor = true, true, true
	if n.recursive || uses(n.body, "loop")["loop"] || hasScopedBlock(n.body) || hasScopedBlock(n.els) {
		s.loop = &ref{0, s.fn.slot(body.syms.param("loop").name)}
	}
	body.syms.target(n.target, true)
	body.syms.nodes(n.body)
	els.syms.nodes(n.els)
	if n.test != nil {
		c.loopFilter(s, n, f)
	}
	s.target = c.target(n.target, body)
	s.iter = c.expr(n.iter, f)
	s.body, s.els = c.scope(n.body, body), c.scope(n.els, els)
	s.hasElse = len(n.els) > 0
	return s
}

// loopFilter compiles the if of a for into a function of its own.
func (c *compiler) loopFilter(s *forStmt, n *forNode, f *frame) {
	test := f.inner(newFunc(f.syms.fn))
	test.inFor = true
	test.syms.target(n.target, true)
	test.syms.expr(n.test)
	s.filter = &loopFilter{fn: test.syms.fn, enter: c.enter(test), target: c.target(n.target, test), test: c.expr(n.test, test)}
}

func hasScopedBlock(body []node) bool {
	return slices.ContainsFunc(body, func(n node) bool {
		switch n := n.(type) {
		case *blockNode:
			return n.scoped || hasScopedBlock(n.body)
		case *ifNode:
			return hasScopedBlock(n.body) || hasScopedBlock(n.els) ||
				slices.ContainsFunc(n.elifs, func(e *ifNode) bool { return hasScopedBlock(e.body) })
		case *forNode:
			return hasScopedBlock(n.body) || hasScopedBlock(n.els)
		case *setBlockNode:
			return hasScopedBlock(n.body)
		case *filterBlockNode:
			return hasScopedBlock(n.body)
		case *withNode:
			return hasScopedBlock(n.body)
		case *macroNode:
			return hasScopedBlock(n.body)
		case *callNode:
			return hasScopedBlock(n.body)
		case *autoescapeNode:
			return hasScopedBlock(n.body)
		}
		return false
	})
}

// target compiles the target of an assignment in f.
func (c *compiler) target(t *targetNode, f *frame) *target {
	if t.name == "" {
		out := &target{items: []*target{}}
		for _, x := range t.items {
			out.items = append(out.items, c.target(x, f))
		}
		return out
	}
	if t.name == "loop" && t.attr == "" && f.inFor {
		c.fail(t.line, "Can't assign to special loop variable in for-loop target")
	}
	return &target{ref: c.ref(t.name, t.line, f), attr: t.attr}
}

// exports lists the variables of a target that blocks shall see.
func exports(t *targetNode, f *frame) []export {
	if !f.toplevel {
		return nil
	}
	if t.name != "" && t.attr == "" {
		return []export{{name: t.name}}
	}
	var all []export
	for _, x := range t.items {
		all = append(all, exports(x, f)...)
	}
	return all
}

func (c *compiler) exported(t *targetNode, f *frame) []export {
	all := exports(t, f)
	for i := range all {
		all[i].ref = c.ref(all[i].name, t.line, f)
	}
	return all
}

func (c *compiler) assign(n *assignNode, f *frame) stmt {
	return &assignStmt{c.target(n.target, f), c.expr(n.x, f), c.exported(n.target, f), n.line}
}

func (c *compiler) setBlock(n *setBlockNode, f *frame) stmt {
	inner := f.inner(f.syms.fn)
	inner.syms.nodes(n.body)
	s := &setBlockStmt{line: n.line, scopeStmt: c.scope(n.body, inner)}
	s.target, s.exports = c.target(n.target, f), c.exported(n.target, f)
	if n.filter != nil {
		s.filter = c.expr(n.filter, inner)
	}
	return s
}

func (c *compiler) with(n *withNode, f *frame) stmt {
	inner := f.inner(f.syms.fn)
	for _, t := range n.targets {
		inner.syms.target(t, true)
	}
	inner.syms.nodes(n.body)
	s := &withStmt{line: n.line}
	inFor := inner.inFor
	inner.inFor = false // {% with loop = ... %} is allowed
	for i, t := range n.targets {
		s.targets = append(s.targets, c.target(t, inner))
		s.values = append(s.values, c.expr(n.values[i], f))
	}
	inner.inFor = inFor
	s.scopeStmt = c.scope(n.body, inner)
	return s
}

func (c *compiler) macroStmt(n *macroNode, f *frame) stmt {
	s := &macroStmt{def: c.macro(n, f), ref: c.ref(n.name, n.line, f)}
	if f.toplevel {
		s.export = n.name
	}
	return s
}

func (c *compiler) macro(n *macroNode, f *frame) *macroDef {
	inner := f.inner(newFunc(f.syms.fn))
	syms := inner.syms
	d := &macroDef{name: n.name, fn: syms.fn, args: n.args, index: map[string]int{}, line: n.line}
	for i, a := range n.args {
		d.index[a] = i
		syms.param(a)
	}
	for _, x := range n.defaults {
		syms.expr(x)
	}
	syms.nodes(n.body)
	special := func(name string, used bool) *ref {
		if !used || slices.Contains(n.args, name) {
			return nil
		}
		return &ref{0, syms.fn.slot(syms.param(name).name)}
	}
	used := uses(n.body, "caller", "kwargs", "varargs")
	if i := slices.Index(n.args, "caller"); used["caller"] && i >= 0 && i < len(n.args)-len(n.defaults) {
		c.fail(n.line, "the special \"caller\" argument must be omitted or be given a default")
	}
	d.usesCaller = used["caller"]
	d.caller = special("caller", used["caller"])
	d.kwargs = special("kwargs", used["kwargs"])
	d.varargs = special("varargs", used["varargs"])
	d.enter = c.enter(inner)
	for _, a := range n.args {
		d.params = append(d.params, c.ref(a, n.line, inner).slot)
	}
	for _, x := range n.defaults {
		d.defaults = append(d.defaults, c.expr(x, inner))
	}
	d.body = c.nodes(n.body, inner)
	return d
}

func (c *compiler) callStmt(n *callNode, f *frame) stmt {
	s := &callStmt{def: c.macro(&n.macroNode, f), line: n.line}
	if n.call != nil {
		c.expr(n.call, f)
		s.call = n.call
	}
	return s
}

func (c *compiler) blockStmt(n *blockNode, f *frame) stmt {
	if _, ok := c.found[n.name]; ok {
		c.fail(n.line, "block '%s' defined twice", n.name)
		return nil
	}
	c.found[n.name] = &foundBlock{n, f.inFor}
	c.names = append(c.names, n.name)
	if n.required {
		return &failStmt{n.line, KindRuntime, "Required block '" + n.name + "' not found"}
	}
	s := &blockStmt{name: n.name, line: n.line}
	if n.scoped {
		s.locals = c.locals(f)
	}
	s.scoped = n.scoped
	return s
}

// locals are the variables assigned in f and around it.
func (c *compiler) locals(f *frame) []export {
	var all []export
	seen := map[string]bool{}
	for s := f.syms; s != nil; s = s.parent {
		for b := s; b != nil; b = b.base {
			for name := range b.stores {
				if !seen[name] {
					seen[name] = true
					all = append(all, export{name, c.ref(name, 0, f)})
				}
			}
		}
	}
	return all
}
