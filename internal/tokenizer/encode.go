package tokenizer

import (
	"sort"
	"unicode/utf8"
)

// An encoder encodes one text.
type encoder struct {
	t      *Tokenizer
	o      Options
	out    []int
	merger merger
}

// encode appends the ids of text: added tokens are cut out first, then what is
// between them is normalized, searched again, split and merged.
func (e *encoder) encode(text string) {
	t := e.t
	t.raw.split(text, e.special, func(s string, id int32, at int) {
		if id >= 0 {
			e.out = append(e.out, int(id))
			return
		}
		first := at == 0
		whole := e.special(at, at+len(s)) // places in the normalized text are not those in text
		t.cooked.split(t.norm.segment(s), func(int, int) bool { return whole }, func(s string, id int32, at int) {
			if id >= 0 {
				e.out = append(e.out, int(id))
				return
			}
			e.text(t.norm.piece(s, first && at == 0))
		})
	})
}

// special reports whether the name of a special token at text[from:to] stands
// for the token.
func (e *encoder) special(from, to int) bool {
	if !e.o.ParseSpecial {
		return false
	}
	l := e.o.Literal
	i := sort.Search(len(l), func(i int) bool { return l[i].To > from })
	return i == len(l) || l[i].From >= to
}

// text appends the ids of normalized text.
func (e *encoder) text(s string) {
	if e.t.byteLevel {
		e.split(s, e.t.stages)
		return
	}
	for len(s) > 0 {
		n := e.t.joints.next(s)
		e.word(s[:n])
		s = s[n:]
	}
}

// split runs the pre-tokenizer's stages, each on the pieces of the one before.
func (e *encoder) split(s string, stages []splitter) {
	if len(stages) == 0 {
		e.word(s)
		return
	}
	for len(s) > 0 {
		n := stages[0](s)
		e.split(s[:n], stages[1:])
		s = s[n:]
	}
}

// Values of Tokenizer.whole.
const (
	untried = iota
	isWhole
	isMerged
)

// word appends the ids of a word: no merge crosses its borders.
func (e *encoder) word(s string) {
	if len(s) == 0 {
		return
	}
	t := e.t
	id, known := int32(0), false
	if len(s) <= t.longest {
		id, known = t.words[s]
	}
	state := uint32(untried)
	if known {
		if state = isWhole; !t.allWhole {
			state = t.whole[id].Load()
		}
		if state == isWhole {
			e.out = append(e.out, int(id))
			return
		}
	}
	e.symbols(s)
	e.merger.merge(&t.pairs)
	if known && state == untried {
		state = isMerged
		if len(e.merger.ids) == 1 && e.merger.ids[0] == id {
			state = isWhole
		}
		t.whole[id].Store(state)
	}
	e.emit()
}

// symbols fills the merger with what merging begins with: bytes, or characters
// and for characters without a symbol their bytes.
func (e *encoder) symbols(s string) {
	t := e.t
	ids := e.merger.ids[:0]
	if t.byteLevel {
		for i := range len(s) {
			ids = t.appendByte(ids, s[i])
		}
		e.merger.ids = ids
		return
	}
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if id, ok := t.runes[r]; ok && (r != utf8.RuneError || n > 1) {
			ids = append(ids, id)
		} else {
			for _, b := range []byte(s[i : i+n]) {
				ids = append(ids, t.bytes[b])
			}
		}
		i += n
	}
	e.merger.ids = ids
}

// appendByte appends a byte's token. Bytes that no UTF-8 text has may be absent
// from a vocabulary: then U+FFFD stands for them.
func (t *Tokenizer) appendByte(ids []int32, b byte) []int32 {
	if id := t.bytes[b]; id >= 0 {
		return append(ids, id)
	}
	for _, c := range []byte(string(utf8.RuneError)) {
		ids = append(ids, t.bytes[c])
	}
	return ids
}

// emit appends what merging has left. A character that only takes part in
// merges, having no token itself, comes out as its bytes.
func (e *encoder) emit() {
	t := e.t
	for _, id := range e.merger.ids {
		if int(id) < len(t.tokens) {
			e.out = append(e.out, int(id))
			continue
		}
		for _, b := range []byte(t.letters[int(id)-len(t.tokens)]) {
			e.out = append(e.out, int(t.bytes[b]))
		}
	}
}
