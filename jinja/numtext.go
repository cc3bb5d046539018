package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// asciiDigits spells the decimal digits of any script in ASCII.
func asciiDigits(s string) string {
	if isASCII(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf || !isDigit(r) {
			return r
		}
		for _, t := range unicode.Nd.R16 {
			if r >= rune(t.Lo) && r <= rune(t.Hi) {
				return '0' + (r-rune(t.Lo))%10
			}
		}
		for _, t := range unicode.Nd.R32 {
			if r >= rune(t.Lo) && r <= rune(t.Hi) {
				return '0' + (r-rune(t.Lo))%10
			}
		}
		return r
	}, s)
}

// joinDigits takes out single underscores between digits; ok is false if there
// are others.
func joinDigits(s string) (string, bool) {
	if !strings.Contains(s, "_") {
		return s, true
	}
	if strings.HasPrefix(s, "_") || strings.HasSuffix(s, "_") || strings.Contains(s, "__") {
		return "", false
	}
	return strings.ReplaceAll(s, "_", ""), true
}

// parseInt is int(s, base); base 0 reads the prefix.
func parseInt(s string, base int) (integer, error) {
	wrong := valueError("invalid literal for int() with base %d: %s", base, brief(plain(s)))
	if base != 0 && (base < 2 || base > 36) {
		return integer{}, valueError("int() base must be >= 2 and <= 36, or 0")
	}
	digits := asciiDigits(strings.TrimFunc(s, isSpace))
	negative := strings.HasPrefix(digits, "-")
	if negative || strings.HasPrefix(digits, "+") {
		digits = digits[1:]
	}
	digits, base, prefixed := cutBase(digits, base)
	if prefixed {
		digits = strings.TrimPrefix(digits, "_")
	}
	digits, ok := joinDigits(digits)
	if !ok || digits == "" || digits[0] == '-' || digits[0] == '+' {
		return integer{}, wrong
	}
	if base&(base-1) != 0 && len(digits) > maxIntDigits || len(digits)*5 > maxIntBits {
		return integer{}, valueError("Exceeds the limit (%d digits) for integer string conversion", maxIntDigits)
	}
	i, ok := new(big.Int).SetString(digits, base)
	if !ok {
		return integer{}, wrong
	}
	if negative {
		i.Neg(i)
	}
	return normal(i), nil
}

// cutBase takes a prefix that fits the base, and finds base 0.
func cutBase(s string, base int) (string, int, bool) {
	if len(s) > 1 && s[0] == '0' {
		of := map[byte]int{'b': 2, 'o': 8, 'x': 16}[s[1]|0x20]
		if of != 0 && (base == 0 || base == of) {
			return s[2:], of, true
		}
	}
	if base != 0 {
		return s, base, false
	}
	if len(s) > 1 && s[0] == '0' && strings.Trim(s, "0_") != "" {
		return "", 10, false // 017 is no number
	}
	return s, 10, false
}

// parseFloat is float(s), and whether it is one.
func parseFloat(s string) (float64, bool) {
	s = asciiDigits(strings.TrimFunc(s, isSpace))
	body, sign := s, 1
	if s != "" && (s[0] == '-' || s[0] == '+') {
		body = s[1:]
		if s[0] == '-' {
			sign = -1
		}
	}
	switch strings.ToLower(body) {
	case "inf", "infinity":
		return math.Inf(sign), true
	case "nan":
		return math.NaN(), true
	}
	if body == "" || strings.Trim(body, "0123456789_.eE+-") != "" || body[0] == '-' || body[0] == '+' {
		return 0, false
	}
	for i := range len(body) {
		if body[i] == '_' && (i == 0 || i == len(body)-1 || !isASCIIDigit(body[i-1]) || !isASCIIDigit(body[i+1])) {
			return 0, false
		}
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	return f, err == nil || math.IsInf(f, 0) // too big is infinite
}

func isASCIIDigit(c byte) bool { return c >= '0' && c <= '9' }
