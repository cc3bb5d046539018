package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// fields reads a JSON object, field by field. The first wrong field is the problem of the request, thrown by fields
// with the field's path. A field left unread is unknown. null counts as absent.
type fields struct {
	path   string // "" for the body, else "messages[0]."
	values map[string]json.RawMessage
	order  []string
	hints  *hints
	echo   bool // part of an answer sent back by a client, with the client's own additions
	left   *int // values left to the request for texts decoded as a whole
	sees   bool // the request's model sees pictures
	result bool // the result of a tool

	// fetch gets a picture by its address; nil gets none.
	fetch func(param, address string) []byte
}

// parse reads the body of a request.
func parse(body []byte, h *hints) *fields {
	there, text := countValues(body), bytes.TrimSpace(body)
	left := maxValues
	switch {
	case len(text) == 0:
		throw(bad("", "The body is empty, want a JSON object"))
	case !utf8.Valid(body):
		throw(bad("", "The body is not UTF-8"))
	case there.depth > maxDepth:
		throw(bad("", "The body is nested more than %d levels deep", maxDepth))
	case there.made > maxValues:
		throw(bad("", "The body has %d strings, objects and arrays, at most %d", there.made, maxValues))
	case !json.Valid(body):
		throw(bad("", "The body is not JSON: %v", json.Unmarshal(body, new(any))))
	case text[0] != '{':
		throw(bad("", "The body: %s, want a JSON object", kindOf(text)))
	}
	return (&fields{hints: h, left: &left}).open("", text)
}

// open returns the fields of an object, each name once.
func (f *fields) open(path string, raw json.RawMessage) *fields {
	in := &fields{path: path, values: map[string]json.RawMessage{}, hints: f.hints, left: f.left, sees: f.sees,
		fetch: f.fetch}
	if raw[0] != '{' {
		fail(strings.TrimSuffix(path, "."), "%s, want an object", kindOf(raw))
	}
	if n := count(raw); n > maxFields {
		fail(strings.TrimSuffix(path, "."), "%d fields, at most %d", n, maxFields)
	}
	elements(raw, func(quoted, value json.RawMessage) bool {
		name, _ := decodeAs[string](quoted)
		if _, twice := in.values[name]; twice {
			fail(path+name, "the field is there twice")
		}
		in.values[name], in.order = value, append(in.order, name)
		return true
	})
	return in
}

// hold counts the values of a text decoded as a whole, into maps and lists, beside the others of the request.
func (f *fields) hold(param string, text []byte) {
	if *f.left -= countValues(text).values; *f.left < 0 {
		fail(param, "with it the request has more than %d values in arguments, schemas and variables", maxValues)
	}
}

// fail throws the problem of a wrong field.
func fail(param, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if param != "" {
		what = "Invalid value for '" + param + "': " + what
	}
	throw(bad(param, "%s", what))
}

// lack throws the problem of a required field.
func lack(param string) { throw(bad(param, "Missing required parameter: '%s'", param)) }

// take returns a field's value, nil if absent.
func (f *fields) take(name string) json.RawMessage {
	raw := f.values[name]
	delete(f.values, name)
	if string(raw) == "null" {
		return nil
	}
	return raw
}

// has reports whether a field is there, and not null.
func (f *fields) has(name string) bool {
	raw, ok := f.values[name]
	return ok && string(raw) != "null"
}

// ignore takes fields of no interest to the server: ids and states of its own answers, and values already read.
func (f *fields) ignore(names ...string) {
	for _, name := range names {
		delete(f.values, name)
	}
}

// done throws a problem if a field is left.
func (f *fields) done() {
	for _, name := range f.order {
		if _, left := f.values[name]; left {
			throw(unknownField(f.path + name))
		}
	}
}

const aNumber = "it is a number"

// kindOf names a JSON value for a message.
func kindOf(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "it is missing"
	}
	switch raw[0] {
	case '"':
		return "it is a string"
	case '{':
		return "it is an object"
	case '[':
		return "it is an array"
	case 't', 'f':
		return "it is a boolean"
	case 'n':
		return "it is null"
	}
	return aNumber
}

func (f *fields) decode(name, want string, to any) bool {
	raw := f.take(name)
	if raw == nil {
		return false
	}
	if json.Unmarshal(raw, to) != nil {
		fail(f.path+name, "%s, want %s", kindOf(raw), want)
	}
	return true
}

// text returns a string; absent is "".
func (f *fields) text(name string) (s string) {
	f.decode(name, "a string", &s)
	return s
}

// needText returns a required string.
func (f *fields) needText(name string) string {
	if !f.has(name) {
		lack(f.path + name)
	}
	return f.text(name)
}

// filled returns a nonempty string.
func (f *fields) filled(name string) string {
	s := f.needText(name)
	if s == "" {
		fail(f.path+name, "it is empty")
	}
	return s
}

func (f *fields) boolean(name string, absent bool) bool {
	b := absent
	f.decode(name, "a boolean", &b)
	return b
}

// number sets a number from least to most, and reports whether the field is present.
func (f *fields) number(to *float64, name string, least, most float64) bool {
	raw := f.take(name)
	if raw == nil {
		return false
	}
	switch err := json.Unmarshal(raw, to); {
	case err != nil && kindOf(raw) == aNumber: // no float64 is as large
		fail(f.path+name, "it is too large, want a number from %v to %v", least, most)
	case err != nil:
		fail(f.path+name, "%s, want a number", kindOf(raw))
	case *to < least || *to > most:
		fail(f.path+name, "%v is not from %v to %v", *to, least, most)
	}
	return true
}

// integer sets a whole number from least to most, and reports whether the field is present.
func integer[T int | uint64](f *fields, to *T, name string, least, most int64) bool {
	raw := f.take(name)
	if raw == nil {
		return false
	}
	n, ok := parseWhole(raw)
	switch x, err := strconv.ParseFloat(string(raw), 64); {
	case !ok && kindOf(raw) == aNumber && (err != nil || math.Abs(x) > 1<<53):
		fail(f.path+name, "it is too large, want an integer from %d to %d", least, most)
	case !ok:
		fail(f.path+name, "%s, want an integer", kindOf(raw))
	case n < least || n > most:
		fail(f.path+name, "%d is not from %d to %d", n, least, most)
	}
	*to = T(n)
	return true
}

// parseWhole reads an integer, also in the forms 1.0 and 1e3.
func parseWhole(raw json.RawMessage) (int64, bool) {
	text := string(bytes.TrimSpace(raw))
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, true
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || x != math.Trunc(x) || math.Abs(x) > 1<<53 {
		return 0, false
	}
	return int64(x), true
}

// oneOf returns a string out of a few; "" is absent.
func (f *fields) oneOf(name string, of ...string) string {
	given := f.has(name)
	s := f.text(name)
	if given && !slices.Contains(of, s) {
		fail(f.path+name, "%q, want %s", s, strings.Join(of, ", "))
	}
	return s
}

// needOneOf returns a required string out of a few.
func (f *fields) needOneOf(name string, of ...string) string {
	if !f.has(name) {
		return f.needText(name)
	}
	return f.oneOf(name, of...)
}

// kind returns the type of an object, out of a few; absent is the type of an object without a type, "" is nothing. The
// API has further types of the same object, missing in this server.
func (f *fields) kind(what, absent string, of ...string) string {
	if absent != "" && !f.has("type") {
		f.ignore("type")
		return absent
	}
	s := f.needText("type")
	if s == "" {
		fail(f.path+"type", `"", want %s`, strings.Join(of, ", "))
	} else if !slices.Contains(of, s) {
		if isPicture(s) && !slices.ContainsFunc(of, isPicture) {
			throw(misplaced(f.path + "type"))
		}
		throw(refuseFeature(f.path+"type", fmt.Sprintf("%s of type %q", what, s)))
	}
	return s
}

// list returns an array of at most so many elements; nil is absent.
func (f *fields) list(name string, most int) []json.RawMessage {
	raw := f.take(name)
	if raw == nil {
		return nil
	}
	if raw[0] != '[' {
		fail(f.path+name, "%s, want an array", kindOf(raw))
	}
	if n := count(raw); n > most {
		fail(f.path+name, "%d elements, at most %d", n, most)
	}
	return split(raw)
}

// texts returns a string, or an array of at most so many.
func (f *fields) texts(name string, most int) (all []string) {
	raw := f.take(name)
	if raw == nil {
		return nil
	}
	if one, ok := decodeAs[string](raw); ok {
		return []string{one}
	}
	if raw[0] != '[' {
		fail(f.path+name, "%s, want a string or an array of strings", kindOf(raw))
	}
	if n := count(raw); n > most {
		fail(f.path+name, "%d strings, at most %d", n, most)
	}
	all = []string{}
	for _, x := range split(raw) {
		text, ok := decodeAs[string](x)
		if !ok {
			fail(f.path+name, "an element: %s, want a string or an array of strings", kindOf(x))
		}
		all = append(all, text)
	}
	return all
}

// object returns an object's fields; nil is absent.
func (f *fields) object(name string) *fields {
	raw := f.take(name)
	if raw == nil {
		return nil
	}
	return f.inner(f.path+name, raw)
}

// needObject returns a required object.
func (f *fields) needObject(name string) *fields {
	if !f.has(name) {
		lack(f.path + name)
	}
	return f.object(name)
}

// inner returns the fields of an object at a path.
func (f *fields) inner(path string, raw json.RawMessage) *fields { return f.open(path+".", raw) }

// objects returns an array's objects; nil is absent.
func (f *fields) objects(name string, most int) (all []*fields) {
	for i, raw := range f.list(name, most) {
		all = append(all, f.inner(fmt.Sprintf("%s%s[%d]", f.path, name, i), raw))
	}
	return all
}

// Bounds of the header of hints, whose names come from strangers.
const (
	hintHeader = "Karat-Ignored"
	maxHint    = 100  // bytes of a path
	maxHints   = 1000 // bytes of all paths
)

// hints are the paths of fields without an effect in a request: messages[0].name, tools[4]. The header of the answer
// and the log have them. A field in many elements of an array is named once.
type hints struct {
	header http.Header // of the answer
	seen   map[string]bool
	text   string
	full   bool // text names no more paths
}

var place = regexp.MustCompile(`\[\d+\]`)

// add notes a path.
func (h *hints) add(path string) {
	kind := path
	if !strings.HasSuffix(path, "]") { // an element is a thing of its own
		kind = place.ReplaceAllString(path, "[]")
	}
	if h.seen[kind] || h.full {
		return
	}
	if h.seen == nil {
		h.seen = map[string]bool{}
	}
	h.seen[kind] = true
	path = strings.Map(headerSafe, path[:min(len(path), maxHint)])
	switch {
	case h.text == "":
		h.text = path
	case len(h.text)+len(path) > maxHints:
		h.text, h.full = h.text+", ...", true
	default:
		h.text += ", " + path
	}
	if h.header != nil {
		h.header.Set(hintHeader, h.text)
	}
}

// headerSafe replaces characters impossible in a header or in a list with commas.
func headerSafe(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-[]$/:@", r) {
		return r
	}
	return '?'
}

// isNeutral reports whether a value asks for nothing: null, false, "", [] or {}.
func isNeutral(raw []byte) bool {
	raw = bytes.TrimSpace(raw)
	switch string(raw) {
	case "null", "false", `""`:
		return true
	}
	return len(raw) > 1 && (raw[0] == '[' || raw[0] == '{') && len(bytes.TrimSpace(raw[1:len(raw)-1])) == 0
}

// hint takes fields without influence on an answer, ignores their values and notes their paths.
func (f *fields) hint(names ...string) {
	for _, name := range names {
		if raw, there := f.values[name]; there && !isNeutral(raw) {
			f.hints.add(f.path + name)
		}
		delete(f.values, name)
	}
}

// hintRest takes the unread fields as hints.
func (f *fields) hintRest() { f.hint(f.order...) }

// lacks refuses fields for features missing in this server. A neutral value asks for nothing.
func (f *fields) lacks(names ...string) {
	for _, name := range names {
		if raw := f.take(name); raw != nil && !isNeutral(raw) {
			throw(refuseFeature(f.path+name, name))
		}
	}
}

// decodeAs returns a JSON value of a type, and whether the value has the type.
func decodeAs[T any](raw json.RawMessage) (v T, ok bool) {
	if _, text := any(v).(string); text && (len(raw) == 0 || raw[0] != '"' && raw[0] != 'n') || json.Unmarshal(raw,
		&v) != nil {
		return *new(T), false
	}
	return v, true
}
