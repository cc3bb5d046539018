package jinja

import (
	_ "embed"
	"strings"
	"unicode"
	"unicode/utf8"
)

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
