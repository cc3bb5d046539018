package jinja

import (
	"sort"
	"strings"
	"unicode/utf8"
)

// str is a string: valid UTF-8, indexed by code point in templates.
type str struct {
	s     string
	marks []span // sorted, apart from each other, none outside s
	base  int    // where s begins in the bytes that marks count, so that parts share them
	safe  bool   // Markup: adding to it escapes the other side
}

// A span is the bytes [from, to) of a text that are marked.
type span struct{ from, to int }

// clip is a mark of s in bytes of s, of which it may reach beyond the ends.
func (s str) clip(p span) span { return span{max(p.from-s.base, 0), min(p.to-s.base, len(s.s))} }

func (s str) kind() string {
	if s.safe {
		return "Markup"
	}
	return "str"
}

// plain is a string without marks.
func plain(s string) str { return str{s: s} }

// mark marks all of s.
func (s str) mark() str {
	if s.s != "" {
		s.marks, s.base = []span{{0, len(s.s)}}, 0
	}
	return s
}

// like gives text made from s the marks of s: all of it if any of s has them.
// It serves where the bytes of s cannot be told apart in the text.
func (s str) like(text string) str {
	t := str{s: text, safe: s.safe}
	if len(s.marks) > 0 {
		return t.mark()
	}
	return t
}

// sub is the bytes [i, j) of s.
func (s str) sub(i, j int) str {
	t := str{s: s.s[i:j], safe: s.safe}
	if len(s.marks) == 0 || i == j {
		return t
	}
	t.base = s.base + i
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
	b     []byte
	marks []span
	limit int // bytes, if > 0
	err   error
}

func (m *machine) text() *text { return &text{m: m} }

// room pays for n more bytes, and reports whether there were any left.
func (t *text) room(n int) bool {
	if t.err == nil && t.limit > 0 && len(t.b)+n > t.limit {
		t.err = limitError("more than %d bytes of output", t.limit)
	}
	if t.err == nil && n > cap(t.b)-len(t.b) {
		size := max(len(t.b)+n, 2*cap(t.b), 32)
		if t.err = t.m.alloc(size); t.err == nil {
			t.b = append(make([]byte, 0, size), t.b...)
		}
	}
	return t.err == nil
}

// raw adds text of the template.
func (t *text) raw(s string) {
	if t.room(len(s)) {
		t.b = append(t.b, s...)
	}
}

// from adds text made of bytes that were marked, or were not.
func (t *text) from(s string, marked bool) {
	at := len(t.b)
	t.raw(s)
	if marked && t.err == nil {
		t.span(at, len(t.b))
	}
}

// add adds a string with its marks.
func (t *text) add(s str) {
	at := len(t.b)
	t.raw(s.s)
	if t.err != nil {
		return
	}
	for _, p := range s.marks {
		p = s.clip(p)
		t.span(at+p.from, at+p.to)
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
	if n > t.m.memory/len(s.s) {
		t.err = t.m.alloc(t.m.memory + 1)
		return
	}
	for range n {
		t.add(s)
	}
}

func (t *text) span(from, to int) {
	if from == to {
		return
	}
	if n := len(t.marks); n > 0 && t.marks[n-1].to == from {
		t.marks[n-1].to = to
		return
	}
	t.fail(t.m.alloc(32))
	t.marks = append(t.marks, span{from, to})
}

func (t *text) str() (str, error) {
	if t.err != nil {
		return str{}, t.err
	}
	if err := t.m.alloc(len(t.b)); err != nil {
		return str{}, err
	}
	return str{s: string(t.b), marks: t.marks}, nil
}

// pieces calls yield for the longest runs of s that are marked or not.
func (s str) pieces(yield func(part string, marked bool)) {
	at := 0
	for _, p := range s.marks {
		p = s.clip(p)
		if at < p.from {
			yield(s.s[at:p.from], false)
		}
		yield(s.s[p.from:p.to], true)
		at = p.to
	}
	if at < len(s.s) {
		yield(s.s[at:], false)
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
	t := m.text()
	t.add(a)
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
	s.pieces(func(part string, marked bool) {
		if err := m.alloc(len(part)); err != nil {
			t.err = err
			return
		}
		t.from(htmlEscapes.Replace(part), marked)
	})
	e, err := t.str()
	e.safe = true
	return e, err
}
