package jinja

import "strings"

// What a rendering holds is counted as a garbage collector would: the values that
// variables, loops and texts under way lead to. To them comes all that statements
// under way have made so far, since the interpreter may hold it. It is counted
// anew whenever the values made since the last count could be too many.

// An epoch is a count. Values know the last one that saw them, so that each is
// counted once.
type epoch uint32

// given marks lists and tuples that came with the variables: they are not the
// rendering's own, and others may read them at the same time. A Dict is given if
// it knows no epoch; those of a rendering begin with made.
const (
	given       = ^epoch(0)
	made  epoch = 1
)

// live is what one rendering holds.
type live struct {
	epoch   epoch
	counted int // bytes at the last count
	fresh   int // bytes made since

	temporary int // bytes that statements under way made
	stored    int // of them, those of statements that changed namespaces
	began     int // temporary when the innermost statement began

	envs  []*env
	texts []*text
	loops []*loop
}

// A statement is what live was when it began.
type statement struct{ temporary, stored, began, envs, texts, loops int }

// begin enters a statement; the caller must return with end.
func (l *live) begin() statement {
	s := statement{l.temporary, l.stored, l.began, len(l.envs), len(l.texts), len(l.loops)}
	l.began = l.temporary
	return s
}

// end leaves a statement. What it made is held by variables now, or by nothing. In
// a macro, what went into a namespace stays counted until the statement that
// called it ends: that one may still hold older values.
func (l *live) end(s statement, inMacro bool) {
	l.temporary = s.temporary
	if inMacro {
		l.temporary += l.stored - s.stored
	} else {
		l.stored = s.stored
	}
	l.began = s.began
	l.envs, l.texts, l.loops = cut(l.envs, s.envs), cut(l.texts, s.texts), cut(l.loops, s.loops)
}

// cut shortens a list, which then holds nothing of the rest.
func cut[T any](list []*T, n int) []*T {
	clear(list[n:])
	return list[:n]
}

// store notes that the statement under way changes a namespace.
func (l *live) store() { l.stored += max(l.temporary-l.began, 0) }

// A buffer is the bytes of strings that a rendering made.
type buffer struct {
	b     strings.Builder
	marks []span
	more  int  // bytes beside b, or that b had before it grew
	busy  bool // a text goes on in it
	seen  epoch
}

// count counts the bytes of live values.
func (m *machine) count() error {
	l := &m.live
	l.epoch = max(l.epoch, made) + 1
	c := &counter{epoch: l.epoch, n: l.temporary}
	for _, t := range l.texts {
		c.buffer(t.own)
	}
	for _, e := range l.envs {
		c.env(e)
	}
	for _, x := range l.loops {
		c.value(x)
	}
	for len(c.todo) > 0 {
		v := c.todo[len(c.todo)-1]
		c.todo = c.todo[:len(c.todo)-1]
		c.value(v)
		if err := m.step(1); err != nil {
			return err
		}
	}
	l.counted, l.fresh = c.n, 0
	return nil
}

type counter struct {
	epoch epoch
	n     int
	todo  []Value
}

// first reports whether a value was not seen yet in this count.
func (c *counter) first(seen *epoch) bool {
	if *seen == c.epoch {
		return false
	}
	*seen = c.epoch
	return true
}

func (c *counter) buffer(b *buffer) {
	if b != nil && c.first(&b.seen) {
		c.n += 64 + b.b.Cap() + b.more + 24*cap(b.marks)
	}
}

func (c *counter) values(size int, all ...[]Value) {
	c.n += size
	for _, v := range all {
		c.n += itemSize * cap(v)
		c.todo = append(c.todo, v...)
	}
}

func (c *counter) env(e *env) {
	for ; e != nil && c.first(&e.seen); e = e.up {
		c.values(64, e.slots)
		c.scope(e.scope)
	}
}

func (c *counter) scope(s *scope) {
	for ; s != nil && c.first(&s.seen); s = s.parent {
		for _, v := range s.vars {
			c.n += 4 * itemSize
			c.todo = append(c.todo, v)
		}
	}
}

func (c *counter) value(v Value) {
	switch v := v.(type) {
	case integer:
		c.n += 16
		if v.big != nil {
			c.n += v.big.BitLen() / 8
		}
	case str:
		c.n += 64
		c.buffer(v.own)
	case *list:
		if v.seen != given && c.first(&v.seen) {
			c.values(32, v.items)
		}
	case *tuple:
		if v.seen != given && c.first(&v.seen) {
			c.values(64, v.items)
		}
	case *Dict:
		if v.seen != 0 && c.first(&v.seen) {
			c.values(64+(dictItem-2)*itemSize*v.Len(), v.keys, v.values)
		}
	case *generator:
		if c.first(&v.seen) {
			c.values(64+v.bytes, v.holds)
		}
	case *loop:
		if c.first(&v.seen) {
			c.values(128, v.rest)
			c.env(v.env)
			c.todo = append(c.todo, v.over, v.before, v.current, v.after)
			if v.changed != nil {
				c.todo = append(c.todo, v.changed)
			}
		}
	case *macro:
		c.n += 32
		c.env(v.env)
	case *templateRef:
		c.scope(v.scope)
	case *blockRef:
		c.n += 32
		c.scope(v.scope)
	case nil, none, boolean, float:
	default:
		c.n += 64
		c.todo = append(c.todo, parts(v)...)
	}
}

// parts are the values that a small one leads to.
func parts(v Value) []Value {
	switch v := v.(type) {
	case *undefined:
		return []Value{v.owner, v.name}
	case *function:
		return []Value{v.self}
	case *namespace:
		return []Value{v.attrs}
	case *view:
		return []Value{v.d}
	case *cycler:
		return v.items
	case *joiner:
		return []Value{v.sep}
	}
	return nil
}
