package grammar

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"
)

// value is a JSON value with its names in order.
type value struct {
	kind   byte // first character: { [ " t f n, and 0 for numbers
	text   string
	names  []string
	fields map[string]*value
	list   []*value
	same   string // result of canonical
}

// parseJSON reads a value.
func parseJSON(text []byte) (*value, error) {
	switch {
	case len(text) > MaxSource:
		return nil, fmt.Errorf("it has %d bytes, at most %d are taken", len(text), MaxSource)
	case !utf8.Valid(text):
		return nil, errors.New("it is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	v, err := readValue(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("something comes after the JSON value")
	}
	return v, nil
}

func readValue(d *json.Decoder, depth int) (*value, error) {
	if depth > maxNested {
		return nil, fmt.Errorf("it is nested more than %d levels deep", maxNested)
	}
	t, err := d.Token()
	if err != nil {
		return nil, notJSON(err)
	}
	switch x := t.(type) {
	case json.Delim:
		v := &value{kind: byte(x)}
		if x == '{' {
			v.fields = map[string]*value{}
		}
		for d.More() {
			name := ""
			if x == '{' {
				t, err := d.Token()
				if err != nil {
					return nil, notJSON(err)
				}
				if name = t.(string); v.fields[name] != nil {
					return nil, fmt.Errorf("the name %q is there twice", name)
				}
			}
			y, err := readValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			if x == '{' {
				v.names, v.fields[name] = append(v.names, name), y
			} else {
				v.list = append(v.list, y)
			}
		}
		if _, err := d.Token(); err != nil {
			return nil, notJSON(err)
		}
		return v, nil
	case string:
		return &value{kind: '"', text: x}, nil
	case json.Number:
		return &value{text: x.String()}, nil
	case bool:
		if x {
			return &value{kind: 't'}, nil
		}
		return &value{kind: 'f'}, nil
	}
	return &value{kind: 'n'}, nil
}

func notJSON(err error) error {
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("it is not JSON: it ends too early")
	}
	return fmt.Errorf("it is not JSON: %w", err)
}

// kindName names a value in a schema's words.
func (v *value) kindName() string {
	switch v.kind {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "number"
}

// bareQuote marks the ends of a string in a value written without JSON's quotes. No text has the byte.
const bareQuote = "\xfe"

// append writes the value without spaces. A bare value has no quotes around names, and bareQuote around strings, which
// have no escapes.
func (v *value) append(b []byte, bare bool) []byte {
	join := func(open byte, n int, item func(i int)) {
		b = append(b, open)
		for i := range n {
			if i > 0 {
				b = append(b, ',')
			}
			item(i)
		}
		b = append(b, open+2) // the closing bracket is two bytes on
	}
	switch v.kind {
	case '{':
		join('{', len(v.names), func(i int) {
			if name := v.names[i]; bare {
				b = append(b, name...)
			} else {
				b = appendString(b, name)
			}
			b = v.fields[v.names[i]].append(append(b, ':'), bare)
		})
		return b
	case '[':
		join('[', len(v.list), func(i int) { b = v.list[i].append(b, bare) })
		return b
	case '"':
		if bare {
			return append(b, bareQuote+v.text+bareQuote...)
		}
		return appendString(b, v.text)
	case 't':
		return append(b, "true"...)
	case 'f':
		return append(b, "false"...)
	case 'n':
		return append(b, "null"...)
	}
	return append(b, v.text...)
}

// canonical returns a text shared by exactly the values that are equal in JSON, such as 1 and 1.0, or objects with
// names in different orders.
func (v *value) canonical(w *work) string {
	if v.same == "" {
		switch v.kind {
		case '{':
			names := slices.Sorted(slices.Values(v.names))
			for i, name := range names {
				names[i] = string(appendString(nil, name)) + ":" + v.fields[name].canonical(w)
			}
			v.same = "{" + strings.Join(names, ",") + "}"
		case '[':
			items := make([]string, len(v.list))
			for i, x := range v.list {
				items[i] = x.canonical(w)
			}
			v.same = "[" + strings.Join(items, ",") + "]"
		case 0:
			v.same = canonicalNumber(v.text)
		default:
			v.same = string(v.append(nil, false))
		}
		w.burn(1 + len(v.same)/16)
	}
	return v.same
}

// appendString writes a string with the necessary escapes and no others.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		b = appendRune(b, r)
	}
	return append(b, '"')
}

// escapes lists the characters that have an escape of one letter and must be escaped.
var escapes = map[rune]byte{'"': '"', '\\': '\\', '\b': 'b', '\f': 'f', '\n': 'n', '\r': 'r', '\t': 't'}

func appendRune(b []byte, r rune) []byte {
	if e, ok := escapes[r]; ok {
		return append(b, '\\', e)
	}
	if r < 0x20 {
		return fmt.Appendf(b, `\u%04x`, r)
	}
	return utf8.AppendRune(b, r)
}

// jsonChar returns a character of r in a JSON string, escaped if necessary. The escaped characters always have an
// escape.
func jsonChar(t *termTable, r runes, escaped ...rune) *term {
	return t.intern(`"`+string(escaped), r, func() *term { return newJSONChar(t, r, escaped) })
}

func newJSONChar(t *termTable, r runes, escaped []rune) *term {
	list := []*term{t.utf8(r.within(0x20, utf8.MaxRune).subtract('"', '\\').subtract(escaped...))}
	for c := range rune(0x80) {
		if (c < 0x20 || c == '"' || c == '\\') && r.has(c) {
			list = append(list, t.text(string(appendRune(nil, c))))
		}
	}
	for _, c := range escaped {
		if r.has(c) {
			list = append(list, t.text(fmt.Sprintf(`\u%04x`, c)))
		}
	}
	return t.or(list...)
}

// jsonFree returns a character of a string in any of JSON's forms: raw, \n or \u000a. Halves of surrogate pairs come
// together.
func jsonFree(t *termTable) *term {
	digit := func(s string) *term {
		var all set
		for i := range len(s) {
			all.add(s[i])
			if s[i] >= 'a' {
				all.add(s[i] - 'a' + 'A')
			}
		}
		return t.class(all)
	}
	hex := digit("0123456789abcdef")
	var short set
	for _, c := range []byte(`"\/bfnrt`) {
		short.add(c)
	}
	plain := t.or(t.seq(digit("0123456789abcef"), hex, hex, hex), t.seq(digit("d"), digit("01234567"), hex, hex))
	pair := t.seq(digit("d"), digit("89ab"), hex, hex, t.text(`\u`), digit("d"), digit("cdef"), hex, hex)
	return t.or(t.utf8(runes{0x20, utf8.MaxRune}.subtract('"', '\\')),
		t.cat(t.byte('\\'), t.or(t.class(short), t.cat(t.byte('u'), t.or(plain, pair)))))
}

// oneOf returns a term for any of the texts, which share common beginnings.
func (t *termTable) oneOf(texts []string) *term {
	texts = slices.Clone(texts)
	slices.Sort(texts)
	return branchTerm(t, slices.Compact(texts), 0)
}

// branchTerm returns the rest of texts, which are sorted and have the first n bytes in common.
func branchTerm(t *termTable, texts []string, n int) *term {
	if len(texts) == 0 {
		return t.none
	}
	first, last, same := texts[0], texts[len(texts)-1], n
	for same < min(len(first), len(last)) && first[same] == last[same] {
		same++
	}
	var list []*term
	if len(first) == same {
		list, texts = append(list, t.unit), texts[1:]
	}
	for len(texts) > 0 {
		c := texts[0][same]
		i := sort.Search(len(texts), func(i int) bool { return texts[i][same] > c })
		list, texts = append(list, t.cat(t.byte(c), branchTerm(t, texts[:i], same+1))), texts[i:]
	}
	return t.cat(t.text(first[n:same]), t.or(list...))
}

// matches reports whether a text fits x. Known derivatives are not derived again.
func (t *termTable) matches(x *term, text string) bool {
	for i := range len(text) {
		t.burn(1)
		k := reading{x, text[i]}
		y := t.met[k]
		if y == nil {
			t.burn(16) // as much as an entry takes
			y = t.derive(x, text[i])
			t.met[k] = y
		}
		x = y
	}
	return x.null
}
