package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// A splitter is a pre-tokenizer's pattern, by hand: it returns the length of the first piece of s, which is not empty.
// A piece is a match or the text up to the next one. Each is linear: no character is looked at more than a few times.
//
// The comments give the regular expressions they stand for; within them \s is Unicode's White_Space, \p{..} a general
// category. A byte that is not UTF-8 counts as U+FFFD, a symbol.
type splitter func(s string) int

// patterns are the splitters by the text of the regular expression in tokenizer.json.
var patterns = map[string]splitter{
	digits3Pattern:     splitDigits3,
	digit1Pattern:      splitDigit1,
	plainWordsPattern:  splitPlainWords,
	newlinePattern:     splitNewlines,
	casedPattern:       splitCased,
	widePunctPattern:   splitWidePunct,
	trailingPattern:    splitTrailing,
	hanPattern:         splitHan,
	lettersPattern:     splitLetters,
	punctPattern:       splitPunct,
	digitPattern:       splitDigit,
	threeDigitsPattern: splitThreeDigits,
	kanaPattern:        splitKana,
	symbolWordsPattern: splitSymbolWords,
	linesPattern:       splitLines,
	numbersPattern:     splitNumbers,
	threeASCIIPattern:  splitThreeASCII,
	plainPunctPattern:  splitPlainPunct,
	quotedPunctPattern: splitQuotedPunct,
	bloomPattern:       splitBloom,
	allDigitsPattern:   splitAllDigits,
	marksPattern:       splitMarks,
	seedPattern:        splitSeed,
	phrasesPattern:     splitPhrases,
	eastPattern:        splitEast,
	youtuPattern:       splitYoutu,
	kimiPattern:        splitKimi,
	caseWordsPattern:   splitCaseWords,
	tekkenPattern:      splitTekken,
}

const (
	digits3Pattern    = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	digit1Pattern     = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	plainWordsPattern = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	plainShortPattern = `'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
)

// A class is what the patterns of GPT-2 and its heirs tell apart.
type class uint8

const (
	other class = iota
	letter
	number
	blank
)

// asciiClass holds the classes of ASCII, where all speed is.
var asciiClass = func() (classes [utf8.RuneSelf]class) {
	for r := range classes {
		classes[r] = unicodeClass(rune(r))
	}
	return classes
}()

func unicodeClass(r rune) class {
	switch {
	case unicode.IsLetter(r):
		return letter
	case unicode.IsNumber(r):
		return number
	case unicode.IsSpace(r):
		return blank
	}
	return other
}

// classAt returns the class and length of the character at s[i:], other and 0 at the end.
func classAt(s string, i int) (class, int) {
	if i >= len(s) {
		return other, 0
	}
	if c := s[i]; c < utf8.RuneSelf {
		return asciiClass[c], 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	return unicodeClass(r), n
}

// run returns the end of the run of a class that reaches over s[i:].
func run(s string, i int, c class) int {
	for i < len(s) {
		k, n := classAt(s, i)
		if k != c {
			break
		}
		i += n
	}
	return i
}

func isNewline(c byte) bool { return c == '\r' || c == '\n' }

// newlines returns the end of the run of \r and \n at s[i:].
func newlines(s string, i int) int {
	for i < len(s) && isNewline(s[i]) {
		i++
	}
	return i
}

// splitDigits3 cuts by digits3Pattern.
func splitDigits3(s string) int { return splitWords(s, 3, newlines) }

// splitDigit1 cuts by digit1Pattern.
func splitDigit1(s string) int { return splitWords(s, 1, newlines) }

// splitWords cuts by digits3Pattern with at most so many digits in a piece, and a tail behind punctuation.
func splitWords(s string, digits int, tail func(s string, i int) int) int {
	if s[0] == '\'' {
		if n := contraction(s, true); n > 0 {
			return n
		}
	}
	c, n := classAt(s, 0)
	switch c {
	case letter:
		return run(s, n, letter)
	case number:
		return numbers(s, n, digits-1)
	}
	next, k := classAt(s, n)
	switch {
	case next == letter && !isNewline(s[0]):
		return run(s, n+k, letter)
	case c == other:
		return tail(s, run(s, n, other))
	case s[0] == ' ' && next == other && k > 0:
		return tail(s, run(s, n+k, other))
	}
	return blanks(s, true)
}

// splitPlainWords cuts by plainWordsPattern.
func splitPlainWords(s string) int {
	if s[0] == '\'' {
		if n := contraction(s, false); n > 0 {
			return n
		}
	}
	c, n := classAt(s, 0)
	if s[0] == ' ' {
		if next, k := classAt(s, 1); k > 0 && next != blank {
			c, n = next, 1+k
		}
	}
	if c == blank {
		return blanks(s, false)
	}
	return run(s, n, c)
}

// blanks returns \s+(?!\S)|\s+, and with lines \s*[\r\n]+ before it: the white space at s, without its last character
// where text follows, or up to its last newline.
func blanks(s string, lines bool) int {
	end, last, line := 0, 0, 0
	for end < len(s) {
		c, n := classAt(s, end)
		if c != blank {
			break
		}
		last = end
		end += n
		if isNewline(s[last]) {
			line = end
		}
	}
	switch {
	case lines && line > 0:
		return line
	case end == len(s) || last == 0:
		return end
	}
	return last
}

// contraction returns the length of 's, 't, 're, 've, 'm, 'll or 'd at s, or 0. Without regard to case, the long s
// (U+017F) is an s, too: Unicode folds it.
func contraction(s string, fold bool) int {
	if len(s) < 2 || s[0] != '\'' {
		return 0
	}
	lower := func(i int) byte {
		if i >= len(s) {
			return 0
		}
		if c := s[i]; fold && c >= 'A' && c <= 'Z' {
			return c + 'a' - 'A'
		}
		return s[i]
	}
	switch a, b := lower(1), lower(2); {
	case a == 's' || a == 't' || a == 'm' || a == 'd':
		return 2
	case a == 'r' && b == 'e', a == 'v' && b == 'e', a == 'l' && b == 'l':
		return 3
	}
	const longS = "ſ"
	if fold && len(s) > len(longS) && s[1:1+len(longS)] == longS {
		return 1 + len(longS)
	}
	return 0
}
