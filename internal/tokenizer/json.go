package tokenizer

import (
	"encoding/json"
	"fmt"

	"github.com/karat-run/karat/internal/jsonerr"
)

// FromJSON makes the tokenizer of a tokenizer.json file of Hugging Face's tokenizers library. The tokenizer_config.json
// beside it, or nil, is config, which names BOS and EOS; add_bos_token and add_eos_token there overrule the
// post-processor. A pre-tokenizer's regular expression must be known.
func FromJSON(tokenizerJSON, config []byte) (*Tokenizer, error) {
	var f jsonFile
	if err := json.Unmarshal(tokenizerJSON, &f); err != nil {
		return nil, fmt.Errorf("%w", jsonerr.Plain(err, ""))
	}
	if err := f.Model.check(); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	c, err := parseConfig(config)
	if err != nil {
		return nil, err
	}
	made := f.bytePairs
	switch f.Model.Type {
	case "WordPiece":
		made = f.wordPiece
	case "Unigram":
		made = f.unigram
	}
	t, err := made(&c)
	if err != nil {
		return nil, err
	}
	if err := c.setNames(t); err != nil {
		return nil, err
	}
	if err := f.template(t); err != nil {
		return nil, fmt.Errorf("post_processor: %w", err)
	}
	findEndOfTurn(t)
	return t, c.surround(t)
}

// bytePairs makes the tokenizer of a file whose model is BPE.
func (f *jsonFile) bytePairs(c *config) (*Tokenizer, error) {
	p, err := f.pipeline()
	if err != nil {
		return nil, fmt.Errorf("%w", err)
	}
	tokens, added, err := f.tokens(c)
	if err != nil {
		return nil, err
	}
	t, err := newTokenizer(tokens, p.byteLevel)
	if err != nil {
		return nil, err
	}
	t.norm, t.bpe.stages, t.bpe.joints.cut, t.bpe.allWhole = p.norm, p.stages, p.cut, f.Model.IgnoreMerges
	t.bpe.spaced = p.spaced
	if !p.byteLevel && !f.Model.ByteFallback {
		dropBytes(t)
	}
	if id, ok := t.ids[f.Model.Unknown]; ok && f.Model.Unknown != "" {
		t.unknown, t.fuse = id, f.Model.FuseUnknown
	} else if t.lossy && f.Model.Unknown != "" {
		return nil, fmt.Errorf("model: unk_token: %q is not in the vocabulary", f.Model.Unknown)
	}
	if err := setMerges(t, len(f.Model.Merges), f.Model.merge); err != nil {
		return nil, err
	}
	setAdded(t, added)
	return t, nil
}

// A jsonFile is tokenizer.json.
type jsonFile struct {
	AddedTokens   []jsonAddedToken `json:"added_tokens"`
	Normalizer    *jsonStep        `json:"normalizer"`
	PreTokenizer  *jsonStep        `json:"pre_tokenizer"`
	PostProcessor *jsonStep        `json:"post_processor"`
	Decoder       *jsonStep        `json:"decoder"`
	Model         jsonModel        `json:"model"`
}

type jsonAddedToken struct {
	ID         *int   `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

func (a jsonAddedToken) token(id int) addedToken {
	return addedToken{
		content: a.Content, id: int32(id), special: a.Special, normalized: a.Normalized,
		lstrip: a.LStrip, rstrip: a.RStrip, singleWord: a.SingleWord,
	}
}

type jsonModel struct {
	Type         string     `json:"type"`
	Dropout      float64    `json:"dropout"`
	Prefix       string     `json:"continuing_subword_prefix"`
	Suffix       string     `json:"end_of_word_suffix"`
	ByteFallback bool       `json:"byte_fallback"`
	IgnoreMerges bool       `json:"ignore_merges"`
	Unknown      string     `json:"unk_token"`                // BPE, WordPiece
	FuseUnknown  bool       `json:"fuse_unk"`                 // BPE
	MaxChars     int        `json:"max_input_chars_per_word"` // WordPiece
	UnknownID    *int       `json:"unk_id"`                   // Unigram
	Vocab        jsonVocab  `json:"vocab"`
	Merges       jsonMerges `json:"merges"`
}

// setType finds the type of a model in a file of before 2022, without a type (ModelUntagged in
// tokenizers/src/models/mod.rs).
func (m *jsonModel) setType() {
	switch {
	case m.Type != "":
	case m.Vocab.scored():
		m.Type = "Unigram"
	case m.Merges == nil && m.Prefix == continuation:
		m.Type = "WordPiece"
	}
}

func (m *jsonModel) check() error {
	m.setType()
	switch {
	case m.Type == "WordPiece" && m.Vocab != nil && m.Prefix == continuation:
		return nil
	case m.Type == "Unigram" && m.Vocab != nil && m.Vocab.scored():
		return nil
	case m.Type == "Unigram":
		return fmt.Errorf("there is no vocab of a Unigram model: a list of tokens and their scores")
	case m.Type != "BPE" && m.Type != "" && m.Type != "WordPiece":
		return fmt.Errorf("type %q is not supported, BPE, WordPiece and Unigram are: it belongs to no family here",
			m.Type)
	case m.Vocab == nil || m.Vocab.scored():
		return fmt.Errorf("there is no vocab of a BPE model")
	case m.Dropout != 0:
		return fmt.Errorf("dropout %v makes ids random: not supported", m.Dropout)
	case m.Prefix != "":
		return fmt.Errorf("continuing_subword_prefix %q is not supported", m.Prefix)
	case m.Suffix != "":
		return fmt.Errorf("end_of_word_suffix %q is not supported: it belongs to encoders of images' texts, as CLIP, "+
			"and to no family here", m.Suffix)
	}
	return nil
}

func (m *jsonModel) merge(i int) (left, right string, err error) {
	if pair := m.Merges[i]; pair.right != "" {
		return pair.left, pair.right, nil
	}
	return splitMerge(m.Merges[i].left, i)
}

// tokens returns the vocabulary by id and its added tokens: the file's, then tokens of the configuration absent from
// the file.
func (f *jsonFile) tokens(c *config) ([]token, []addedToken, error) {
	size := len(f.Model.Vocab)
	tokens := make([]token, 0, size+len(f.AddedTokens))
	for _, k := range f.Model.Vocab {
		if k.id >= size+len(f.AddedTokens)+maxGap {
			return nil, nil, fmt.Errorf("token %q: id %d is outside a vocabulary of %d", k.text, k.id, size)
		}
		for k.id >= len(tokens) {
			tokens = append(tokens, token{kind: Unused})
		}
		if tokens[k.id].text != "" && k.text != "" {
			return nil, nil, fmt.Errorf("token %q: id %d is that of %q", k.text, k.id, tokens[k.id].text)
		}
		if k.text != "" { // no text has a token without text
			tokens[k.id] = token{k.text, Normal}
		}
	}
	added := make(map[int]addedToken, len(f.AddedTokens))
	for _, a := range f.AddedTokens {
		if a.ID == nil || *a.ID < 0 || *a.ID >= size+len(f.AddedTokens)+maxGap {
			return nil, nil, fmt.Errorf("added token %q: its id is outside a vocabulary of %d", a.Content, size)
		}
		if a.Content == "" {
			continue // ignored, as in the reference
		}
		if other, ok := added[*a.ID]; ok && other.content != a.Content {
			return nil, nil, fmt.Errorf("added token %q: its id %d is that of %q", a.Content, *a.ID, other.content)
		}
		added[*a.ID] = a.token(*a.ID)
	}
	for _, a := range sortByID(added) {
		if err := placeToken(&tokens, a); err != nil {
			return nil, nil, err
		}
	}
	more, err := c.appendTokens(&tokens)
	if err != nil {
		return nil, nil, err
	}
	for id, a := range more {
		if _, ok := added[id]; !ok && a.content != "" {
			added[id] = a
		}
	}
	return tokens, sortByID(added), nil
}
