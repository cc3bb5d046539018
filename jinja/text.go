package jinja

import (
	"sort"
	"strings"
	"unicode/utf8"
)

// str is a string: valid UTF-8, indexed by code point in templates.
type str struct {
	s     string
	marks []span  // sorted, apart from each other, none outside s
	base  int     // where s begins in the bytes that marks count, so that parts share them
	own   *buffer // that holds s from base on, or nil if no rendering made it
	safe  bool    // Markup: adding to it escapes the other side
}

// A span is the bytes [from, to) of a text that are marked, and the origin of the mark.
type span struct{ from, to, of int }

// clip is a mark of s in bytes of s, of which it may reach beyond the ends.
func (s str) clip(p span) span { return span{max(p.from-s.base, 0), min(p.to-s.base, len(s.s)), p.of} }

func (s str) kind() string {
	if s.safe {
		return "Markup"
	}
	return "str"
}

// plain is a string without marks.
func plain(s string) str { return str{s: s} }

// mark marks all of s with an origin.
func (s str) mark(of int) str {
	if s.s != "" {
		s.marks, s.base = []span{{0, len(s.s), of}}, 0
	}
	return s
}

// like gives text made from s the marks of s: all of it if any of s has them, and each origin a part.
// It serves where the bytes of s cannot be told apart in the text.
func (s str) like(text string) str {
	t := str{s: text, safe: s.safe, own: &buffer{more: len(text)}}
	if len(s.marks) == 0 {
		return t
	}
	t = t.mark(s.marks[0].of)
	for _, p := range s.marks[1:] {
		last := &t.marks[len(t.marks)-1]
		_, n := utf8.DecodeRuneInString(text[last.from:])
		if at := last.from + n; p.of != last.of && at < len(text) {
			last.to, t.marks = at, append(t.marks, span{at, len(text), p.of})
		}
	}
	return t
}

// sub is the bytes [i, j) of s.
func (s str) sub(i, j int) str {
	t := str{s: s.s[i:j], safe: s.safe}
	if i == j {
		return t
	}
	t.own, t.base = s.own, s.base+i
	if len(s.marks) == 0 {
		return t
	}
	first := sort.Search(len(s.marks), func(k int) bool { return s.marks[k].to > t.base })
	last := sort.Search(len(s.marks), func(k int) bool { return s.marks[k].from >= t.base+j-i })
	t.marks = s.marks[first:max(first, last)]
	return t
}

// unsafe is s as an exact str, not Markup.
func (s str) unsafe() str {
	s.safe = false
	return s
}

// length is the number of code points.
func (s str) length() int { return utf8.RuneCountInString(s.s) }

// offset is the byte at which code point i begins, for 0 <= i <= length.
func (s str) offset(i int) int {
	if len(s.s) == s.length() {
		return i
	}
	for at := range s.s {
		if i == 0 {
			return at
		}
		i--
	}
	return len(s.s)
}

// A text grows by parts that keep their marks. After the first error it only
// stays as it is, and str returns that error.
type text struct {
	m     *machine
	own   *buffer
	from  int // where it begins in own
	marks int // of own, before its own
	index int // in the list of texts under way
	limit int // bytes, if > 0
	goOn  bool
	size0 int // bytes of own when it began
	room0 int
	err   error
}

func (m *machine) text() *text { return m.textIn(&buffer{}) }

func (m *machine) textIn(own *buffer) *text {
	t := &text{m: m, own: own, index: len(m.live.texts), size0: own.b.Len(), room0: own.b.Cap()}
	m.live.texts = append(m.live.texts, t)
	return t
}

// continued is a text that begins with s. Where s is the end of what its buffer
// holds, the text goes on there, so that a string that grows by parts takes time
// for the parts alone.
func (m *machine) continued(s str) *text {
	if own := s.own; own != nil && !own.busy && s.s != "" && s.base+len(s.s) == own.b.Len() {
		marks := len(own.marks) - len(s.marks)
		if len(s.marks) == 0 || marks >= 0 && &own.marks[marks] == &s.marks[0] {
			t := m.textIn(own)
			t.from, t.marks, t.goOn, own.busy = s.base, marks, true, true
			return t
		}
	}
	t := m.text()
	t.add(s)
	return t
}

func (t *text) size() int { return t.own.b.Len() - t.from }

// room pays for n more bytes, and reports whether there were any left.
func (t *text) room(n int) bool {
	if t.err != nil {
		return false
	}
	if t.limit > 0 && t.size()+n > t.limit {
		t.err = limitError("more than %d bytes of output", t.limit)
		return false
	}
	b := &t.own.b
	old := b.Cap()
	if n <= old-b.Len() {
		return true
	}
	more := max(n, 32)
	if t.err = t.m.room(2*old + more); t.err != nil {
		return false
	}
	if t.goOn {
		t.own.more += old // strings made of it may hold it
	}
	b.Grow(more)
	t.m.live.fresh += b.Cap()
	t.err = t.m.step(b.Cap() / 64)
	return t.err == nil
}

// raw adds text of the template.
func (t *text) raw(s string) {
	if !t.room(len(s)) {
		return
	}
	for s != "" && t.err == nil {
		n := min(len(s), lookEvery)
		t.own.b.WriteString(s[:n])
		s, t.err = s[n:], t.m.pass(n)
	}
}

// made adds text made of bytes that were marked with an origin, or were not.
func (t *text) made(s string, marked bool, of int) {
	at := t.own.b.Len()
	t.raw(s)
	if marked && t.err == nil {
		t.addMark(span{at, t.own.b.Len(), of})
	}
}

// add adds a string with its marks.
func (t *text) add(s str) {
	at := t.own.b.Len()
	t.raw(s.s)
	if t.err != nil {
		return
	}
	for _, p := range s.marks {
		p = s.clip(p)
		t.addMark(span{at + p.from, at + p.to, p.of})
	}
}

// join adds what must be a string: a block's filter and a call are not printed,
// but joined to the text.
func (t *text) join(v Value) error {
	s, ok := v.(str)
	if !ok {
		return typeError("sequence item: expected str instance, %s found", v.kind())
	}
	t.add(s)
	return t.err
}

// repeat adds s n times.
func (t *text) repeat(s str, n int) {
	if n <= 0 || len(s.s) == 0 || t.err != nil {
		return
	}
	if n > t.m.opt.MaxMemory/len(s.s) {
		t.err = t.m.room(-1)
		return
	}
	for range n {
		t.add(s)
	}
}

func (t *text) addMark(p span) {
	if p.from == p.to {
		return
	}
	marks := t.own.marks
	if n := len(marks); n > t.marks && marks[n-1].to == p.from && marks[n-1].of == p.of {
		marks[n-1].to = p.to // which a string that ends before does not see
		return
	}
	t.fail(t.m.alloc(48))
	t.own.marks = append(marks, p)
}

// str ends the text.
func (t *text) str() (str, error) {
	own := t.own
	t.m.live.texts = t.m.live.texts[:min(t.index, len(t.m.live.texts))]
	own.busy = false
	if t.err != nil {
		return str{}, t.err
	}
	t.m.live.temporary += max(own.b.Cap()-t.room0, own.b.Len()-t.size0)
	return str{s: own.b.String()[t.from:], marks: own.marks[t.marks:], base: t.from, own: own}, nil
}

// change adds what change makes of s, piece by piece: of each piece that is marked, all is.
func (t *text) change(s str, change func(string) string) {
	s.pieces(func(part string, marked bool, of int) {
		for part != "" && t.err == nil {
			n := len(part)
			if n > lookEvery {
				for n = lookEvery; !utf8.RuneStart(part[n]); n-- {
				}
			}
			t.fail(t.m.step(n / 16))
			t.made(change(part[:n]), marked, of)
			part = part[n:]
		}
	})
}

// pieces calls yield for the longest runs of s that have one mark, or none.
func (s str) pieces(yield func(part string, marked bool, of int)) {
	at := 0
	for _, p := range s.marks {
		p = s.clip(p)
		if at < p.from {
			yield(s.s[at:p.from], false, 0)
		}
		yield(s.s[p.from:p.to], true, p.of)
		at = p.to
	}
	if at < len(s.s) {
		yield(s.s[at:], false, 0)
	}
}

// concat is a + b of two strings, where Markup escapes the other side.
func (m *machine) concat(a, b str) (Value, error) {
	safe := a.safe || b.safe
	if a.safe != b.safe {
		var err error
		if a.safe {
			b, err = m.escape(b)
		} else {
			a, err = m.escape(a)
		}
		if err != nil {
			return nil, err
		}
	}
	t := m.continued(a)
	t.add(b)
	s, err := t.str()
	s.safe = safe
	return s, err
}

var htmlEscapes = strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;")

// escape is markupsafe.escape of a string.
func (m *machine) escape(s str) (str, error) {
	if s.safe {
		return s, nil
	}
	t := m.text()
	if t.err = m.alloc(len(s.s)); t.err == nil {
		t.change(s, htmlEscapes.Replace)
	}
	e, err := t.str()
	e.safe = true
	return e, err
}
