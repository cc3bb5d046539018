package tokenizer

import (
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// nfcTables are the generated tables, indexed. Hangul is not in them.
type nfcTables struct {
	parts   map[rune][2]rune // canonical decomposition, one step; parts[1] may be 0
	pairs   map[[2]rune]rune // canonical composition
	class   map[rune]uint8   // combining class, where it is not 0
	joining map[rune]bool    // characters that compose with the one before
}

var nfcData = sync.OnceValue(func() *nfcTables {
	t := &nfcTables{
		parts: map[rune][2]rune{}, pairs: map[[2]rune]rune{},
		class: map[rune]uint8{}, joining: map[rune]bool{},
	}
	only := map[rune]bool{}
	for _, r := range decomposeOnly {
		only[r] = true
	}
	triples(decompositions, func(r, first, second rune) {
		t.parts[r] = [2]rune{first, second}
		if second != 0 && !only[r] {
			t.pairs[[2]rune{first, second}] = r
			t.joining[second] = true
		}
	})
	triples(combiningClasses, func(lo, hi, class rune) {
		for r := lo; r <= hi; r++ {
			t.class[r] = uint8(class)
		}
	})
	return t
})

func triples(s string, yield func(a, b, c rune)) {
	runes := []rune(s)
	for i := 0; i < len(runes); i += 3 {
		yield(runes[i], runes[i+1], runes[i+2])
	}
}

// nfc returns the text in Unicode's Normalization Form C (UAX 15), leaving bytes that are
// no UTF-8 as they are. golang.org/x/text/unicode/norm is not used because it breaks
// long runs of combining characters with U+034F (its stream-safe format), which the
// reference does not. It ends early where w does.
func nfc(s string, w *watch) string {
	const firstLead = 0xCC // of U+0300; text without such a byte is in NFC
	i := 0
	for i < len(s) && s[i] < firstLead && w.did(1) {
		i++
	}
	if i == len(s) {
		return s
	}
	t := nfcData()
	var out strings.Builder
	out.Grow(len(s))
	begin, size := 0, 0 // the segment: characters that may act on each other
	for i := 0; i < len(s) && w.did(1); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if size > 0 && (r == utf8.RuneError || t.isBorder(r)) {
			t.writeSegment(&out, s[begin:i], size, w)
			begin, size = i, 0
		}
		size++
		i += n
	}
	t.writeSegment(&out, s[begin:], size, w)
	return out.String()
}

// Hangul syllables compose by arithmetic (the Unicode standard, 3.12).
const (
	hangulBase, hangulEnd = 0xAC00, 0xAC00 + 19*21*28
	leadBase, leadCount   = 0x1100, 19
	vowelBase, vowelCount = 0x1161, 21
	tailBase, tailCount   = 0x11A7, 28 // the first tail is none
)

// isBorder reports whether nothing before r changes with r or after it.
func (t *nfcTables) isBorder(r rune) bool {
	if r < 0x300 {
		return true
	}
	for {
		p, ok := t.parts[r]
		if !ok {
			break
		}
		r = p[0]
	}
	isVowel, isTail := r >= vowelBase && r < vowelBase+vowelCount, r > tailBase && r < tailBase+tailCount
	return t.class[r] == 0 && !t.joining[r] && !isVowel && !isTail
}

// writeSegment writes the normal form of a segment of so many characters.
func (t *nfcTables) writeSegment(out *strings.Builder, s string, size int, w *watch) {
	if r, _ := utf8.DecodeRuneInString(s); size == 1 {
		if _, ok := t.parts[r]; !ok {
			out.WriteString(s)
			return
		}
	}
	runes := make([]rune, 0, size)
	for i := 0; i < len(s) && w.did(1); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError { // a segment begins with it
			out.WriteString(s[i : i+n])
		} else {
			runes = t.decompose(runes, r)
		}
		i += n
	}
	for i := 0; i < len(runes) && w.did(1); i++ {
		if t.class[runes[i]] != 0 {
			i += t.order(runes[i:], w)
		}
	}
	for _, r := range t.compose(runes, w) {
		out.WriteRune(r)
	}
}

// order sorts the combining characters that runes begins with by their class, stably,
// and returns their number.
func (t *nfcTables) order(runes []rune, w *watch) int {
	var ends [256]int // by class
	n := 0
	for ; n < len(runes) && w.did(1); n++ {
		class := t.class[runes[n]]
		if class == 0 {
			break
		}
		ends[class]++
	}
	if n < 2 {
		return n
	}
	for c := 1; c < len(ends); c++ {
		ends[c] += ends[c-1]
	}
	old := slices.Clone(runes[:n])
	for i := n - 1; i >= 0 && w.did(1); i-- {
		class := t.class[old[i]]
		ends[class]--
		runes[ends[class]] = old[i]
	}
	return n
}

// decompose appends the full canonical decomposition of r.
func (t *nfcTables) decompose(to []rune, r rune) []rune {
	if r >= hangulBase && r < hangulEnd {
		k := r - hangulBase
		to = append(to, leadBase+k/(vowelCount*tailCount), vowelBase+k/tailCount%vowelCount)
		if tail := k % tailCount; tail > 0 {
			to = append(to, tailBase+tail)
		}
		return to
	}
	p, ok := t.parts[r]
	if !ok {
		return append(to, r)
	}
	to = t.decompose(to, p[0])
	if p[1] != 0 {
		to = t.decompose(to, p[1])
	}
	return to
}

// compose composes characters in canonical order, in place. A character composes with
// the last starter unless one of its own class or higher stands between.
func (t *nfcTables) compose(runes []rune, w *watch) []rune {
	out := runes[:0]
	starter, last := -1, -1 // last is the class of what stands between, -1 for nothing
	for _, r := range runes {
		if !w.did(1) {
			break
		}
		class := int(t.class[r])
		if starter >= 0 && last < class {
			if c, ok := t.pair(out[starter], r); ok {
				out[starter] = c
				continue
			}
		}
		last = class
		if class == 0 {
			starter, last = len(out), -1
		}
		out = append(out, r)
	}
	return out
}

// pair returns what two characters compose to.
func (t *nfcTables) pair(a, b rune) (rune, bool) {
	switch {
	case a >= leadBase && a < leadBase+leadCount && b >= vowelBase && b < vowelBase+vowelCount:
		return hangulBase + ((a-leadBase)*vowelCount+b-vowelBase)*tailCount, true
	case a >= hangulBase && a < hangulEnd && (a-hangulBase)%tailCount == 0 && b > tailBase && b < tailBase+tailCount:
		return a + b - tailBase, true
	}
	r, ok := t.pairs[[2]rune{a, b}]
	return r, ok
}
