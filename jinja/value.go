package jinja

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Value is a value of the template language. Only this package makes values: None, Bool, Int, Float, String, List,
// *Dict, Function and DecodeJSON. No value holds a Go object, and none leads to a Go object.
type Value interface {
	kind() string // name of the value's type in Python
}

type (
	none    struct{}
	boolean bool
	integer int64
	float   float64

	// list is a list or a tuple of Python.
	list struct {
		items []Value
		tuple bool
	}

	// undefined is the value of a missing name, key or branch. An undefined value prints as nothing, and names the
	// missing thing when a template uses the value.
	undefined struct {
		hint   string
		owner  Value // value without the requested attribute, or nil
		name   Value
		unsafe bool
	}

	// function is a host's function, a built-in one or a bound method.
	function struct {
		name string
		self Value // owner of a bound method, or nil
		call func(r *rendering, a *args) Value
	}

	namespace struct{ attrs *Dict }

	rangeValue struct{ start, stop, step int64 }

	// view is dict.keys(), dict.values() or dict.items().
	view struct {
		d    *Dict
		what string
	}

	// generator returns its items once.
	generator struct{ next iterator }
)

// None is Python's None.
var None Value = none{}

// Bool makes True or False.
func Bool(b bool) Value { return boolean(b) }

// Int makes an integer.
func Int(n int64) Value { return integer(n) }

// Float makes a float.
func Float(f float64) Value { return float(f) }

// String makes a string. Each invalid byte of s becomes U+FFFD.
func String(s string) Value { return unmarked(toUTF8(s)) }

// List makes a list of values. No value may be nil.
func List(items ...Value) Value { return &list{items: items} }

// Function makes a function that templates can call by position: fewer arguments than least, more than most or any by
// name are an error. fn may return Raise.
func Function(name string, least, most int, fn func(args []Value) (Value, error)) Value {
	return &function{name: name, call: func(_ *rendering, a *args) Value {
		if a.kw.Len() > 0 {
			panic(typeError("%s() takes no keyword arguments", name))
		}
		if len(a.pos) < least || len(a.pos) > most {
			panic(typeError("%s() takes %d to %d arguments (%d given)", name, least, most, len(a.pos)))
		}
		v, err := fn(a.pos)
		if err != nil {
			panic(hostError(err))
		}
		return or(v, None)
	}}
}

// or returns v, or d without v.
func or(v, d Value) Value {
	if v == nil {
		return d
	}
	return v
}

// Text returns the text of a string, and whether v is a string.
func Text(v Value) (string, bool) {
	s, ok := v.(str)
	return s.s, ok
}

// Items returns the values of a list, and whether v is a list.
func Items(v Value) ([]Value, bool) {
	l, ok := v.(*list)
	if !ok || l.tuple {
		return nil, false
	}
	return append([]Value(nil), l.items...), true
}

// Mark returns a copy of v in which all strings are marked, also in lists and dicts, keys included. Marks follow the
// text through every operation of the language; see Template.Segments.
func Mark(v Value) Value { return MarkAs(v, 0) }

// MarkAs marks as Mark does, with an origin for Segment.Origin.
func MarkAs(v Value, origin int) Value {
	switch v := v.(type) {
	case str:
		return v.mark(origin)
	case *list:
		marked := &list{make([]Value, len(v.items)), v.tuple}
		for i, x := range v.items {
			marked.items[i] = MarkAs(x, origin)
		}
		return marked
	case *Dict:
		marked := NewDict()
		for i, k := range v.keys {
			marked.put(v.hashes[i], MarkAs(k, origin), MarkAs(v.values[i], origin))
		}
		return marked
	}
	return v
}

func (none) kind() string        { return "NoneType" }
func (boolean) kind() string     { return "bool" }
func (float) kind() string       { return "float" }
func (integer) kind() string     { return "int" }
func (*undefined) kind() string  { return "Undefined" }
func (*namespace) kind() string  { return "Namespace" }
func (*rangeValue) kind() string { return "range" }
func (*generator) kind() string  { return "generator" }
func (v *view) kind() string     { return "dict_" + v.what }

func (l *list) kind() string {
	if l.tuple {
		return "tuple"
	}
	return "list"
}

func (f *function) kind() string {
	if f.self != nil {
		return "builtin_function_or_method"
	}
	return "function"
}

// tupleOf makes a tuple.
func tupleOf(items ...Value) *list { return &list{items, true} }

// length returns the number of items of the range.
func (v *rangeValue) length() int {
	switch {
	case v.step > 0 && v.start < v.stop:
		return int((uint64(v.stop)-uint64(v.start)-1)/uint64(v.step) + 1)
	case v.step < 0 && v.start > v.stop:
		return int((uint64(v.start)-uint64(v.stop)-1)/(-uint64(v.step)) + 1)
	}
	return 0
}

func (v *rangeValue) at(i int) Value { return integer(v.start + int64(i)*v.step) }

// toUTF8 replaces bytes that are not UTF-8.
func toUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}

// fail makes the error of using an undefined value.
func (u *undefined) fail() *Error {
	switch {
	case u.unsafe:
		return errorf(KindSecurity, "%s", u.hint)
	case u.hint != "":
		return errorf(KindUndefined, "%s", u.hint)
	case u.owner == nil:
		return errorf(KindUndefined, "%s is undefined", brief(u.name))
	}
	owner := u.owner.kind() + " object"
	if u.owner == None {
		owner = "None"
	}
	if _, ok := u.name.(str); ok {
		return errorf(KindUndefined, "'%s' has no attribute %s", owner, brief(u.name))
	}
	return errorf(KindUndefined, "%s has no element %s", owner, brief(u.name))
}

// need fails for an undefined value.
func need(values ...Value) {
	for _, v := range values {
		if u, ok := v.(*undefined); ok {
			panic(u.fail())
		}
	}
}

// brief names a value in a message: by the repr of a string or number, else by the type.
func brief(v Value) string {
	switch v := v.(type) {
	case str:
		if len(v.s) <= 100 {
			return quote(v.s)
		}
		return "str"
	case boolean, integer, float, none:
		return scalarText(v)
	}
	return v.kind()
}

// Format returns str(v), or the name of v's type if the text is too long for a message.
func Format(v Value) (text string) {
	r := newRendering(context.Background(), Options{MaxMemory: 1 << 20}, nil)
	var err error
	defer func() {
		if err != nil {
			text = v.kind()
		}
	}()
	defer catch(&err, &r.line)
	return toStr(r, v).s
}

// A Dict keeps its keys in the order of insertion, as Python's dicts do. The zero value is an empty dict. A dict
// visible to a template must not change any more.
type Dict struct {
	keys, values []Value
	hashes       []key       // hashes of keys
	index        map[key]int // positions of hashes, made for more keys than a few
}

// fewKeys is up to how many keys are found without an index.
const fewKeys = 8

// NewDict returns an empty dict.
func NewDict() *Dict { return &Dict{} }

func (*Dict) kind() string { return "dict" }

// Len returns the number of keys.
func (d *Dict) Len() int {
	if d == nil {
		return 0
	}
	return len(d.keys)
}

// Set puts a value, which must not be nil, under a string key. An existing key keeps its place.
func (d *Dict) Set(name string, v Value) {
	name = toUTF8(name)
	d.put(key{class: 's', text: name}, unmarked(name), v)
}

// Get returns the value under a string key, and whether there is a value.
func (d *Dict) Get(name string) (Value, bool) {
	if d == nil {
		return nil, false
	}
	i := d.position(key{class: 's', text: name})
	if i < 0 {
		return nil, false
	}
	return d.values[i], true
}

// position returns the place of a key, or -1.
func (d *Dict) position(k key) int {
	if d.index == nil {
		return slices.Index(d.hashes, k)
	}
	if i, ok := d.index[k]; ok {
		return i
	}
	return -1
}

// Keys returns the string keys in their order.
func (d *Dict) Keys() []string {
	if d == nil {
		return nil
	}
	var names []string
	for _, k := range d.keys {
		if s, ok := k.(str); ok {
			names = append(names, s.s)
		}
	}
	return names
}

func (d *Dict) put(k key, name, v Value) {
	if i := d.position(k); i >= 0 {
		d.values[i] = v
		return
	}
	d.keys = append(d.keys, name)
	d.values = append(d.values, v)
	d.hashes = append(d.hashes, k)
	switch {
	case d.index != nil:
		d.index[k] = len(d.keys) - 1
	case len(d.keys) > fewKeys:
		d.index = make(map[key]int, 2*fewKeys)
		for i, h := range d.hashes {
			d.index[h] = i
		}
	}
}

// copyDict returns another dict with the same items.
func copyDict(r *rendering, d *Dict) *Dict {
	r.allocItems(dictItem * d.Len())
	c := NewDict()
	for i, k := range d.keys {
		c.put(d.hashes[i], k, d.values[i])
	}
	return c
}

// put pays for and puts an item under any hashable key.
func put(r *rendering, d *Dict, k, v Value) {
	h := mustHash(r, k)
	r.allocItems(dictItem)
	d.put(h, k, v)
}

// find returns the value under a key, or nil. ok reports whether k can be a key.
func find(r *rendering, d *Dict, k Value) (v Value, ok bool) {
	h, ok := hash(r, k)
	if !ok {
		return nil, false
	}
	r.watchAll(k, d.keys)
	if i := d.position(h); i >= 0 {
		return d.values[i], true
	}
	return nil, true
}

// A key is compared in place of a value. Keys are equal for values that are equal in Python: 1, 1.0 and True share a
// key.
type key struct {
	class byte // s string, i integer, f float, n None, u undefined, t tuple, p pointer
	num   uint64
	text  string
	ptr   Value
}

// mustHash returns the key of a value, and fails for a value that cannot be a key.
func mustHash(r *rendering, v Value) key {
	k, ok := hash(r, v)
	if !ok {
		panic(typeError("unhashable type: '%s'", v.kind()))
	}
	return k
}

// hash returns the key of a value, and whether the value has a key.
func hash(r *rendering, v Value) (key, bool) {
	switch v := v.(type) {
	case str:
		r.step(len(v.s) / 64)
		return key{class: 's', text: v.s}, true
	case boolean, integer, float:
		return numberKey(v), true
	case none:
		return key{class: 'n'}, true
	case *undefined:
		return key{class: 'u'}, true
	case *list:
		if v.tuple {
			return tupleKey(r, v)
		}
		return key{}, false
	case *Dict:
		return key{}, false
	case *view:
		if v.what != "values" {
			return key{}, false
		}
	}
	return key{class: 'p', ptr: v}, true
}

func numberKey(v Value) key {
	n, _ := numberOf(v)
	if n.isFloat {
		if n.f != math.Trunc(n.f) || math.Abs(n.f) >= 1<<63 {
			return key{class: 'f', num: math.Float64bits(n.f)}
		}
		n.i = int64(n.f)
	}
	return key{class: 'i', num: uint64(n.i)}
}

// tupleKey writes the keys of the items, each after its length.
func tupleKey(r *rendering, t *list) (key, bool) {
	r.nest()
	defer r.unnest()
	b := r.text()
	for _, x := range t.items {
		k, ok := hash(r, x)
		if !ok {
			return key{}, false
		}
		if k.ptr != nil {
			return key{class: 'p', ptr: t}, true
		}
		b.raw(string(k.class) + strconv.FormatUint(k.num, 36) + ":" + strconv.Itoa(len(k.text)) + ":")
		b.raw(k.text)
	}
	return key{class: 't', text: b.str().s}, true
}

// maxJSONDepth bounds arrays and objects inside each other.
const maxJSONDepth = 500

// DecodeJSON makes a value of a JSON text as Python's json.loads does: keys keep their order, of equal keys the last
// value counts, and a number is a float if it is spelt with a point or an exponent, otherwise an integer of 64 bits.
// Half a surrogate pair becomes U+FFFD. Errors name the byte offset.
func DecodeJSON(data []byte) (Value, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("json: not UTF-8")
	}
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		bad, ok := errors.AsType[*json.SyntaxError](err)
		early := ok && strings.HasPrefix(bad.Error(), "invalid character ' '") && !bytes.HasSuffix(data, []byte(" "))
		if !ok || early || strings.HasPrefix(bad.Error(), "unexpected end") {
			return nil, fmt.Errorf("json: byte %d: the text ends too early", len(data))
		}
		return nil, fmt.Errorf("json: byte %d: %w", bad.Offset-1, err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return decodeValue(d, 0)
}

// decodeValue reads the next value of valid JSON.
func decodeValue(d *json.Decoder, depth int) (Value, error) {
	if depth > maxJSONDepth {
		return nil, fmt.Errorf("json: byte %d: nested deeper than %d", d.InputOffset(), maxJSONDepth)
	}
	token, err := d.Token()
	if err != nil {
		return nil, fmt.Errorf("json: byte %d: %w", d.InputOffset(), err)
	}
	switch x := token.(type) {
	case string:
		return unmarked(x), nil
	case bool:
		return boolean(x), nil
	case json.Number:
		return decodeNumber(d, string(x))
	case json.Delim:
		items, dict := []Value{}, NewDict()
		for d.More() {
			var name json.Token
			if x == '{' {
				name, _ = d.Token() // a string: the JSON is valid
			}
			v, err := decodeValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			if x == '{' {
				dict.Set(name.(string), v)
			} else {
				items = append(items, v)
			}
		}
		if _, err := d.Token(); x == '{' {
			return dict, err
		}
		return List(items...), nil
	}
	return None, nil
}

func decodeNumber(d *json.Decoder, spelt string) (Value, error) {
	if strings.ContainsAny(spelt, ".eE") {
		f, _ := strconv.ParseFloat(spelt, 64) // out of range: infinite, as in Python
		return float(f), nil
	}
	i, err := strconv.ParseInt(spelt, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("json: byte %d: an integer of more than 64 bits is not supported",
			d.InputOffset()-int64(len(spelt)))
	}
	return integer(i), nil
}
