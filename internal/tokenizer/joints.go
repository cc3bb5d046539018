package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// joints are the pairs of adjacent characters that some merge joins. Where the text has any other pair no merge can
// cross, so it can be cut there without changing the result: character-level text falls into words as if it had a
// pre-tokenizer.
type joints struct {
	ascii [utf8.RuneSelf][utf8.RuneSelf / 64]uint64
	other map[uint64]struct{}
	cut   bool // and before every ▁ (pre-tokenizer Metaspace with split)
}

// add lets a merge of left and right happen.
func (j *joints) add(left, right string) {
	a, _ := utf8.DecodeLastRuneInString(left)
	b, _ := utf8.DecodeRuneInString(right)
	if a < utf8.RuneSelf && b < utf8.RuneSelf {
		j.ascii[a][b/64] |= 1 << (b % 64)
		return
	}
	if j.other == nil {
		j.other = map[uint64]struct{}{}
	}
	j.other[uint64(a)<<32|uint64(b)] = struct{}{}
}

func (j *joints) has(a, b rune) bool {
	if a < utf8.RuneSelf && b < utf8.RuneSelf {
		return j.ascii[a][b/64]>>(b%64)&1 != 0
	}
	_, ok := j.other[uint64(a)<<32|uint64(b)]
	return ok
}

// next returns the length of the first piece of s, which is not empty.
func (j *joints) next(s string) int {
	a, i := utf8.DecodeRuneInString(s)
	for i < len(s) {
		b, n := rune(s[i]), 1
		if b >= utf8.RuneSelf {
			b, n = utf8.DecodeRuneInString(s[i:])
		}
		if !j.has(a, b) || j.cut && strings.HasPrefix(s[i:], space) {
			break
		}
		a, i = b, i+n
	}
	return i
}
