package jinja

import "strings"

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
	u := t.str()
	u.safe = s.safe
	return u
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
	u := t.str()
	u.safe = s.safe
	return u
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
