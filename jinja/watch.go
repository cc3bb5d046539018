package jinja

// watch tells Options.Watch of two strings that are compared, if one is marked.
func (m *machine) watch(a, b str) {
	if m.opt.Watch == nil || b.s == "" || a.s == "" || (len(a.marks) > 0) == (len(b.marks) > 0) {
		return
	}
	if len(b.marks) > 0 {
		a, b = b, a
	}
	m.opt.Watch(a.s, b.s)
}

// mostWatched bounds what one look-up tells of.
const mostWatched = 64

// watchAll is watch for the strings among others.
func (m *machine) watchAll(v Value, others []Value) {
	s, ok := v.(str)
	if !ok || m.opt.Watch == nil {
		return
	}
	for _, x := range others[:min(len(others), mostWatched)] {
		if x, ok := x.(str); ok {
			m.watch(s, x)
		}
	}
}

// watchArgs is watch for the arguments of a method or a filter of v.
func (m *machine) watchArgs(v Value, a *args) {
	if m.opt.Watch == nil {
		return
	}
	m.watchAll(v, a.pos)
	for _, x := range a.pos[:min(len(a.pos), mostWatched)] {
		if t, ok := x.(*tuple); ok { // as startswith takes
			m.watchAll(v, t.items)
		}
	}
	if a.kw != nil {
		m.watchAll(v, a.kw.values)
	}
}
