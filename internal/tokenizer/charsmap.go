package tokenizer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a charsMap. SentencePiece's usual one, nmt_nfkc, has 240 kB, and replaces a character by 33 bytes at most.
const (
	maxCharsMap    = 16 << 20
	maxReplacement = 1 << 10
)

// A charsMap is SentencePiece's precompiled_charsmap: characters, and what they are replaced by.
//
// It is the number of bytes of a trie, that trie as a double array of 32-bit units, and the replacements, each of which
// ends with a zero byte. (Darts-clone's DoubleArray; normalizer.cc of SentencePiece)
type charsMap struct {
	units []uint32
	to    string
}

// newCharsMap reads a charsmap. Units that lead out of the array are no error: they match nothing.
func newCharsMap(b []byte) (*charsMap, error) {
	if len(b) > maxCharsMap {
		return nil, fmt.Errorf("precompiled_charsmap: %d bytes, at most %d are supported", len(b), maxCharsMap)
	}
	if len(b) < 4 {
		return nil, fmt.Errorf("precompiled_charsmap: %d bytes, want 4 of a length at least", len(b))
	}
	size, b := binary.LittleEndian.Uint32(b), b[4:]
	if size%4 != 0 || size == 0 || uint64(size) > uint64(len(b)) {
		return nil, fmt.Errorf("precompiled_charsmap: a trie of %d bytes, want a multiple of 4 up to the %d that follow",
			size, len(b))
	}
	c := &charsMap{units: make([]uint32, size/4), to: string(b[size:])}
	for i := range c.units {
		c.units[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	if !utf8.ValidString(c.to) {
		return nil, errors.New("precompiled_charsmap: its replacements are not UTF-8")
	}
	for rest, at := c.to, 0; rest != ""; {
		one, after, _ := strings.Cut(rest, "\x00")
		if len(one) > maxReplacement {
			return nil, fmt.Errorf("precompiled_charsmap: replacement at byte %d: %d bytes, at most %d are supported", at,
				len(one), maxReplacement)
		}
		rest, at = after, at+len(one)+1
	}
	return c, nil
}

// replacement returns what stands for a piece of text, which the shortest match of its beginning says.
func (c *charsMap) replacement(s string) (string, bool) {
	at := offset(c.units[0])
	for i := 0; i < len(s) && s[i] != 0; i++ {
		at ^= uint32(s[i])
		if int64(at) >= int64(len(c.units)) {
			return "", false
		}
		unit := c.units[at]
		if unit&(1<<31|0xFF) != uint32(s[i]) {
			return "", false
		}
		at ^= offset(unit)
		if unit>>8&1 == 0 {
			continue
		}
		if int64(at) >= int64(len(c.units)) {
			return "", false
		}
		to := int(c.units[at] & (1<<31 - 1))
		if to > len(c.to) || to < len(c.to) && !utf8.RuneStart(c.to[to]) { // which would begin within a character
			return "", false
		}
		text, _, _ := strings.Cut(c.to[to:], "\x00")
		return text, true
	}
	return "", false
}

// firstRune returns how many bytes the first character of s has, or of bytes that are no character.
func firstRune(s string) int {
	_, n := utf8.DecodeRuneInString(s)
	return n
}

// offset returns the difference between a unit's place and those of its children.
func offset(unit uint32) uint32 { return unit >> 10 << (unit & (1 << 9) >> 6) }

// wholeCluster is how many bytes a cluster of characters has at most that is looked up as one.
const wholeCluster = 5

// apply replaces what the map says of text: a short cluster of characters as one, if its beginning is there, and else
// each character. It is what the tokenizers library does; SentencePiece itself takes the longest match, wherever it
// ends.
func (c *charsMap) apply(s string, w *watch) string {
	var out strings.Builder
	out.Grow(len(s))
	for len(s) > 0 && w.did(1) {
		n := cluster(s, w)
		if n <= wholeCluster {
			if to, ok := c.replacement(s[:n]); ok {
				out.WriteString(to)
				s = s[n:]
				continue
			}
		}
		for part := s[:n]; len(part) > 0 && w.did(1); {
			k := firstRune(part)
			if to, ok := c.replacement(part[:k]); ok {
				out.WriteString(to)
			} else {
				out.WriteString(part[:k])
			}
			part = part[k:]
		}
		s = s[n:]
	}
	return out.String()
}

// cluster returns the length of the first grapheme cluster of s, by UAX 29. Flags, emoji that joiners connect and Indic
// conjuncts are cut: they are longer than wholeCluster, and their parts are looked up one by one all the same.
func cluster(s string, w *watch) int {
	if len(s) > 1 && s[0] < utf8.RuneSelf && s[1] < utf8.RuneSelf { // the usual case
		if s[0] == '\r' && s[1] == '\n' {
			return 2
		}
		return 1
	}
	r, n := utf8.DecodeRuneInString(s)
	before := breakOf(r)
	for n < len(s) && before != breakControl && w.did(1) {
		r, k := utf8.DecodeRuneInString(s[n:])
		after := breakOf(r)
		if r == utf8.RuneError && k == 1 || !joins(before, after) {
			break
		}
		before, n = after, n+k
	}
	return n
}

// A breakClass is what UAX 29 says of a character's borders.
type breakClass uint8

const (
	breakAny breakClass = iota
	breakControl
	breakExtend // marks, and joiners
	breakPrepend
	hangulL
	hangulV
	hangulT
	hangulLV
	hangulLVT
)

// joins reports whether there is no border between two characters.
func joins(a, b breakClass) bool {
	switch {
	case b == breakControl:
		return false
	case b == breakExtend, a == breakPrepend:
		return true
	}
	switch a {
	case hangulL:
		return b == hangulL || b == hangulV || b == hangulLV || b == hangulLVT
	case hangulLV, hangulV:
		return b == hangulV || b == hangulT
	case hangulLVT, hangulT:
		return b == hangulT
	}
	return false
}

func breakOf(r rune) breakClass {
	switch {
	case r < 0x300:
		if r < ' ' || r >= 0x7F && r < 0xA0 || r == 0xAD {
			return breakControl
		}
		return breakAny
	case r >= 0x1100 && r < 0x1160, r >= 0xA960 && r < 0xA97D:
		return hangulL
	case r >= 0x1160 && r < 0x11A8, r >= 0xD7B0 && r < 0xD7C7:
		return hangulV
	case r >= 0x11A8 && r < 0x1200, r >= 0xD7CB && r < 0xD7FC:
		return hangulT
	case r >= 0xAC00 && r < 0xD7A4 && (r-0xAC00)%28 == 0:
		return hangulLV
	case r >= 0xAC00 && r < 0xD7A4:
		return hangulLVT
	case r == 0x0D4E, unicode.Is(unicode.Prepended_Concatenation_Mark, r):
		return breakPrepend
	case r == 0x200D, r == 0x0E33, r == 0x0EB3, r >= 0x1F3FB && r <= 0x1F3FF,
		unicode.In(r, unicode.M, unicode.Other_Grapheme_Extend):
		return breakExtend
	case unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp):
		return breakControl
	}
	return breakAny
}
