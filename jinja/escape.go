package jinja

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// unescape returns what Python's unicode-escape codec makes of the inside of a string literal, in which characters
// beyond ASCII stand for their own escapes. Half a surrogate pair becomes U+FFFD.
func unescape(s string, line int) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for s != "" {
		before, rest, found := strings.Cut(s, `\`)
		b.WriteString(before)
		if s = rest; found {
			s = s[unescapeOne(&b, s, line):]
		}
	}
	return b.String()
}

const (
	simpleEscapes = "\\'\"abfnrtv"
	simpleValues  = "\\'\"\a\b\f\n\r\t\v"
)

// unescapeOne reads one escape after its backslash and returns its length.
func unescapeOne(b *strings.Builder, s string, line int) int {
	if s == "" {
		panic(syntaxError(line, `\ at end of string`))
	}
	c := s[0]
	if i := strings.IndexByte(simpleEscapes, c); i >= 0 {
		b.WriteByte(simpleValues[i])
		return 1
	}
	hexDigits := map[byte]int{'x': 2, 'u': 4, 'U': 8}
	switch {
	case c == '\n':
		return 1
	case c >= '0' && c <= '7':
		n := 1
		for n < 3 && n < len(s) && s[n] >= '0' && s[n] <= '7' {
			n++
		}
		v, _ := strconv.ParseUint(s[:n], 8, 32)
		b.WriteRune(rune(v))
		return n
	case hexDigits[c] > 0:
		n := 1 + hexDigits[c]
		v, err := strconv.ParseUint(s[1:min(n, len(s))], 16, 32)
		if len(s) < n || err != nil {
			panic(syntaxError(line, `truncated \%c%s escape`, c, strings.Repeat("X", n-1)))
		}
		if v > utf8.MaxRune {
			panic(syntaxError(line, "illegal Unicode character"))
		}
		b.WriteRune(rune(v)) // half a pair becomes U+FFFD
		return n
	case c == 'N':
		e := unsupported(`the escape \N{...}`)
		e.Line = line
		panic(e)
	case c >= utf8.RuneSelf:
		r, n := utf8.DecodeRuneInString(s)
		b.WriteString(escapeRune(r)) // its escape, whose backslash the one before took
		return n
	}
	b.WriteByte('\\') // an unknown escape stays
	b.WriteByte(c)
	return 1
}
