package jinja

import (
	_ "embed"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"
)

// str is a string: valid UTF-8, indexed by code point in templates.
type str struct {
	s     string
	marks []span  // sorted, apart from each other, none outside s
	base  int     // place of s in the bytes that marks count, so that parts share their marks
	own   *buffer // buffer that holds s from base on, or nil
	safe  bool    // Markup: adding to a safe string escapes the other side
}

// A span is the bytes [from, to) of a text that are marked, and the origin of the mark.
type span struct{ from, to, of int }

// clip returns a mark of s in bytes of s, beyond whose ends the mark may reach.
func (s str) clip(p span) span { return span{max(p.from-s.base, 0), min(p.to-s.base, len(s.s)), p.of} }

func (s str) kind() string {
	if s.safe {
		return "Markup"
	}
	return "str"
}

// unmarked makes a string without marks.
func unmarked(s string) str { return str{s: s} }

// mark marks all of s with an origin.
func (s str) mark(of int) str {
	if s.s != "" {
		s.marks, s.base, s.own = []span{{0, len(s.s), of}}, 0, nil
	}
	return s
}

// like gives text made from s the marks of s, where the bytes of s cannot be told apart in the text: all of the text
// is marked if any of s is, and each origin has a part.
func (s str) like(text string) str {
	t := str{s: text, safe: s.safe}
	if len(s.marks) == 0 {
		return t
	}
	t = t.mark(s.marks[0].of)
	for _, p := range s.marks[1:] {
		last := &t.marks[len(t.marks)-1]
		_, n := utf8.DecodeRuneInString(text[last.from:])
		if at := last.from + n; p.of != last.of && at < len(text) {
			last.to, t.marks = at, append(t.marks, span{at, len(text), p.of})
		}
	}
	return t
}

// withText replaces the text of s: ASCII keeps its place and its marks.
func (s str) withText(text string) str {
	if len(text) == len(s.s) && isASCII(text) && isASCII(s.s) {
		return str{s: text, marks: s.marks, base: s.base, safe: s.safe}
	}
	return s.like(text)
}

// sub returns the bytes [i, j) of s.
func (s str) sub(i, j int) str {
	t := str{s: s.s[i:j], safe: s.safe}
	if i == j {
		return t
	}
	t.own, t.base = s.own, s.base+i
	if len(s.marks) == 0 {
		return t
	}
	first := sort.Search(len(s.marks), func(k int) bool { return s.marks[k].to > t.base })
	last := sort.Search(len(s.marks), func(k int) bool { return s.marks[k].from >= t.base+j-i })
	t.marks = s.marks[first:max(first, last)]
	return t
}

// unsafe returns s as an exact str, not Markup.
func (s str) unsafe() str {
	s.safe = false
	return s
}

// length returns the number of code points.
func (s str) length() int { return utf8.RuneCountInString(s.s) }

// offset returns the byte at which code point i begins, for 0 <= i <= length.
func (s str) offset(i int) int {
	if len(s.s) == s.length() {
		return i
	}
	for at := range s.s {
		if i == 0 {
			return at
		}
		i--
	}
	return len(s.s)
}

// pieces calls yield for the longest runs of s with equal marks, or without.
func (s str) pieces(yield func(part string, marked bool, of int)) {
	at := 0
	for _, p := range s.marks {
		p = s.clip(p)
		if at < p.from {
			yield(s.s[at:p.from], false, 0)
		}
		yield(s.s[p.from:p.to], true, p.of)
		at = p.to
	}
	if at < len(s.s) {
		yield(s.s[at:], false, 0)
	}
}

// A buffer holds the bytes of strings made by a rendering.
type buffer struct {
	b     strings.Builder
	marks []span
}

// A text grows by parts that keep their marks.
type text struct {
	r     *rendering
	own   *buffer
	from  int // place of the text's beginning in own
	marks int // marks of own before the text's own
	limit int // bytes, if > 0
}

func (r *rendering) text() *text { return &text{r: r, own: &buffer{}} }

// continueText returns a text that begins with s. If s is the end of its buffer, the text goes on there: a string that
// grows by parts takes time for the parts alone.
func (r *rendering) continueText(s str) *text {
	if own := s.own; own != nil && s.s != "" && s.base+len(s.s) == own.b.Len() {
		marks := len(own.marks) - len(s.marks)
		if len(s.marks) == 0 || marks >= 0 && &own.marks[marks] == &s.marks[0] {
			return &text{r: r, own: own, from: s.base, marks: marks}
		}
	}
	t := r.text()
	t.add(s)
	return t
}

func (t *text) size() int { return t.own.b.Len() - t.from }

// room pays for n more bytes.
func (t *text) room(n int) {
	if t.limit > 0 && t.size()+n > t.limit {
		panic(limitError("more than %d bytes of output", t.limit))
	}
	b := &t.own.b
	if n <= b.Cap()-b.Len() {
		return
	}
	more := max(n, 32)
	t.r.alloc(2*b.Cap() + more)
	b.Grow(more)
}

// raw adds text of the template.
func (t *text) raw(s string) {
	t.room(len(s))
	for s != "" {
		n := min(len(s), lookEvery)
		t.own.b.WriteString(s[:n])
		s = s[n:]
		t.r.pass(n)
	}
}

// add adds a string with its marks.
func (t *text) add(s str) {
	at := t.own.b.Len()
	t.raw(s.s)
	for _, p := range s.marks {
		p = s.clip(p)
		t.addMark(span{at + p.from, at + p.to, p.of})
	}
}

// repeat adds s n times.
func (t *text) repeat(s str, n int) {
	if n <= 0 || len(s.s) == 0 {
		return
	}
	if n > t.r.memory/len(s.s) {
		t.r.alloc(-1)
	}
	t.room(n * len(s.s))
	for range n {
		t.add(s)
	}
}

func (t *text) addMark(p span) {
	if p.from == p.to {
		return
	}
	marks := t.own.marks
	if n := len(marks); n > t.marks && marks[n-1].to == p.from && marks[n-1].of == p.of {
		marks[n-1].to = p.to // a string with an earlier end does not see the change
		return
	}
	t.r.alloc(48)
	t.own.marks = append(marks, p)
}

// str ends the text.
func (t *text) str() str {
	return str{s: t.own.b.String()[t.from:], marks: t.own.marks[t.marks:], base: t.from, own: t.own}
}

// strAs returns the text as a string that is safe, or not.
func (t *text) strAs(safe bool) str {
	s := t.str()
	s.safe = safe
	return s
}

// change adds the changed text of s, piece by piece: the result of a marked piece is marked as a whole.
func (t *text) change(s str, change func(string) string) {
	s.pieces(func(part string, marked bool, of int) {
		for part != "" {
			n := len(part)
			if n > lookEvery {
				for n = lookEvery; !utf8.RuneStart(part[n]); n-- {
				}
			}
			t.r.step(n / 16)
			at := t.own.b.Len()
			t.raw(change(part[:n]))
			if marked {
				t.addMark(span{at, t.own.b.Len(), of})
			}
			part = part[n:]
		}
	})
}

// concat returns a + b of two strings, where Markup escapes the other side.
func concat(r *rendering, a, b str) Value {
	safe := a.safe || b.safe
	if a.safe != b.safe {
		a, b = escape(r, a), escape(r, b)
	}
	t := r.continueText(a)
	t.add(b)
	return t.strAs(safe)
}

var htmlEscapes = strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;")

// escape returns markupsafe.escape of a string.
func escape(r *rendering, s str) str {
	if s.safe {
		return s
	}
	t := r.text()
	r.alloc(len(s.s))
	t.change(s, htmlEscapes.Replace)
	return t.strAs(true)
}

// watch reports two compared strings to Options.Watch, if any is marked.
func (r *rendering) watch(a, b str) {
	if r.opt.Watch == nil || b.s == "" || a.s == "" || (len(a.marks) > 0) == (len(b.marks) > 0) {
		return
	}
	if len(b.marks) > 0 {
		a, b = b, a
	}
	r.opt.Watch(a.s, b.s)
}

// mostWatched bounds the strings that a look-up reports.
const mostWatched = 64

// watchAll reports the strings that v is compared with, including tuples of strings.
func (r *rendering) watchAll(v Value, others []Value) {
	s, ok := v.(str)
	if !ok || r.opt.Watch == nil {
		return
	}
	for _, x := range others[:min(len(others), mostWatched)] {
		switch x := x.(type) {
		case str:
			r.watch(s, x)
		case *list:
			if x.tuple { // as startswith takes
				r.watchAll(v, x.items)
			}
		}
	}
}

// isSpace returns Python's str.isspace, which also counts U+001C to U+001F.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// isAlnum returns Python's str.isalnum.
func isAlnum(r rune) bool {
	if r < utf8.RuneSelf {
		return r >= '0' && r <= '9' || r|0x20 >= 'a' && r|0x20 <= 'z'
	}
	return unicode.IsLetter(r) || unicode.IsNumber(r)
}

// digitRanges has the first and the last of runs of characters that are digits and not decimal digits, as superscripts
// are.
const digitRanges = "\u00b2\u00b3\u00b9\u00b9\u1369\u1371\u19da\u19da\u2070\u2070\u2074\u2079\u2080\u2089\u2460\u2468" +
	"\u2474\u247c\u2488\u2490\u24ea\u24ea\u24f5\u24fd\u24ff\u24ff\u2776\u277e\u2780\u2788\u278a\u2792" +
	"\U00010a40\U00010a43\U00010e60\U00010e68\U00011052\U0001105a\U0001f100\U0001f10a"

// isDigit returns Python's str.isdigit.
func isDigit(r rune) bool {
	if r < utf8.RuneSelf || unicode.Is(unicode.Nd, r) {
		return r >= '0' && r <= '9' || r >= utf8.RuneSelf
	}
	low := rune(0)
	for i, c := range []rune(digitRanges) {
		if i%2 == 0 {
			low = c
		} else if low <= r && r <= c {
			return true
		}
	}
	return false
}

func isLower(r rune) bool { return unicode.In(r, unicode.Ll, unicode.Other_Lowercase) }

func isUpper(r rune) bool { return unicode.In(r, unicode.Lu, unicode.Other_Uppercase) }

func isTitle(r rune) bool { return unicode.Is(unicode.Lt, r) }

func isCased(r rune) bool { return isLower(r) || isUpper(r) || isTitle(r) }

// isIdentifier returns Python's str.isidentifier.
func isIdentifier(s string) bool {
	for i, r := range s {
		start := r == '_' || unicode.IsLetter(r) || unicode.In(r, unicode.Nl, unicode.Other_ID_Start)
		if !start &&
			(i == 0 || !unicode.In(r, unicode.Mn, unicode.Mc, unicode.Nd, unicode.Pc, unicode.Other_ID_Continue)) {
			return false
		}
	}
	return s != ""
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func everyRune(is func(rune) bool) func(string) bool {
	return func(s string) bool { return s != "" && strings.IndexFunc(s, func(r rune) bool { return !is(r) }) < 0 }
}

// isLowerText and isUpperText want at least one letter of the case, and none of another.
func isLowerText(s string) bool {
	return strings.ContainsFunc(s, isLower) &&
		!strings.ContainsFunc(s, func(r rune) bool { return isUpper(r) || isTitle(r) })
}

func isUpperText(s string) bool {
	return strings.ContainsFunc(s, isUpper) &&
		!strings.ContainsFunc(s, func(r rune) bool { return isLower(r) || isTitle(r) })
}

// casing lists the characters whose upper or title case is more than a character, from Unicode's SpecialCasing.txt: a
// line has the character, its upper and its title case.
//
//go:embed casing.txt
var casing string

// specialCase returns the upper or title case of a character if it is longer than a character, or "".
func specialCase(r rune, column int) string {
	if r < 0xdf {
		return ""
	}
	i := strings.Index(casing, "\n"+string(r)+" ")
	if i < 0 {
		return ""
	}
	line, _, _ := strings.Cut(casing[i+1:], "\n")
	return strings.Fields(line)[column]
}

func upper(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	var b strings.Builder
	for _, r := range s {
		if full := specialCase(r, 1); full != "" {
			b.WriteString(full)
		} else {
			b.WriteRune(unicode.ToUpper(r))
		}
	}
	return b.String()
}

func lower(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	var b strings.Builder
	for i, r := range s {
		writeLower(&b, s, i, r)
	}
	return b.String()
}

// writeLower writes the lower case of the character r at s[i:].
func writeLower(b *strings.Builder, s string, i int, r rune) {
	switch {
	case r == 'İ':
		b.WriteString("i̇")
	case r == 'Σ' && isFinalSigma(s, i):
		b.WriteRune('ς')
	default:
		b.WriteRune(unicode.ToLower(r))
	}
}

// isFinalSigma reports whether the capital sigma at s[i:] ends a word: the nearest cased letter, others ignored, is
// before the sigma and not after.
func isFinalSigma(s string, i int) bool {
	before := strings.TrimRightFunc(s[:i], isIgnoredForCase)
	r, _ := utf8.DecodeLastRuneInString(before)
	if before == "" || !isCased(r) {
		return false
	}
	after := strings.TrimLeftFunc(s[i+len("Σ"):], isIgnoredForCase)
	r, _ = utf8.DecodeRuneInString(after)
	return after == "" || !isCased(r)
}

// isIgnoredForCase returns Unicode's Case_Ignorable.
func isIgnoredForCase(r rune) bool {
	return unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk) ||
		strings.ContainsRune("'.:\u00b7\u0387\u055f\u05f4\u2018\u2019\u2024\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a",
			r)
}

func writeTitle(b *strings.Builder, r rune) {
	if full := specialCase(r, 2); full != "" {
		b.WriteString(full)
	} else {
		b.WriteRune(unicode.ToTitle(r))
	}
}

func capitalize(s string) string {
	var b strings.Builder
	for i, r := range s {
		if i == 0 {
			writeTitle(&b, r)
		} else {
			writeLower(&b, s, i, r)
		}
	}
	return b.String()
}

// title returns Python's str.title: a word begins after any character without case.
func title(s string) string {
	var b strings.Builder
	inWord := false
	for i, r := range s {
		if inWord {
			writeLower(&b, s, i, r)
		} else {
			writeTitle(&b, r)
		}
		inWord = isCased(r)
	}
	return b.String()
}
