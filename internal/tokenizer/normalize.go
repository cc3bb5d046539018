package tokenizer

import "strings"

// space is what character-level vocabularies write for a space, U+2581.
const space = "▁"

// A prepend says where a space is put before the text.
type prepend int

const (
	prependNever prepend = iota
	// prependSegment: before all text between added tokens (the normalizer Prepend;
	// SentencePiece's add_dummy_prefix).
	prependSegment
	// prependPiece: the same, unless a space is there already (the pre-tokenizer
	// Metaspace, always).
	prependPiece
	// prependFirst: the same at the beginning of the whole text only (Metaspace, first).
	prependFirst
)

// A normalizer rewrites the text between added tokens.
type normalizer struct {
	nfc     bool
	escape  bool // spaces become ▁
	prepend prepend
}

// segment normalizes text before the search for normalized added tokens.
func (n normalizer) segment(s string) string {
	if s == "" {
		return s
	}
	if n.nfc {
		s = nfc(s)
	}
	if n.prepend == prependSegment {
		s = space + s
	}
	if n.escape {
		s = strings.ReplaceAll(s, " ", space)
	}
	return s
}

// piece puts Metaspace's prefix before a piece of normalized text; first says
// that the piece begins the text.
func (n normalizer) piece(s string, first bool) string {
	if s != "" && (n.prepend == prependPiece || n.prepend == prependFirst && first) && !strings.HasPrefix(s, space) {
		return space + s
	}
	return s
}
