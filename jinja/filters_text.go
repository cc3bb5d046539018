package jinja

import (
	"html"
	"strings"
	"unicode/utf8"
)

// textFilter is a method of str as a filter of anything.
func textFilter(name string, f func(string) string) func(*machine, Value, *args) (Value, error) {
	return takes("do_"+name, "", func(m *machine, v Value, _ []Value) (Value, error) {
		s, err := m.softStr(v)
		if err != nil {
			return nil, err
		}
		return m.mapText(s, f)
	})
}

func filterString(m *machine, v Value, _ []Value) (Value, error) {
	s, err := m.softStr(v)
	return s, err
}

func filterSafe(m *machine, v Value, _ []Value) (Value, error) {
	s, err := m.softStr(v)
	s.safe = true
	return s, err
}

func filterEscape(m *machine, v Value, _ []Value) (Value, error) {
	s, err := m.escapeValue(v)
	return s, err
}

func filterForceEscape(m *machine, v Value, _ []Value) (Value, error) {
	s, err := m.str(v)
	if err != nil {
		return nil, err
	}
	s, err = m.escape(s)
	return s, err
}

func filterTrim(m *machine, v Value, p []Value) (Value, error) {
	s, err := m.softStr(v)
	if err != nil {
		return nil, err
	}
	chars := p[0]
	if c, ok := chars.(str); ok && s.safe {
		if chars, err = m.escape(c); err != nil {
			return nil, err
		}
	}
	return m.strip(s, chars, true, true)
}

func filterCenter(m *machine, v Value, p []Value) (Value, error) {
	width, err := intArg(p[0], 80)
	if err != nil {
		return nil, err
	}
	s, err := m.softStr(v)
	if err != nil {
		return nil, err
	}
	c, err := m.pad(s, width, plain(" "), func(n, width int) int { return n/2 + n&width&1 })
	if t, ok := c.(str); ok {
		t.safe = s.safe
		c = t
	}
	return c, err
}

func filterReplace(m *machine, v Value, p []Value) (Value, error) {
	var err error
	var texts [3]str
	for i, x := range []Value{v, p[0], p[1]} {
		if texts[i], err = m.str(x); err != nil {
			return nil, err
		}
	}
	n := -1
	if p[2] != nil && p[2] != None {
		if n, err = indexOf(p[2]); err != nil {
			return nil, err
		}
	}
	return m.replace(texts[0], texts[1], texts[2], n)
}

func filterFormat(m *machine, v Value, a *args) (Value, error) {
	if len(a.pos) > 0 && a.kw.Len() > 0 {
		return nil, errorf(KindRuntime, "can't handle positional and keyword arguments at the same time")
	}
	s, err := m.softStr(v)
	if err != nil {
		return nil, err
	}
	if a.kw.Len() > 0 {
		return m.percent(s, a.kw)
	}
	return m.percent(s, &tuple{items: a.pos})
}

func filterTitle(m *machine, v Value, _ []Value) (Value, error) {
	s, err := m.softStr(v)
	if err != nil {
		return nil, err
	}
	return m.mapText(s.unsafe(), titleWords)
}

// titleWords begins each word with a capital, words being the text between white
// space and opening brackets.
func titleWords(s string) string {
	var b strings.Builder
	for s != "" {
		n := strings.IndexFunc(s, func(r rune) bool { return !isWordStart(r) })
		if n < 0 {
			n = len(s)
		}
		b.WriteString(upper(s[:n]))
		if s = s[n:]; s == "" {
			break
		}
		if n = strings.IndexFunc(s, isWordStart); n < 0 {
			n = len(s)
		}
		_, w := utf8.DecodeRuneInString(s)
		b.WriteString(upper(s[:w]))
		b.WriteString(lower(s[w:n]))
		s = s[n:]
	}
	return b.String()
}

func isWordStart(r rune) bool { return isSpace(r) || strings.ContainsRune("-({[<", r) }

func filterIndent(m *machine, v Value, p []Value) (Value, error) {
	s, ok := v.(str)
	if !ok {
		if u, ok := v.(*undefined); ok {
			return nil, u.fail()
		}
		return nil, unsupported("+=", v, str{})
	}
	indent, err := m.indention(p[0], s.safe)
	if err != nil {
		return nil, err
	}
	first, err := m.flag(p[1])
	if err != nil {
		return nil, err
	}
	blank, err := m.flag(p[2])
	if err != nil {
		return nil, err
	}
	lines, err := m.splitLines(s, false)
	if err != nil {
		return nil, err
	}
	if tail, _ := utf8.DecodeLastRuneInString(s.s); s.s == "" || isLineBreak(tail) && tail != '\r' {
		lines = append(lines, s.sub(len(s.s), len(s.s))) // of the newline that Jinja2 adds
	}
	t := m.text()
	for i, line := range lines {
		line := line.(str)
		if i > 0 {
			t.raw("\n")
		}
		if i == 0 && first || i > 0 && (blank || line.s != "") {
			t.add(indent)
		}
		t.add(line)
	}
	r, err := t.str()
	r.safe = s.safe
	return r, err
}

// indention is what a line is indented with.
func (m *machine) indention(width Value, safe bool) (str, error) {
	if s, ok := width.(str); ok {
		s.safe = safe
		return s, nil
	}
	n, err := intArg(width, 4)
	if err != nil {
		return str{}, err
	}
	t := m.text()
	t.repeat(plain(" "), n)
	return t.str()
}

func filterTruncate(m *machine, v Value, p []Value) (Value, error) {
	length, err := intArg(p[0], 255)
	if err != nil {
		return nil, err
	}
	kill, err := m.flag(p[1])
	if err != nil {
		return nil, err
	}
	if p[2] == nil {
		p[2] = plain("...")
	}
	end, err := m.mustSize(p[2])
	if err != nil {
		return nil, err
	}
	leeway := 5
	if p[3] != nil && p[3] != None {
		if leeway, err = indexOf(p[3]); err != nil {
			return nil, err
		}
	}
	if length < end || leeway < 0 {
		return nil, errorf(KindRuntime, "expected length >= %d, got %d", end, length)
	}
	n, err := m.mustSize(v)
	if err != nil || n-leeway <= length {
		return v, err
	}
	cut, err := m.slice(v, None, Int(int64(length-end)), None)
	if err != nil {
		return nil, err
	}
	if !kill {
		s, ok := cut.(str)
		if !ok {
			return nil, errorf(KindAttribute, "'%s' object has no attribute 'rsplit'", cut.kind())
		}
		if i := strings.LastIndexByte(s.s, ' '); i >= 0 {
			s = s.sub(0, i)
		}
		cut = s
	}
	return m.binary("+", cut, p[2])
}

func filterWordCount(m *machine, v Value, _ []Value) (Value, error) {
	s, err := m.softStr(v)
	if err != nil {
		return nil, err
	}
	if err := m.step(len(s.s) / 4); err != nil {
		return nil, err
	}
	n, within := int64(0), false
	for _, r := range s.s {
		word := r == '_' || isAlnum(r)
		if word && !within {
			n++
		}
		within = word
		if err := m.pass(utf8.RuneLen(r)); err != nil {
			return nil, err
		}
	}
	return Int(n), nil
}

func filterStripTags(m *machine, v Value, _ []Value) (Value, error) {
	s, err := m.str(v)
	if err != nil {
		return nil, err
	}
	return m.mapText(s, stripTags)
}

// stripTags takes out comments and tags, and joins white space.
func stripTags(s string) string {
	s = cutBetween(cutBetween(s, "<!--", "-->"), "<", ">")
	var b strings.Builder
	space := false
	for _, r := range s {
		if isSpace(r) {
			space = b.Len() > 0
			continue
		}
		if space {
			b.WriteByte(' ')
		}
		b.WriteRune(r)
		space = false
	}
	return html.UnescapeString(b.String())
}

// cutBetween removes the text between two marks, and the marks.
func cutBetween(s, open, end string) string {
	var b strings.Builder
	for {
		i := strings.Index(s, open)
		if i < 0 {
			break
		}
		j := strings.Index(s[i+len(open):], end)
		if j < 0 {
			break
		}
		b.WriteString(s[:i])
		s = s[i+len(open)+j+len(end):]
	}
	b.WriteString(s)
	return b.String()
}

// markupMethods are the methods that Markup has beside str's.
var markupMethods map[string]method

func setMarkupMethods() {
	markupMethods = map[string]method{
		"striptags": takes("striptags", "", filterStripTags),
		"unescape": func(m *machine, self Value, a *args) (Value, error) {
			if _, err := a.bind("unescape", noParams); err != nil {
				return nil, err
			}
			return m.mapText(self.(str).unsafe(), html.UnescapeString)
		},
		"escape": func(m *machine, _ Value, a *args) (Value, error) {
			p, err := a.bind("escape", oneParam)
			if err != nil {
				return nil, err
			}
			return filterEscape(m, p[0], nil)
		},
	}
}

func filterURLEncode(m *machine, v Value, _ []Value) (Value, error) {
	if _, ok := v.(str); ok || !isIterable(v) {
		return m.urlQuote(v, false)
	}
	if d, ok := v.(*Dict); ok {
		v = &view{d, "items"}
	}
	pairs, err := m.collect(v)
	if err != nil {
		return nil, err
	}
	t := m.text()
	for i, pair := range pairs {
		both, err := m.unpack(pair, 2)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			t.raw("&")
		}
		for j, x := range both {
			q, err := m.urlQuote(x, true)
			if err != nil {
				return nil, err
			}
			if j > 0 {
				t.raw("=")
			}
			t.add(q)
		}
	}
	s, err := t.str()
	return s, err
}

// urlQuote escapes str(v) for a path, or for a query.
func (m *machine) urlQuote(v Value, query bool) (str, error) {
	s, err := m.str(v)
	if err != nil {
		return str{}, err
	}
	const hex = "0123456789ABCDEF"
	t := m.text()
	t.change(s, func(part string) string {
		var b strings.Builder
		for _, c := range []byte(part) {
			switch {
			case c == '_' || c == '.' || c == '-' || c == '~' || c == '/' && !query || c < utf8.RuneSelf && isAlnum(rune(c)):
				b.WriteByte(c)
			case c == ' ' && query:
				b.WriteByte('+')
			default:
				b.WriteString("%" + string(hex[c>>4]) + string(hex[c&15]))
			}
		}
		return b.String()
	})
	return t.str()
}

func filterXMLAttr(m *machine, v Value, p []Value) (Value, error) {
	var err error
	d, ok := v.(*Dict)
	if !ok {
		return nil, errorf(KindAttribute, "'%s' object has no attribute 'items'", v.kind())
	}
	space := true
	if p[0] != nil {
		if space, err = m.truth(p[0]); err != nil {
			return nil, err
		}
	}
	t := m.text()
	for i, k := range d.keys {
		if _, ok := d.values[i].(*undefined); ok || d.values[i] == None {
			continue
		}
		name, ok := k.(str)
		if !ok {
			return nil, typeError("expected string or bytes-like object, got '%s'", k.kind())
		}
		if strings.ContainsAny(name.s, " \t\n\r\f\v/>=") {
			return nil, valueError("Invalid character in attribute name: %s", brief(k))
		}
		if space || t.size() > 0 {
			t.raw(" ")
		}
		if err := m.attributeText(t, name, d.values[i]); err != nil {
			return nil, err
		}
	}
	s, err := t.str()
	return s, err
}

// attributeText writes name="v".
func (m *machine) attributeText(t *text, name str, v Value) error {
	key, err := m.escape(name)
	if err != nil {
		return err
	}
	value, err := m.escapeValue(v)
	if err != nil {
		return err
	}
	t.add(key)
	t.raw(`="`)
	t.add(value)
	t.raw(`"`)
	return nil
}
