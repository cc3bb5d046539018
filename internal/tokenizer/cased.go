package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// The patterns of GPT-4o and its heirs cut words where lower case is followed by upper case: "camelCase" is two pieces.
const (
	upperClass = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`
	lowerClass = `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`
	casedWords = `[^\r\n\p{L}\p{N}]?` + upperClass + `*` + lowerClass + `+`
	upperWords = `[^\r\n\p{L}\p{N}]?` + upperClass + `+` + lowerClass + `*`
	shortForms = `(?i:'s|'t|'re|'ve|'m|'ll|'d)?`
	casedRest  = ` ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`

	caseWordsPattern = casedWords + shortForms + `|` + upperWords + shortForms + `|\p{N}{1,3}|` + casedRest
	tekkenPattern    = casedWords + `|` + upperWords + `|\p{N}|` + casedRest
)

// Characters by the two classes above; those of both have no case.
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

// splitCaseWords cuts by caseWordsPattern.
func splitCaseWords(s string) int { return splitByCase(s, 3, true) }

// splitTekken cuts by tekkenPattern.
func splitTekken(s string) int { return splitByCase(s, 1, false) }

// splitByCase cuts by caseWordsPattern with at most so many digits in a piece, with or without the short forms behind a
// word.
func splitByCase(s string, digits int, short bool) int {
	if end := casedWord(s, caseAt); end > 0 {
		if short {
			end += contraction(s[end:], true)
		}
		return end
	}
	return splitUncased(s, digits, slashes)
}

// splitUncased returns what comes behind words: numbers, punctuation with a tail, white space.
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
	if class == letter || class == number || isNewline(s[0]) { // it cannot come before a word
		end, _ := caseRun(s, 0, at)
		return end
	}
	end, lower := caseRun(s, n, at)
	if first != 0 && !lower { // a mark, which the first pattern takes as a word
		end, _ = caseRun(s, 0, at)
	}
	return end
}

// caseRun matches upper and lower case at s[i:], and returns the end and whether it has some that is lower. That fails
// with 0. Upper case is taken first, and given back as far as a character that may be lower.
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
