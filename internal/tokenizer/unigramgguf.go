package tokenizer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// unigram makes the tokenizer of GGUF's metadata. Where SentencePiece merges spaces, text is cut into words at white
// space, as transformers' tokenizers of these models do.
func (g GGUF) unigram(tokens []token) (*Tokenizer, error) {
	if g.UNK == nil {
		return nil, errors.New("tokenizer.ggml.unknown_token_id: missing")
	}
	u := &unigram{charsmap: g.CharsMap, words: is(g.MergeSpaces, true), cut: true, prefix: prependNever}
	if is(g.AddSpacePrefix, true) {
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
	if u.nfkc = is(g.NFKC, false); u.nfkc {
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
	if g.BOS == nil {
		g.BOS = g.CLS
	}
	if g.EOS == nil {
		g.EOS = g.SEP
	}
	yes := true
	if g.AddEOS == nil && g.EOS != nil {
		g.AddEOS = &yes
	}
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

// unigramJSON returns the model of a tokenizer.json, where a token's place in the list is its id. Tokens at its end
// that are only padding are left out.
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
				"tokenizer.ggml.token_type: token %d (%q) is unused: a tokenizer.json of Unigram has none that text does not become", i, k.text)
		case k.kind == UserDefined && strings.ContainsAny(k.text, " "+space):
			return nil, fmt.Errorf(
				"tokenizer.ggml.token_type: token %d (%q) is user-defined: an added token of Unigram has no spaces", i, k.text)
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
