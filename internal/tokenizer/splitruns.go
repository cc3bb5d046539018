package tokenizer

import (
	"cmp"
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// decode returns the character at s[i:].
func decode(s string, i int) (rune, int) {
	if s[i] < utf8.RuneSelf {
		return rune(s[i]), 1
	}
	return utf8.DecodeRuneInString(s[i:])
}

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

func splitNewlines(s string) int {
	for i := range len(s) {
		if isNewline(s[i]) {
			return max(i, 1)
		}
	}
	return len(s)
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

// splitTrailing cuts by the pattern trailing. The text holds no newlines by then; before a newline Oniguruma's $ would
// also match.
func splitTrailing(s string) int {
	if n := len(strings.TrimRightFunc(s, unicode.IsSpace)); n > 0 {
		return n
	}
	return len(s)
}

func splitDigit(s string) int { return splitRuns(s, unicode.IsNumber, false, 1) }

func splitNumbers(s string) int { return splitRuns(s, unicode.IsNumber, false, len(s)) }

func splitQuotedPunct(s string) int { return splitRuns(s, isQuotedPunct, false, len(s)) }

// splitEachPunct cuts by [\p{P}$+<=>^~|`].
func splitEachPunct(s string) int { return splitRuns(s, isQuotedPunct, false, 1) }

// groupStages cuts digits into threes from the right: within pieces of the stage before, at each place before a
// multiple of three digits, the rest of their run.
func groupStages(digit func(rune) bool) []splitter {
	return []splitter{
		func(s string) int { return splitBeforeGroups(s, digit) },
		func(s string) int { return splitGroups(s, digit) },
	}
}

// splitBeforeGroups cuts at the first of these places in each run of digits, behind one digit or two.
func splitBeforeGroups(s string, digit func(rune) bool) int {
	var at [3]int // places of the run's first digits
	count := 0
	for i := 0; i <= len(s); {
		r, n := rune(-1), 1
		if i < len(s) {
			r, n = decode(s, i)
		}
		switch {
		case r >= 0 && digit(r):
			if count < len(at) {
				at[count] = i
			}
			count++
		case count >= 3 && at[count%3] > 0:
			return at[count%3]
		default:
			count = 0
		}
		i += n
	}
	return len(s)
}

// splitGroups cuts behind each three digits before further ones.
func splitGroups(s string, digit func(rune) bool) int {
	for i, count := 0, 0; i < len(s); count++ {
		r, n := decode(s, i)
		if !digit(r) {
			break
		}
		if count == 3 {
			return i
		}
		i += n
	}
	return len(s)
}

// splitClosedDigits makes a piece of each run of digits without a letter, mark, number or underscore behind the run.
func splitClosedDigits(s string) int {
	for i := 0; i < len(s); {
		end := while(s, i, unicode.IsDigit)
		if end > i && (end == len(s) || !isWordAt(s, end)) {
			return cmp.Or(i, end)
		}
		_, n := decode(s, end)
		i = end + n
	}
	return len(s)
}

// atDigits cuts pieces whose last character is a digit: of splitClosedDigits the runs alone.
func atDigits(cut splitter) splitter {
	return func(s string) int {
		if r, _ := utf8.DecodeLastRuneInString(s); !unicode.IsDigit(r) {
			return len(s)
		}
		return cut(s)
	}
}

// splitBlank cuts before and behind white space.
func splitBlank(s string) int {
	r, n := decode(s, 0)
	return while(s, n, func(next rune) bool { return unicode.IsSpace(next) == unicode.IsSpace(r) })
}

// splitWordsAndSigns cuts white space, \w+ and [^\w\s]+ apart. To Rust's engine joiners are words, and numbers of class
// No are not.
func splitWordsAndSigns(s string) int {
	class := func(r rune) int {
		switch {
		case unicode.IsSpace(r):
			return 0
		case isMarked(r), r == 0x200C, r == 0x200D, unicode.In(r, unicode.Nd, unicode.Nl, unicode.Pc,
			unicode.Other_Alphabetic):
			return 1
		}
		return 2
	}
	r, n := decode(s, 0)
	first := class(r)
	return while(s, n, func(r rune) bool { return class(r) == first })
}

// isWordAt reports whether Oniguruma's \w matches at s[i:].
func isWordAt(s string, i int) bool {
	r, _ := decode(s, i)
	return isMarked(r) || unicode.In(r, unicode.N, unicode.Pc, unicode.Other_Alphabetic)
}

// maxBlanks is the highest power of two in the pattern cascade.
const maxBlanks = 512

// splitBlanks cuts white space without a newline at its end by powers of two, as long as possible each.
func splitBlanks(s string) int {
	end := 0
	for i, count, power := 0, 0, 1; i < len(s) && count < maxBlanks; {
		c, n := classAt(s, i)
		if c != blank || isNewline(s[len(s)-1]) {
			return len(s)
		}
		i += n
		if count++; count == power {
			end, power = i, 2*power
		}
	}
	return end
}

// regexSplitter cuts by a regular expression within the language of package regexp.
func regexSplitter(regex string) splitter {
	re := regexp.MustCompile(regex)
	return func(s string) int {
		at := re.FindStringIndex(s)
		if at == nil {
			return len(s)
		}
		return cmp.Or(at[0], at[1])
	}
}

// splitThreeASCII cuts by the pattern threeASCII.
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

// splitBloom cuts by the pattern bloom.
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

func isBloom(r rune) bool {
	return !unicode.IsSpace(r) && !strings.ContainsRune("(|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)", r)
}

// splitEast cuts by the pattern east.
func splitEast(s string) int {
	r, n := decode(s, 0)
	class := east(r)
	return while(s, n, func(r rune) bool { return east(r) == class })
}

// east returns the class of a character in eastPattern, 0 for none: Hangul, punctuation, Bopomofo, Han with kana.
func east(r rune) int {
	switch {
	case r >= 0xAC00 && r <= 0xD7A3, r >= 0x3131 && r <= 0x318E:
		return 1
	case r >= 0x3001 && r <= 0x303F, r >= 0xFE30 && r <= 0xFE4F,
		strings.ContainsRune("\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c", r):
		return 2
	case r >= 0x3105 && r <= 0x312F:
		return 3
	case isKana(r):
		return 4
	}
	return 0
}

// cased holds the letters with case in a pattern of DeepSeek, from an older version of Unicode.
var cased = sync.OnceValue(func() *unicode.RangeTable {
	table := &unicode.RangeTable{}
	list := []rune(strings.TrimSuffix(strings.TrimPrefix(known().Patterns["cased"].Regex, `\s?[`), "]+"))
	for len(list) > 0 {
		lo, hi, n := list[0], list[0], 1
		if len(list) > 2 && list[1] == '-' {
			hi, n = list[2], 3
		}
		if list = list[n:]; hi > 0xffff {
			table.R32 = append(table.R32, unicode.Range32{Lo: uint32(lo), Hi: uint32(hi), Stride: 1})
			continue
		}
		table.R16 = append(table.R16, unicode.Range16{Lo: uint16(lo), Hi: uint16(hi), Stride: 1})
		if hi <= unicode.MaxLatin1 {
			table.LatinOffset++
		}
	}
	return table
})

func isCased(r rune) bool { return unicode.Is(cased(), r) }

func isWidePunct(r rune) bool {
	return r >= '!' && r <= '/' || r >= ':' && r <= '~' || r >= 0xFF01 && r <= 0xFF0F ||
		r >= 0xFF1A && r <= 0xFF5E || r >= 0x2018 && r <= 0x201F || r >= 0x3000 && r <= 0x3002
}

func isHan(r rune) bool { return r >= 0x0800 && r <= 0x9FA5 || r >= 0xAC00 && r <= 0xD7FF }

func isKana(r rune) bool { return r >= 0x4E00 && r <= 0x9FA5 || r >= 0x3040 && r <= 0x30FF }

func isPlainPunct(r rune) bool { return unicode.IsPunct(r) || strings.ContainsRune("$+<=>^~|", r) }

func isQuotedPunct(r rune) bool { return isPlainPunct(r) || r == '`' }

// isByteNumber reports whether ByteLevel spells a byte as a character that is a number: a digit, or ²³¹¼½¾.
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

// splitByteDigit makes a piece of each byte number.
func splitByteDigit(s string) int {
	if isByteNumber(s[0]) {
		return 1
	}
	return splitByteNumbers(s)
}

// literalSplitter cuts at the occurrences of a string; nil for a behavior that is unknown or drops text.
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
