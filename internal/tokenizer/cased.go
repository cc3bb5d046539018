package tokenizer

import "unicode"

// The patterns of o200k, which keep upper and lower case apart.
const o200kPattern = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
	`|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
	`|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`

// splitO200k is o200kPattern.
func splitO200k(s string) int {
	n := word(s)
	if n == 0 {
		return splitNoWord(s, 3)
	}
	if n < len(s) && s[n] == '\'' {
		n += contraction(s[n:], true)
	}
	return n
}

// isUpper and isLower are the two classes of letters; those without case, and marks, are in both.
func isUpper(r rune) bool { return unicode.In(r, unicode.Lu, unicode.Lt) || isCaseless(r) }
func isLower(r rune) bool { return unicode.Is(unicode.Ll, r) || isCaseless(r) }

func isCaseless(r rune) bool { return unicode.In(r, unicode.Lm, unicode.Lo, unicode.M) }

// word is the length of the first alternative that matches of an optional character and a
// word: one that ends in lower case, or any. It is 0 where none does.
func word(s string) int {
	r, n := decode(s, 0)
	starts := []int{0}
	if r != '\r' && r != '\n' && !unicode.IsLetter(r) && !unicode.IsNumber(r) {
		starts = []int{n, 0}
	}
	for _, from := range starts {
		if n := endsLower(s, from); n > 0 {
			return n
		}
	}
	for _, from := range starts {
		if upper := while(s, from, isUpper); upper > from {
			return while(s, upper, isLower)
		}
	}
	return 0
}

// endsLower is the end of upper*lower+ at s[from:], 0 where it does not match. A run of the first
// class that no lower case follows ends behind its last character that is in both.
func endsLower(s string, from int) (end int) {
	for i := from; i < len(s); {
		r, n := decode(s, i)
		if !isUpper(r) {
			if isLower(r) {
				return while(s, i, isLower)
			}
			break
		}
		if i += n; isCaseless(r) {
			end = i
		}
	}
	return end
}

// splitNoWord is what o200kPattern has behind words, with at most so many digits in a piece.
func splitNoWord(s string, digits int) int {
	c, n := classAt(s, 0)
	if c == number {
		for range digits - 1 {
			if c, k := classAt(s, n); c == number {
				n += k
			}
		}
		return n
	}
	if next, k := classAt(s, n); c == other || s[0] == ' ' && next == other && k > 0 {
		n = run(s, n, other)
		for n < len(s) && (isNewline(s[n]) || s[n] == '/') {
			n++
		}
		return n
	}
	return blanks(s, true)
}
