package tokenizer

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"
)

// An addedToken is found in the text before any splitting or merging. The flags are named as in tokenizer.json.
type addedToken struct {
	content    string
	id         int32
	special    bool // only where the caller parses special tokens
	normalized bool // looked for in the normalized text
	lstrip     bool // takes the white space on the left
	rstrip     bool // takes the white space on the right
	singleWord bool // only where no word continues on either side
}

// RStrip is the flag in GGUF.Flags of a token taking the white space on the right; 1 means white space on the left, and
// 4 no match inside a word.
const RStrip = 2

// flags returns the GGUF flags of a.
func (a *addedToken) flags() (f int32) {
	for i, on := range []bool{a.lstrip, a.rstrip, a.singleWord} {
		if on {
			f |= 1 << i
		}
	}
	return f
}

// setFlags sets the flags of a from GGUF's flags.
func (a *addedToken) setFlags(f int32) {
	a.lstrip, a.rstrip, a.singleWord = f&1 != 0, f&RStrip != 0, f&4 != 0
}

// A matcher finds added tokens: the leftmost, and the longest at the same place. The tokens are sorted, so that reading
// a text byte by byte narrows a range of tokens: no tree is built, whatever a file holds.
type matcher struct {
	tokens []addedToken
	first  [257]int32 // tokens[first[b]:first[b+1]] begin with byte b
}

// newMatcher makes a matcher. Of tokens with equal text, for example after normalization, the lowest id is found.
func newMatcher(tokens []addedToken) (m matcher) {
	var list []*addedToken // a sort of pointers shares its code with all others
	for i, a := range tokens {
		if a.content != "" {
			list = append(list, &tokens[i])
		}
	}
	slices.SortFunc(list, func(a, b *addedToken) int {
		return cmp.Or(cmp.Compare(a.content, b.content), cmp.Compare(a.id, b.id))
	})
	for _, a := range list {
		if n := len(m.tokens); n == 0 || m.tokens[n-1].content != a.content {
			m.tokens = append(m.tokens, *a)
		}
	}
	for b := range 257 {
		m.first[b] = int32(sort.Search(len(m.tokens), func(i int) bool { return int(m.tokens[i].content[0]) >= b }))
	}
	return m
}

// longest returns the longest token at the beginning of text, or nil.
func (m *matcher) longest(text string) (best *addedToken) {
	b := text[0]
	lo, hi := int(m.first[b]), int(m.first[int(b)+1])
	for n := 1; lo < hi; n++ {
		if len(m.tokens[lo].content) == n {
			best = &m.tokens[lo]
			lo++
		}
		if n == len(text) {
			break
		}
		rest, c := m.tokens[lo:hi], text[n]
		hi = lo + sort.Search(len(rest), func(i int) bool { return rest[i].content[n] > c })
		lo += sort.Search(len(rest), func(i int) bool { return rest[i].content[n] >= c })
	}
	return best
}

// split calls yield for each added token in text, with its id, and for each piece of text between tokens, with id -1;
// at is the offset of either. Special tokens count if special approves their place in text. The split ends early if w
// does.
func (m *matcher) split(text string, w *watch, special func(from, to int) bool,
	yield func(s string, id int32, at int)) {
	done := 0
	for i := 0; i < len(text) && len(m.tokens) > 0 && w.spend(1); {
		if b := text[i]; m.first[b] == m.first[int(b)+1] {
			i++
			continue
		}
		a := m.longest(text[i:])
		if a == nil {
			i++
			continue
		}
		from, to := i, i+len(a.content)
		i = to
		if a.special && !special(from, to) || a.singleWord && insideWord(text, from, to) {
			continue
		}
		if a.lstrip {
			from = done + len(strings.TrimRightFunc(text[done:from], unicode.IsSpace))
		}
		if a.rstrip {
			to = len(text) - len(strings.TrimLeftFunc(text[to:], unicode.IsSpace))
			i = to
		}
		if done < from {
			yield(text[done:from], -1, done)
		}
		yield("", a.id, from)
		done = to
	}
	if done < len(text) && w.err == nil {
		yield(text[done:], -1, done)
	}
}

// insideWord reports whether a word goes on before or after text[from:to].
func insideWord(text string, from, to int) bool {
	before, _ := utf8.DecodeLastRuneInString(text[:from])
	after, _ := utf8.DecodeRuneInString(text[to:])
	return from > 0 && inWord(before) || to < len(text) && inWord(after)
}

// inWord reports whether r is in the class \w of Unicode's regular expressions (UTS 18, annex C).
func inWord(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic,
		unicode.Join_Control)
}
