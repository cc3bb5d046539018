package jinja

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
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

// percent returns s % v, with the codes %s, %d and %% alone.
func percent(r *rendering, s str, v Value) Value {
	values, next := []Value{v}, 0
	if t, ok := v.(*list); ok && t.tuple {
		values = t.items
	}
	t := r.text()
	at := 0
	for {
		i := strings.IndexByte(s.s[at:], '%')
		if i < 0 {
			break
		}
		r.step(1)
		t.add(s.sub(at, at+i))
		at += i + 2
		if at > len(s.s) {
			panic(valueError("incomplete format"))
		}
		verb := s.s[at-1]
		switch {
		case verb == '%':
			t.add(s.sub(at-1, at))
			continue
		case verb != 's' && verb != 'd':
			directive := s.s[at-2:]
			name := strings.IndexByte(directive, ')') + 1
			end := name + strings.IndexAny(directive[name:], "diouxXeEfFgGcrsa") + 1
			panic(unsupported("the format %s", brief(unmarked(directive[:max(end, 1)]))))
		case next == len(values):
			panic(typeError("not enough arguments for format string"))
		}
		x := values[next]
		next++
		if verb == 'd' {
			n, ok := numberOf(x)
			if !ok {
				need(x)
				panic(typeError("%%d format: a real number is required, not %s", x.kind()))
			}
			if x = Value(integer(n.i)); n.isFloat {
				x = truncate(n.f)
			}
		}
		t.add(showValue(r, x, s.safe))
	}
	t.add(s.sub(at, len(s.s)))
	if next < len(values) {
		switch v.(type) {
		case *Dict, *undefined, *rangeValue:
		default:
			if l, ok := v.(*list); !ok || l.tuple {
				panic(typeError("not all arguments converted during string formatting"))
			}
		}
	}
	return t.strAs(s.safe)
}

// showValue returns str(v), escaped if the result goes into Markup.
func showValue(r *rendering, v Value, safe bool) str {
	if safe {
		return escape(r, softStr(r, v))
	}
	return toStr(r, v)
}

// format returns s.format(a), with fields that are empty, a number or a name.
func format(r *rendering, v Value, a *args) Value {
	s := v.(str)
	r.watchArgs(s, a)
	t := r.text()
	auto, at := 0, 0
	r.step(len(s.s) / 64)
	for {
		i := strings.IndexAny(s.s[at:], "{}")
		if i < 0 {
			break
		}
		r.step(1)
		t.add(s.sub(at, at+i))
		at += i + 1
		if at < len(s.s) && s.s[at] == s.s[at-1] {
			t.add(s.sub(at, at+1))
			at++
			continue
		}
		end := strings.IndexByte(s.s[at:], '}')
		if s.s[at-1] == '}' || end < 0 {
			panic(valueError("Single '%c' encountered in format string", s.s[at-1]))
		}
		name := s.s[at : at+end]
		at += end + 1
		if strings.ContainsAny(name, ".[!:{") {
			panic(unsupported("the format field %s", brief(unmarked("{"+name+"}"))))
		}
		t.add(showValue(r, a.field(name, &auto), s.safe))
	}
	t.add(s.sub(at, len(s.s)))
	return t.strAs(s.safe)
}

// field returns the argument of a field of str.format. auto counts the fields without a name; after a field with a
// number it is -1.
func (a *args) field(name string, auto *int) Value {
	i := *auto
	switch {
	case name != "" && !isDigits(name):
		v, ok := a.kw.Get(name)
		if !ok {
			panic(valueError("no argument for the field %s", brief(unmarked(name))))
		}
		return v
	case name == "" && i >= 0:
		*auto++
	case name != "" && i <= 0:
		n, _ := parseInt(name, 10)
		*auto, i = -1, int(n)
	default:
		panic(valueError("cannot switch between manual field specification and automatic field numbering"))
	}
	if i >= len(a.pos) {
		panic(valueError("Replacement index %d out of range for positional args tuple", i))
	}
	return a.pos[i]
}

// A jsonWriter writes like json.dumps with the arguments that transformers passes on.
type jsonWriter struct {
	out           *text
	ascii, sorted bool
	indented      bool
	indent        str
	item, colon   str // separators
	depth         int
}

// filterTojson returns transformers' tojson(ensure_ascii, indent, separators, sort_keys), without escapes for HTML.
func filterTojson(r *rendering, v Value, p []Value) Value {
	w := &jsonWriter{out: r.text(), item: unmarked(", "), colon: unmarked(": ")}
	w.ascii, w.sorted = truth(r, p[0]), truth(r, p[3])
	if p[1] != None {
		w.indent, w.indented, w.item = indention(r, p[1]), true, unmarked(",")
	}
	if p[2] != None {
		both := unpack(r, p[2], 2)
		w.item, w.colon = textArg("separators", both[0]).unsafe(), textArg("separators", both[1]).unsafe()
	}
	w.value(v)
	return w.out.str()
}

func (w *jsonWriter) value(v Value) {
	switch v := v.(type) {
	case str:
		w.string(v)
	case none:
		w.out.raw("null")
	case boolean:
		w.out.raw(strings.ToLower(scalarText(v)))
	case integer:
		w.out.raw(scalarText(v))
	case float:
		w.out.raw(jsonFloat(float64(v)))
	case *list:
		w.container("[", "]", len(v.items), func(i int) { w.value(v.items[i]) })
	case *Dict:
		w.object(v)
	default:
		panic(typeError("Object of type %s is not JSON serializable", v.kind()))
	}
}

func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return formatFloat(f)
}

func (w *jsonWriter) object(d *Dict) {
	var order []int
	if w.sorted {
		order = sortedBy(w.out.r, d.keys, false)
	}
	w.container("{", "}", d.Len(), func(i int) {
		if w.sorted {
			i = order[i]
		}
		switch k := d.keys[i].(type) {
		case str:
			w.string(k)
		case none, boolean, integer, float:
			w.out.raw(`"`)
			w.value(k)
			w.out.raw(`"`)
		default:
			panic(typeError("keys must be str, int, float, bool or None, not %s", k.kind()))
		}
		w.out.add(w.colon)
		w.value(d.values[i])
	})
}

func (w *jsonWriter) container(open, end string, n int, item func(i int)) {
	w.out.raw(open)
	if n == 0 {
		w.out.raw(end)
		return
	}
	w.out.r.nest()
	w.depth++
	for i := range n {
		w.out.r.step(1)
		if i > 0 {
			w.out.add(w.item)
		}
		w.newline()
		item(i)
	}
	w.depth--
	w.out.r.unnest()
	w.newline()
	w.out.raw(end)
}

func (w *jsonWriter) newline() {
	if w.indented {
		w.out.raw("\n")
		w.out.repeat(w.indent, w.depth)
	}
}

func (w *jsonWriter) string(s str) {
	w.out.raw(`"`)
	w.out.change(s, func(part string) string { return jsonEscape(part, w.ascii) })
	w.out.raw(`"`)
}

// jsonEscape escapes quotation marks, backslashes and controls, and with ascii everything beyond ASCII.
func jsonEscape(s string, ascii bool) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case strings.ContainsRune("\n\r\t\b\f", r):
			b.WriteByte('\\')
			b.WriteByte("btn_fr"[r-'\b'])
		case r < ' ' || ascii && r > '~' && r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		case ascii && r >= 0x10000:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
