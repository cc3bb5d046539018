package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// A strMethod is a method of str. Where it is named in escaping, Markup's own
// escapes the arguments and returns Markup.
type strMethod func(m *machine, s str, a *args) (Value, error)

// strMethods are those of str, which setMethods sets: str.format leads back to them.
var strMethods map[string]method

func setMethods() {
	strMethods = map[string]method{}
	for name, f := range plainMethods {
		strMethods[name] = func(m *machine, self Value, a *args) (Value, error) {
			m.watchArgs(self, a)
			return f(m, self.(str), a)
		}
	}
	for name, f := range escapingMethods {
		strMethods[name] = func(m *machine, self Value, a *args) (Value, error) {
			s := self.(str)
			m.watchArgs(self, a)
			if !s.safe {
				return f(m, s, a)
			}
			if err := m.escapeArgs(a); err != nil {
				return nil, err
			}
			v, err := f(m, s, a)
			if r, ok := v.(str); ok {
				r.safe = true
				v = r
			}
			return v, err
		}
	}
}

// escapeArgs escapes the strings among arguments.
func (m *machine) escapeArgs(a *args) error {
	escape := func(values []Value) error {
		for i, v := range values {
			if s, ok := v.(str); ok {
				e, err := m.escape(s)
				if err != nil {
					return err
				}
				values[i] = e
			}
		}
		return nil
	}
	if err := escape(a.pos); err != nil || a.kw == nil {
		return err
	}
	return escape(a.kw.values)
}

var escapingMethods map[string]strMethod

func setEscapingMethods() {
	escapingMethods = map[string]strMethod{
		"capitalize":   mapMethod("capitalize", capitalize),
		"casefold":     mapMethod("casefold", caseFold),
		"lower":        mapMethod("lower", lower),
		"swapcase":     mapMethod("swapcase", swapCase),
		"title":        mapMethod("title", title),
		"upper":        mapMethod("upper", upper),
		"strip":        stripMethod("strip", true, true),
		"lstrip":       stripMethod("lstrip", true, false),
		"rstrip":       stripMethod("rstrip", false, true),
		"center":       padMethod("center", func(n, width int) int { return n/2 + n&width&1 }),
		"ljust":        padMethod("ljust", func(int, int) int { return 0 }),
		"rjust":        padMethod("rjust", func(n, _ int) int { return n }),
		"expandtabs":   takes("expandtabs", "tabsize?", strExpandTabs),
		"zfill":        takes("zfill", "x /", strZfill),
		"replace":      takes("replace", "old new count? /", strReplace),
		"removeprefix": removeMethod("removeprefix", strings.CutPrefix),
		"removesuffix": removeMethod("removesuffix", strings.CutSuffix),
	}
}

var plainMethods map[string]strMethod

func setPlainMethods() {
	plainMethods = map[string]strMethod{
		"count":        takes("count", "value start? stop? /", strCount),
		"endswith":     affixMethod("endswith", strings.HasSuffix),
		"startswith":   affixMethod("startswith", strings.HasPrefix),
		"find":         findMethod("find", (*machine).search, false),
		"index":        findMethod("index", (*machine).search, true),
		"rfind":        findMethod("rfind", (*machine).searchBack, false),
		"rindex":       findMethod("rindex", (*machine).searchBack, true),
		"format":       strFormat,
		"format_map":   takes("format_map", "x /", strFormatMap),
		"join":         takes("join", "x /", strJoin),
		"partition":    partitionMethod("partition", false),
		"rpartition":   partitionMethod("rpartition", true),
		"split":        splitMethod("split", false),
		"rsplit":       splitMethod("rsplit", true),
		"splitlines":   takes("splitlines", "keepends?", strSplitLines),
		"isalnum":      isMethod("isalnum", everyRune(isAlnum)),
		"isalpha":      isMethod("isalpha", everyRune(unicode.IsLetter)),
		"isascii":      isMethod("isascii", isASCII),
		"isdecimal":    isMethod("isdecimal", everyRune(isDigit)),
		"isdigit":      isMethod("isdigit", everyRune(isDecimalOrDigit)),
		"isidentifier": isMethod("isidentifier", isIdentifier),
		"islower":      isMethod("islower", isLowerText),
		"isnumeric":    isMethod("isnumeric", everyRune(isNumeric)),
		"isprintable":  isMethod("isprintable", isPrintable),
		"isspace":      isMethod("isspace", everyRune(isSpace)),
		"istitle":      isMethod("istitle", isTitle),
		"isupper":      isMethod("isupper", isUpperText),
		"encode":       missingMethod("encode"),
		"maketrans":    missingMethod("maketrans"),
		"translate":    missingMethod("translate"),
	}
}

// missingMethod is one of Python's that no chat template needs.
func missingMethod(name string) strMethod {
	return func(*machine, str, *args) (Value, error) {
		return nil, errorf(KindRuntime, "str.%s is not supported", name)
	}
}

// stringArg wants a string.
func stringArg(function string, v Value) (str, error) {
	s, ok := v.(str)
	if !ok {
		return str{}, typeError("%s argument must be str, not %s", function, v.kind())
	}
	return s, nil
}

// intArg returns the argument as an integer, or the default without one.
func intArg(v Value, missing int) (int, error) {
	if v == nil {
		return missing, nil
	}
	return indexOf(v)
}

// mapped is s turned into text: ASCII keeps its place and its marks.
func (s str) mapped(text string) str {
	if len(text) == len(s.s) && isASCII(text) && isASCII(s.s) {
		return str{s: text, marks: s.marks, base: s.base, own: &buffer{more: len(text)}, safe: s.safe}
	}
	return s.like(text)
}

func mapMethod(name string, f func(string) string) strMethod {
	return takes("str."+name, "", func(m *machine, s str, _ []Value) (Value, error) {
		return m.mapText(s, f)
	})
}

// mapText pays for and makes f(s).
func (m *machine) mapText(s str, f func(string) string) (str, error) {
	if err := m.alloc(2 * len(s.s)); err != nil {
		return str{}, err
	}
	work := len(s.s) / 8
	if !isASCII(s.s) {
		work = len(s.s)
	}
	if strings.Contains(s.s, "Σ") { // whose lower case depends on its neighbours
		work *= 8
	}
	if err := m.step(work); err != nil {
		return str{}, err
	}
	return s.mapped(f(s.s)), nil
}

func stripMethod(name string, left, right bool) strMethod {
	return takes(name, "chars? /", func(m *machine, s str, p []Value) (Value, error) {
		return m.strip(s, p[0], left, right)
	})
}

// strip takes the characters of chars, or white space, from the ends of s.
func (m *machine) strip(s str, chars Value, left, right bool) (Value, error) {
	if err := m.step(len(s.s) / 64); err != nil {
		return nil, err
	}
	drop := isSpace
	if chars != nil && chars != None {
		set, err := stringArg("strip", chars)
		if err != nil {
			return nil, err
		}
		if err := m.alloc(64 * len(set.s)); err != nil {
			return nil, err
		}
		dropped := map[rune]bool{}
		for _, r := range set.s {
			dropped[r] = true
		}
		drop = func(r rune) bool { return dropped[r] }
	}
	from, to := 0, len(s.s)
	for left && from < to {
		r, n := utf8.DecodeRuneInString(s.s[from:])
		if !drop(r) {
			break
		}
		from += n
		if err := m.pass(n); err != nil {
			return nil, err
		}
	}
	for right && from < to {
		r, n := utf8.DecodeLastRuneInString(s.s[:to])
		if !drop(r) {
			break
		}
		to -= n
		if err := m.pass(n); err != nil {
			return nil, err
		}
	}
	return s.sub(from, to), nil
}

// padMethod fills up to a width; before is how many of the n go before.
func padMethod(name string, before func(n, width int) int) strMethod {
	return takes(name, "width fillchar? /", func(m *machine, s str, p []Value) (Value, error) {
		width, err := indexOf(p[0])
		if err != nil {
			return nil, err
		}
		fill := plain(" ")
		if p[1] != nil {
			if fill, err = stringArg(name, p[1]); err != nil {
				return nil, err
			}
			if fill.length() != 1 {
				return nil, typeError("The fill character must be exactly one character long")
			}
		}
		return m.pad(s, width, fill, before)
	})
}

func (m *machine) pad(s str, width int, fill str, before func(n, width int) int) (Value, error) {
	n := width - s.length()
	if n <= 0 {
		return s, m.step(len(s.s) / 64)
	}
	t := m.text()
	left := before(n, width)
	t.repeat(fill, left)
	t.add(s)
	t.repeat(fill, n-left)
	r, err := t.str()
	return r, err
}

func strExpandTabs(m *machine, s str, p []Value) (Value, error) {
	size, err := intArg(p[0], 8)
	if err != nil {
		return nil, err
	}
	t := m.text()
	column, from := 0, 0
	for i, r := range s.s {
		switch r {
		case '\t':
			t.add(s.sub(from, i))
			from = i + 1
			if size > 0 {
				n := size - column%size
				column += n
				t.repeat(plain(" "), n)
			}
		case '\n', '\r':
			column = 0
		default:
			column++
		}
	}
	t.add(s.sub(from, len(s.s)))
	r, err := t.str()
	return r, err
}

func strZfill(m *machine, s str, p []Value) (Value, error) {
	width, err := indexOf(p[0])
	if err != nil {
		return nil, err
	}
	sign := 0
	if s.s != "" && (s.s[0] == '+' || s.s[0] == '-') {
		sign = 1
	}
	t := m.text()
	t.add(s.sub(0, sign))
	t.repeat(plain("0"), width-s.length())
	t.add(s.sub(sign, len(s.s)))
	r, err := t.str()
	return r, err
}

func strReplace(m *machine, s str, p []Value) (Value, error) {
	from, err := stringArg("replace()", p[0])
	if err != nil {
		return nil, err
	}
	to, err := stringArg("replace()", p[1])
	if err != nil {
		return nil, err
	}
	n, err := intArg(p[2], -1)
	if err != nil {
		return nil, err
	}
	return m.replace(s, from, to, n)
}

// replace is s.replace(old, new, n).
func (m *machine) replace(s, old, new str, n int) (Value, error) {
	if err := m.step(len(s.s) / 16); err != nil {
		return nil, err
	}
	t := m.text()
	at := 0
	for i := 0; n != 0 && t.err == nil; n-- {
		next, err := m.search(s.s[i:], old.s)
		if err != nil {
			return nil, err
		}
		if next < 0 {
			break
		}
		i += next
		t.add(s.sub(at, i))
		t.add(new)
		if at = i + len(old.s); old.s == "" {
			if i == len(s.s) {
				break
			}
			_, w := utf8.DecodeRuneInString(s.s[i:])
			i += w
			continue
		}
		i = at
	}
	t.add(s.sub(at, len(s.s)))
	r, err := t.str()
	return r, err
}

func removeMethod(name string, cut func(s, affix string) (string, bool)) strMethod {
	return takes(name, "x /", func(m *machine, s str, p []Value) (Value, error) {
		affix, err := stringArg(name, p[0])
		if err != nil {
			return nil, err
		}
		if err := m.step(len(affix.s) / 64); err != nil {
			return nil, err
		}
		rest, ok := cut(s.s, affix.s)
		switch {
		case !ok:
			return s, nil
		case name == "removesuffix":
			return s.sub(0, len(rest)), nil
		}
		return s.sub(len(s.s)-len(rest), len(s.s)), nil
	})
}
