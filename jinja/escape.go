package jinja

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

// unescape is what Python's unicode-escape codec makes of the inside of a string
// literal, in which characters beyond ASCII stand for their own escapes. Half a
// surrogate pair becomes U+FFFD.
func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var b strings.Builder
	for s != "" {
		i := strings.IndexByte(s, '\\')
		if i < 0 {
			i = len(s)
		}
		b.WriteString(s[:i])
		if s = s[i:]; s == "" {
			break
		}
		n, err := unescapeOne(&b, s[1:])
		if err != nil {
			return "", err
		}
		s = s[1+n:]
	}
	return b.String(), nil
}

const (
	simpleEscapes = "\\'\"abfnrtv"
	simpleValues  = "\\'\"\a\b\f\n\r\t\v"
)

// unescapeOne reads one escape after its backslash and returns its length.
func unescapeOne(b *strings.Builder, s string) (int, error) {
	if s == "" {
		return 0, errors.New(`\ at end of string`)
	}
	c := s[0]
	if i := strings.IndexByte(simpleEscapes, c); i >= 0 {
		b.WriteByte(simpleValues[i])
		return 1, nil
	}
	switch {
	case c == '\n':
		return 1, nil
	case c >= '0' && c <= '7':
		n := 1
		for n < 3 && n < len(s) && s[n] >= '0' && s[n] <= '7' {
			n++
		}
		v, _ := strconv.ParseUint(s[:n], 8, 32)
		b.WriteRune(rune(v))
		return n, nil
	case c == 'x':
		return hexEscape(b, s, 2, `truncated \xXX escape`)
	case c == 'u':
		return hexEscape(b, s, 4, `truncated \uXXXX escape`)
	case c == 'U':
		return hexEscape(b, s, 8, `truncated \UXXXXXXXX escape`)
	case c == 'N':
		return namedEscape(b, s)
	case c >= utf8.RuneSelf:
		r, n := utf8.DecodeRuneInString(s)
		b.WriteString(escapeRune(r)) // its escape, whose backslash the one before took
		return n, nil
	}
	b.WriteByte('\\') // unknown: stays
	b.WriteByte(c)
	return 1, nil
}

func hexEscape(b *strings.Builder, s string, digits int, message string) (int, error) {
	if len(s) < 1+digits {
		return 0, errors.New(message)
	}
	v, err := strconv.ParseUint(s[1:1+digits], 16, 32)
	if err != nil {
		return 0, errors.New(message)
	}
	if v > utf8.MaxRune {
		return 0, errors.New("illegal Unicode character")
	}
	b.WriteRune(rune(v)) // half a pair becomes U+FFFD
	return 1 + digits, nil
}

func namedEscape(b *strings.Builder, s string) (int, error) {
	end := strings.IndexByte(s, '}')
	if !strings.HasPrefix(s, "N{") || end < 0 {
		return 0, errors.New(`malformed \N character escape`)
	}
	r, ok := runeNamed(s[2:end])
	if !ok {
		return 0, errors.New("unknown Unicode character name")
	}
	b.WriteRune(r)
	return end + 1, nil
}
