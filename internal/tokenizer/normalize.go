package tokenizer

import "strings"

// space is what character-level vocabularies write for a space, U+2581.
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
	rules   []rule // Unigram, whose steps these are all
}

// segment normalizes text before the search for normalized added tokens. It ends early where w does.
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
	for len(s) > 0 && spaces > 0 && w.did(1) {
		i := strings.IndexByte(s, ' ')
		out.WriteString(s[:i])
		out.WriteString(space)
		s, spaces = s[i+1:], spaces-1
	}
	out.WriteString(s)
	return out.String()
}

// piece puts the prefix of Metaspace or ByteLevel before a piece of normalized text; first says that the piece begins
// the text.
func (n normalizer) piece(s string, first bool) string {
	if s != "" && n.prepend == prependSpace && s[0] != ' ' {
		return " " + s
	}
	if s != "" && (n.prepend == prependPiece || n.prepend == prependFirst && first) && !strings.HasPrefix(s, space) {
		return space + s
	}
	return s
}
