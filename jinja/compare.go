package jinja

import (
	"math"
	"math/big"
	"strings"
)

// equal is a == b.
func (m *machine) equal(a, b Value) (bool, error) {
	if err := m.nest(); err != nil {
		return false, err
	}
	defer m.unnest()
	if x, ok := numberOf(a); ok {
		y, ok := numberOf(b)
		if !ok {
			return false, nil
		}
		c, ordered := compareNumbers(x, y)
		return ordered && c == 0, nil
	}
	switch a := a.(type) {
	case str:
		b, ok := b.(str)
		m.watch(a, b)
		return ok && a.s == b.s, m.step(len(a.s) / 64)
	case none:
		return b == None, nil
	case *undefined:
		_, ok := b.(*undefined)
		return ok, nil
	case *list:
		if b, ok := b.(*list); ok {
			return m.equalItems(a.items, b.items)
		}
		return false, nil
	case *tuple:
		if b, ok := b.(*tuple); ok {
			return m.equalItems(a.items, b.items)
		}
		return false, nil
	case *Dict:
		if b, ok := b.(*Dict); ok {
			return m.equalDicts(a, b)
		}
		return false, nil
	case *rangeValue:
		b, ok := b.(*rangeValue)
		return ok && a.equal(b), nil
	case *view:
		if b, ok := b.(*view); ok && a.what == b.what && a.what != "values" {
			if a.what == "items" {
				return m.equalDicts(a.d, b.d)
			}
			return m.equalKeys(a.d, b.d)
		}
	}
	return same(a, b), nil
}

// same is a is b, for values that have an identity.
func same(a, b Value) bool {
	switch a.(type) {
	case str, none, boolean, integer, float:
		return false
	}
	switch b.(type) {
	case str, none, boolean, integer, float:
		return false
	}
	return a == b
}

func (r *rangeValue) equal(o *rangeValue) bool {
	n := r.length()
	return n == o.length() && (n == 0 || r.start == o.start && (n == 1 || r.step == o.step))
}

func (m *machine) equalItems(a, b []Value) (bool, error) {
	if len(a) != len(b) {
		return false, nil
	}
	for i := range a {
		if same(a[i], b[i]) {
			continue
		}
		if ok, err := m.equal(a[i], b[i]); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

func (m *machine) equalKeys(a, b *Dict) (bool, error) {
	if a.Len() != b.Len() {
		return false, nil
	}
	for _, h := range a.hashes {
		if b.position(h) < 0 {
			return false, nil
		}
	}
	return true, m.step(a.Len())
}

func (m *machine) equalDicts(a, b *Dict) (bool, error) {
	if ok, err := m.equalKeys(a, b); !ok || err != nil {
		return false, err
	}
	for i, h := range a.hashes {
		x, y := a.values[i], b.values[b.position(h)]
		if same(x, y) {
			continue
		}
		if ok, err := m.equal(x, y); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// compareNumbers is exact, also between ints and floats; ordered is false where
// one is NaN.
func compareNumbers(a, b number) (c int, ordered bool) {
	if !a.isFloat && !b.isFloat {
		if a.i.big == nil && b.i.big == nil {
			return sign(a.i.small, b.i.small), true
		}
		return a.i.wide().Cmp(b.i.wide()), true
	}
	if a.isFloat && b.isFloat {
		return sign(a.f, b.f), a.f == a.f && b.f == b.f
	}
	if b.isFloat {
		c, ordered = compareNumbers(b, a)
		return -c, ordered
	}
	if math.IsNaN(a.f) || math.IsInf(a.f, 0) {
		return sign(a.f, 0), !math.IsNaN(a.f)
	}
	return big.NewFloat(a.f).Cmp(new(big.Float).SetInt(b.i.wide())), true
}

func sign[T int64 | float64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// compare is a op b for <, <=, > and >=.
func (m *machine) compare(op string, a, b Value) (bool, error) {
	if err := m.nest(); err != nil {
		return false, err
	}
	defer m.unnest()
	if u, ok := firstUndefined(a, b); ok {
		return false, u.fail()
	}
	if x, ok := numberOf(a); ok {
		if y, ok := numberOf(b); ok {
			c, ordered := compareNumbers(x, y)
			return ordered && holds(op, c), nil
		}
	}
	switch a := a.(type) {
	case str:
		if b, ok := b.(str); ok {
			m.watch(a, b)
			return holds(op, strings.Compare(a.s, b.s)), m.step(len(a.s) / 64)
		}
	case *list:
		if b, ok := b.(*list); ok {
			return m.compareItems(op, a.items, b.items)
		}
	case *tuple:
		if b, ok := b.(*tuple); ok {
			return m.compareItems(op, a.items, b.items)
		}
	}
	return false, typeError("'%s' not supported between instances of '%s' and '%s'", op, a.kind(), b.kind())
}

func firstUndefined(values ...Value) (*undefined, bool) {
	for _, v := range values {
		if u, ok := v.(*undefined); ok {
			return u, true
		}
	}
	return nil, false
}

func holds(op string, c int) bool {
	switch op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	}
	return c >= 0
}

// compareItems compares by the first items that differ, then by length.
func (m *machine) compareItems(op string, a, b []Value) (bool, error) {
	for i := range min(len(a), len(b)) {
		if same(a[i], b[i]) {
			continue
		}
		ok, err := m.equal(a[i], b[i])
		if err != nil {
			return false, err
		}
		if !ok {
			return m.compare(op, a[i], b[i])
		}
	}
	return holds(op, sign(int64(len(a)), int64(len(b)))), nil
}

// contains is x in c.
func (m *machine) contains(c, x Value) (bool, error) {
	switch c := c.(type) {
	case str:
		s, ok := x.(str)
		if !ok {
			return false, typeError("'in <string>' requires string as left operand, not %s", x.kind())
		}
		m.watch(c, s)
		if err := m.step(len(c.s) / 64); err != nil {
			return false, err
		}
		i, err := m.search(c.s, s.s)
		return i >= 0, err
	case *Dict:
		_, ok, err := m.find(c, x)
		return ok, err
	case *view:
		if c.what == "keys" {
			_, ok, err := m.find(c.d, x)
			return ok, err
		}
	case *rangeValue:
		if i, ok := intOf(x); ok {
			return c.contains(i), nil
		}
	}
	next, err := m.iterate(c)
	if err != nil {
		if is(err, KindType) {
			return false, typeError("argument of type '%s' is not iterable", c.kind())
		}
		return false, err
	}
	for {
		v, ok, err := next()
		if !ok || err != nil {
			return false, err
		}
		if same(v, x) {
			return true, nil
		}
		if ok, err := m.equal(v, x); ok || err != nil {
			return ok, err
		}
	}
}

func (r *rangeValue) contains(i integer) bool {
	if i.big != nil || r.length() == 0 {
		return false
	}
	low, high := r.start, r.start+int64(r.length()-1)*r.step
	if r.step < 0 {
		low, high = high, low
	}
	return low <= i.small && i.small <= high && (i.small-r.start)%r.step == 0
}
