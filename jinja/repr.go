package jinja

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// str is str(v): what {{ v }} prints.
func (m *machine) str(v Value) (str, error) {
	switch v := v.(type) {
	case str:
		return v.unsafe(), nil
	case *undefined:
		return str{}, nil
	}
	return m.repr(v)
}

// softStr is str(v), but Markup stays Markup.
func (m *machine) softStr(v Value) (str, error) {
	if s, ok := v.(str); ok {
		return s, nil
	}
	return m.str(v)
}

// repr is repr(v).
func (m *machine) repr(v Value) (str, error) {
	t := m.text()
	t.repr(v)
	return t.str()
}

// fail keeps the first error, if there is any.
func (t *text) fail(err error) {
	if err != nil && t.err == nil {
		t.err = err
	}
}

func (t *text) repr(v Value) {
	switch v := v.(type) {
	case str:
		t.quoted(v)
	case integer:
		s, err := v.text()
		if err != nil {
			t.fail(err)
		}
		t.raw(s)
	case none, boolean, float:
		t.raw(scalarText(v))
	case *undefined:
		t.raw("Undefined")
	case *list:
		t.nested(v, "[", "]", func() { t.items(v.items) })
	case *tuple:
		t.nested(v, "(", ")", func() {
			t.items(v.items)
			if len(v.items) == 1 {
				t.raw(",")
			}
		})
	case *Dict:
		t.nested(v, "{", "}", func() { t.pairs(v) })
	case *view:
		t.view(v)
	case *namespace:
		t.raw("<Namespace ")
		t.repr(v.attrs)
		t.raw(">")
	case *rangeValue:
		t.raw(fmt.Sprintf("range(%d, %d", v.start, v.stop))
		if v.step != 1 {
			t.raw(fmt.Sprintf(", %d", v.step))
		}
		t.raw(")")
	case *macro:
		t.macro(v)
	case *loop:
		n, err := v.length()
		if err != nil {
			t.fail(err)
		}
		t.raw(fmt.Sprintf("<LoopContext %d/%d>", v.index+1, n))
	case *function:
		t.raw("<" + v.class + " " + v.name + ">")
	default:
		t.raw("<" + v.kind() + " object>")
	}
}

func (t *text) macro(v *macro) {
	name := "anonymous"
	if v.def.name != "" {
		name = quote(v.def.name, false)
	}
	t.raw("<Macro " + name + ">")
}

// nested writes a container once, and as dots inside itself.
func (t *text) nested(v Value, open, end string, body func()) {
	if t.err != nil {
		return
	}
	t.raw(open)
	for _, p := range t.m.printing {
		if p == v {
			t.raw("..." + end)
			return
		}
	}
	if err := t.m.nest(); err != nil {
		t.fail(err)
	} else {
		t.m.printing = append(t.m.printing, v)
		body()
		t.m.printing = t.m.printing[:len(t.m.printing)-1]
	}
	t.m.unnest()
	t.raw(end)
}

func (t *text) items(items []Value) {
	for i, x := range items {
		if t.fail(t.m.step(1)); t.err != nil {
			return
		}
		if i > 0 {
			t.raw(", ")
		}
		t.repr(x)
	}
}

func (t *text) pairs(d *Dict) {
	for i, k := range d.keys {
		if t.fail(t.m.step(1)); t.err != nil {
			return
		}
		if i > 0 {
			t.raw(", ")
		}
		t.repr(k)
		t.raw(": ")
		t.repr(d.values[i])
	}
}

func (t *text) view(v *view) {
	items, err := t.m.drain(v.iterate())
	if err != nil {
		t.fail(err)
		return
	}
	t.raw("dict_" + v.what + "(")
	t.repr(&list{items: items})
	t.raw(")")
}

// scalarText is the repr of None, a bool, an int or a float.
func scalarText(v Value) string {
	switch v := v.(type) {
	case boolean:
		if v {
			return "True"
		}
		return "False"
	case float:
		return formatFloat(float64(v))
	case integer:
		if s, err := v.text(); err == nil {
			return s
		}
		return "int"
	}
	return "None"
}

// quoted writes the repr of a string; marks stay on what they were on.
func (t *text) quoted(s str) {
	q := quoteMark(s.s)
	if s.safe {
		t.raw("Markup(")
	}
	t.raw(string(q))
	t.change(s, func(part string) string { return escapeText(part, q, false) })
	t.raw(string(q))
	if s.safe {
		t.raw(")")
	}
}

// quote is the repr of a text, or its ascii().
func quote(s string, ascii bool) string {
	q := quoteMark(s)
	return string(q) + escapeText(s, q, ascii) + string(q)
}

func quoteMark(s string) byte {
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		return '"'
	}
	return '\''
}

// escapeText escapes the quotation mark q, backslashes and what does not print.
func escapeText(s string, q byte, ascii bool) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == rune(q) || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x7f && r >= ' ' || r >= utf8.RuneSelf && !ascii && unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(escapeRune(r))
		}
	}
	return b.String()
}

// escapeRune is Python's backslash escape of a code point.
func escapeRune(r rune) string {
	switch {
	case r < 0x100:
		return fmt.Sprintf(`\x%02x`, r)
	case r < 0x10000:
		return fmt.Sprintf(`\u%04x`, r)
	}
	return fmt.Sprintf(`\U%08x`, r)
}
