package tokenizer

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Unigram is the value of tokenizer.ggml.model for unigram models of SentencePiece.
const Unigram = "t5"

// unknownPenalty is how much less than the least score an unknown character has.
const unknownPenalty = 10

// A unigram model cuts text into the pieces with the largest sum of scores, logarithms of probabilities. (Unigram of
// the tokenizers library; Kudo 2018, arXiv:1804.10959)
type unigram struct {
	words    bool    // text is cut at white space first
	cut      bool    // and before each ▁
	prefix   prepend // of words, or of all text: prependNever, prependPiece or prependFirst
	bytes    bool    // unknown text becomes bytes, where each has a token
	unknown  int32
	penalty  float64 // score of an unknown character
	trie     trie
	scores   []float64
	charsmap []byte // as in the file
	nfkc     bool   // text is brought into NFKC
	other    bool   // or into NFC
	collapse bool   // a run of spaces becomes a single space
}

// newUnigram indexes a vocabulary of tokens with scores. Of tokens with equal text the last counts.
func newUnigram(tokens []token, scores []float64, unknown int, u *unigram) (*Tokenizer, error) {
	if unknown < 0 || unknown >= len(tokens) {
		return nil, fmt.Errorf("the unknown token %d is outside a vocabulary of %d", unknown, len(tokens))
	}
	tokens[unknown].kind = Unknown
	last := make(map[string]int, len(tokens))
	for i, k := range tokens {
		last[k.text] = i
	}
	for i, k := range tokens {
		if l := last[k.text]; l != i && k.kind == Normal {
			tokens[i].kind = tokens[l].kind
		}
	}
	t, err := indexVocabulary(tokens, true)
	if err != nil {
		return nil, err
	}
	least := math.Inf(1)
	for i, s := range scores {
		if s != s || math.IsInf(s, 0) {
			return nil, fmt.Errorf("token %d: its score is %v", i, s)
		}
		if tokens[i].kind != Unused {
			least = min(least, s)
		}
	}
	for b := range 256 {
		t.bytes[b] = -1
		if id, ok := t.ids[fmt.Sprintf("<0x%02X>", b)]; ok {
			t.bytes[b] = id
			if u.bytes && tokens[id].kind == Normal {
				tokens[id].kind = Byte
			}
		}
	}
	u.unknown, u.penalty, u.scores = int32(unknown), least-unknownPenalty, scores
	for text, id := range t.ids {
		if tokens[id].kind.isText() {
			u.trie.words = append(u.trie.words, &word{text, id})
		}
	}
	u.trie.build()
	t.uni, t.widest = u, anyWidth
	if u.prefix != prependNever {
		t.norm.prepend = u.prefix // for decoding
	}
	return t, nil
}

// A trie finds the words at the beginning of a text.
type trie struct {
	words []*word // sorted
	nodes []trieNode
}

type word struct {
	text string
	id   int32
}

// A trieNode has the children nodes[first:first+count], by their bytes.
type trieNode struct {
	first, id int32 // id is -1 inside words
	count     int16
	label     byte
}

// build makes the nodes level by level, each of a run of words with a common beginning.
func (t *trie) build() {
	slices.SortFunc(t.words, func(a, b *word) int { return cmp.Compare(a.text, b.text) })
	type run struct{ from, to, depth int }
	runs := []run{{0, len(t.words), 0}}
	t.nodes = []trieNode{{id: -1}}
	for n := 0; n < len(runs); n++ { // runs[n] belongs to nodes[n]
		r := runs[n]
		if r.from < r.to && len(t.words[r.from].text) == r.depth {
			t.nodes[n].id = t.words[r.from].id
			r.from++
		}
		t.nodes[n].first = int32(len(t.nodes))
		for from := r.from; from < r.to; {
			label, to := t.words[from].text[r.depth], from+1
			for to < r.to && t.words[to].text[r.depth] == label {
				to++
			}
			t.nodes = append(t.nodes, trieNode{id: -1, label: label})
			runs = append(runs, run{from, to, r.depth + 1})
			t.nodes[n].count++
			from = to
		}
	}
	t.words = nil
}

// child returns the node behind label, 0 for none.
func (t *trie) child(n int32, label byte) int32 {
	first := t.nodes[n].first
	list := t.nodes[first : first+int32(t.nodes[n].count)]
	if i, ok := slices.BinarySearchFunc(list, label,
		func(k trieNode, b byte) int { return cmp.Compare(k.label, b) }); ok {
		return first + int32(i)
	}
	return 0
}

// unigram appends the ids of normalized text; first marks the beginning of the whole text.
func (e *encoder) unigram(s string, first bool) {
	u := e.t.uni
	if !u.words {
		e.spaced(strings.ReplaceAll(s, " ", space), first)
		return
	}
	begin := 0
	for i := 0; i < len(s) && e.hasRoom() && e.spend(1); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if unicode.IsSpace(r) {
			e.spaced(s[begin:i], first && begin == 0)
			begin = i + n
		}
		i += n
	}
	e.spaced(s[begin:], first && begin == 0)
}

// spaced appends the ids of a piece of text with ▁ for spaces. (Metaspace of the tokenizers library)
func (e *encoder) spaced(s string, first bool) {
	u := e.t.uni
	if s == "" {
		return
	}
	if (u.prefix == prependPiece || u.prefix == prependFirst && first) && !strings.HasPrefix(s, space) {
		s = space + s
	}
	for s != "" && e.hasRoom() {
		n := len(s)
		if u.cut {
			if i := strings.Index(s[1:], space); i >= 0 {
				n = i + 1
			}
		}
		e.best(s[:n])
		s = s[n:]
	}
}

// A step is the best way to a place of a word.
type pathStep struct {
	score    float64
	from, id int32 // from is -1 where there is no way
}

// best appends the ids of a word, along the best way from its beginning to its end. Of equal ways to a place the way
// with the earliest last piece counts.
func (e *encoder) best(s string) {
	u := e.t.uni
	if len(s) > math.MaxInt32-1 {
		e.err = ErrMost
		return
	}
	path := slices.Grow(e.path[:0], len(s)+1)[:len(s)+1]
	for i := range path {
		path[i] = pathStep{from: -1}
	}
	for i := 0; i < len(s) && e.spend(1); {
		_, size := utf8.DecodeRuneInString(s[i:])
		single := false
		for n, at := int32(0), i; at < len(s) && e.spend(1); at++ {
			if n = u.trie.child(n, s[at]); n == 0 {
				break
			}
			if id := u.trie.nodes[n].id; id >= 0 {
				path[at+1].reach(path[i].score+u.scores[id], i, id)
				single = single || at+1 == i+size
			}
		}
		if !single {
			path[i+size].reach(path[i].score+u.penalty, i, u.unknown)
		}
		i += size
	}
	e.path = path
	if e.err == nil {
		e.walk(s)
	}
}

// reach replaces the way to a place by a better way.
func (p *pathStep) reach(score float64, from int, id int32) {
	if p.from < 0 || score > p.score {
		*p = pathStep{score, int32(from), id}
	}
}

// walk appends the ids of the best way. Adjacent unknown characters are a single token.
func (e *encoder) walk(s string) {
	u, ends := e.t.uni, e.ends[:0]
	for at := int32(len(s)); at > 0; at = e.path[at].from {
		ends = append(ends, at)
	}
	e.ends = ends
	for i := len(ends) - 1; i >= 0; i-- {
		p := e.path[ends[i]]
		if p.id != u.unknown {
			e.add(p.id)
			continue
		}
		for i > 0 && e.path[ends[i-1]].id == u.unknown {
			i--
		}
		e.unknown(s[p.from:ends[i]])
	}
}

// unknown appends the id, or the bytes, of text without pieces.
func (e *encoder) unknown(s string) {
	u := e.t.uni
	if u.bytes {
		known := true
		for _, b := range []byte(s) {
			known = known && e.t.bytes[b] >= 0
		}
		if known {
			for _, b := range []byte(s) {
				e.add(e.t.bytes[b])
			}
			return
		}
	}
	e.add(u.unknown)
}

// A rule is a step of changing text before the cut into pieces.
type rule func(s string, w *watch) string

// collapseSpaces replaces several spaces by a single space, spelled to.
func collapseSpaces(to string) rule {
	return func(s string, w *watch) string {
		if !strings.Contains(s, "  ") {
			return s
		}
		var out strings.Builder
		out.Grow(len(s))
		for i := 0; i < len(s) && w.spend(1); {
			n := 0
			for i+n < len(s) && s[i+n] == ' ' && w.spend(1) {
				n++
			}
			switch {
			case n > 1:
				out.WriteString(to)
			default:
				n = 1
				out.WriteByte(s[i])
			}
			i += n
		}
		return out.String()
	}
}

// trimmed strips white space on either side.
func trimmed(left, right bool) rule {
	return func(s string, _ *watch) string {
		if left {
			s = strings.TrimLeftFunc(s, unicode.IsSpace)
		}
		if right {
			s = strings.TrimRightFunc(s, unicode.IsSpace)
		}
		return s
	}
}

// unigram makes the tokenizer of a tokenizer.json whose model is Unigram.
func (f *jsonFile) unigram(c *config) (*Tokenizer, error) {
	u := &unigram{bytes: f.Model.ByteFallback}
	rules, err := f.unigramRules(u)
	if err == nil {
		err = f.unigramWords(u)
	}
	var p pipeline
	for _, s := range flatten(f.Decoder, func(s *jsonStep) []jsonStep { return s.Decoders }) {
		if err == nil {
			err = p.decoder(&s)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	if f.Model.UnknownID == nil {
		return nil, errors.New(
			"tokenizer.json: model: unk_id is missing: a Unigram model without an unknown token is not supported")
	}
	tokens, added, err := f.tokens(c)
	if err != nil {
		return nil, err
	}
	scores := make([]float64, len(tokens))
	for _, k := range f.Model.Vocab {
		scores[k.id] = k.score
	}
	for i := len(f.Model.Vocab); i < len(tokens); i++ { // added tokens, never made of text
		if tokens[i].kind == Normal {
			return nil, fmt.Errorf("tokenizer.json: token %d: %q has no score", i, tokens[i].text)
		}
	}
	t, err := newUnigram(tokens, scores, *f.Model.UnknownID, u)
	if err != nil {
		return nil, err
	}
	t.norm.rules = rules
	setAdded(t, added)
	t.widest = anyWidth
	return t, nil
}

// unigramRules returns the normalizer's steps.
func (f *jsonFile) unigramRules(u *unigram) (rules []rule, err error) {
	for _, s := range flatten(f.Normalizer, func(s *jsonStep) []jsonStep { return s.Normalizers }) {
		switch {
		case s.Type == "Precompiled":
			if s.CharsMap == nil {
				continue
			}
			m, err := newCharsMap(s.CharsMap)
			if err != nil {
				return nil, fmt.Errorf("normalizer: %w", err)
			}
			if u.charsmap != nil || len(rules) > 0 {
				return nil, errors.New("normalizer: type Precompiled after other steps is not supported")
			}
			u.charsmap, rules = s.CharsMap, append(rules, m.apply)
		case s.Type == "NFKC" && len(rules) == 0:
			u.nfkc, rules = true, append(rules, nfkc)
		case s.Type == "NFC" && len(rules) == 0:
			u.other, rules = true, append(rules, nfc)
		case s.Type == "Strip":
			rules = append(rules, trimmed(s.StripLeft, s.StripRight))
		case s.Type == "Replace" && s.Pattern.Regex != nil && *s.Pattern.Regex == " {2,}" &&
			(s.Content == " " || s.Content == space):
			u.collapse, rules = true, append(rules, collapseSpaces(s.Content))
		case s.Type == "Replace":
			return nil, fmt.Errorf("normalizer: a Replace of %s by %q is not supported", s.pattern(), s.Content)
		default:
			return nil, fmt.Errorf("normalizer: type %q is not supported for Unigram", s.Type)
		}
	}
	return rules, nil
}

// unigramWords reads the rules that cut text before it becomes pieces.
func (f *jsonFile) unigramWords(u *unigram) error {
	spaces := false
	for _, s := range flatten(f.PreTokenizer, func(s *jsonStep) []jsonStep { return s.PreTokenizers }) {
		switch {
		case s.Type == "WhitespaceSplit" && !spaces:
			u.words = true
		case s.Type == "Metaspace" && !spaces:
			var p pipeline
			if err := p.metaspace(&s); err != nil {
				return fmt.Errorf("pre_tokenizer: %w", err)
			}
			u.cut, u.prefix, spaces = p.cut, p.norm.prepend, true
		default:
			return fmt.Errorf("pre_tokenizer: type %q is not supported here", s.Type)
		}
	}
	if !spaces {
		return errors.New("pre_tokenizer: Unigram without Metaspace is not supported")
	}
	return nil
}

// unigram makes the tokenizer of GGUF's metadata. Where SentencePiece merges spaces, text is cut into words at white
// space, as in transformers' tokenizers of these models.
func (g GGUF) unigram(tokens []token) (*Tokenizer, error) {
	if g.UNK == nil {
		return nil, errors.New("tokenizer.ggml.unknown_token_id: missing")
	}
	u := &unigram{charsmap: g.CharsMap, words: flagOr(g.MergeSpaces, true), cut: true, prefix: prependNever}
	if flagOr(g.AddSpacePrefix, true) {
		u.prefix = prependPiece
	}
	var rules []rule
	if g.CharsMap != nil {
		m, err := newCharsMap(g.CharsMap)
		if err != nil {
			return nil, fmt.Errorf("tokenizer.ggml.%w", err)
		}
		rules = append(rules, m.apply)
	}
	if u.nfkc = flagOr(g.NFKC, false); u.nfkc {
		rules = append(rules, nfkc)
	}
	for _, k := range tokens {
		u.bytes = u.bytes || k.kind == Byte
	}
	scores := make([]float64, len(g.Scores))
	for i, s := range g.Scores {
		scores[i] = float64(s)
	}
	t, err := newUnigram(tokens, scores, *g.UNK, u)
	if err != nil {
		return nil, err
	}
	t.norm.rules = rules
	if rules == nil {
		t.norm.rules = []rule{}
	}
	setAdded(t, slices.DeleteFunc(g.added(tokens), func(a addedToken) bool { return t.ids[tokens[a.id].text] != a.id }))
	t.widest = anyWidth
	g.useClassified()
	return t, setGGUFIDs(t, g, g.CLS != nil)
}

// setUnigram undoes unigram.
func (g *GGUF) setUnigram(t *Tokenizer) (notes []string, err error) {
	u := t.uni
	switch {
	case u.prefix == prependFirst, u.other:
		return nil, errors.New(
			"tokenizer.json: GGUF has no key for a Metaspace of the first word alone, or for NFC before Unigram")
	case !u.words && !u.collapse:
		words := false
		g.MergeSpaces = &words
	default:
		words := true
		g.MergeSpaces = &words
	}
	if u.nfkc {
		g.NFKC = &u.nfkc
		notes = append(notes, "normalizer NFKC: GGUF has no key for it that other programs read")
	}
	prefix := u.prefix != prependNever
	g.Model, g.Pre, g.CharsMap, g.AddSpacePrefix = Unigram, "default", u.charsmap, &prefix
	for i, k := range t.tokens {
		g.Tokens, g.Types, g.Scores = append(g.Tokens, k.text), append(g.Types, int32(k.kind)),
			append(g.Scores, float32(u.scores[i]))
	}
	return notes, nil
}

// unigramJSON returns the model of a tokenizer.json, where a token's place in the list is its id. Padding at the end is
// left out.
func (g *GGUF) unigramJSON(t *Tokenizer) (object, error) {
	tokens := t.tokens
	for len(tokens) > 0 && tokens[len(tokens)-1].kind == Unused {
		tokens = tokens[:len(tokens)-1]
	}
	vocab := make([][2]any, len(tokens))
	for i, k := range tokens {
		switch {
		case k.kind == Unused:
			return nil, fmt.Errorf(
				"tokenizer.ggml.token_type: token %d (%q) is unused: a tokenizer.json of Unigram has none that text "+
					"does not become", i, k.text)
		case k.kind == UserDefined && strings.ContainsAny(k.text, " "+space):
			return nil, fmt.Errorf(
				"tokenizer.ggml.token_type: token %d (%q) is user-defined: an added token of Unigram has no spaces",
				i, k.text)
		}
		vocab[i] = [2]any{k.text, t.uni.scores[i]}
	}
	return object{"type": "Unigram", "unk_id": t.uni.unknown, "byte_fallback": t.uni.bytes, "vocab": vocab}, nil
}

// normJSON returns a tokenizer.json's normalizer.
func (u *unigram) normJSON() any {
	var steps []any
	if u.charsmap != nil {
		steps = append(steps, object{"type": "Precompiled", "precompiled_charsmap": u.charsmap})
	}
	if u.nfkc {
		steps = append(steps, object{"type": "NFKC"})
	}
	return sequence("normalizers", steps...)
}

// preJSON returns a tokenizer.json's pre-tokenizer.
func (u *unigram) preJSON() any {
	var steps []any
	if u.words {
		steps = append(steps, object{"type": "WhitespaceSplit"})
	}
	scheme := "always"
	if u.prefix == prependNever {
		scheme = "never"
	}
	return sequence("pretokenizers", append(steps, object{"type": "Metaspace", "replacement": space,
		"prepend_scheme": scheme, "split": true})...)
}
