package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

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
		for b := range t.bytes {
			t.bytes[b] = -1
		}
		t.lossy = true
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

// A config holds the settings of the tokenizer in tokenizer_config.json. The rest of the file is for other programs.
type config struct {
	BOS    nameOf                    `json:"bos_token"`
	EOS    nameOf                    `json:"eos_token"`
	UNK    nameOf                    `json:"unk_token"`
	SEP    nameOf                    `json:"sep_token"`
	PAD    nameOf                    `json:"pad_token"`
	CLS    nameOf                    `json:"cls_token"`
	Mask   nameOf                    `json:"mask_token"`
	AddBOS *bool                     `json:"add_bos_token"`
	AddEOS *bool                     `json:"add_eos_token"`
	Added  map[string]jsonAddedToken `json:"added_tokens_decoder"`
}

// A nameOf is a token's name, spelled "name", {"content": "name"} or null.
type nameOf string

func (n *nameOf) UnmarshalJSON(b []byte) error {
	var object struct{ Content string }
	if b[0] == '{' {
		err := json.Unmarshal(b, &object)
		*n = nameOf(object.Content)
		return err
	}
	return json.Unmarshal(b, (*string)(n))
}

func parseConfig(b []byte) (c config, err error) {
	if len(b) == 0 {
		return c, nil
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return c, fmt.Errorf("tokenizer_config.json: %w", jsonerr.Plain(err, ""))
	}
	return c, nil
}

// appendTokens adds added tokens absent from the vocabulary, and returns all of added_tokens_decoder by id.
func (c *config) appendTokens(tokens *[]token) (map[int]addedToken, error) {
	added := make(map[int]addedToken, len(c.Added))
	for key, a := range c.Added {
		id, err := strconv.Atoi(key)
		if err != nil || id < 0 || id >= len(*tokens)+len(c.Added)+maxGap {
			return nil, fmt.Errorf("tokenizer_config.json: added_tokens_decoder: id %q is outside the vocabulary", key)
		}
		added[id] = a.token(id)
	}
	for _, a := range sortByID(added) {
		if err := placeToken(tokens, a); err != nil {
			return nil, fmt.Errorf("tokenizer_config.json: added_tokens_decoder: %w", err)
		}
	}
	return added, nil
}

// placeToken puts an added token into the vocabulary at its id, which must be free or its own.
func placeToken(tokens *[]token, a addedToken) error {
	for int(a.id) >= len(*tokens) {
		*tokens = append(*tokens, token{kind: Unused})
	}
	k := &(*tokens)[a.id]
	if k.text != "" && k.text != a.content {
		return fmt.Errorf("added token %q: its id %d is that of %q", a.content, a.id, k.text)
	}
	k.text = a.content
	switch {
	case a.special && k.kind != Unknown:
		k.kind = Control
	case !a.special && k.kind != Byte:
		k.kind = UserDefined
	}
	return nil
}

// sortByID returns added tokens in order of their ids.
func sortByID(added map[int]addedToken) []addedToken {
	list := make([]addedToken, 0, len(added))
	for _, id := range slices.Sorted(maps.Keys(added)) {
		list = append(list, added[id])
	}
	return list
}

// setNames sets BOS and EOS by their names.
func (c *config) setNames(t *Tokenizer) error {
	for _, k := range []struct {
		name nameOf
		to   *int
		key  string
	}{{c.BOS, &t.special.bos, "bos_token"}, {c.EOS, &t.special.eos, "eos_token"}} {
		if k.name == "" {
			continue
		}
		id, ok := t.ID(string(k.name))
		if !ok {
			return fmt.Errorf("tokenizer_config.json: %s: %q is not in the vocabulary", k.key, string(k.name))
		}
		*k.to = id
	}
	return nil
}

// surround applies add_bos_token and add_eos_token, if present, to the tokens around a text.
func (c *config) surround(t *Tokenizer) (err error) {
	if t.special.prefix, err = applyAround(t.special.prefix, c.AddBOS, t.special.bos, "add_bos_token"); err != nil {
		return err
	}
	t.special.suffix, err = applyAround(t.special.suffix, c.AddEOS, t.special.eos, "add_eos_token")
	return err
}

// applyAround applies add_bos_token or add_eos_token, if present, to the tokens before or after a text.
func applyAround(ids []int, add *bool, id int, key string) ([]int, error) {
	switch {
	case add == nil:
		return ids, nil
	case !*add:
		return slices.DeleteFunc(ids, func(i int) bool { return i == id }), nil
	case id < 0:
		return nil, fmt.Errorf("tokenizer_config.json: %s: there is no such token", key)
	case slices.Contains(ids, id):
		return ids, nil
	}
	return append(ids, id), nil
}

// A jsonVocab is the object of token: id, in the order of the file. encoding/json would take the last of two equal keys
// and a second for a large vocabulary.
type jsonVocab []jsonToken

type jsonToken struct {
	text   string
	id     int
	score  float64
	scored bool // as all tokens of Unigram, whose vocabulary is a list
}

// scored reports whether tokens have scores.
func (v jsonVocab) scored() bool { return len(v) > 0 && v[0].scored }

func (v *jsonVocab) UnmarshalJSON(b []byte) error {
	s := jsonScanner{rest: b}
	if !s.skip('{') {
		*v = nil
		return v.list(&s)
	}
	*v = jsonVocab{}
	if s.skip('}') {
		return nil
	}
	for {
		text, err := s.string()
		if err != nil {
			return fmt.Errorf("vocab: %w", err)
		}
		if !s.skip(':') {
			return errors.New("vocab: no id")
		}
		id, err := strconv.Atoi(s.number())
		if err != nil || id < 0 {
			return fmt.Errorf("vocab: %q: no valid id", text)
		}
		*v = append(*v, jsonToken{text: text, id: id})
		if !s.skip(',') {
			return nil
		}
	}
}

// list reads a list of tokens and their scores, [["<s>", 0.0], ...].
func (v *jsonVocab) list(s *jsonScanner) error {
	if !s.skip('[') || s.skip(']') {
		return nil
	}
	for {
		id := len(*v)
		if !s.skip('[') {
			return fmt.Errorf("vocab: token %d is no list of a text and a score", id)
		}
		text, err := s.string()
		if err != nil {
			return fmt.Errorf("vocab: token %d: %w", id, err)
		}
		if !s.skip(',') {
			return fmt.Errorf("vocab: token %d: %q has no score", id, text)
		}
		score, err := strconv.ParseFloat(s.number(), 64)
		if err != nil || !s.skip(']') {
			return fmt.Errorf("vocab: token %d: %q has no valid score", id, text)
		}
		*v = append(*v, jsonToken{text: text, id: id, score: score, scored: true})
		if !s.skip(',') {
			return nil
		}
	}
}

// jsonMerges holds the merges, spelled "left right" or ["left", "right"]. The first spelling has all in left: only used
// merges are split.
type jsonMerges []jsonMerge

type jsonMerge struct{ left, right string }

func (m *jsonMerges) UnmarshalJSON(b []byte) error {
	s := jsonScanner{rest: b}
	*m = nil
	if !s.skip('[') {
		return errors.New("merges: no list")
	}
	if s.skip(']') {
		return nil
	}
	for {
		pair := s.skip('[')
		left, err := s.string()
		right := ""
		if err == nil && pair {
			if !s.skip(',') {
				return fmt.Errorf("merges: merge %d is not two tokens", len(*m))
			}
			right, err = s.string()
		}
		if err != nil {
			return fmt.Errorf("merges: merge %d: %w", len(*m), err)
		}
		if left == "" || pair && (right == "" || !s.skip(']')) {
			return fmt.Errorf("merges: merge %d is not two tokens", len(*m))
		}
		*m = append(*m, jsonMerge{left, right})
		if !s.skip(',') {
			return nil
		}
	}
}

// A jsonScanner reads JSON already validated by encoding/json.
type jsonScanner struct{ rest []byte }

// skip skips white space, then c if present.
func (s *jsonScanner) skip(c byte) bool {
	for len(s.rest) > 0 && (s.rest[0] == ' ' || s.rest[0] == '\n' || s.rest[0] == '\t' || s.rest[0] == '\r') {
		s.rest = s.rest[1:]
	}
	if len(s.rest) == 0 || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

// string reads a string.
func (s *jsonScanner) string() (string, error) {
	if !s.skip('"') {
		return "", errors.New("no string")
	}
	plain, i := true, 0
	for ; i < len(s.rest) && s.rest[i] != '"'; i++ {
		if s.rest[i] == '\\' {
			plain = false
			i++
		}
	}
	if i >= len(s.rest) {
		return "", errors.New("no string")
	}
	raw := s.rest[:i]
	s.rest = s.rest[i+1:]
	if !utf8.Valid(raw) {
		return "", fmt.Errorf("%q is not UTF-8", raw)
	}
	if plain {
		return string(raw), nil
	}
	var text string
	quoted := make([]byte, 0, len(raw)+2)
	quoted = append(append(append(quoted, '"'), raw...), '"')
	err := json.Unmarshal(quoted, &text)
	return text, err
}

// number reads the digits of a number.
func (s *jsonScanner) number() string {
	s.skip(0)
	i := 0
	for i < len(s.rest) && s.rest[i] != ',' && s.rest[i] != '}' && s.rest[i] != ']' && s.rest[i] > ' ' {
		i++
	}
	digits := string(s.rest[:i])
	s.rest = s.rest[i:]
	return digits
}
