package tokenizer

import (
	"math"
	"unicode"
	"unicode/utf8"
)

// A splitter is a pre-tokenizer's pattern, by hand: it returns the length of the first piece of s, not empty. A piece
// is a match or the text up to the next match. Each splitter is linear: no character is examined more than a few times.
//
// The comments give the corresponding regular expressions; within these \s is Unicode's White_Space, \p{..} a general
// category. A byte that is not UTF-8 counts as U+FFFD, a symbol.
type splitter func(s string) int

// stagesOf returns the splitters of a pattern, each for the pieces of the previous. A pattern without splitters here is
// a regular expression that package regexp runs.
func stagesOf(pattern string) []splitter {
	switch pattern {
	case "cascade":
		return []splitter{splitDigits3, splitBlanks}
	case "groups":
		stages := []splitter{splitClosedDigits}
		for _, cut := range groupStages(unicode.IsDigit) {
			stages = append(stages, atDigits(cut))
		}
		return stages
	case "numberGroups":
		return append([]splitter{splitNumbers}, groupStages(unicode.IsNumber)...)
	case "thirds":
		return groupStages(unicode.IsDigit)
	}
	if s, ok := patternSplitters[pattern]; ok {
		return []splitter{s}
	}
	return []splitter{regexSplitter(regex(pattern))}
}

// patternSplitters has the splitters by the names of their patterns in pretokenizers.json.
var patternSplitters = map[string]splitter{
	"digits3":     splitDigits3,
	"digit1":      splitDigit1,
	"allDigits":   func(s string) int { return splitWords(s, math.MaxInt, newlines) },
	"seed":        func(s string) int { return splitWords(s, 1, func(_ string, i int) int { return i }) },
	"phrases":     splitPhrases,
	"plainWords":  splitPlainWords,
	"marks":       splitMarks,
	"caseWords":   func(s string) int { return splitByCase(s, 3, true) },
	"youtu":       func(s string) int { return splitByCase(s, 1, true) },
	"tekken":      func(s string) int { return splitByCase(s, 1, false) },
	"hanWords":    splitHanWords,
	"symbolWords": splitSymbolWords,

	"newline":     splitNewlines,
	"cased":       func(s string) int { return splitRuns(s, isCased, true, len(s)) },
	"widePunct":   func(s string) int { return splitRuns(s, isWidePunct, true, len(s)) },
	"trailing":    splitTrailing,
	"han":         func(s string) int { return splitRuns(s, isHan, false, len(s)) },
	"letters":     func(s string) int { return splitRuns(s, unicode.IsLetter, true, len(s)) },
	"punct":       func(s string) int { return splitRuns(s, unicode.IsPunct, true, len(s)) },
	"digit":       splitDigit,
	"threeDigits": func(s string) int { return splitRuns(s, unicode.IsNumber, false, 3) },
	"kana":        func(s string) int { return splitRuns(s, isKana, false, len(s)) },
	"lines":       splitLines,
	"numbers":     splitNumbers,
	"threeASCII":  splitThreeASCII,
	"plainPunct":  func(s string) int { return splitRuns(s, isPlainPunct, false, len(s)) },
	"quotedPunct": splitQuotedPunct,
	"bloom":       splitBloom,
	"east":        splitEast,
}

// A class is a kind of character in the patterns of GPT-2 and its heirs.
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

// Most text is cut by the next two splitters, which are separate functions for speed.

func splitDigits3(s string) int { return splitWords(s, 3, newlines) }
func splitDigit1(s string) int  { return splitWords(s, 1, newlines) }

// splitWords cuts by the pattern digits3 with at most so many digits in a piece, and a tail behind punctuation.
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

// splitPlainWords cuts by the pattern plainWords.
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
// if text follows, or up to its last newline.
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
// (U+017F) also is an s: Unicode folds it.
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

// splitPhrases cuts by the pattern phrases.
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

// splitMarks cuts by the pattern marks.
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

// The patterns of GPT-4o and its heirs cut words where lower case is followed by upper case: "camelCase" is two pieces.
// Upper case is [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] there, and lower case [\p{Ll}\p{Lm}\p{Lo}\p{M}]. Characters of both
// have no case.
const (
	upperCase = 1 << iota
	lowerCase
	noCase = upperCase | lowerCase
)

var asciiCase = func() (cases [utf8.RuneSelf]uint8) {
	for r := range cases {
		cases[r] = unicodeCase(rune(r))
	}
	return cases
}()

func unicodeCase(r rune) uint8 {
	switch {
	case unicode.IsLower(r):
		return lowerCase
	case unicode.IsUpper(r), unicode.IsTitle(r):
		return upperCase
	case unicode.IsLetter(r), unicode.IsMark(r):
		return noCase
	}
	return 0
}

// caseAt returns the case and length of the character at s[i:], 0 and 0 at the end.
func caseAt(s string, i int) (uint8, int) {
	if i >= len(s) {
		return 0, 0
	}
	if c := s[i]; c < utf8.RuneSelf {
		return asciiCase[c], 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	return unicodeCase(r), n
}

// splitByCase cuts by the pattern caseWords with at most so many digits in a piece, with or without the short forms
// behind a word.
func splitByCase(s string, digits int, short bool) int {
	if end := casedWord(s, caseAt); end > 0 {
		if short {
			end += contraction(s[end:], true)
		}
		return end
	}
	return splitUncased(s, digits, slashes)
}

// splitUncased returns pieces other than words: numbers, punctuation with a tail, white space.
func splitUncased(s string, digits int, tail func(s string, i int) int) int {
	c, n := classAt(s, 0)
	switch next, k := classAt(s, n); {
	case c == number:
		return numbers(s, n, digits-1)
	case c == other:
		return tail(s, run(s, n, other))
	case s[0] == ' ' && next == other && k > 0:
		return tail(s, run(s, n+k, other))
	}
	return blanks(s, true)
}

// casedWord returns casedWords|upperWords: the length of the match at s, or 0.
func casedWord(s string, at func(s string, i int) (uint8, int)) int {
	first, n := at(s, 0)
	class, _ := classAt(s, 0)
	if class == letter || class == number || isNewline(s[0]) { // cannot come before a word
		end, _ := caseRun(s, 0, at)
		return end
	}
	end, lower := caseRun(s, n, at)
	if first != 0 && !lower { // a mark, to the first pattern a word
		end, _ = caseRun(s, 0, at)
	}
	return end
}

// caseRun matches upper and lower case at s[i:], and returns the end, 0 for no match, and whether there is lower case.
// Upper case is taken first, and given back as far as a character that may be lower.
func caseRun(s string, i int, at func(s string, i int) (uint8, int)) (end int, lower bool) {
	begin, may := i, 0
	for {
		c, n := at(s, i)
		if c&upperCase == 0 {
			if c == 0 {
				break
			}
			for c&lowerCase != 0 {
				i += n
				c, n = at(s, i)
			}
			return i, true
		}
		if i += n; c == noCase {
			may = i
		}
	}
	switch {
	case may > 0:
		return may, true
	case i > begin:
		return i, false
	}
	return 0, false
}

// numbers returns the end of at most so many numbers at s[i:].
func numbers(s string, i, most int) int {
	for range most {
		c, n := classAt(s, i)
		if c != number {
			break
		}
		i += n
	}
	return i
}

// slashes returns the end of the run of \r, \n and / at s[i:].
func slashes(s string, i int) int {
	for i < len(s) && (isNewline(s[i]) || s[i] == '/') {
		i++
	}
	return i
}

// splitHanWords cuts by the pattern hanWords.
func splitHanWords(s string) int {
	if r, n := decode(s, 0); isHanScript(r) {
		return while(s, n, isHanScript)
	}
	if end := casedWord(s, caseButHan); end > 0 {
		return end + contraction(s[end:], true)
	}
	return splitUncased(s, 3, newlines)
}

// caseButHan returns the result of caseAt, except that Han has no class.
func caseButHan(s string, i int) (uint8, int) {
	c, n := caseAt(s, i)
	if c == noCase {
		if r, _ := decode(s, i); isHanScript(r) {
			return 0, n
		}
	}
	return c, n
}

func isHanScript(r rune) bool { return unicode.Is(unicode.Han, r) }

// splitSymbolWords cuts by the pattern symbolWords. Digits and control characters may match nothing: a run of them is a
// piece.
func splitSymbolWords(s string) int {
	for i := 0; i < len(s); {
		if n := matchSymbolWord(s[i:]); n > 0 {
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

// matchSymbolWord returns the length of the match at s, or 0.
func matchSymbolWord(s string) int {
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

func isMarked(r rune) bool { return unicode.In(r, unicode.L, unicode.M) }

func isSigned(r rune) bool { return unicode.In(r, unicode.P, unicode.S) }
