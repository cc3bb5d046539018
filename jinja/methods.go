package jinja

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// methodTables makes the tables of methods by the kind of their owner.
func methodTables() map[string]map[string]*builtin {
	sequence := []row{
		{"count", "x /", func(r *rendering, v Value, p []Value) Value {
			n := 0
			for _, x := range v.(*list).items {
				if isAlike(r, x, p[0]) {
					n++
				}
			}
			return integer(n)
		}},
		{"index", "value start=none stop=none /", indexItem},
	}
	view := func(what string) row {
		return row{what, "", func(_ *rendering, v Value, _ []Value) Value { return &view{v.(*Dict), what} }}
	}
	tables := map[string]map[string]*builtin{
		"str":   strMethods(),
		"tuple": tabulate("the method tuple.%s", sequence),
		"list": tabulate("the method list.%s",
			append(sequence, row{"copy", "", func(r *rendering, v Value, _ []Value) Value {
				return &list{items: collect(r, v)}
			}})),
		"dict": tabulate("the method dict.%s", []row{
			view("items"), view("keys"), view("values"), {name: "fromkeys"},
			{"get", "key default=none /", func(r *rendering, v Value, p []Value) Value {
				mustHash(r, p[0])
				x, _ := find(r, v.(*Dict), p[0])
				return or(x, p[1])
			}},
			{"copy", "", func(r *rendering, v Value, _ []Value) Value { return copyDict(r, v.(*Dict)) }},
		}),
		"range": tabulate("the method range.%s",
			[]row{{name: "start"}, {name: "stop"}, {name: "step"}, {name: "count"}, {name: "index"}}),
	}
	for _, kind := range []string{"int", "bool", "float"} {
		tables[kind] = tabulate("the method "+kind+
			".%s", []row{{name: "real"}, {name: "imag"}, {name: "conjugate"}, {name: "numerator"},
			{name: "denominator"}, {name: "bit_length"}, {name: "bit_count"}, {name: "is_integer"},
			{name: "as_integer_ratio"},
			{name: "to_bytes"}, {name: "from_bytes"}, {name: "hex"}, {name: "fromhex"}})
	}
	tables["Markup"] = map[string]*builtin{}
	for name, b := range tables["str"] {
		tables["Markup"][name] = markupMethod(b)
	}
	for _, name := range []string{"escape", "striptags", "unescape"} {
		tables["Markup"][name] = tabulate("the method Markup.%s", []row{{name: name}})[name]
	}
	return tables
}

func indexItem(r *rendering, v Value, p []Value) Value {
	items := v.(*list).items
	from, to := window(len(items), p[1], p[2])
	for i := from; i < to; i++ {
		if isAlike(r, items[i], p[0]) {
			return integer(i)
		}
	}
	panic(valueError("%s is not in %s", brief(p[0]), v.kind()))
}

// window returns [start:stop] of n items, where None stands for an end.
func window(n int, start, stop Value) (from, to int) {
	from, count, _ := sliceIndices(n, start, stop, None)
	if i, ok := intOf(start); ok && count == 0 && i > int64(n) {
		return n + 1, n // beyond the end not even an empty string is found
	}
	return from, from + count
}

// textMethod makes a row of a method of str.
func textMethod(name, params string, f func(r *rendering, s str, p []Value) Value) row {
	return row{name, params, func(r *rendering, v Value, p []Value) Value { return f(r, v.(str), p) }}
}

func mapMethod(name string, f func(string) string) row {
	return textMethod(name, "", func(r *rendering, s str, _ []Value) Value { return mapText(r, s, f) })
}

func isMethod(name string, is func(string) bool) row {
	return textMethod(name, "", func(r *rendering, s str, _ []Value) Value {
		r.step(len(s.s) / 4)
		return boolean(is(s.s))
	})
}

func stripMethod(name string, left, right bool) row {
	return textMethod(name, "chars=none /", func(r *rendering, s str, p []Value) Value {
		return strip(r, s, p[0], left, right)
	})
}

// strMethods makes the methods of str.
func strMethods() map[string]*builtin {
	table := tabulate("the method str.%s", []row{
		mapMethod("capitalize", capitalize), mapMethod("lower", lower), mapMethod("title", title),
		mapMethod("upper", upper),
		stripMethod("strip", true, true), stripMethod("lstrip", true, false), stripMethod("rstrip", false, true),
		textMethod("removeprefix", "x /", func(r *rendering, s str, p []Value) Value {
			affix := textArg("removeprefix", p[0])
			if r.step(len(affix.s) / 64); strings.HasPrefix(s.s, affix.s) {
				return s.sub(len(affix.s), len(s.s))
			}
			return s
		}),
		textMethod("removesuffix", "x /", func(r *rendering, s str, p []Value) Value {
			affix := textArg("removesuffix", p[0])
			if r.step(len(affix.s) / 64); strings.HasSuffix(s.s, affix.s) {
				return s.sub(0, len(s.s)-len(affix.s))
			}
			return s
		}),
		textMethod("replace", "old new count=-1 /", func(r *rendering, s str, p []Value) Value {
			return replace(r, s, textArg("replace()", p[0]), textArg("replace()", p[1]), toInt(p[2]))
		}),
		textMethod("count", "value start=none stop=none /", func(r *rendering, s str, p []Value) Value {
			sub := textArg("count", p[0])
			from, to, ok := part(r, s, p[1], p[2])
			if !ok {
				return integer(0)
			}
			return integer(strings.Count(s.s[from:to], sub.s))
		}),
		affixMethod("startswith", strings.HasPrefix), affixMethod("endswith", strings.HasSuffix),
		findMethod("find", search, false), findMethod("index", search, true),
		findMethod("rfind", searchBack, false), findMethod("rindex", searchBack, true),
		textMethod("join", "x /", joinMethod),
		partitionMethod("partition", false), partitionMethod("rpartition", true),
		splitMethod("split", false), splitMethod("rsplit", true),
		textMethod("splitlines", "keepends=false", func(r *rendering, s str, p []Value) Value {
			return &list{items: splitLines(r, s, toInt(p[0]) != 0)}
		}),
		isMethod("isalnum", everyRune(isAlnum)), isMethod("isalpha", everyRune(unicode.IsLetter)),
		isMethod("isdigit", everyRune(isDigit)), isMethod("isspace", everyRune(isSpace)),
		isMethod("islower", isLowerText), isMethod("isupper", isUpperText),

		// Python's methods that no published chat template uses.
		{name: "casefold"}, {name: "center"}, {name: "encode"}, {name: "expandtabs"}, {name: "format_map"},
		{name: "isascii"},
		{name: "isdecimal"}, {name: "isidentifier"}, {name: "isnumeric"}, {name: "isprintable"}, {name: "istitle"},
		{name: "ljust"}, {name: "maketrans"}, {name: "rjust"}, {name: "swapcase"}, {name: "translate"}, {name: "zfill"},
	})
	table["format"] = &builtin{name: "format", raw: format}
	for _, b := range table {
		if f := b.fn; f != nil && len(b.params) > 0 {
			b.fn = func(r *rendering, v Value, p []Value) Value {
				r.watchAll(v, p)
				return f(r, v, p)
			}
		}
	}
	return table
}

// sameText lists the methods of str whose Markup form neither escapes arguments nor returns Markup.
var sameText = []string{"count", "endswith", "startswith", "find", "index", "rfind", "rindex", "split", "rsplit",
	"splitlines"}

// markupMethod makes Markup's form of a method of str, which escapes the arguments and returns Markup.
func markupMethod(b *builtin) *builtin {
	if b.fn == nil || slices.Contains(sameText, b.name) {
		return b
	}
	own := *b
	own.fn = func(r *rendering, v Value, p []Value) Value {
		for i, x := range p {
			if s, ok := x.(str); ok {
				p[i] = escape(r, s)
			}
		}
		u := b.fn(r, v, p)
		if s, ok := u.(str); ok {
			s.safe = true
			return s
		}
		return u
	}
	return &own
}

// mapText pays for and makes f(s).
func mapText(r *rendering, s str, f func(string) string) str {
	r.alloc(2 * len(s.s))
	work := len(s.s) / 8
	if !isASCII(s.s) {
		work = len(s.s)
	}
	if strings.Contains(s.s, "Σ") { // its lower case depends on its neighbours
		work *= 8
	}
	r.step(work)
	return s.withText(f(s.s))
}

// strip takes the characters of chars, or white space, from the ends of s.
func strip(r *rendering, s str, chars Value, left, right bool) Value {
	r.step(len(s.s) / 64)
	drop := isSpace
	if chars != None {
		set := textArg("strip", chars)
		r.alloc(64 * len(set.s))
		dropped := map[rune]bool{}
		for _, c := range set.s {
			dropped[c] = true
		}
		drop = func(c rune) bool { return dropped[c] }
	}
	from, to := 0, len(s.s)
	for left && from < to {
		c, n := utf8.DecodeRuneInString(s.s[from:])
		if !drop(c) {
			break
		}
		from += n
		r.pass(n)
	}
	for right && from < to {
		c, n := utf8.DecodeLastRuneInString(s.s[:to])
		if !drop(c) {
			break
		}
		to -= n
		r.pass(n)
	}
	return s.sub(from, to)
}

// replace returns s.replace(old, new, n).
func replace(r *rendering, s, old, new str, n int) Value {
	r.step(len(s.s) / 16)
	t := r.text()
	at := 0
	for i := 0; n != 0; n-- {
		next := search(r, s.s[i:], old.s)
		if next < 0 {
			break
		}
		i += next
		t.add(s.sub(at, i))
		t.add(new)
		if at = i + len(old.s); old.s != "" {
			i = at
			continue
		}
		if i == len(s.s) {
			break
		}
		_, w := utf8.DecodeRuneInString(s.s[i:])
		i += w
	}
	t.add(s.sub(at, len(s.s)))
	return t.strAs(s.safe)
}

// part returns s[start:stop] in bytes; ok is false if start is beyond the end.
func part(r *rendering, s str, start, stop Value) (from, to int, ok bool) {
	if start == None && stop == None {
		r.step(len(s.s) / 64)
		return 0, len(s.s), true
	}
	r.step(len(s.s) / 16)
	n := s.length()
	if from, to = window(n, start, stop); from > n {
		return 0, 0, false
	}
	return s.offset(from), s.offset(max(from, to)), true
}

// search returns strings.Index, and looks at the context on its way.
func search(r *rendering, s, sub string) int {
	stride := max(lookEvery, len(sub))
	for from := 0; ; from += stride {
		to := min(from+stride+len(sub), len(s))
		i := strings.Index(s[from:to], sub)
		switch {
		case i >= 0:
			r.pass(i)
			return from + i
		case to == len(s):
			r.pass(to - from)
			return -1
		}
		r.pass(stride)
	}
}

// searchBack returns strings.LastIndex, and looks at the context on its way.
func searchBack(r *rendering, s, sub string) int {
	stride := max(lookEvery, len(sub))
	for to := len(s); ; to -= stride {
		from := max(to-stride-len(sub), 0)
		i := strings.LastIndex(s[from:to], sub)
		switch {
		case i >= 0:
			r.pass(to - from - i)
			return from + i
		case from == 0:
			r.pass(to)
			return -1
		}
		r.pass(stride)
	}
}

// findMethod makes find, index, rfind or rindex.
func findMethod(name string, search func(r *rendering, s, sub string) int, must bool) row {
	return textMethod(name, "value start=none stop=none /", func(r *rendering, s str, p []Value) Value {
		sub := textArg(name, p[0])
		if from, to, ok := part(r, s, p[1], p[2]); ok {
			if i := search(r, s.s[from:to], sub.s); i >= 0 {
				return integer(utf8.RuneCountInString(s.s[:from+i]))
			}
		}
		if must {
			panic(valueError("substring not found"))
		}
		return integer(-1)
	})
}

// affixMethod makes startswith or endswith.
func affixMethod(name string, has func(s, affix string) bool) row {
	return textMethod(name, "value start=none stop=none /", func(r *rendering, s str, p []Value) Value {
		affixes := []Value{p[0]}
		if t, ok := p[0].(*list); ok && t.tuple {
			affixes = t.items
		} else if _, ok := p[0].(str); !ok {
			panic(typeError("%s first arg must be str or a tuple of str, not %s", name, p[0].kind()))
		}
		from, to, ok := part(r, s, p[1], p[2])
		for _, x := range affixes {
			affix := textArg(name, x)
			r.step(1 + len(affix.s)/64)
			if ok && has(s.s[from:to], affix.s) {
				return boolean(true)
			}
		}
		return boolean(false)
	})
}

func joinMethod(r *rendering, s str, p []Value) Value {
	t := r.text()
	for i, x := range collect(r, p[0]) {
		item, ok := x.(str)
		if s.safe {
			item = escape(r, softStr(r, x))
		} else if !ok {
			panic(typeError("sequence item %d: expected str instance, %s found", i, x.kind()))
		}
		if i > 0 {
			t.add(s)
		}
		t.add(item)
	}
	return t.str()
}

func partitionMethod(name string, last bool) row {
	return textMethod(name, "x /", func(r *rendering, s str, p []Value) Value {
		sep := separator(name, p[0])
		r.step(len(s.s) / 64)
		empty := s.sub(0, 0)
		find := search
		if last {
			find = searchBack
		}
		i := find(r, s.s, sep)
		switch {
		case i >= 0:
			return tupleOf(s.sub(0, i), s.sub(i, i+len(sep)), s.sub(i+len(sep), len(s.s)))
		case last:
			return tupleOf(empty, empty, s)
		}
		return tupleOf(s, empty, empty)
	})
}

func separator(function string, v Value) string {
	sep := textArg(function, v)
	if sep.s == "" {
		panic(valueError("empty separator"))
	}
	return sep.s
}

func splitMethod(name string, last bool) row {
	return textMethod(name, "sep=none maxsplit=-1", func(r *rendering, s str, p []Value) Value {
		n := toInt(p[1])
		r.step(len(s.s) / 16)
		var parts []Value
		switch {
		case p[0] == None:
			parts = splitWords(r, s, n, last)
		case last:
			parts = splitBack(r, s, separator(name, p[0]), n)
		default:
			parts = split(r, s, separator(name, p[0]), n)
		}
		if last {
			slices.Reverse(parts)
		}
		return &list{items: parts}
	})
}

// split returns s.split(sep, n).
func split(r *rendering, s str, sep string, n int) []Value {
	var parts []Value
	from := 0
	for ; n != 0; n-- {
		r.alloc(64)
		i := search(r, s.s[from:], sep)
		if i < 0 {
			break
		}
		parts = append(parts, s.sub(from, from+i))
		from += i + len(sep)
	}
	return append(parts, s.sub(from, len(s.s)))
}

// splitBack returns s.rsplit(sep, n), the last part first.
func splitBack(r *rendering, s str, sep string, n int) []Value {
	var parts []Value
	to := len(s.s)
	for ; n != 0; n-- {
		r.alloc(64)
		i := searchBack(r, s.s[:to], sep)
		if i < 0 {
			break
		}
		parts = append(parts, s.sub(i+len(sep), to))
		to = i
	}
	return append(parts, s.sub(0, to))
}

// splitWords returns s.split(None, n), or s.rsplit(None, n) with the last part first. The remaining part keeps the
// white space at its other end.
func splitWords(r *rendering, s str, n int, last bool) []Value {
	parts := []Value{}
	for ; ; n-- {
		r.alloc(64)
		if last {
			s = s.sub(0, len(strings.TrimRightFunc(s.s, isSpace)))
		} else {
			s = s.sub(len(s.s)-len(strings.TrimLeftFunc(s.s, isSpace)), len(s.s))
		}
		if s.s == "" {
			return parts
		}
		from, to := 0, len(s.s)
		if i := strings.LastIndexFunc(s.s, isSpace); last && i >= 0 && n != 0 {
			_, w := utf8.DecodeRuneInString(s.s[i:])
			from = i + w
		}
		if i := strings.IndexFunc(s.s, isSpace); !last && i >= 0 && n != 0 {
			to = i
		}
		parts = append(parts, s.sub(from, to))
		if last {
			s = s.sub(0, from)
		} else {
			s = s.sub(to, len(s.s))
		}
	}
}

func isLineBreak(r rune) bool {
	return r >= '\n' && r <= '\r' || r >= 0x1c && r <= 0x1e || r == 0x85 || r == 0x2028 || r == 0x2029
}

func splitLines(r *rendering, s str, keep bool) []Value {
	r.step(len(s.s) / 16)
	lines := []Value{}
	for from := 0; from < len(s.s); {
		r.alloc(64)
		i := strings.IndexFunc(s.s[from:], isLineBreak)
		if i < 0 {
			return append(lines, s.sub(from, len(s.s)))
		}
		end := from + i
		_, w := utf8.DecodeRuneInString(s.s[end:])
		if strings.HasPrefix(s.s[end:], "\r\n") {
			w = 2
		}
		if from, i = end+w, from; keep {
			end = from
		}
		lines = append(lines, s.sub(i, end))
	}
	return lines
}
