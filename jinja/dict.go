package jinja

import (
	"math"
	"slices"
	"strconv"
)

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
