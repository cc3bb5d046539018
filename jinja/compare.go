package jinja

import "strings"

// equal returns a == b.
func equal(r *rendering, a, b Value) bool {
	r.nest()
	defer r.unnest()
	if x, ok := numberOf(a); ok {
		y, ok := numberOf(b)
		if !ok {
			return false
		}
		c, ordered := compareNumbers(x, y)
		return ordered && c == 0
	}
	switch a := a.(type) {
	case str:
		b, ok := b.(str)
		r.watch(a, b)
		r.step(len(a.s) / 64)
		return ok && a.s == b.s
	case none:
		return b == None
	case *undefined:
		_, ok := b.(*undefined)
		return ok
	case *list:
		b, ok := b.(*list)
		return ok && a.tuple == b.tuple && equalItems(r, a.items, b.items)
	case *Dict:
		b, ok := b.(*Dict)
		return ok && equalKeys(r, a, b) && equalValues(r, a, b)
	case *rangeValue:
		b, ok := b.(*rangeValue)
		n := a.length()
		return ok && n == b.length() && (n == 0 || a.start == b.start && (n == 1 || a.step == b.step))
	case *view:
		if b, ok := b.(*view); ok && a.what == b.what && a.what != "values" {
			return equalKeys(r, a.d, b.d) && (a.what == "keys" || equalValues(r, a.d, b.d))
		}
	}
	return isIdentical(a, b)
}

// isIdentical returns a is b, for values that have an identity.
func isIdentical(a, b Value) bool { return hasIdentity(a) && hasIdentity(b) && a == b }

func hasIdentity(v Value) bool {
	switch v.(type) {
	case str, none, boolean, integer, float:
		return false
	}
	return true
}

// isAlike reports whether a container takes a and b for the same value.
func isAlike(r *rendering, a, b Value) bool { return isIdentical(a, b) || equal(r, a, b) }

func equalItems(r *rendering, a, b []Value) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !isAlike(r, a[i], b[i]) {
			return false
		}
	}
	return true
}

func equalKeys(r *rendering, a, b *Dict) bool {
	if a.Len() != b.Len() {
		return false
	}
	r.step(a.Len())
	for _, h := range a.hashes {
		if b.position(h) < 0 {
			return false
		}
	}
	return true
}

// equalValues compares the values of two dicts with the same keys.
func equalValues(r *rendering, a, b *Dict) bool {
	for i, h := range a.hashes {
		if !isAlike(r, a.values[i], b.values[b.position(h)]) {
			return false
		}
	}
	return true
}

// compareNumbers compares exactly, also between ints and floats; ordered is false if a or b is NaN.
func compareNumbers(a, b number) (c int, ordered bool) {
	switch {
	case !a.isFloat && !b.isFloat:
		return sign(a.i, b.i), true
	case a.isFloat && b.isFloat:
		return sign(a.f, b.f), a.f == a.f && b.f == b.f
	case b.isFloat:
		c, ordered = compareNumbers(b, a)
		return -c, ordered
	case a.f >= 1<<63 || a.f < -1<<63 || a.f != a.f:
		return sign(a.f, 0), a.f == a.f
	}
	if whole := int64(a.f); whole != b.i {
		return sign(whole, b.i), true
	}
	return sign(a.f, float64(int64(a.f))), true
}

func sign[T int | int64 | float64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// relation returns a op b for == != in "not in" < <= > >=.
func relation(r *rendering, op string, a, b Value) bool {
	switch op {
	case "==":
		return equal(r, a, b)
	case "!=":
		return !equal(r, a, b)
	case "in":
		return contains(r, b, a)
	case "not in":
		return !contains(r, b, a)
	}
	return ordered(r, op, a, b)
}

// ordered returns a op b for <, <=, > and >=.
func ordered(r *rendering, op string, a, b Value) bool {
	r.nest()
	defer r.unnest()
	need(a, b)
	x, ok1 := numberOf(a)
	y, ok2 := numberOf(b)
	if ok1 && ok2 {
		c, ordered := compareNumbers(x, y)
		return ordered && holds(op, c)
	}
	switch a := a.(type) {
	case str:
		if b, ok := b.(str); ok {
			r.watch(a, b)
			r.step(len(a.s) / 64)
			return holds(op, strings.Compare(a.s, b.s))
		}
	case *list:
		if b, ok := b.(*list); ok && a.tuple == b.tuple {
			return orderedItems(r, op, a.items, b.items)
		}
	}
	panic(typeError("'%s' not supported between instances of '%s' and '%s'", op, a.kind(), b.kind()))
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

// orderedItems compares by the first items that differ, then by length.
func orderedItems(r *rendering, op string, a, b []Value) bool {
	for i := range min(len(a), len(b)) {
		if !isAlike(r, a[i], b[i]) {
			return ordered(r, op, a[i], b[i])
		}
	}
	return holds(op, sign(len(a), len(b)))
}

// contains returns x in c.
func contains(r *rendering, c, x Value) bool {
	switch c := c.(type) {
	case str:
		s, ok := x.(str)
		if !ok {
			panic(typeError("'in <string>' requires string as left operand, not %s", x.kind()))
		}
		r.watch(c, s)
		r.step(len(c.s) / 64)
		return search(r, c.s, s.s) >= 0
	case *Dict:
		return hasKey(r, c, x)
	case *view:
		if c.what == "keys" {
			return hasKey(r, c.d, x)
		}
	}
	next, ok := items(r, c)
	if !ok {
		panic(typeError("argument of type '%s' is not iterable", c.kind()))
	}
	for v, ok := next(); ok; v, ok = next() {
		if r.step(1); isAlike(r, v, x) {
			return true
		}
	}
	return false
}

func hasKey(r *rendering, d *Dict, x Value) bool {
	mustHash(r, x)
	v, _ := find(r, d, x)
	return v != nil
}
