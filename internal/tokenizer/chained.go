package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// DeepSeek's pre-tokenizers are lists of patterns, each applied to the pieces of the one before. LLM and Coder (version
// 1): newlines, letters, punctuation, in LLM trailing white space, Han with Hangul, single digits. Version 3 and R1: up
// to three digits, Han with kana, words.
var (
	chainedHangul = []string{newlinePattern, casedPattern, widePunctPattern, trailingPattern, hanPattern, digitPattern}
	chainedPlain  = []string{newlinePattern, lettersPattern, punctPattern, hanPattern, digitPattern}
	chainedKana   = []string{threeDigitsPattern, kanaPattern, symbolWordsPattern}
)

const (
	newlinePattern     = "[\r\n]"
	widePunctPattern   = "\\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+"
	trailingPattern    = `\s+$`
	hanPattern         = "[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+"
	lettersPattern     = `\s?\p{L}+`
	punctPattern       = `\s?\p{P}+`
	digitPattern       = `\p{N}`
	threeDigitsPattern = `\p{N}{1,3}`
	kanaPattern        = "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+"
	symbolWordsPattern = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)

// casedPattern is \s?[..]+ with the ranges of cased between the brackets.
var casedPattern = func() string {
	var b strings.Builder
	b.WriteString(`\s?[`)
	add := func(lo, hi rune) {
		b.WriteRune(lo)
		if hi > lo {
			b.WriteByte('-')
			b.WriteRune(hi)
		}
	}
	for _, r := range cased.R16 {
		add(rune(r.Lo), rune(r.Hi))
	}
	for _, r := range cased.R32 {
		add(rune(r.Lo), rune(r.Hi))
	}
	b.WriteString("]+")
	return b.String()
}()

// cased are the letters with case that DeepSeek's pattern lists, those of an older Unicode version.
var cased = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x0041, 0x005A, 1}, {0x0061, 0x007A, 1}, {0x00B5, 0x00B5, 1}, {0x00C0, 0x00D6, 1}, {0x00D8, 0x00F6, 1},
		{0x00F8, 0x01BA, 1}, {0x01BC, 0x01BF, 1}, {0x01C4, 0x0293, 1}, {0x0295, 0x02AF, 1}, {0x0370, 0x0373, 1},
		{0x0376, 0x0376, 1}, {0x0377, 0x0377, 1}, {0x037B, 0x037D, 1}, {0x037F, 0x037F, 1}, {0x0386, 0x0386, 1},
		{0x0388, 0x038A, 1}, {0x038C, 0x038C, 1}, {0x038E, 0x03A1, 1}, {0x03A3, 0x03F5, 1}, {0x03F7, 0x0481, 1},
		{0x048A, 0x052F, 1}, {0x0531, 0x0556, 1}, {0x10A0, 0x10C5, 1}, {0x13A0, 0x13F5, 1}, {0x13F8, 0x13FD, 1},
		{0x1C90, 0x1CBA, 1}, {0x1CBD, 0x1CBF, 1}, {0x1D00, 0x1D2B, 1}, {0x1D6B, 0x1D77, 1}, {0x1D79, 0x1D9A, 1},
		{0x1E00, 0x1F15, 1}, {0x1F18, 0x1F1D, 1}, {0x1F20, 0x1F45, 1}, {0x1F48, 0x1F4D, 1}, {0x1F50, 0x1F57, 1},
		{0x1F59, 0x1F59, 1}, {0x1F5B, 0x1F5B, 1}, {0x1F5D, 0x1F5D, 1}, {0x1F5F, 0x1F7D, 1}, {0x1F80, 0x1FB4, 1},
		{0x1FB6, 0x1FBC, 1}, {0x1FBE, 0x1FBE, 1}, {0x1FC2, 0x1FC4, 1}, {0x1FC6, 0x1FCC, 1}, {0x1FD0, 0x1FD3, 1},
		{0x1FD6, 0x1FDB, 1}, {0x1FE0, 0x1FEC, 1}, {0x1FF2, 0x1FF4, 1}, {0x1FF6, 0x1FFC, 1}, {0x2102, 0x2102, 1},
		{0x2107, 0x2107, 1}, {0x210A, 0x2113, 1}, {0x2115, 0x2115, 1}, {0x2119, 0x211D, 1}, {0x2124, 0x2124, 1},
		{0x2126, 0x2126, 1}, {0x2128, 0x2128, 1}, {0x212A, 0x212D, 1}, {0x212F, 0x2134, 1}, {0x2139, 0x2139, 1},
		{0x213C, 0x213F, 1}, {0x2145, 0x2149, 1}, {0x214E, 0x214E, 1}, {0x2183, 0x2183, 1}, {0x2184, 0x2184, 1},
		{0x2C00, 0x2C7B, 1}, {0x2C7E, 0x2CE4, 1}, {0x2CEB, 0x2CEE, 1}, {0x2CF2, 0x2CF2, 1}, {0x2CF3, 0x2CF3, 1},
		{0xA640, 0xA66D, 1}, {0xA680, 0xA69B, 1}, {0xA722, 0xA76F, 1}, {0xA771, 0xA787, 1}, {0xA78B, 0xA78E, 1},
		{0xAB70, 0xABBF, 1}, {0xFB00, 0xFB06, 1}, {0xFB13, 0xFB17, 1}, {0xFF21, 0xFF3A, 1}, {0xFF41, 0xFF5A, 1},
	},
	R32: []unicode.Range32{
		{0x10400, 0x1044F, 1}, {0x104B0, 0x104D3, 1}, {0x104D8, 0x104FB, 1}, {0x10C80, 0x10CB2, 1}, {0x10CC0, 0x10CF2, 1},
		{0x118A0, 0x118DF, 1}, {0x1E900, 0x1E943, 1},
	},
	LatinOffset: 5,
}

func isCased(r rune) bool { return unicode.Is(cased, r) }

func isWidePunct(r rune) bool {
	return r >= '!' && r <= '/' || r >= ':' && r <= '~' || r >= 0xFF01 && r <= 0xFF0F ||
		r >= 0xFF1A && r <= 0xFF5E || r >= 0x2018 && r <= 0x201F || r >= 0x3000 && r <= 0x3002
}

func isHan(r rune) bool { return r >= 0x0800 && r <= 0x9FA5 || r >= 0xAC00 && r <= 0xD7FF }

func isKana(r rune) bool { return r >= 0x4E00 && r <= 0x9FA5 || r >= 0x3040 && r <= 0x30FF }

func splitNewlines(s string) int {
	for i := range len(s) {
		if isNewline(s[i]) {
			return max(i, 1)
		}
	}
	return len(s)
}

func splitCased(s string) int     { return splitRuns(s, isCased, true, len(s)) }
func splitWidePunct(s string) int { return splitRuns(s, isWidePunct, true, len(s)) }
func splitLetters(s string) int   { return splitRuns(s, unicode.IsLetter, true, len(s)) }
func splitPunct(s string) int     { return splitRuns(s, unicode.IsPunct, true, len(s)) }
func splitHan(s string) int       { return splitRuns(s, isHan, false, len(s)) }
func splitKana(s string) int      { return splitRuns(s, isKana, false, len(s)) }

func splitDigit(s string) int       { return splitRuns(s, unicode.IsNumber, false, 1) }
func splitThreeDigits(s string) int { return splitRuns(s, unicode.IsNumber, false, 3) }

// decode returns the character at s[i:].
func decode(s string, i int) (rune, int) {
	if s[i] < utf8.RuneSelf {
		return rune(s[i]), 1
	}
	return utf8.DecodeRuneInString(s[i:])
}

// splitRuns cuts by [class]{1,most}, with space \s?[class]+.
func splitRuns(s string, in func(rune) bool, space bool, most int) int {
	count := 0  // characters of the class in the match so far
	blank := -1 // where the white space just before begins
	for i := 0; i < len(s); {
		r, n := decode(s, i)
		switch {
		case in(r):
			if begin := i; count == 0 {
				if space && blank >= 0 {
					begin = blank
				}
				if begin > 0 {
					return begin
				}
			}
			if count++; count == most {
				return i + n
			}
		case count > 0:
			return i
		}
		blank = -1
		if unicode.IsSpace(r) {
			blank = i
		}
		i += n
	}
	return len(s)
}

// splitTrailing cuts by trailingPattern. The text holds no newlines by then, before which Oniguruma's $ would match,
// too.
func splitTrailing(s string) int {
	if n := len(strings.TrimRightFunc(s, unicode.IsSpace)); n > 0 {
		return n
	}
	return len(s)
}

// splitSymbolWords cuts by symbolWordsPattern. Digits and control characters may match nothing: a run of them is a
// piece.
func splitSymbolWords(s string) int {
	for i := 0; i < len(s); {
		if n := matchDeepSeek3(s[i:]); n > 0 {
			if i > 0 {
				return i
			}
			return n
		}
		_, n := decode(s, i)
		i += n
	}
	return len(s)
}

func isMarked(r rune) bool { return unicode.In(r, unicode.L, unicode.M) }
func isSigned(r rune) bool { return unicode.In(r, unicode.P, unicode.S) }

// while returns the end of the run of characters with the property at s[i:].
func while(s string, i int, in func(rune) bool) int {
	for i < len(s) {
		r, n := decode(s, i)
		if !in(r) {
			break
		}
		i += n
	}
	return i
}

// matchDeepSeek3 returns the length of the match at s, or 0.
func matchDeepSeek3(s string) int {
	r, n := decode(s, 0)
	next := rune(-1) // in no class
	if n < len(s) {
		next, _ = decode(s, n)
	}
	switch {
	case r < utf8.RuneSelf && isSigned(r) && next < utf8.RuneSelf && unicode.IsLetter(next):
		return while(s, n, func(r rune) bool { return r < utf8.RuneSelf && unicode.IsLetter(r) })
	case isMarked(r):
		return while(s, n, isMarked)
	case isMarked(next) && r != '\r' && r != '\n' && !isSigned(r):
		return while(s, n, isMarked)
	case isSigned(r):
		return newlines(s, while(s, n, isSigned))
	case r == ' ' && isSigned(next):
		return newlines(s, while(s, n, isSigned))
	}
	return blanks(s, true)
}
