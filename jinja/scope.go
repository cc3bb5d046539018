package jinja

// Jinja2 compiles a template to Python functions, and decides at that time which
// variable a name means. What follows keeps its rules (jinja2/idtracking.py):
// a name that a frame assigns anywhere is that frame's own, from its start.

// A codeFunc is what Python would run as one function: the template, a block, a
// macro, a recursive loop, the filter of a loop. It owns slots for variables.
type codeFunc struct {
	up    *codeFunc
	slots map[slotName]int
}

// slotName is a variable of a function: frames of the same level share it.
type slotName struct {
	level int
	name  string
}

func newFunc(up *codeFunc) *codeFunc { return &codeFunc{up, map[slotName]int{}} }

func (f *codeFunc) slot(n slotName) int {
	i, ok := f.slots[n]
	if !ok {
		i = len(f.slots)
		f.slots[n] = i
	}
	return i
}

// A ref is a slot seen from a function: up functions outwards.
type ref struct{ up, slot int }

type loadKind uint8

const (
	loadParam     loadKind = iota // set by who enters the frame
	loadResolve                   // looked up among the template's variables
	loadAlias                     // begins as an outer variable
	loadUndefined                 // begins unset
)

// A load says how a variable gets its value when its frame is entered.
type load struct {
	kind loadKind
	from variable // of loadAlias
}

// variable is a slot of a function.
type variable struct {
	fn   *codeFunc
	name slotName
}

// symbols are the names of one frame.
type symbols struct {
	fn     *codeFunc
	parent *symbols // the frame around
	base   *symbols // in a branch of an if: the frame before it
	level  int
	refs   map[string]variable
	loads  map[variable]load
	order  []variable // of loads
	stores map[string]bool
}

func newSymbols(fn *codeFunc, parent *symbols) *symbols {
	s := &symbols{fn: fn, parent: parent}
	if parent != nil {
		s.level = parent.level + 1
	}
	s.clear()
	return s
}

func (s *symbols) clear() {
	s.refs, s.loads, s.stores = map[string]variable{}, map[variable]load{}, map[string]bool{}
}

// branch is a copy in which a branch of an if is looked at.
func (s *symbols) branch() *symbols {
	b := &symbols{fn: s.fn, parent: s.parent, base: s, level: s.level}
	b.clear()
	return b
}

// own finds a name of this frame.
func (s *symbols) own(name string) (variable, bool) {
	for f := s; f != nil; f = f.base {
		if v, ok := f.refs[name]; ok {
			return v, true
		}
	}
	return variable{}, false
}

// find finds a name in this frame or those around it.
func (s *symbols) find(name string) (variable, bool) {
	for f := s; f != nil; f = f.parent {
		if v, ok := f.own(name); ok {
			return v, true
		}
	}
	return variable{}, false
}

func (s *symbols) outer(name string) (variable, bool) {
	if s.parent == nil {
		return variable{}, false
	}
	return s.parent.find(name)
}

func (s *symbols) stored(name string) bool {
	for f := s; f != nil; f = f.base {
		if f.stores[name] {
			return true
		}
	}
	return false
}

func (s *symbols) define(name string, l load) variable {
	v := variable{s.fn, slotName{s.level, name}}
	s.refs[name] = v
	s.setLoad(v, l)
	return v
}

func (s *symbols) setLoad(v variable, l load) {
	if _, ok := s.loads[v]; !ok {
		s.order = append(s.order, v)
	}
	s.loads[v] = l
}

// store notes an assignment.
func (s *symbols) store(name string) {
	if !s.stored(name) {
		s.stores[name] = true
	}
	if _, ok := s.own(name); ok {
		return
	}
	if v, ok := s.outer(name); ok {
		s.define(name, load{kind: loadAlias, from: v})
	} else {
		s.define(name, load{kind: loadUndefined})
	}
}

// param notes a variable that is set from outside.
func (s *symbols) param(name string) variable {
	s.stores[name] = true
	return s.define(name, load{kind: loadParam})
}

// read notes a use.
func (s *symbols) read(name string) {
	if _, ok := s.find(name); !ok {
		s.define(name, load{kind: loadResolve})
	}
}

// merge takes over what the branches of an if did. What only some of them
// assign begins as what it was outside.
func (s *symbols) merge(branches ...*symbols) {
	fresh := map[string]bool{}
	for _, b := range branches {
		for name := range b.stores {
			if !s.stored(name) {
				fresh[name] = true
			}
		}
	}
	for _, b := range branches {
		for name, v := range b.refs {
			s.refs[name] = v
		}
		for _, v := range b.order {
			s.setLoad(v, b.loads[v])
		}
		for name := range b.stores {
			s.stores[name] = true
		}
	}
	for name := range fresh {
		v, _ := s.find(name)
		if outer, ok := s.outer(name); ok {
			s.setLoad(v, load{kind: loadAlias, from: outer})
		} else {
			s.setLoad(v, load{kind: loadResolve})
		}
	}
}

// expr notes the names that an expression reads.
func (s *symbols) expr(x expr) {
	switch x := x.(type) {
	case nil:
	case *nameExpr:
		s.read(x.name)
	default:
		for _, c := range x.children() {
			s.expr(c)
		}
	}
}

// target notes the names that are assigned to.
func (s *symbols) target(t *targetNode, asParam bool) {
	switch {
	case t.attr != "":
		s.read(t.name)
	case t.name == "":
		for _, x := range t.items {
			s.target(x, asParam)
		}
	case asParam:
		s.param(t.name)
	default:
		s.store(t.name)
	}
}

func (s *symbols) nodes(body []node) {
	for _, n := range body {
		s.node(n)
	}
}

// node notes what a statement does to the frame it stands in. Bodies that are
// frames of their own are not looked into.
func (s *symbols) node(n node) {
	switch n := n.(type) {
	case *outputNode:
		for _, p := range n.parts {
			s.expr(p.x)
		}
	case *ifNode:
		s.branches(n)
	case *forNode:
		s.expr(n.iter)
	case *assignNode:
		s.expr(n.x)
		s.target(n.target, false)
	case *setBlockNode:
		s.target(n.target, false)
	case *filterBlockNode:
		s.expr(n.filter)
	case *withNode:
		for _, v := range n.values {
			s.expr(v)
		}
	case *macroNode:
		s.store(n.name)
	case *callNode:
		if n.call != nil {
			s.expr(n.call)
		}
	case *loadNode:
		s.expr(n.x)
		for _, name := range n.names {
			s.store(name)
		}
	}
}

func (s *symbols) branches(n *ifNode) {
	s.expr(n.test)
	body, elifs, els := s.branch(), s.branch(), s.branch()
	body.nodes(n.body)
	for _, e := range n.elifs {
		elifs.branches(e)
	}
	els.nodes(n.els)
	s.merge(body, elifs, els)
}

// uses reports which of the names a body reads before it assigns them, looking
// into everything but blocks (jinja2/compiler.py, find_undeclared).
func uses(body []node, names ...string) map[string]bool {
	u := &usage{watched: map[string]bool{}, found: map[string]bool{}}
	for _, n := range names {
		u.watched[n] = true
	}
	u.nodes(body)
	return u.found
}

type usage struct{ watched, found map[string]bool }

func (u *usage) expr(x expr) {
	switch x := x.(type) {
	case nil:
	case *nameExpr:
		if u.watched[x.name] {
			u.found[x.name] = true
		}
	default:
		for _, c := range x.children() {
			u.expr(c)
		}
	}
}

func (u *usage) target(t *targetNode) {
	if t.name != "" && t.attr == "" {
		delete(u.watched, t.name)
	}
	for _, x := range t.items {
		u.target(x)
	}
}

func (u *usage) nodes(body []node) {
	for _, n := range body {
		u.node(n)
	}
}

func (u *usage) node(n node) {
	switch n := n.(type) {
	case *outputNode:
		for _, p := range n.parts {
			u.expr(p.x)
		}
	case *ifNode:
		u.expr(n.test)
		u.nodes(n.body)
		for _, e := range n.elifs {
			u.node(e)
		}
		u.nodes(n.els)
	case *forNode:
		u.target(n.target)
		u.expr(n.iter)
		u.nodes(n.body)
		u.nodes(n.els)
		u.expr(n.test)
	case *assignNode:
		u.target(n.target)
		u.expr(n.x)
	case *setBlockNode:
		u.target(n.target)
		u.expr(n.filter)
		u.nodes(n.body)
	case *filterBlockNode:
		u.nodes(n.body)
		u.expr(n.filter)
	case *withNode:
		for _, t := range n.targets {
			u.target(t)
		}
		for _, v := range n.values {
			u.expr(v)
		}
		u.nodes(n.body)
	case *macroNode:
		u.macro(n)
	case *callNode:
		if n.call != nil {
			u.expr(n.call)
		}
		u.macro(&n.macroNode)
	case *loadNode:
		u.expr(n.x)
	case *autoescapeNode:
		u.expr(n.x)
		u.nodes(n.body)
	}
}

func (u *usage) macro(n *macroNode) {
	for _, a := range n.args {
		delete(u.watched, a)
	}
	for _, d := range n.defaults {
		u.expr(d)
	}
	u.nodes(n.body)
}
