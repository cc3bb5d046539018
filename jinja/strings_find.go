package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// part is s[start:stop] in bytes; ok is false if start is beyond the end.
func (m *machine) part(s str, start, stop Value) (from, to int, ok bool, err error) {
	if start == nil && stop == nil {
		return 0, len(s.s), true, m.step(len(s.s) / 64)
	}
	if err := m.step(len(s.s) / 16); err != nil {
		return 0, 0, false, err
	}
	n := s.length()
	from, to, err = window(n, start, stop)
	if err != nil || from > n {
		return 0, 0, false, err
	}
	return s.offset(from), s.offset(max(from, to)), true, nil
}

// search is strings.Index, which looks at the context on its way.
func (m *machine) search(s, sub string) (int, error) {
	stride := max(lookEvery, len(sub))
	for from := 0; ; from += stride {
		to := min(from+stride+len(sub), len(s))
		i := strings.Index(s[from:to], sub)
		switch {
		case i >= 0:
			return from + i, m.pass(i)
		case to == len(s):
			return -1, m.pass(to - from)
		}
		if err := m.pass(stride); err != nil {
			return -1, err
		}
	}
}

// searchBack is strings.LastIndex, which looks at the context on its way.
func (m *machine) searchBack(s, sub string) (int, error) {
	stride := max(lookEvery, len(sub))
	for to := len(s); ; to -= stride {
		from := max(to-stride-len(sub), 0)
		i := strings.LastIndex(s[from:to], sub)
		switch {
		case i >= 0:
			return from + i, m.pass(to - from - i)
		case from == 0:
			return -1, m.pass(to)
		}
		if err := m.pass(stride); err != nil {
			return -1, err
		}
	}
}

// findMethod is find, index, rfind or rindex.
func findMethod(name string, search func(m *machine, s, sub string) (int, error), must bool) strMethod {
	return takes(name, "value start? stop? /", func(m *machine, s str, p []Value) (Value, error) {
		sub, err := stringArg(name, p[0])
		if err != nil {
			return nil, err
		}
		from, to, ok, err := m.part(s, p[1], p[2])
		if err != nil {
			return nil, err
		}
		if ok {
			i, err := search(m, s.s[from:to], sub.s)
			if err != nil {
				return nil, err
			}
			if i >= 0 {
				return Int(int64(utf8.RuneCountInString(s.s[:from+i]))), nil
			}
		}
		if must {
			return nil, valueError("substring not found")
		}
		return Int(-1), nil
	})
}

func strCount(m *machine, s str, p []Value) (Value, error) {
	sub, err := stringArg("count", p[0])
	if err != nil {
		return nil, err
	}
	from, to, ok, err := m.part(s, p[1], p[2])
	if err != nil || !ok {
		return Int(0), err
	}
	return Int(int64(strings.Count(s.s[from:to], sub.s))), nil
}

// affixMethod is startswith or endswith.
func affixMethod(name string, has func(s, affix string) bool) strMethod {
	return func(m *machine, s str, a *args) (Value, error) {
		p, err := a.bind(name, findParams)
		if err != nil {
			return nil, err
		}
		affixes := []Value{p[0]}
		if t, ok := p[0].(*tuple); ok {
			affixes = t.items
		} else if _, ok := p[0].(str); !ok {
			return nil, typeError("%s first arg must be str or a tuple of str, not %s", name, p[0].kind())
		}
		from, to, ok, err := m.part(s, p[1], p[2])
		if err != nil {
			return nil, err
		}
		for _, x := range affixes {
			affix, err := stringArg(name, x)
			if err != nil {
				return nil, err
			}
			if err := m.step(1 + len(affix.s)/64); err != nil {
				return nil, err
			}
			if ok && has(s.s[from:to], affix.s) {
				return boolean(true), nil
			}
		}
		return boolean(false), nil
	}
}

func strJoin(m *machine, s str, p []Value) (Value, error) {
	items, err := m.collect(p[0])
	if err != nil {
		return nil, err
	}
	t := m.text()
	for i, x := range items {
		item, ok := x.(str)
		if s.safe {
			if item, err = m.escapeValue(x); err != nil {
				return nil, err
			}
		} else if !ok {
			return nil, typeError("sequence item %d: expected str instance, %s found", i, x.kind())
		}
		if i > 0 {
			t.add(s)
		}
		t.add(item)
	}
	r, err := t.str()
	r.safe = s.safe
	return r, err
}

// escapeValue is markupsafe.escape(v).
func (m *machine) escapeValue(v Value) (str, error) {
	s, err := m.softStr(v)
	if err != nil {
		return str{}, err
	}
	return m.escape(s)
}

func partitionMethod(name string, last bool) strMethod {
	return takes(name, "x /", func(m *machine, s str, p []Value) (Value, error) {
		sep, err := stringArg(name, p[0])
		if err != nil {
			return nil, err
		}
		if s.safe {
			if sep, err = m.escape(sep); err != nil {
				return nil, err
			}
		}
		if sep.s == "" {
			return nil, valueError("empty separator")
		}
		if err := m.step(len(s.s) / 64); err != nil {
			return nil, err
		}
		empty := s.sub(0, 0)
		search := (*machine).search
		if last {
			search = (*machine).searchBack
		}
		i, err := search(m, s.s, sep.s)
		if err != nil {
			return nil, err
		}
		switch {
		case i >= 0:
			return &tuple{items: []Value{s.sub(0, i), s.sub(i, i+len(sep.s)), s.sub(i+len(sep.s), len(s.s))}}, nil
		case last:
			return &tuple{items: []Value{empty, empty, s}}, nil
		}
		return &tuple{items: []Value{s, empty, empty}}, nil
	})
}

func splitMethod(name string, last bool) strMethod {
	return takes(name, "sep? maxsplit?", func(m *machine, s str, p []Value) (Value, error) {
		n, err := intArg(p[1], -1)
		if err != nil {
			return nil, err
		}
		if p[0] == nil || p[0] == None {
			return m.words(s, n, last)
		}
		sep, err := stringArg(name, p[0])
		if err != nil {
			return nil, err
		}
		if sep.s == "" {
			return nil, valueError("empty separator")
		}
		return m.split(s, sep.s, n, last)
	})
}

// split is s.split(sep, n) or s.rsplit(sep, n).
func (m *machine) split(s str, sep string, n int, last bool) (Value, error) {
	if err := m.step(len(s.s) / 16); err != nil {
		return nil, err
	}
	var parts []Value
	from, to := 0, len(s.s)
	for ; n != 0; n-- {
		if err := m.alloc(64); err != nil {
			return nil, err
		}
		if last {
			i, err := m.searchBack(s.s[:to], sep)
			if err != nil {
				return nil, err
			}
			if i < 0 {
				break
			}
			parts = append(parts, s.sub(i+len(sep), to))
			to = i
			continue
		}
		i, err := m.search(s.s[from:], sep)
		if err != nil {
			return nil, err
		}
		if i < 0 {
			break
		}
		parts = append(parts, s.sub(from, from+i))
		from += i + len(sep)
	}
	parts = append(parts, s.sub(from, to))
	if last {
		reverse(parts)
	}
	return &list{items: parts}, nil
}

func reverse(items []Value) {
	for i, j := 0, len(items)-1; i < j; i, j = i+1, j-1 {
		items[i], items[j] = items[j], items[i]
	}
}

// words is s.split(None, n), or s.rsplit(None, n) from the right: the part that
// is left over keeps the white space at its other end.
func (m *machine) words(s str, n int, last bool) (Value, error) {
	if err := m.step(len(s.s) / 16); err != nil {
		return nil, err
	}
	next := firstWord
	if last {
		next = lastWord
	}
	parts := []Value{}
	for rest := s; ; n-- {
		if err := m.alloc(64); err != nil {
			return nil, err
		}
		word, before, after := next(rest, n == 0)
		if word.s == "" {
			break
		}
		parts = append(parts, word)
		if rest = after; last {
			rest = before
		}
	}
	if last {
		reverse(parts)
	}
	return &list{items: parts}, nil
}

// firstWord cuts the first word off, or takes all from it on.
func firstWord(s str, all bool) (word, before, after str) {
	from := len(s.s) - len(strings.TrimLeftFunc(s.s, isSpace))
	to := strings.IndexFunc(s.s[from:], isSpace)
	if to += from; all || to < from {
		to = len(s.s)
	}
	return s.sub(from, to), s.sub(0, from), s.sub(to, len(s.s))
}

// lastWord cuts the last word off, or takes all up to it.
func lastWord(s str, all bool) (word, before, after str) {
	to := len(strings.TrimRightFunc(s.s, isSpace))
	from := 0
	if i := strings.LastIndexFunc(s.s[:to], isSpace); i >= 0 && !all {
		_, w := utf8.DecodeRuneInString(s.s[i:])
		from = i + w
	}
	return s.sub(from, to), s.sub(0, from), s.sub(to, len(s.s))
}

func strSplitLines(m *machine, s str, p []Value) (Value, error) {
	keep, err := intArg(p[0], 0)
	if err != nil {
		return nil, err
	}
	lines, err := m.splitLines(s, keep != 0)
	return &list{items: lines}, err
}

// flag is bool(v), false without one.
func (m *machine) flag(v Value) (bool, error) {
	if v == nil {
		return false, nil
	}
	return m.truth(v)
}

func isLineBreak(r rune) bool {
	return r >= '\n' && r <= '\r' || r >= 0x1c && r <= 0x1e || r == 0x85 || r == 0x2028 || r == 0x2029
}

func (m *machine) splitLines(s str, keep bool) ([]Value, error) {
	if err := m.step(len(s.s) / 16); err != nil {
		return nil, err
	}
	lines := []Value{}
	for from := 0; from < len(s.s); {
		if err := m.alloc(64); err != nil {
			return nil, err
		}
		i := strings.IndexFunc(s.s[from:], isLineBreak)
		if i < 0 {
			lines = append(lines, s.sub(from, len(s.s)))
			break
		}
		end := from + i
		_, w := utf8.DecodeRuneInString(s.s[end:])
		if strings.HasPrefix(s.s[end:], "\r\n") {
			w = 2
		}
		if keep {
			lines = append(lines, s.sub(from, end+w))
		} else {
			lines = append(lines, s.sub(from, end))
		}
		from = end + w
	}
	return lines, nil
}

func isMethod(name string, f func(string) bool) strMethod {
	return takes("str."+name, "", func(m *machine, s str, _ []Value) (Value, error) {
		return boolean(f(s.s)), m.step(len(s.s) / 4)
	})
}

func everyRune(f func(rune) bool) func(string) bool {
	return func(s string) bool {
		return s != "" && strings.IndexFunc(s, func(r rune) bool { return !f(r) }) < 0
	}
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func isPrintable(s string) bool { return s == "" || everyRune(unicode.IsPrint)(s) }

// isLowerText and isUpperText want at least one letter of the case, and none of
// another.
func isLowerText(s string) bool {
	return strings.ContainsFunc(s, isLower) && !strings.ContainsFunc(s, func(r rune) bool {
		return isUpper(r) || unicode.Is(unicode.Lt, r)
	})
}

func isUpperText(s string) bool {
	return strings.ContainsFunc(s, isUpper) && !strings.ContainsFunc(s, func(r rune) bool {
		return isLower(r) || unicode.Is(unicode.Lt, r)
	})
}

func isTitle(s string) bool {
	inWord, any := false, false
	for _, r := range s {
		switch {
		case isUpper(r) || unicode.Is(unicode.Lt, r):
			if inWord {
				return false
			}
			inWord, any = true, true
		case isLower(r):
			if !inWord {
				return false
			}
			any = true
		default:
			inWord = false
		}
	}
	return any
}
