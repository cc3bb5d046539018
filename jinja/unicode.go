package jinja

import (
	_ "embed"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// isSpace is Python's str.isspace, which also counts U+001C to U+001F.
func isSpace(r rune) bool {
	return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f
}

// isAlnum is Python's str.isalnum.
func isAlnum(r rune) bool {
	if r < utf8.RuneSelf {
		return r >= '0' && r <= '9' || r|0x20 >= 'a' && r|0x20 <= 'z'
	}
	return unicode.IsLetter(r) || isNumeric(r)
}

// isNumeric is Python's str.isnumeric.
func isNumeric(r rune) bool {
	return unicode.IsNumber(r) || r >= 0x3400 && strings.ContainsRune(hanNumerals, r)
}

func isDecimalOrDigit(r rune) bool { return isDigit(r) || unicode.Is(digitTable, r) }

func isLower(r rune) bool { return unicode.Is(unicode.Ll, r) || unicode.Is(unicode.Other_Lowercase, r) }

func isUpper(r rune) bool { return unicode.Is(unicode.Lu, r) || unicode.Is(unicode.Other_Uppercase, r) }

func isCased(r rune) bool { return isLower(r) || isUpper(r) || unicode.Is(unicode.Lt, r) }

// isIdentifier is Python's str.isidentifier.
func isIdentifier(s string) bool {
	for i, r := range s {
		start := r == '_' || unicode.IsLetter(r) || unicode.In(r, unicode.Nl, unicode.Other_ID_Start)
		if !start && (i == 0 || !unicode.In(r, unicode.Mn, unicode.Mc, unicode.Nd, unicode.Pc, unicode.Other_ID_Continue)) {
			return false
		}
	}
	return s != ""
}

func upper(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	var b strings.Builder
	for _, r := range s {
		if full, ok := specialCase[r]; ok {
			b.WriteString(full[0])
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
	case r == 'Σ' && finalSigma(s, i):
		b.WriteRune('ς')
	default:
		b.WriteRune(unicode.ToLower(r))
	}
}

// finalSigma reports whether the capital sigma at s[i:] ends a word: the nearest
// cased letter, others ignored, is before it and not after it.
func finalSigma(s string, i int) bool {
	before := strings.TrimRightFunc(s[:i], ignoredForCase)
	r, _ := utf8.DecodeLastRuneInString(before)
	if before == "" || !isCased(r) {
		return false
	}
	after := strings.TrimLeftFunc(s[i+len("Σ"):], ignoredForCase)
	r, _ = utf8.DecodeRuneInString(after)
	return after == "" || !isCased(r)
}

// ignoredForCase is Unicode's Case_Ignorable.
func ignoredForCase(r rune) bool {
	return unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk) ||
		strings.ContainsRune("'.:\u00b7\u0387\u055f\u05f4\u2018\u2019\u2024\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a", r)
}

func writeTitle(b *strings.Builder, r rune) {
	if full, ok := specialCase[r]; ok {
		b.WriteString(full[1])
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

// title is Python's str.title: a word begins after anything that has no case.
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

func swapCase(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case isUpper(r):
			writeLower(&b, s, i, r)
		case isLower(r):
			b.WriteString(upper(string(r)))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func caseFold(s string) string {
	var b strings.Builder
	for _, r := range s {
		full, special := specialCase[r]
		switch {
		case r == 'ẞ' || r == 'ß':
			b.WriteString("ss")
		case r == 'İ':
			b.WriteString("i̇")
		case r >= 0x13a0 && r <= 0x13f5: // Cherokee folds to upper case
			b.WriteRune(r)
		case r >= 0x13f8 && r <= 0x13fd || r >= 0xab70 && r <= 0xabbf:
			b.WriteRune(unicode.ToUpper(r))
		case special:
			for _, u := range full[0] {
				b.WriteRune(unicode.ToLower(u))
			}
		case r == 'ı':
			b.WriteRune(r)
		default:
			b.WriteRune(unicode.ToLower(unicode.ToUpper(r)))
		}
	}
	return b.String()
}

//go:embed charnames.txt
var charNames string

// runeNamed finds the character of a \N{name} escape among the commoner ones: a
// template that needs another may write \u.
func runeNamed(name string) (rune, bool) {
	name = strings.ToUpper(name)
	for line := range strings.Lines(charNames) {
		code, n, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if n == name {
			r, err := strconv.ParseUint(code, 16, 32)
			return rune(r), err == nil
		}
	}
	return 0, false
}
