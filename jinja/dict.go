package jinja

import (
	"math"
	"math/big"
	"slices"
	"strconv"
)

// A Dict keeps its keys in the order in which they came, as Python's dicts do.
// The zero value is an empty one. A dict that a template can see must not be
// changed any more.
type Dict struct {
	keys, values []Value
	hashes       []key       // of keys
	index        map[key]int // of hashes, once there are more than a few
	seen         epoch       // given, or of the rendering that made it
}

// fewKeys is up to how many keys are found without an index.
const fewKeys = 8

// NewDict returns an empty dict.
func NewDict() *Dict { return &Dict{} }

// newDict is one that a rendering makes.
func newDict() *Dict { return &Dict{seen: made} }

func (*Dict) kind() string { return "dict" }

// Len is the number of keys.
func (d *Dict) Len() int {
	if d == nil {
		return 0
	}
	return len(d.keys)
}

// Set puts a value, which must not be nil, under a string key. A key that is
// there keeps its place.
func (d *Dict) Set(name string, v Value) {
	k := String(name).(str)
	d.put(key{class: 's', text: k.s}, k, v)
}

// Get returns the value under a string key, and whether there is one.
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

// position is where a key is, or -1.
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

// copy returns a dict of its own with the same items.
func (m *machine) copyDict(d *Dict) (*Dict, error) {
	if err := m.allocItems(dictItem * d.Len()); err != nil {
		return nil, err
	}
	c := newDict()
	for i, k := range d.keys {
		c.put(d.hashes[i], k, d.values[i])
	}
	return c, nil
}

// dictItem is what an item of a dict takes, in values of a list.
const dictItem = 8

// put pays for and puts an item under any hashable key.
func (m *machine) put(d *Dict, k, v Value) error {
	h, err := m.hash(k)
	if err != nil {
		return err
	}
	if err := m.allocItems(dictItem); err != nil {
		return err
	}
	d.put(h, k, v)
	return nil
}

// find returns the value under a key, and whether there is one.
func (m *machine) find(d *Dict, k Value) (Value, bool, error) {
	h, err := m.hash(k)
	if err != nil {
		return nil, false, err
	}
	m.watchAll(k, d.keys)
	i := d.position(h)
	if i < 0 {
		return nil, false, nil
	}
	return d.values[i], true, nil
}

// A key is what a dict compares: equal for values that are equal in Python, so
// 1, 1.0 and True are one key.
type key struct {
	class byte // s string, i integer, b big integer, f float, n None, u undefined, t tuple, p pointer
	num   uint64
	text  string
	ptr   Value
}

// hash returns the key of a value, or the error of one that cannot be a key.
func (m *machine) hash(v Value) (key, error) {
	switch v := v.(type) {
	case str:
		return key{class: 's', text: v.s}, m.step(len(v.s) / 64)
	case boolean, integer, float:
		return numberKey(v), nil
	case none:
		return key{class: 'n'}, nil
	case *undefined:
		return key{class: 'u'}, nil
	case *tuple:
		return m.tupleKey(v)
	case *rangeValue:
		return key{class: 'r', text: scalarText(Int(v.start)) + " " + strconv.Itoa(v.length()) + " " + strconv.FormatInt(v.step, 10)}, nil
	case *list, *Dict:
		return key{}, typeError("unhashable type: '%s'", v.kind())
	case *view:
		if v.what != "values" {
			return key{}, typeError("unhashable type: '%s'", v.kind())
		}
	}
	return key{class: 'p', ptr: v}, nil
}

func numberKey(v Value) key {
	n, _ := numberOf(v)
	if n.isFloat {
		if n.f != math.Trunc(n.f) || math.IsInf(n.f, 0) || math.IsNaN(n.f) {
			return key{class: 'f', num: math.Float64bits(n.f)}
		}
		i, _ := big.NewFloat(n.f).Int(nil)
		n.i = normal(i)
	}
	if n.i.big != nil {
		return key{class: 'b', text: string(n.i.big.Append(nil, 62))}
	}
	return key{class: 'i', num: uint64(n.i.small)}
}

// tupleKey writes the keys of the items, each after its length.
func (m *machine) tupleKey(t *tuple) (key, error) {
	if err := m.nest(); err != nil {
		return key{}, err
	}
	defer m.unnest()
	b := m.text()
	for _, x := range t.items {
		k, err := m.hash(x)
		if err != nil {
			return key{}, err
		}
		if k.ptr != nil {
			return key{class: 'p', ptr: t}, nil
		}
		b.raw(string(k.class) + strconv.FormatUint(k.num, 36) + ":" + strconv.Itoa(len(k.text)) + ":")
		b.raw(k.text)
	}
	s, err := b.str()
	return key{class: 't', text: s.s}, err
}
