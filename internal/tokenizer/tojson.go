package tokenizer

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/karat-run/karat/internal/jsonerr"
)

// ToJSON translates GGUF's metadata into the tokenizer.json and the tokenizer_config.json of a Hugging Face folder.
// Scores become merges: all pairs of tokens that make a token, highest score first, as transformers does with a
// tokenizer.model. Files that would give other ids are an error: they are read back and compared with the metadata's
// tokenizer (Same).
func ToJSON(g GGUF) (f Files, err error) {
	t, err := FromGGUF(g)
	if err != nil {
		return f, err
	}
	model, err := g.modelJSON(t)
	if err != nil {
		return f, err
	}
	added := g.addedJSON(t)
	if f.JSON, err = marshal(map[string]any{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added, "model": model,
		"normalizer": normJSON(t), "pre_tokenizer": g.preJSON(t), "post_processor": postJSON(t),
		"decoder": decoderJSON(t),
	}); err != nil {
		return f, err
	}
	config := map[string]any{"clean_up_tokenization_spaces": false, "tokenizer_class": "PreTrainedTokenizerFast"}
	if t.uni == nil { // of Unigram's tokens with equal text, a name means the last
		config["add_bos_token"], config["add_eos_token"] = t.AddsBOS(), len(t.special.suffix) > 0
	}
	for key, id := range map[string]*int{"bos_token": g.BOS, "eos_token": g.EOS, "unk_token": g.UNK, "sep_token": g.SEP,
		"pad_token": g.PAD, "cls_token": g.CLS, "mask_token": g.Mask} {
		if name := nameOfID(t, id); name != nil {
			config[key] = name
		}
	}
	if f.Config, err = marshal(config); err != nil {
		return f, err
	}
	back, err := FromJSON(f.JSON, f.Config)
	if err != nil {
		return f, err
	}
	return f, Same(t, back)
}

// modelJSON returns a tokenizer.json's model.
func (g *GGUF) modelJSON(t *Tokenizer) (object, error) {
	if t.uni != nil {
		return g.unigramJSON(t)
	}
	vocab := json.RawMessage(g.vocabJSON(t))
	if w := t.pieces; w != nil {
		return object{"type": "WordPiece", "unk_token": t.tokens[w.unknown].text,
			"continuing_subword_prefix": continuation,
			"max_input_chars_per_word":  w.most, "vocab": vocab}, nil
	}
	merges, err := g.pairs(t)
	return object{
		"type": "BPE", "dropout": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
		"unk_token": unknownName(t, g.UNK), "fuse_unk": !t.byteLevel, "ignore_merges": t.bpe.allWhole,
		"byte_fallback": !t.byteLevel && slices.Max(t.bytes[:]) >= 0,
		"vocab":         vocab, "merges": merges,
	}, err
}

// unknownName returns the name of the token for text without a token. A byte-level vocabulary drops such text, whatever
// token its file calls unknown.
func unknownName(t *Tokenizer, id *int) any {
	if t.byteLevel && t.lossy {
		return nil
	}
	return nameOfID(t, id)
}

// marshal writes v as JSON for people, without the escapes for HTML.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	err := e.Encode(v)
	return b.Bytes(), err
}

// nameOfID returns the spelling of a token, nil for none.
func nameOfID(t *Tokenizer, id *int) any {
	if id == nil || *id < 0 || *id >= len(t.tokens) {
		return nil
	}
	return t.tokens[*id].text
}

// spell returns token i in tokenizer.json's spelling, "" for padding.
func (g *GGUF) spell(t *Tokenizer, i int) string {
	k := t.tokens[i]
	switch {
	case k.kind == Unused && k.text == padName(i):
		return ""
	case k.kind == UserDefined && !t.byteLevel:
		return strings.ReplaceAll(k.text, " ", space)
	}
	return k.text
}

// isAdded reports whether a token is cut out of the text.
func (k Kind) isAdded() bool { return k == Control || k == Unknown || k == UserDefined }

// vocabJSON returns the vocabulary in order of the ids. Added tokens of a byte-level vocabulary are left out: they are
// not spelled in its alphabet.
func (g *GGUF) vocabJSON(t *Tokenizer) []byte {
	b := []byte{'{'}
	for i, k := range t.tokens {
		text := g.spell(t, i)
		if text == "" || t.byteLevel && k.kind.isAdded() {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		key, _ := marshal(text) // a string: cannot fail
		b = fmt.Appendf(append(b, bytes.TrimSpace(key)...), ":%d", i)
	}
	return append(b, '}')
}

// addedJSON lists the added tokens.
func (g *GGUF) addedJSON(t *Tokenizer) []jsonAddedToken {
	added := []jsonAddedToken{}
	strips := map[int32]addedToken{}
	for _, m := range []matcher{t.raw, t.cooked} {
		for _, a := range m.tokens {
			strips[a.id] = a
		}
	}
	for i, k := range t.tokens {
		if k.kind.isAdded() && (t.uni == nil || t.ids[k.text] == int32(i)) {
			text, a := g.spell(t, i), strips[int32(i)]
			added = append(added, jsonAddedToken{ID: &i, Content: text, LStrip: a.lstrip, RStrip: a.rstrip,
				SingleWord: a.singleWord, Special: k.kind != UserDefined || isMarker(text),
				Normalized: k.kind == UserDefined && strings.Contains(text, space)})
		}
	}
	return added
}

// pairs lists the merges in order of rank.
func (g *GGUF) pairs(t *Tokenizer) ([][2]string, error) {
	merges := make([][2]string, 0, len(g.Merges))
	for i, m := range g.Merges {
		left, right, err := splitMerge(m, i)
		if err != nil {
			return nil, err
		}
		merges = append(merges, [2]string{left, right})
	}
	if g.Model != SentencePiece {
		return merges, nil
	}
	order := make([]int32, len(t.tokens))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(g.Scores[b], g.Scores[a]) })
	for _, id := range order {
		merges = appendSplits(t, merges, t.tokens[id])
	}
	return merges, nil
}

// appendSplits appends the pairs of tokens whose texts together make the text of k.
func appendSplits(t *Tokenizer, merges [][2]string, k token) [][2]string {
	if k.kind != Normal || utf8.RuneCountInString(k.text) < 2 {
		return merges
	}
	first := len(merges)
	for i := range k.text {
		l, okL := t.bpe.words[k.text[:i]]
		r, okR := t.bpe.words[k.text[i:]]
		if i > 0 && okL && okR && t.tokens[l].kind == Normal && t.tokens[r].kind == Normal {
			merges = append(merges, [2]string{k.text[:i], k.text[i:]})
		}
	}
	slices.SortFunc(merges[first:], func(a, b [2]string) int {
		return cmp.Or(cmp.Compare(t.bpe.words[a[0]], t.bpe.words[b[0]]),
			cmp.Compare(t.bpe.words[a[1]], t.bpe.words[b[1]]))
	})
	return merges
}

// Bounds of a tiktoken.model: Llama 3's longest token has 128 bytes, and all its merges have fewer than the file.
const (
	longestToken = 512 // bytes
	mostMerged   = 8   // bytes of merges for each of the file
)

// FromTiktoken makes the tokenizer.json for a tiktoken.model, whose lines have a token in base64 and its rank, and the
// tokenizer_config.json beside it: its class has the pattern, and 256 special tokens behind the list, some with names.
// (tokenization_kimi.py of Kimi K2; TikTokenConverter of transformers)
func FromTiktoken(list, config []byte) ([]byte, error) {
	var c struct {
		Class nameOf                    `json:"tokenizer_class"`
		Added map[string]jsonAddedToken `json:"added_tokens_decoder"`
	}
	if err := json.Unmarshal(config, &c); err != nil && config != nil {
		return nil, fmt.Errorf("tokenizer_config.json: %w", jsonerr.Plain(err, ""))
	}
	pre := known().Tiktoken[string(c.Class)]
	if pre == "" {
		return nil, fmt.Errorf("tiktoken.model: its pattern is in Python code, and unknown for the tokenizer_class "+
			"%q; transformers' TikTokenConverter writes a tokenizer.json", string(c.Class))
	}
	ranks, spelled, vocab, merges := map[string]int{}, []string{}, map[string]int{}, [][2]string{}
	left := mostMerged * len(list)
	for line := range strings.Lines(string(list)) {
		text, rank, _ := strings.Cut(strings.TrimSpace(line), " ")
		b, err := base64.StdEncoding.DecodeString(text)
		id := len(spelled)
		if _, twice := ranks[string(b)]; err != nil || len(b) == 0 || len(b) > longestToken || twice ||
			rank != strconv.Itoa(id) {
			return nil, fmt.Errorf("tiktoken.model: line %d is %.40q, expected another token of at most %d bytes in "+
				"base64 and the rank %d", id+1, line, longestToken, id)
		}
		word := make([]rune, len(b))
		for i, c := range b {
			word[i] = byteRunes[c]
		}
		ranks[string(b)] = id
		spelled = append(spelled, string(word))
		vocab[string(word)] = id
		first := len(merges)
		for i := range len(b) {
			l, okL := ranks[string(b[:i])]
			if r, ok := ranks[string(b[i:])]; ok && okL {
				merges = append(merges, [2]string{spelled[l], spelled[r]})
				left -= len(b)
			}
		}
		if left < 0 {
			return nil, fmt.Errorf("tiktoken.model: the merges up to line %d have more than %d times its bytes", id+1,
				mostMerged)
		}
		slices.SortFunc(merges[first:], func(a, b [2]string) int {
			return cmp.Or(cmp.Compare(vocab[a[0]], vocab[b[0]]), cmp.Compare(vocab[a[1]], vocab[b[1]]))
		})
	}
	for c := range 256 { // else a text with the byte would lose it
		if _, ok := ranks[string([]byte{byte(c)})]; !ok {
			return nil, fmt.Errorf("tiktoken.model: no line has the byte 0x%02x alone", c)
		}
	}
	added := make([]jsonAddedToken, 256)
	for i := range added {
		id := len(spelled) + i
		a, ok := c.Added[strconv.Itoa(id)]
		if !ok {
			a = jsonAddedToken{Content: fmt.Sprintf("<|reserved_token_%d|>", id), Special: true}
		}
		a.ID = &id
		added[i] = a
	}
	return marshal(object{
		"added_tokens": added, "decoder": byteLevelJSON(true),
		"pre_tokenizer": (&GGUF{Pre: pre}).preJSON(&Tokenizer{byteLevel: true}),
		"model":         object{"type": "BPE", "ignore_merges": true, "vocab": vocab, "merges": merges},
	})
}

// object is a step of a tokenizer.json.
type object = map[string]any

func sequence(key string, steps ...any) any {
	switch len(steps) {
	case 0:
		return nil
	case 1:
		return steps[0]
	}
	return object{"type": "Sequence", key: steps}
}

func normJSON(t *Tokenizer) any {
	if w := t.pieces; w != nil {
		return object{"type": "BertNormalizer", "clean_text": w.clean, "handle_chinese_chars": w.chinese,
			"strip_accents": w.strip, "lowercase": w.lower}
	}
	var steps []any
	if u := t.uni; u != nil {
		return u.normJSON()
	}
	n := t.norm
	if n.nfc {
		steps = append(steps, object{"type": "NFC"})
	}
	if n.prepend != prependNever {
		steps = append(steps, object{"type": "Prepend", "prepend": space})
	}
	if n.escape {
		steps = append(steps, object{"type": "Replace", "pattern": object{"String": " "}, "content": space})
	}
	return sequence("normalizers", steps...)
}

func byteLevelJSON(prefix bool) object {
	return object{"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": true, "use_regex": false}
}

func (g *GGUF) preJSON(t *Tokenizer) any {
	if t.pieces != nil {
		return object{"type": "BertPreTokenizer"}
	}
	if t.uni != nil {
		return t.uni.preJSON()
	}
	if !t.byteLevel {
		return nil
	}
	var steps []any
	for _, p := range known().named[g.Pre].Patterns {
		steps = append(steps, object{"type": "Split", "pattern": object{"Regex": regex(p)}, "behavior": "Isolated",
			"invert": false})
	}
	return sequence("pretokenizers", append(steps, byteLevelJSON(false))...)
}

func decoderJSON(t *Tokenizer) any {
	if t.pieces != nil {
		return object{"type": "WordPiece", "prefix": continuation, "cleanup": true}
	}
	if t.byteLevel {
		return byteLevelJSON(true)
	}
	steps := []any{object{"type": "Replace", "pattern": object{"String": space}, "content": " "},
		object{"type": "ByteFallback"}, object{"type": "Fuse"}}
	if t.norm.prepend != prependNever {
		steps = append(steps, object{"type": "Strip", "content": " ", "start": 1, "stop": 0})
	}
	return sequence("decoders", steps...)
}

// postJSON returns the step that puts special tokens around a text.
func postJSON(t *Tokenizer) any {
	if len(t.special.prefix)+len(t.special.suffix) == 0 {
		if t.byteLevel {
			return byteLevelJSON(true)
		}
		return nil
	}
	special := object{}
	side := func(text string) (parts []any) {
		add := func(ids []int) {
			for _, id := range ids {
				name := t.tokens[id].text
				parts = append(parts, object{"SpecialToken": object{"id": name, "type_id": 0}})
				special[name] = object{"id": name, "ids": []int{id}, "tokens": []string{name}}
			}
		}
		add(t.special.prefix)
		parts = append(parts, object{"Sequence": object{"id": text, "type_id": 0}})
		add(t.special.suffix)
		return parts
	}
	single, pair := side("A"), append(side("A"), side("B")...)
	if t.pieces != nil || t.uni != nil { // pairs there have separate separators
		pair = nil
		for _, p := range t.pair {
			if p.id >= 0 {
				pair = append(pair, object{"SpecialToken": object{"id": t.tokens[p.id].text, "type_id": p.kind}})
				continue
			}
			pair = append(pair, object{"Sequence": object{"id": []string{"A", "B"}[p.text], "type_id": p.kind}})
		}
	}
	return object{"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}
}
