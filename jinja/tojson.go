package jinja

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf16"
)

// A jsonWriter is json.dumps with the arguments that transformers passes on.
type jsonWriter struct {
	*text
	ascii, sorted bool
	indented      bool
	indent        str
	item, colon   str // separators
	depth         int
}

// filterTojson is transformers' tojson(ensure_ascii, indent, separators,
// sort_keys), which escapes nothing for HTML.
func filterTojson(m *machine, v Value, p []Value) (Value, error) {
	var err error
	w := &jsonWriter{text: m.text(), item: plain(", "), colon: plain(": ")}
	if w.ascii, err = m.flag(p[0]); err != nil {
		return nil, err
	}
	if err := w.setIndent(p[1]); err != nil {
		return nil, err
	}
	if err := w.setSeparators(p[2]); err != nil {
		return nil, err
	}
	if w.sorted, err = m.flag(p[3]); err != nil {
		return nil, err
	}
	w.value(v)
	return w.str()
}

func (w *jsonWriter) setIndent(v Value) error {
	switch v := v.(type) {
	case nil, none:
		return nil
	case str:
		w.indent = v.unsafe()
	default:
		n, err := indexOf(v)
		if err != nil {
			return err
		}
		t := w.m.text()
		t.repeat(plain(" "), n)
		if w.indent, err = t.str(); err != nil {
			return err
		}
	}
	w.indented, w.item = true, plain(",")
	return nil
}

func (w *jsonWriter) setSeparators(v Value) error {
	if v == nil || v == None {
		return nil
	}
	both, err := w.m.unpack(v, 2)
	if err != nil {
		return err
	}
	item, ok1 := both[0].(str)
	colon, ok2 := both[1].(str)
	if !ok1 || !ok2 {
		return typeError("separators must be strings, not %s and %s", both[0].kind(), both[1].kind())
	}
	w.item, w.colon = item.unsafe(), colon.unsafe()
	return nil
}

func (w *jsonWriter) value(v Value) {
	if w.err != nil {
		return
	}
	switch v := v.(type) {
	case str:
		w.string(v)
	case none:
		w.raw("null")
	case boolean:
		w.raw(strings.ToLower(scalarText(v)))
	case integer:
		s, err := v.text()
		if err != nil {
			w.fail(err)
		}
		w.raw(s)
	case float:
		w.raw(jsonFloat(float64(v)))
	case *list:
		w.array(v.items)
	case *tuple:
		w.array(v.items)
	case *Dict:
		w.object(v)
	default:
		w.fail(typeError("Object of type %s is not JSON serializable", v.kind()))
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

func (w *jsonWriter) array(items []Value) {
	w.container("[", "]", len(items), func(i int) { w.value(items[i]) })
}

func (w *jsonWriter) object(d *Dict) {
	keys, values := d.keys, d.values
	if w.sorted {
		order, err := w.m.sortedBy(d.keys, false)
		if err != nil {
			w.fail(err)
			return
		}
		keys, values = make([]Value, len(order)), make([]Value, len(order))
		for i, j := range order {
			keys[i], values[i] = d.keys[j], d.values[j]
		}
	}
	w.container("{", "}", len(keys), func(i int) {
		w.key(keys[i])
		w.add(w.colon)
		w.value(values[i])
	})
}

func (w *jsonWriter) key(k Value) {
	switch k := k.(type) {
	case str:
		w.string(k)
	case none, boolean, integer, float:
		w.raw(`"`)
		w.value(k)
		w.raw(`"`)
	default:
		w.fail(typeError("keys must be str, int, float, bool or None, not %s", k.kind()))
	}
}

func (w *jsonWriter) container(open, end string, n int, item func(i int)) {
	w.raw(open)
	if n == 0 {
		w.raw(end)
		return
	}
	if err := w.m.nest(); err != nil {
		w.fail(err)
	}
	w.depth++
	for i := 0; i < n && w.err == nil; i++ {
		w.fail(w.m.step(1))
		if i > 0 {
			w.add(w.item)
		}
		w.newline()
		item(i)
	}
	w.depth--
	w.m.unnest()
	w.newline()
	w.raw(end)
}

func (w *jsonWriter) newline() {
	if w.indented {
		w.raw("\n")
		w.repeat(w.indent, w.depth)
	}
}

func (w *jsonWriter) string(s str) {
	w.raw(`"`)
	w.change(s, func(part string) string { return jsonEscape(part, w.ascii) })
	w.raw(`"`)
}

// jsonEscape escapes quotation marks, backslashes and controls, and with ascii
// everything beyond it.
func jsonEscape(s string, ascii bool) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\b':
			b.WriteString(`\b`)
		case r == '\f':
			b.WriteString(`\f`)
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
