package jinja

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf16"
)

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
