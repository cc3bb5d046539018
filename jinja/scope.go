package jinja

import "slices"

// A scope holds the variables of a frame: of the template, of a turn of a loop, of a call of a macro. Other names are
// the enclosing scope's. Names are numbers, which the parser gives out.
type scope struct {
	parent *scope // nil for the template's own scope
	all    []Value
	few    []binding   // variables of an inner scope
	index  map[int]int // places in few, made for more than fewKeys
}

type binding struct {
	name int
	v    Value
}

// A frame is the part of a template that a scope serves: the template, the body of a loop, a macro, a block. Jinja2
// decides when it compiles a template which variable a name means, and a name that a frame assigns is the frame's own
// from its start. For example, {% for x in y %}{{ n }}{% endfor %}{% set n = 1 %} prints nothing, whatever n was. The
// rule does not hold for names that a frame around knows, that the frame reads first, or that an if assigns.
type frame struct {
	parent *frame
	known  map[int]bool // names read or assigned in the frame
	hidden []int        // names local to the frame from its start
	ifs    int          // ifs under way
}

// knows reports whether f or a frame around f knows a name.
func (f *frame) knows(name int) bool {
	for ; f != nil; f = f.parent {
		if f.known[name] {
			return true
		}
	}
	return false
}

func (f *frame) read(name int) {
	if !f.knows(name) {
		f.known[name] = true
	}
}

// assign notes the names of a target. given names have a value when the frame begins.
func (f *frame) assign(t *target, given bool) {
	for _, x := range t.items {
		f.assign(x, given)
	}
	switch {
	case t.items != nil:
	case t.attr != "":
		f.read(t.id)
	case !f.known[t.id]:
		f.known[t.id] = true
		if !given && f.ifs == 0 {
			f.hidden = append(f.hidden, t.id)
		}
	}
}

// close keeps only hidden names that no enclosing frame knows.
func (f *frame) close() {
	f.hidden = slices.DeleteFunc(f.hidden, f.parent.knows)
}

// newScope returns a scope for a frame.
func newScope(r *rendering, parent *scope, f *frame) *scope {
	s := &scope{parent: parent}
	s.begin(r, f)
	return s
}

// begin takes all variables out of an inner scope.
func (s *scope) begin(r *rendering, f *frame) {
	clear(s.few)
	s.few, s.index = s.few[:0], nil
	for _, name := range f.hidden {
		s.set(r, name, nil)
	}
}

// get returns a variable, or nil.
func (s *scope) get(r *rendering, name int) Value {
	hops := 8
	for ; s.parent != nil; s = s.parent {
		if i := s.place(name); i >= 0 {
			return s.few[i].v
		}
		hops++
	}
	r.step(hops / 8)
	return s.all[name]
}

func (s *scope) place(name int) int {
	if s.index != nil {
		if i, ok := s.index[name]; ok {
			return i
		}
		return -1
	}
	for i := range s.few {
		if s.few[i].name == name {
			return i
		}
	}
	return -1
}

// set assigns a variable of the scope.
func (s *scope) set(r *rendering, name int, v Value) {
	if s.parent == nil {
		s.all[name] = v
		return
	}
	if i := s.place(name); i >= 0 {
		s.few[i].v = v
		return
	}
	if len(s.few) == cap(s.few) {
		r.allocItems(2 * max(2*len(s.few), 4))
		s.few = slices.Grow(s.few, max(len(s.few), 4))
	}
	s.few = append(s.few, binding{name, v})
	switch n := len(s.few); {
	case s.index != nil:
		s.index[name] = n - 1
	case n > fewKeys:
		s.index = map[int]int{}
		for i, b := range s.few {
			s.index[b.name] = i
		}
	}
}
