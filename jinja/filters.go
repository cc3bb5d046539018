package jinja

import (
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"
)

func filterRows() []row {
	return []row{
		{"abs", "", filterAbs},
		{"attr", "name", func(r *rendering, v Value, p []Value) Value {
			name := toStr(r, p[0])
			return or(attribute(r, v, name.s), &undefined{owner: v, name: name})
		}},
		{"capitalize", "", textFilter(capitalize)},
		{"count", "", filterLength},
		{"d", "default_value='' boolean=false", filterDefault},
		{"default", "default_value='' boolean=false", filterDefault},
		{"dictsort", "case_sensitive=false by='key' reverse=false", filterDictsort},
		{"e", "", filterEscape},
		{"escape", "", filterEscape},
		{"first", "", filterFirst},
		{"float", "default=none", filterFloat},
		{"indent", "width=4 first=false blank=false", filterIndent},
		{"int", "default=0 base=10", filterInt},
		{"items", "", filterItems},
		{"join", "d='' attribute=none", filterJoin},
		{"last", "", filterLast},
		{"length", "", filterLength},
		{"list", "", func(r *rendering, v Value, _ []Value) Value { return &list{items: collect(r, v)} }},
		{"lower", "", textFilter(lower)},
		{"max", "case_sensitive=false attribute=none", extreme(">")},
		{"min", "case_sensitive=false attribute=none", extreme("<")},
		{"replace", "old new count=none", filterReplace},
		{"reverse", "", filterReverse},
		{"round", "precision=0 method='common'", filterRound},
		{"safe", "", func(r *rendering, v Value, _ []Value) Value {
			s := softStr(r, v)
			s.safe = true
			return s
		}},
		{"sort", "reverse=false case_sensitive=false attribute=none", filterSort},
		{"string", "", func(r *rendering, v Value, _ []Value) Value { return softStr(r, v) }},
		{"sum", "attribute=none start=0", filterSum},
		{"title", "", func(r *rendering, v Value, _ []Value) Value {
			return mapText(r, softStr(r, v).unsafe(), titleWords)
		}},
		{"tojson", "ensure_ascii=false indent=none separators=none sort_keys=false", filterTojson},
		{"trim", "chars=none", filterTrim},
		{"unique", "case_sensitive=false attribute=none", filterUnique},
		{"upper", "", textFilter(upper)},

		// Filters of Jinja2 without a use in any published chat template.
		{name: "batch"}, {name: "center"}, {name: "filesizeformat"}, {name: "forceescape"}, {name: "groupby"},
		{name: "pprint"}, {name: "random"}, {name: "slice"}, {name: "striptags"}, {name: "truncate"},
		{name: "urlencode"}, {name: "urlize"}, {name: "wordcount"}, {name: "wordwrap"}, {name: "xmlattr"},
	}
}

// textFilter makes a filter of anything from a function of text.
func textFilter(f func(string) string) func(*rendering, Value, []Value) Value {
	return func(r *rendering, v Value, _ []Value) Value { return mapText(r, softStr(r, v), f) }
}

func filterAbs(_ *rendering, v Value, _ []Value) Value {
	n, ok := numberOf(v)
	switch {
	case !ok:
		panic(typeError("bad operand type for abs(): '%s'", v.kind()))
	case n.isFloat:
		return float(math.Abs(n.f))
	case n.i < 0:
		return intArith("-", 0, n.i)
	}
	return integer(n.i)
}

func filterLength(r *rendering, v Value, _ []Value) Value {
	if l, ok := v.(*loop); ok {
		return integer(l.length())
	}
	return integer(mustSize(r, v))
}

func filterDefault(r *rendering, v Value, p []Value) Value {
	if _, ok := v.(*undefined); ok || truth(r, p[1]) && !truth(r, v) {
		return p[0]
	}
	return v
}

func filterInt(r *rendering, v Value, p []Value) Value {
	need(v)
	if n, ok := numberOf(v); ok {
		switch {
		case !n.isFloat:
			return integer(n.i)
		case math.IsNaN(n.f):
			return p[0]
		}
		return truncate(n.f)
	}
	s, ok := v.(str)
	if !ok {
		return p[0]
	}
	r.step(len(s.s) / 4)
	base := toInt(p[1])
	if base < 2 || base > 36 {
		panic(unsupported("a base of %d", base))
	}
	if i, ok := parseInt(s.s, base); ok {
		return integer(i)
	}
	f, ok := parseFloat(s.s)
	if !ok || math.IsInf(f, 0) || math.IsNaN(f) {
		return p[0]
	}
	return truncate(f)
}

func filterFloat(r *rendering, v Value, p []Value) Value {
	need(v)
	if n, ok := numberOf(v); ok {
		return float(n.float())
	}
	if s, ok := v.(str); ok {
		r.step(len(s.s) / 4)
		if f, ok := parseFloat(s.s); ok {
			return float(f)
		}
	}
	if p[0] == None {
		return float(0)
	}
	return p[0]
}

func filterRound(_ *rendering, v Value, p []Value) Value {
	need(v)
	n, ok := numberOf(v)
	if !ok {
		panic(typeError("type %s doesn't define __round__ method", v.kind()))
	}
	digits := toInt(p[0])
	if digits < 0 || digits > 22 { // 10**22 is the largest power of ten that is a float
		panic(unsupported("a precision of %d digits", digits))
	}
	unit := math.Pow10(digits)
	switch method, _ := p[1].(str); method.s {
	case "common":
		if !n.isFloat {
			return integer(n.i)
		}
		f, _ := strconv.ParseFloat(strconv.FormatFloat(n.f, 'f', digits, 64), 64)
		return float(f)
	case "ceil":
		return float(math.Ceil(n.float()*unit) / unit)
	case "floor":
		return float(math.Floor(n.float()*unit) / unit)
	}
	panic(errorf(KindRuntime, "method must be common, ceil or floor"))
}

func filterEscape(r *rendering, v Value, _ []Value) Value { return escape(r, softStr(r, v)) }

func filterTrim(r *rendering, v Value, p []Value) Value {
	s := softStr(r, v)
	if c, ok := p[0].(str); ok && s.safe {
		p[0] = escape(r, c)
	}
	return strip(r, s, p[0], true, true)
}

func filterReplace(r *rendering, v Value, p []Value) Value {
	n := -1
	if p[2] != None {
		n = toInt(p[2])
	}
	return replace(r, toStr(r, v), toStr(r, p[0]), toStr(r, p[1]), n)
}

func filterFormat(r *rendering, v Value, a *args) Value {
	if a.kw.Len() > 0 {
		panic(unsupported("the filter 'format' with arguments by name"))
	}
	return percent(r, softStr(r, v), tupleOf(a.pos...))
}

// titleWords begins each word with a capital. Words are the text between white space and opening brackets.
func titleWords(s string) string {
	var b strings.Builder
	for s != "" {
		n := len(s) - len(strings.TrimLeftFunc(s, isWordStart))
		b.WriteString(upper(s[:n]))
		if s = s[n:]; s == "" {
			break
		}
		if n = strings.IndexFunc(s, isWordStart); n < 0 {
			n = len(s)
		}
		_, w := utf8.DecodeRuneInString(s)
		b.WriteString(upper(s[:w]))
		b.WriteString(lower(s[w:n]))
		s = s[n:]
	}
	return b.String()
}

func isWordStart(r rune) bool { return isSpace(r) || strings.ContainsRune("-({[<", r) }

func filterIndent(r *rendering, v Value, p []Value) Value {
	s, ok := v.(str)
	if !ok {
		need(v)
		panic(misfit("+=", v, str{}))
	}
	indent := indention(r, p[0])
	first, blank := truth(r, p[1]), truth(r, p[2])
	lines := splitLines(r, s, false)
	if tail, _ := utf8.DecodeLastRuneInString(s.s); s.s == "" || isLineBreak(tail) && tail != '\r' {
		lines = append(lines, s.sub(len(s.s), len(s.s))) // the newline that Jinja2 adds
	}
	t := r.text()
	for i, line := range lines {
		line := line.(str)
		if i > 0 {
			t.raw("\n")
		}
		if i == 0 && first || i > 0 && (blank || line.s != "") {
			t.add(indent)
		}
		t.add(line)
	}
	return t.strAs(s.safe)
}

// indention returns the text before each line: a string, or spaces.
func indention(r *rendering, width Value) str {
	if s, ok := width.(str); ok {
		return s.unsafe()
	}
	t := r.text()
	t.repeat(unmarked(" "), toInt(width))
	return t.str()
}

func filterFirst(r *rendering, v Value, _ []Value) Value {
	x, _ := iterate(r, v)()
	return or(x, &undefined{hint: "No first item, sequence was empty."})
}

func filterLast(r *rendering, v Value, _ []Value) Value {
	if x, ok := v.(*list); ok && len(x.items) > 0 {
		return x.items[len(x.items)-1]
	}
	items, ok := reverseItems(r, v)
	if !ok {
		panic(typeError("'%s' object is not reversible", v.kind()))
	}
	if len(items) == 0 {
		return &undefined{hint: "No last item, sequence was empty."}
	}
	return items[0]
}

func filterItems(r *rendering, v Value, _ []Value) Value {
	return makeLazy(r, func() iterator {
		switch v := v.(type) {
		case *undefined:
			return overItems(nil)
		case *Dict:
			return (&view{v, "items"}).iterate()
		}
		panic(typeError("Can only get item pairs from a mapping."))
	})
}

func filterReverse(r *rendering, v Value, _ []Value) Value {
	if s, ok := v.(str); ok {
		return slice(r, s, None, None, integer(-1))
	}
	if items, ok := reverseItems(r, v); ok {
		return &generator{overItems(items)}
	}
	next, ok := items(r, v)
	if !ok {
		panic(errorf(KindRuntime, "argument must be iterable"))
	}
	all := drain(r, next)
	slices.Reverse(all)
	return &list{items: all}
}

func filterJoin(r *rendering, v Value, p []Value) Value {
	sep, parts := toStr(r, p[0]), path(p[1])
	next := iterate(r, v)
	t := r.text()
	first := true
	for x, ok := next(); ok; x, ok = next() {
		if !first {
			t.add(sep)
		}
		first = false
		t.add(toStr(r, follow(r, x, parts, None)))
	}
	return t.str()
}

func filterSum(r *rendering, v Value, p []Value) Value {
	if _, ok := p[1].(str); ok {
		panic(typeError("sum() can't sum strings [use ''.join(seq) instead]"))
	}
	total, parts := p[1], path(p[0])
	for _, x := range collect(r, v) {
		total = binary(r, "+", total, follow(r, x, parts, None))
	}
	return total
}

// path takes an attribute such as "a.b.0" of a filter apart.
func path(attribute Value) []Value {
	s, ok := attribute.(str)
	if !ok {
		if attribute == nil || attribute == None {
			return nil
		}
		return []Value{attribute}
	}
	var parts []Value
	for _, p := range strings.Split(s.s, ".") {
		if n, err := strconv.Atoi(p); err == nil && isDigits(p) {
			parts = append(parts, integer(n))
		} else {
			parts = append(parts, unmarked(p))
		}
	}
	return parts
}

// follow looks a path up; an undefined value becomes the default, unless the default is None.
func follow(r *rendering, v Value, parts []Value, other Value) Value {
	for _, p := range parts {
		v = getitem(r, v, p)
		if _, ok := v.(*undefined); ok && other != None {
			v = other
		}
	}
	return v
}

// makeLazy makes a generator whose work begins with the first request.
func makeLazy(r *rendering, start func() iterator) Value {
	var next iterator
	return &generator{func() (Value, bool) {
		r.nest() // generators can be made of generators, at any depth
		defer r.unnest()
		if next == nil {
			next = start()
		}
		return next()
	}}
}

// mapTrue makes a generator of the results of work for the items of v, and of nothing for a false v.
func mapTrue(r *rendering, v Value, work func(next iterator) iterator) Value {
	return makeLazy(r, func() iterator {
		if !truth(r, v) {
			return overItems(nil)
		}
		return work(iterate(r, v))
	})
}

func filterMap(r *rendering, v Value, a *args) Value {
	return mapTrue(r, v, func(next iterator) iterator {
		f := mapper(r, a)
		return func() (Value, bool) {
			x, ok := next()
			if !ok {
				return nil, false
			}
			return f(x), true
		}
	})
}

// mapper returns the function that the map filter applies to each item.
func mapper(r *rendering, a *args) func(Value) Value {
	if attribute, ok := a.kw.Get("attribute"); ok && len(a.pos) == 0 {
		other, hasDefault := a.kw.Get("default")
		if a.kw.Len() > 2 || a.kw.Len() == 2 && !hasDefault {
			panic(errorf(KindRuntime, "Unexpected keyword argument"))
		}
		parts := path(attribute)
		return func(v Value) Value { return follow(r, v, parts, or(other, None)) }
	}
	if len(a.pos) == 0 {
		panic(errorf(KindRuntime, "map requires a filter argument"))
	}
	name, _ := a.pos[0].(str)
	return func(v Value) Value { return filter(r, name.s, v, a.without()) }
}

// selector makes select, reject, selectattr or rejectattr.
func selector(want, attribute bool) func(*rendering, Value, *args) Value {
	return func(r *rendering, v Value, a *args) Value {
		return mapTrue(r, v, func(next iterator) iterator {
			var parts []Value
			a := a
			if attribute {
				if len(a.pos) == 0 {
					panic(errorf(KindRuntime, "Missing parameter for attribute name"))
				}
				parts, a = path(a.pos[0]), a.without()
			}
			return keepItems(next, func(x Value) bool {
				x = follow(r, x, parts, None)
				if len(a.pos) == 0 {
					return truth(r, x) == want
				}
				name, _ := a.pos[0].(str)
				return isTest(r, name.s, x, a.without()) == want
			})
		})
	}
}

// keyOf returns the key by which a filter with the arguments attribute and case_sensitive compares items.
func keyOf(r *rendering, attribute, caseSensitive Value) func(Value) Value {
	exact, parts := truth(r, caseSensitive), path(attribute)
	return func(v Value) Value {
		v = follow(r, v, parts, None)
		if s, ok := v.(str); ok && !exact {
			return mapText(r, s, lower)
		}
		return v
	}
}

func mapKeys(r *rendering, items []Value, key func(Value) Value) []Value {
	r.allocItems(len(items))
	keys := make([]Value, len(items))
	for i, x := range items {
		keys[i] = key(x)
	}
	return keys
}

// sortedBy returns the stable order of keys, as positions.
func sortedBy(r *rendering, keys []Value, backwards bool) []int {
	r.allocItems(len(keys))
	order := make([]int, len(keys))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(i, j int) bool {
		a, b := keys[order[i]], keys[order[j]]
		if backwards {
			a, b = b, a
		}
		return ordered(r, "<", a, b)
	})
	return order
}

func sorted(r *rendering, items []Value, key func(Value) Value, backwards Value) Value {
	order := sortedBy(r, mapKeys(r, items, key), truth(r, backwards))
	out := make([]Value, len(items))
	for i, j := range order {
		out[i] = items[j]
	}
	return &list{items: out}
}

func filterSort(r *rendering, v Value, p []Value) Value {
	attributes := []Value{p[2]}
	if s, ok := p[2].(str); ok {
		attributes = nil
		for _, one := range strings.Split(s.s, ",") {
			attributes = append(attributes, unmarked(one))
		}
	}
	var keys []func(Value) Value
	for _, attribute := range attributes {
		keys = append(keys, keyOf(r, attribute, p[1]))
	}
	return sorted(r, collect(r, v), func(v Value) Value {
		r.allocItems(len(keys))
		all := &list{items: make([]Value, len(keys))}
		for i, k := range keys {
			all.items[i] = k(v)
		}
		return all
	}, p[0])
}

func filterDictsort(r *rendering, v Value, p []Value) Value {
	need(v)
	by, _ := p[1].(str)
	if by.s != "key" && by.s != "value" {
		panic(errorf(KindRuntime, `You can only sort by either "key" or "value"`))
	}
	d, ok := v.(*Dict)
	if !ok {
		panic(typeError("'%s' object has no attribute 'items'", v.kind()))
	}
	key := keyOf(r, None, p[0])
	return sorted(r, collect(r, &view{d, "items"}), func(v Value) Value {
		if by.s == "value" {
			return key(v.(*list).items[1])
		}
		return key(v.(*list).items[0])
	}, p[2])
}

func filterUnique(r *rendering, v Value, p []Value) Value {
	return makeLazy(r, func() iterator {
		get, seen := keyOf(r, p[1], p[0]), map[key]bool{}
		return keepItems(iterate(r, v), func(x Value) bool {
			h := mustHash(r, get(x))
			if seen[h] {
				return false
			}
			r.alloc(64)
			seen[h] = true
			return true
		})
	})
}

// extreme makes min or max.
func extreme(op string) func(*rendering, Value, []Value) Value {
	return func(r *rendering, v Value, p []Value) Value {
		items := collect(r, v)
		if len(items) == 0 {
			return &undefined{hint: "No aggregated item, sequence was empty."}
		}
		keys := mapKeys(r, items, keyOf(r, p[1], p[0]))
		best := 0
		for i := range keys {
			if i > 0 && ordered(r, op, keys[i], keys[best]) {
				best = i
			}
		}
		return items[best]
	}
}
