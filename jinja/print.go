package jinja

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// toStr returns str(v), the output of {{ v }}.
func toStr(r *rendering, v Value) str {
	switch v := v.(type) {
	case str:
		return v.unsafe()
	case *undefined:
		return str{}
	}
	t := r.text()
	t.repr(v)
	return t.str()
}

// softStr returns str(v), where Markup stays Markup.
func softStr(r *rendering, v Value) str {
	if s, ok := v.(str); ok {
		return s
	}
	return toStr(r, v)
}

// repr adds repr(v).
func (t *text) repr(v Value) {
	switch v := v.(type) {
	case str:
		t.addQuoted(v)
	case none, boolean, integer, float:
		t.raw(scalarText(v))
	case *undefined:
		t.raw("Undefined")
	case *list:
		open, end := "[", "]"
		if v.tuple {
			open, end = "(", ")"
			if len(v.items) == 1 {
				end = ",)"
			}
		}
		t.nested(v, open, end, len(v.items), func(i int) { t.repr(v.items[i]) })
	case *Dict:
		t.nested(v, "{", "}", v.Len(), func(i int) {
			t.repr(v.keys[i])
			t.raw(": ")
			t.repr(v.values[i])
		})
	case *view:
		t.raw(v.kind() + "(")
		t.repr(&list{items: drain(t.r, v.iterate())})
		t.raw(")")
	case *namespace:
		t.raw("<Namespace ")
		t.repr(v.attrs)
		t.raw(">")
	case *rangeValue:
		step := ""
		if v.step != 1 {
			step = fmt.Sprintf(", %d", v.step)
		}
		t.raw(fmt.Sprintf("range(%d, %d%s)", v.start, v.stop, step))
	case *macro:
		name := "anonymous"
		if v.def.name != "" {
			name = quote(v.def.name)
		}
		t.raw("<Macro " + name + ">")
	case *loop:
		t.raw(fmt.Sprintf("<LoopContext %d/%d>", v.index+1, v.length()))
	case *function:
		t.raw("<" + v.kind() + " " + v.name + ">")
	default:
		t.raw("<" + v.kind() + " object>")
	}
}

// nested adds a container of n items, and dots for the container inside itself.
func (t *text) nested(v Value, open, end string, n int, item func(i int)) {
	t.raw(open)
	if slices.Contains(t.r.printing, v) {
		t.raw("..." + end[len(end)-1:])
		return
	}
	t.r.nest()
	t.r.printing = append(t.r.printing, v)
	for i := range n {
		t.r.step(1)
		if i > 0 {
			t.raw(", ")
		}
		item(i)
	}
	t.r.printing = t.r.printing[:len(t.r.printing)-1]
	t.r.unnest()
	t.raw(end)
}

// scalarText returns the repr of None, a bool, an int or a float.
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
		return strconv.FormatInt(int64(v), 10)
	}
	return "None"
}

// addQuoted adds the repr of a string, whose marks stay with their characters.
func (t *text) addQuoted(s str) {
	q := quoteMark(s.s)
	if s.safe {
		t.raw("Markup(")
	}
	t.raw(string(q))
	t.change(s, func(part string) string { return escapeText(part, q) })
	t.raw(string(q))
	if s.safe {
		t.raw(")")
	}
}

// quote returns the repr of a text.
func quote(s string) string {
	q := quoteMark(s)
	return string(q) + escapeText(s, q) + string(q)
}

func quoteMark(s string) byte {
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		return '"'
	}
	return '\''
}

// escapeText escapes the quotation mark q, backslashes and unprintable characters.
func escapeText(s string, q byte) string {
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
		case r < 0x7f && r >= ' ' || r >= utf8.RuneSelf && unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(escapeRune(r))
		}
	}
	return b.String()
}

// escapeRune returns Python's backslash escape of a code point.
func escapeRune(r rune) string {
	switch {
	case r < 0x100:
		return fmt.Sprintf(`\x%02x`, r)
	case r < 0x10000:
		return fmt.Sprintf(`\u%04x`, r)
	}
	return fmt.Sprintf(`\U%08x`, r)
}
