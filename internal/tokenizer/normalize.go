package tokenizer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// space stands for a space in character-level vocabularies, U+2581.
const space = "▁"

// A prepend says where a space is put before the text.
type prepend int

const (
	prependNever prepend = iota
	// prependSegment: before all text between added tokens (the normalizer Prepend; SentencePiece's add_dummy_prefix).
	prependSegment
	// prependPiece: the same, unless a space is there already (the pre-tokenizer Metaspace, always).
	prependPiece
	// prependFirst: the same at the beginning of the whole text only (Metaspace, first).
	prependFirst
	// prependSpace: as prependPiece, of a byte-level tokenizer (ByteLevel's add_prefix_space).
	prependSpace
)

// A normalizer rewrites the text between added tokens.
type normalizer struct {
	nfc     bool
	nfkc    bool // in place of nfc
	escape  bool // spaces become ▁
	prepend prepend
	rules   []rule // Unigram, all of its steps
}

// segment normalizes text before the search for normalized added tokens. The work ends early if w does.
func (n normalizer) segment(s string, w *watch) string {
	if s == "" {
		return s
	}
	if n.rules != nil {
		for _, r := range n.rules {
			s = r(s, w)
		}
		return s
	}
	switch {
	case n.nfc:
		s = nfc(s, w)
	case n.nfkc:
		s = nfkc(s, w)
	}
	spaces := 0
	if n.escape {
		spaces = strings.Count(s, " ")
	}
	if spaces == 0 && n.prepend != prependSegment {
		return s
	}
	var out strings.Builder
	out.Grow(len(s) + (spaces+1)*len(space)) // at once: a text may be large
	if n.prepend == prependSegment {
		out.WriteString(space)
	}
	for len(s) > 0 && spaces > 0 && w.spend(1) {
		i := strings.IndexByte(s, ' ')
		out.WriteString(s[:i])
		out.WriteString(space)
		s, spaces = s[i+1:], spaces-1
	}
	out.WriteString(s)
	return out.String()
}

// piece puts the prefix of Metaspace or ByteLevel before a piece of normalized text; first marks the piece at the
// text's beginning.
func (n normalizer) piece(s string, first bool) string {
	if s != "" && n.prepend == prependSpace && s[0] != ' ' {
		return " " + s
	}
	if s != "" && (n.prepend == prependPiece || n.prepend == prependFirst && first) && !strings.HasPrefix(s, space) {
		return space + s
	}
	return s
}

// nfc returns the text in Unicode's Normalization Form C (UAX 15). Bytes that are no UTF-8 stay. The work ends early if
// w does.
func nfc(s string, w *watch) string { return normalForm(norm.NFC, norm.NFD, 0xCC, s, w) } // U+0300 begins with 0xCC

// nfkc returns the text in Normalization Form KC as nfc does in form C.
func nfkc(s string, w *watch) string { return normalForm(norm.NFKC, norm.NFKD, 0xC2, s, w) } // U+00A0: 0xC2

const (
	// longSegment is the number of characters from which package norm gets no segment: it breaks runs of more than 30
	// combining characters with U+034F (its stream-safe format), which the reference does not. A character decomposes
	// to at most 4 combining ones.
	longSegment = 7
	// formPiece is the number of bytes that package norm gets at once, before the next look at the context.
	formPiece = 4096
)

// normalForm returns the text in a form. Text whose bytes are all below firstLead is in the form already.
func normalForm(form, decomposed norm.Form, firstLead byte, s string, w *watch) string {
	i := 0
	for i < len(s) && s[i] < firstLead && w.spend(1) {
		i++
	}
	if i == len(s) {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s) && w.spend(1); {
		piece := s[i:min(i+formPiece, len(s))]
		if n, _ := form.SpanString(piece, i+len(piece) == len(s)); n > 0 { // in the form already
			out = append(out, piece[:n]...)
			i += n
			w.spend(n)
			continue
		}
		end, size := segment(form, s, i, w)
		if size < longSegment {
			out = form.AppendString(out, s[i:end])
		} else {
			out = appendLong(out, decomposed, s[i:end], w)
		}
		i = end
	}
	return string(out)
}

// segment returns the end of the segment at s[begin:], characters that may act on each other, and their number.
func segment(form norm.Form, s string, begin int, w *watch) (end, size int) {
	for end = begin; end < len(s) && w.spend(1); size++ {
		p := form.PropertiesString(s[end:])
		if size > 0 && p.BoundaryBefore() {
			break
		}
		end += max(p.Size(), 1) // 0 means a character that s cuts
	}
	return end, size
}

// appendLong appends the normal form of a segment.
func appendLong(out []byte, decomposed norm.Form, s string, w *watch) []byte {
	runes := make([]rune, 0, len(s)/2)
	var parts []byte
	for i := 0; i < len(s) && w.spend(1); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError { // a segment begins with the error
			out = append(out, s[i:i+n]...)
		} else {
			parts = decomposed.AppendString(parts[:0], s[i:i+n])
			for j := 0; j < len(parts); j += n {
				r, n = utf8.DecodeRune(parts[j:])
				runes = append(runes, r)
			}
			_, n = utf8.DecodeRuneInString(s[i:])
		}
		i += n
	}
	for i := 0; i < len(runes) && w.spend(1); i++ {
		if combiningClass(runes[i]) != 0 {
			i += sortMarks(runes[i:], w)
		}
	}
	for _, r := range compose(runes, w) {
		out = utf8.AppendRune(out, r)
	}
	return out
}

func combiningClass(r rune) uint8 {
	var b [utf8.UTFMax]byte
	return norm.NFC.Properties(utf8.AppendRune(b[:0], r)).CCC()
}

// sortMarks sorts the leading combining characters of runes by their class, stably, and returns their number.
func sortMarks(runes []rune, w *watch) int {
	var ends [256]int // by class
	n := 0
	for ; n < len(runes) && w.spend(1); n++ {
		class := combiningClass(runes[n])
		if class == 0 {
			break
		}
		ends[class]++
	}
	for c := 1; c < len(ends); c++ {
		ends[c] += ends[c-1]
	}
	old := slices.Clone(runes[:n])
	for i := n - 1; i >= 0 && w.spend(1); i-- {
		class := combiningClass(old[i])
		ends[class]--
		runes[ends[class]] = old[i]
	}
	return n
}

// compose composes characters in canonical order, in place. A character composes with the last starter unless a
// character of its own class or higher stands between.
func compose(runes []rune, w *watch) []rune {
	out := runes[:0]
	starter, last := -1, -1 // index in out; the class of the character between, -1 for none
	var pair []byte
	for _, r := range runes {
		if !w.spend(1) {
			break
		}
		class := int(combiningClass(r))
		if starter >= 0 && last < class {
			pair = norm.NFC.AppendString(pair[:0], string([]rune{out[starter], r}))
			if c, n := utf8.DecodeRune(pair); n == len(pair) {
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

// Bounds of a charsMap. SentencePiece's usual map, nmt_nfkc, has 240 kB, and replaces a character by 33 bytes at most.
const (
	maxCharsMap    = 16 << 20
	maxReplacement = 1 << 10
)

// A charsMap is SentencePiece's precompiled_charsmap: characters and their replacements.
//
// The format is the number of bytes of a trie, the trie as a double array of 32-bit units, and the replacements, each
// ended by a zero byte. (Darts-clone's DoubleArray; normalizer.cc of SentencePiece)
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
		return nil,
			fmt.Errorf("precompiled_charsmap: a trie of %d bytes, want a multiple of 4 up to the %d that follow",
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
			return nil,
				fmt.Errorf("precompiled_charsmap: replacement at byte %d: %d bytes, at most %d are supported", at,
					len(one), maxReplacement)
		}
		rest, at = after, at+len(one)+1
	}
	return c, nil
}

// replacement returns the replacement of a piece of text, by the shortest match of its beginning.
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
		if to > len(c.to) || to < len(c.to) && !utf8.RuneStart(c.to[to]) { // else within a character
			return "", false
		}
		text, _, _ := strings.Cut(c.to[to:], "\x00")
		return text, true
	}
	return "", false
}

// firstRune returns the number of bytes of the first character of s, or of its leading bytes that are no character.
func firstRune(s string) int {
	_, n := utf8.DecodeRuneInString(s)
	return n
}

// offset returns the difference between a unit's place and its children's.
func offset(unit uint32) uint32 { return unit >> 10 << (unit & (1 << 9) >> 6) }

// wholeCluster is the maximal number of bytes of a cluster of characters that is looked up as a whole.
const wholeCluster = 5

// apply replaces text by the map: a short cluster of characters as a whole, if its beginning is in the map, and else
// each character. The tokenizers library does so; SentencePiece itself takes the longest match, wherever the match
// ends.
func (c *charsMap) apply(s string, w *watch) string {
	var out strings.Builder
	out.Grow(len(s))
	for len(s) > 0 && w.spend(1) {
		n := cluster(s, w)
		if n <= wholeCluster {
			if to, ok := c.replacement(s[:n]); ok {
				out.WriteString(to)
				s = s[n:]
				continue
			}
		}
		for part := s[:n]; len(part) > 0 && w.spend(1); {
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

// cluster returns the length of the first grapheme cluster of s, by UAX 29. Flags, emoji joined by joiners and Indic
// conjuncts are cut: they are longer than wholeCluster, so their parts are looked up separately anyway.
func cluster(s string, w *watch) int {
	if len(s) > 1 && s[0] < utf8.RuneSelf && s[1] < utf8.RuneSelf { // the usual case
		if s[0] == '\r' && s[1] == '\n' {
			return 2
		}
		return 1
	}
	r, n := utf8.DecodeRuneInString(s)
	before := breakOf(r)
	for n < len(s) && before != breakControl && w.spend(1) {
		r, k := utf8.DecodeRuneInString(s[n:])
		after := breakOf(r)
		if r == utf8.RuneError && k == 1 || !joins(before, after) {
			break
		}
		before, n = after, n+k
	}
	return n
}

// A breakClass is UAX 29's class of a character's borders.
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
