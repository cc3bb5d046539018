package tokenizer

import (
	"math"
	"strings"
	"unicode"
)

// Patterns of few models.
const (
	contractions = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`

	linesPattern       = `[^\n]+|[\n]+`
	numbersPattern     = `\p{N}+`
	threeASCIIPattern  = `[0-9][0-9][0-9]`
	plainPunctPattern  = `[\p{P}\$\+<=>\^~\|]+`
	quotedPunctPattern = "[\\p{P}\\$\\+<=>\\^~\\|`]+"
	bloomPattern       = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"

	// digits3Pattern with more digits in a piece; with words that have marks; with words apart from newlines behind
	// punctuation; with words and single spaces as one piece.
	allDigitsPattern = contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	marksPattern     = contractions + `|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	seedPattern      = contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+`
	phrasesPattern   = contractions + `|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+`

	eastPattern  = "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
	youtuPattern = casedWords + shortForms + `|` + upperWords + shortForms + `|\p{N}|` + casedRest

	notHanUpper = `(?:(?!\p{Han})` + upperClass + `)`
	notHanLower = `(?:(?!\p{Han})` + lowerClass + `)`
	kimiPattern = `[\p{Han}]+|[^\r\n\p{L}\p{N}]?` + notHanUpper + `*` + notHanLower + `+` + shortForms +
		`|[^\r\n\p{L}\p{N}]?` + notHanUpper + `+` + notHanLower + `*` + shortForms +
		`|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// aliases are other spellings of patterns: possessive quantifiers, where nothing is given back anyway, and classes cut
// with others.
var aliases = map[string]string{
	plainShortPattern: plainWordsPattern,
	`'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`:                                            digits3Pattern,
	`'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`:                                                 digit1Pattern,
	" ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+":                                                                                             bloomPattern,
	strings.NewReplacer(notHanUpper, `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]`, notHanLower, `[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]`).Replace(kimiPattern): kimiPattern,
}

func splitLines(s string) int {
	if n := strings.IndexByte(s, '\n'); n != 0 {
		if n < 0 {
			return len(s)
		}
		return n
	}
	n := 0
	for n < len(s) && s[n] == '\n' {
		n++
	}
	return n
}

func splitNumbers(s string) int { return splitRuns(s, unicode.IsNumber, false, len(s)) }

// splitThreeASCII cuts by threeASCIIPattern.
func splitThreeASCII(s string) int {
	for i, count := 0, 0; i < len(s); i++ {
		if count++; s[i] < '0' || s[i] > '9' {
			count = 0
		}
		if count == 3 {
			if i == 2 {
				return 3
			}
			return i - 2
		}
	}
	return len(s)
}

func isPlainPunct(r rune) bool  { return unicode.IsPunct(r) || strings.ContainsRune("$+<=>^~|", r) }
func isQuotedPunct(r rune) bool { return isPlainPunct(r) || r == '`' }

func splitPlainPunct(s string) int  { return splitRuns(s, isPlainPunct, false, len(s)) }
func splitQuotedPunct(s string) int { return splitRuns(s, isQuotedPunct, false, len(s)) }

// splitEachPunct cuts by [\p{P}$+<=>^~|`].
func splitEachPunct(s string) int { return splitRuns(s, isQuotedPunct, false, 1) }

// isByteNumber reports whether ByteLevel spells a byte as a character that is a number: a digit, or one of ²³¹¼½¾.
func isByteNumber(c byte) bool {
	return c >= '0' && c <= '9' || c == 0xB2 || c == 0xB3 || c == 0xB9 || c >= 0xBC && c <= 0xBE
}

// splitByteNumbers cuts before and behind runs of such bytes.
func splitByteNumbers(s string) int {
	n := 1
	for n < len(s) && isByteNumber(s[n]) == isByteNumber(s[0]) {
		n++
	}
	return n
}

// splitByteDigit makes a piece of each of such bytes.
func splitByteDigit(s string) int {
	if isByteNumber(s[0]) {
		return 1
	}
	return splitByteNumbers(s)
}

// literalSplitter cuts at the occurrences of a string; nil for a behavior that is not known or drops text.
func literalSplitter(behavior string, text *string) splitter {
	if text == nil {
		return nil
	}
	at := func(s string, from int) int { // where the next occurrence begins
		if i := strings.Index(s[from:], *text); i >= 0 && *text != "" {
			return from + i
		}
		return len(s)
	}
	isAt := func(s string) bool { return *text != "" && strings.HasPrefix(s, *text) }
	switch n := len(*text); behavior {
	case "Isolated":
		return func(s string) int {
			if isAt(s) {
				return n
			}
			return at(s, 0)
		}
	case "Contiguous":
		return func(s string) int {
			end := 0
			for isAt(s[end:]) {
				end += n
			}
			if end > 0 {
				return end
			}
			return at(s, 0)
		}
	case "MergedWithPrevious":
		return func(s string) int { return min(at(s, 0)+n, len(s)) }
	case "MergedWithNext":
		return func(s string) int {
			if isAt(s) {
				return at(s, n)
			}
			return at(s, 0)
		}
	}
	return nil
}

func isBloom(r rune) bool {
	return !unicode.IsSpace(r) && !strings.ContainsRune("(|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)", r)
}

// splitBloom cuts by bloomPattern.
func splitBloom(s string) int {
	for i := 0; i < len(s); {
		r, n := decode(s, i)
		if isBloom(r) {
			begin := i
			if i > 0 && s[i-1] == ' ' {
				begin--
			}
			if begin > 0 {
				return begin
			}
			return while(s, i, isBloom)
		}
		i += n
	}
	return len(s)
}

func splitAllDigits(s string) int { return splitWords(s, math.MaxInt, newlines) }

// splitMarks cuts by marksPattern.
func splitMarks(s string) int {
	if s[0] == '\'' {
		if n := contraction(s, true); n > 0 {
			return n
		}
	}
	r, n := decode(s, 0)
	next := rune(-1) // in no class
	if n < len(s) {
		next, _ = decode(s, n)
	}
	c, _ := classAt(s, 0)
	signs := func(r rune) bool { return unicodeClass(r) == other && !isMarked(r) }
	switch {
	case isMarked(r):
		return while(s, n, isMarked)
	case c == number:
		return n
	case isMarked(next) && !isNewline(s[0]):
		return while(s, n, isMarked)
	case c == other, r == ' ' && next >= 0 && signs(next):
		return newlines(s, while(s, n, signs))
	}
	return blanks(s, true)
}

// splitSeed cuts by seedPattern: digit1Pattern, but for the newlines behind punctuation.
func splitSeed(s string) int {
	return splitWords(s, 1, func(_ string, i int) int { return i })
}

// splitPhrases cuts by phrasesPattern.
func splitPhrases(s string) int {
	if s[0] == '\'' {
		if n := contraction(s, true); n > 0 {
			return n
		}
	}
	c, n := classAt(s, 0)
	next, k := classAt(s, n)
	switch {
	case c == letter:
		return phrase(s, n)
	case c == number:
		return n
	case next == letter && !isNewline(s[0]):
		return phrase(s, n+k)
	case c == other:
		return oneSlash(s, run(s, n, other))
	case s[0] == ' ' && next == other && k > 0:
		return oneSlash(s, run(s, n+k, other))
	}
	return blanks(s, true)
}

// phrase returns the end of letters with their marks, and single spaces before letters, at s[i:], behind a letter.
func phrase(s string, i int) int {
	for {
		i = while(s, i, isMarked)
		if i == len(s) || s[i] != ' ' {
			return i
		}
		c, n := classAt(s, i+1)
		if c != letter {
			return i
		}
		i += 1 + n
	}
}

// oneSlash returns the end of \r, \n or / at s[i:].
func oneSlash(s string, i int) int {
	if i < len(s) && (isNewline(s[i]) || s[i] == '/') {
		i++
	}
	return i
}

// east returns the class of eastPattern that a character is in, 0 for none: Hangul, punctuation, Bopomofo, Han with
// kana.
func east(r rune) int {
	switch {
	case r >= 0xAC00 && r <= 0xD7A3, r >= 0x3131 && r <= 0x318E:
		return 1
	case r >= 0x3001 && r <= 0x303F, r >= 0xFE30 && r <= 0xFE4F, strings.ContainsRune("\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c", r):
		return 2
	case r >= 0x3105 && r <= 0x312F:
		return 3
	case isKana(r):
		return 4
	}
	return 0
}

// splitEast cuts by eastPattern.
func splitEast(s string) int {
	r, n := decode(s, 0)
	class := east(r)
	return while(s, n, func(r rune) bool { return east(r) == class })
}

// splitYoutu cuts by youtuPattern.
func splitYoutu(s string) int { return splitByCase(s, 1, true) }

func isHanScript(r rune) bool { return unicode.Is(unicode.Han, r) }

// splitKimi cuts by kimiPattern.
func splitKimi(s string) int {
	if r, n := decode(s, 0); isHanScript(r) {
		return while(s, n, isHanScript)
	}
	if end := casedWord(s, caseButHan); end > 0 {
		return end + contraction(s[end:], true)
	}
	return splitUncased(s, 3, newlines)
}

// caseButHan returns what caseAt does; Han has no class.
func caseButHan(s string, i int) (uint8, int) {
	c, n := caseAt(s, i)
	if c == noCase {
		if r, _ := decode(s, i); isHanScript(r) {
			return 0, n
		}
	}
	return c, n
}
