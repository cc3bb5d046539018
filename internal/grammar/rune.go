package grammar

import (
	"encoding/binary"
	"slices"
	"unicode/utf8"
)

// runes are ranges of characters: first and last of each, rising.
type runes []rune

// surrogates are no characters.
const (
	surrogateMin = 0xd800
	surrogateMax = 0xdfff
)

// has reports whether r includes a character.
func (r runes) has(c rune) bool {
	for i := 0; i < len(r); i += 2 {
		if r[i] <= c && c <= r[i+1] {
			return true
		}
	}
	return false
}

// subtract returns r without some characters, given in order.
func (r runes) subtract(out ...rune) (rest runes) {
	for i := 0; i < len(r); i += 2 {
		lo, hi := r[i], r[i+1]
		for _, c := range out {
			if lo <= c && c <= hi {
				if lo < c {
					rest = append(rest, lo, c-1)
				}
				lo = c + 1
			}
		}
		if lo <= hi {
			rest = append(rest, lo, hi)
		}
	}
	return rest
}

// merge returns the union of ranges that may overlap, in order and disjoint.
func (r runes) merge() (out runes) {
	var list [][2]rune
	for i := 0; i < len(r); i += 2 {
		list = append(list, [2]rune{r[i], r[i+1]})
	}
	slices.SortFunc(list, func(a, b [2]rune) int { return int(a[0] - b[0]) })
	for _, x := range list {
		if n := len(out); n > 0 && x[0] <= out[n-1]+1 {
			out[n-1] = max(out[n-1], x[1])
			continue
		}
		out = append(out, x[0], x[1])
	}
	return out
}

// complement returns the characters outside r, which is merged.
func (r runes) complement() (out runes) {
	next := rune(0)
	for i := 0; i < len(r); i += 2 {
		if next < r[i] {
			out = append(out, next, r[i]-1)
		}
		next = r[i+1] + 1
	}
	if next <= utf8.MaxRune {
		out = append(out, next, utf8.MaxRune)
	}
	return out
}

// within returns the part of r from lo to hi.
func (r runes) within(lo, hi rune) (rest runes) {
	for i := 0; i < len(r); i += 2 {
		if a, b := max(r[i], lo), min(r[i+1], hi); a <= b {
			rest = append(rest, a, b)
		}
	}
	return rest
}

// utf8 returns a character of r, in UTF-8.
func (t *termTable) utf8(r runes) *term {
	return t.intern("", r, func() *term { return newUTF8(t, r) })
}

// intern returns a class of characters in a spelling, and calls make at the first request.
func (t *termTable) intern(spelling string, r runes, make func() *term) *term {
	t.burn(1 + len(r)/8)
	key := []byte(spelling)
	for _, c := range r {
		key = binary.LittleEndian.AppendUint32(key, uint32(c))
	}
	x := t.chars[string(key)]
	if x == nil {
		x = make()
		t.chars[string(key)] = x
	}
	return x
}

func newUTF8(t *termTable, r runes) *term {
	var list []*term
	for i := 0; i < len(r); i += 2 {
		for _, part := range [][2]rune{{max(r[i], 0), min(r[i+1], surrogateMin-1)},
			{max(r[i], surrogateMax+1), min(r[i+1], utf8.MaxRune)}} {
			list = appendSpans(t, list, part[0], part[1])
		}
	}
	return t.or(list...)
}

// appendSpans adds the characters from lo to hi, in ranges with bytes independent of each other.
func appendSpans(t *termTable, list []*term, lo, hi rune) []*term {
	if lo > hi {
		return list
	}
	for n := 1; n < utf8.UTFMax; n++ { // of equal length
		if most := rune(1)<<(5*n+1) - 1; n > 1 && lo <= most && most < hi {
			return appendSpans(t, appendSpans(t, list, lo, most), most+1, hi)
		} else if n == 1 && lo <= 0x7f && 0x7f < hi {
			return appendSpans(t, appendSpans(t, list, lo, 0x7f), 0x80, hi)
		}
	}
	if hi <= 0x7f {
		return append(list, t.class(span(byte(lo), byte(hi))))
	}
	for n := 1; n < utf8.UTFMax; n++ { // whole blocks of the last n bytes
		if mask := rune(1)<<(6*n) - 1; lo&^mask != hi&^mask {
			if lo&mask != 0 {
				return appendSpans(t, appendSpans(t, list, lo, lo|mask), (lo|mask)+1, hi)
			}
			if hi&mask != mask {
				return appendSpans(t, appendSpans(t, list, lo, hi&^mask-1), hi&^mask, hi)
			}
		}
	}
	var a, b [utf8.UTFMax]byte
	n := utf8.EncodeRune(a[:], lo)
	utf8.EncodeRune(b[:], hi)
	x := t.unit
	for i := n - 1; i >= 0; i-- {
		x = t.cat(t.class(span(a[i], b[i])), x)
	}
	return append(list, x)
}

// anyRune is every character.
var anyRune = runes{0, utf8.MaxRune}
