package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Files are the files of a Hugging Face folder that describe its tokenizer; nil for an absent file.
type Files struct {
	JSON   []byte // tokenizer.json
	Model  []byte // tokenizer.model
	Config []byte // tokenizer_config.json
	Name   string // of the file behind JSON or Model, for errors
}

// ToGGUF translates a folder's tokenizer into GGUF's metadata for a model that embeds size tokens, as llama.cpp's
// converter does (conversion/base.py, and SpecialVocab in gguf-py/gguf/vocab.py). With merges, a character-level
// vocabulary comes with its merges (gemma4), not with scores (llama). If several names of GGUF stand for a byte-level
// tokenizer's steps, pre is the right one. The map ids has config.json's ids of special tokens, "bos" to "mask", for
// tokens that tokenizer_config.json does not name.
//
// The notes tell the losses. Metadata that would give other ids is an error: the metadata is read back and compared
// with the folder's tokenizer (Same).
func ToGGUF(f Files, size int, merges bool, pre string, ids map[string]int) (g GGUF, notes []string, err error) {
	c, err := parseConfig(f.Config)
	if err != nil {
		return g, nil, err
	}
	var t *Tokenizer
	var file jsonFile
	if f.Model != nil && !merges {
		t, err = g.fromModel(f, &c)
	} else {
		t, notes, err = g.fromJSON(f, &file, &c, merges, pre)
	}
	if err != nil {
		return g, nil, err
	}
	if size > len(g.Tokens)+maxGap {
		return g, nil, fmt.Errorf("%d tokens, but the model embeds %d", len(g.Tokens), size)
	}
	g.resize(size)
	if f.JSON != nil && file.Model.Vocab == nil { // beside tokenizer.model: for its post-processor
		if err := json.Unmarshal(f.JSON, &file); err != nil {
			return g, nil, fmt.Errorf("tokenizer.json: %w", err)
		}
	}
	g.setSpecial(t, &c, &file, ids)
	g.setFlags(t)
	back, err := FromGGUF(g)
	if err != nil {
		return g, nil, err
	}
	return g, notes, Same(t, back)
}

// fromModel takes the pieces, scores and types of a tokenizer.model, overruled by the added tokens of the
// configuration.
func (g *GGUF) fromModel(f Files, c *config) (*Tokenizer, error) {
	t, err := FromSentencePiece(f.Model, f.Config)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.model: %w", err)
	}
	m := newSPModel()
	if err := protoFields(f.Model, 0, m.field); err != nil {
		return nil, fmt.Errorf("tokenizer.model: %w", err)
	}
	added, err := c.appendTokens(&m.tokens)
	if err != nil {
		return nil, err
	}
	g.Model, g.Pre, g.Scores = SentencePiece, "default", m.scores
	for i, k := range m.tokens {
		a, ok := added[i]
		switch {
		case !ok:
		case a.special || looksSpecial(k.text):
			k.kind = Control
		default:
			k = token{strings.ReplaceAll(k.text, space, " "), UserDefined}
		}
		if ok && i < len(g.Scores) {
			g.Scores[i] = -1000
		}
		g.Tokens, g.Types = append(g.Tokens, k.text), append(g.Types, int32(k.kind))
	}
	for len(g.Scores) < len(g.Tokens) {
		g.Scores = append(g.Scores, -1000)
	}
	g.AddSpacePrefix = &m.dummyPrefix
	return t, nil
}

// fromJSON takes vocabulary, added tokens and merges of a tokenizer.json.
func (g *GGUF) fromJSON(f Files, file *jsonFile, c *config, merges bool, pre string) (t *Tokenizer, notes []string,
	err error) {
	if t, err = FromJSON(f.JSON, f.Config); err != nil {
		return nil, nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	if err := json.Unmarshal(f.JSON, file); err != nil {
		return nil, nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	if t.pieces != nil {
		if w := t.pieces; !w.clean || !w.chinese || w.most != maxWord {
			return nil, nil,
				fmt.Errorf("tokenizer.json: GGUF has no keys for a BertNormalizer other than the usual ones")
		}
		g.setPieces(t, pre)
		return t, nil, nil
	}
	if t.uni != nil {
		notes, err := g.setUnigram(t)
		return t, notes, err
	}
	p, err := file.pipeline()
	if err != nil {
		return nil, nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	switch {
	case p.norm.nfkc:
		return nil, nil, errors.New("tokenizer.json: normalizer NFKC: GGUF has no key for it")
	case p.spaced:
		return nil, nil, errors.New("tokenizer.json: words between white space: GGUF has no model of them")
	}
	tokens, added, err := file.tokens(c)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case !p.byteLevel && merges:
		g.Model = Merged
	case !p.byteLevel:
		g.Model, g.Pre = SentencePiece, "default"
	default:
		if g.Model = ByteLevel; p.norm.prepend == prependSpace {
			return nil, nil, errors.New("tokenizer.json: ByteLevel with add_prefix_space: GGUF has no key for it")
		}
		if g.Pre, err = preName(&p, t, pre); err != nil {
			return nil, nil, err
		}
		if known().named[g.Pre].NFC != p.norm.nfc {
			g.NFC = &p.norm.nfc
		}
	}
	if !p.byteLevel {
		prefix := p.norm.prepend != prependNever
		g.AddSpacePrefix = &prefix
	}
	g.setTokens(t, tokens, added)
	return t, notes, g.setMerges(&file.Model)
}

// setFlags sets the flags of added tokens.
func (g *GGUF) setFlags(t *Tokenizer) {
	for _, m := range []matcher{t.raw, t.cooked} {
		for _, a := range m.tokens {
			if f := a.flags(); f != 0 {
				g.Flags = append(g.Flags, a.id, f)
			}
		}
	}
}

// preName finds GGUF's name of a byte-level tokenizer's steps: usual, if among the names. A name that differs in
// ignore_merges will do if that changes nothing.
func preName(p *pipeline, t *Tokenizer, usual string) (string, error) {
	merged := sync.OnceValue(func() bool { return mergesAll(t) })
	suits := func(name string, strict bool) bool {
		pre, ok := known().named[name]
		return ok && slices.Equal(pre.Patterns, p.patterns) && (pre.NFC || !p.norm.nfc) &&
			(pre.IgnoreMerges == t.bpe.allWhole || !strict && merged())
	}
	if suits(usual, false) {
		return usual, nil
	}
	for _, strict := range []bool{true, false} {
		for _, name := range known().Usual {
			if suits(name, strict) {
				return name, nil
			}
		}
	}
	var patterns []string
	for _, name := range p.patterns {
		patterns = append(patterns, regex(name))
	}
	return "", fmt.Errorf("tokenizer.json: GGUF has no name for a pre-tokenizer of %q with NFC %v and ignore_merges %v",
		patterns, p.norm.nfc, t.bpe.allWhole)
}

// mergesAll reports whether merging makes every word that is a token that token, so that ignore_merges changes nothing.
func mergesAll(t *Tokenizer) bool {
	e := encoder{t: t}
	e.merger.watch = &e.watch
	for text, id := range t.bpe.words {
		cut := slices.ContainsFunc(t.bpe.stages, func(s splitter) bool { return s(text) != len(text) })
		if t.tokens[id].kind != Normal || cut { // the token is no word
			continue
		}
		e.symbols(text)
		if e.merger.merge(&t.bpe.pairs); len(e.merger.ids) != 1 || e.merger.ids[0] != id {
			return false
		}
	}
	return true
}

// visible lists the tokens of Gemma 4 that a reply shows, so that its reader can tell its parts (conversion/gemma.py).
var visible = []string{"<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|tool_response>",
	"<tool_response|>", `<|"|>`}

// setTokens sets the tokens and their types.
func (g *GGUF) setTokens(t *Tokenizer, tokens []token, added []addedToken) {
	isAdded := map[int32]bool{}
	for _, a := range added {
		isAdded[a.id] = true
	}
	for i, k := range tokens {
		kind := t.tokens[i].kind // with the byte tokens
		switch {
		case !isAdded[int32(i)]:
		case g.Model == Merged && slices.Contains(visible, k.text):
			kind = UserDefined
		case looksSpecial(k.text):
			kind = Control
		}
		g.Tokens, g.Types = append(g.Tokens, k.text), append(g.Types, int32(kind))
	}
}

// looksSpecial reports whether an added token steers models although they write it as text (does_token_look_special in
// conversion/base.py).
func looksSpecial(text string) bool {
	between := func(from, to string) bool { return strings.HasPrefix(text, from) && strings.HasSuffix(text, to) }
	return slices.Contains([]string{"<pad>", "<mask>", "<2mass>", "[@BOS@]"}, text) ||
		between("<|", "|>") || between("<｜", "｜>") || between("<unused", ">")
}

// setMerges sets the merges, or the scores with the same effect: the earlier a token is first merged, the higher its
// score.
func (g *GGUF) setMerges(m *jsonModel) error {
	ids := make(map[string]int, len(g.Tokens))
	if g.Model != ByteLevel {
		g.Scores = make([]float32, len(g.Tokens))
		for i, text := range g.Tokens {
			ids[text], g.Scores[i] = i, -1000
		}
	}
	scored := make([]bool, len(g.Tokens))
	for i := range m.Merges {
		left, right, err := m.merge(i)
		if err != nil {
			return err
		}
		if strings.Contains(left+right, " ") {
			return fmt.Errorf("tokenizer.json: merge %d: %q + %q: GGUF has no merges of spaces", i, left, right)
		}
		if g.Model != SentencePiece {
			g.Merges = append(g.Merges, left+" "+right)
			continue
		}
		if id, ok := ids[left+right]; ok && !scored[id] {
			g.Scores[id], scored[id] = float32(-i), true
		}
	}
	if g.Model == SentencePiece {
		for i := range g.Scores {
			if !scored[i] && Kind(g.Types[i]) == Normal {
				g.Scores[i] = float32(-len(m.Merges) - i)
			}
		}
	}
	return nil
}

// resize gives the vocabulary as many tokens as the model embeds. Ids without a token become unused tokens; special
// tokens of other modalities beyond the size are left out.
func (g *GGUF) resize(size int) {
	for i, text := range g.Tokens {
		if text == "" {
			g.Tokens[i], g.Types[i] = padName(i), int32(Unused)
		}
	}
	for i := len(g.Tokens); i < size; i++ {
		g.Tokens, g.Types = append(g.Tokens, padName(i)), append(g.Types, int32(Unused))
		if g.Scores != nil {
			g.Scores = append(g.Scores, -10000)
		}
	}
	g.Tokens, g.Types = g.Tokens[:size], g.Types[:size]
	if g.Scores != nil {
		g.Scores = g.Scores[:size]
	}
}

// between counts the special tokens between two texts, and reports whether there are any.
func (s *jsonStep) between() (n int, ok bool) {
	texts := 0
	for _, p := range s.Pair {
		switch {
		case p.Sequence != nil:
			texts++
		case texts == 1:
			n++
		}
	}
	return n, n > 0 && texts == 2
}

// surround makes the tokens around a text BOS and EOS, the only tokens that GGUF can add. For example, Qwen3-Embedding
// ends texts with <|endoftext|> and turns with <|im_end|>, its eos_token, which becomes EOT.
func (g *GGUF) surround(t *Tokenizer) {
	if len(t.special.prefix) == 1 {
		g.BOS = &t.special.prefix[0]
	}
	if len(t.special.suffix) != 1 {
		return
	}
	if old := g.EOS; old != nil && t.tokens[*old].text != t.tokens[t.special.suffix[0]].text {
		g.EOT = old
	}
	g.EOS = &t.special.suffix[0]
}

// setSpecial sets the ids of special tokens and the tokens around a text.
func (g *GGUF) setSpecial(t *Tokenizer, c *config, f *jsonFile, ids map[string]int) {
	for _, k := range []struct {
		key  string
		name nameOf
		to   **int
	}{{"bos", c.BOS, &g.BOS}, {"eos", c.EOS, &g.EOS}, {"unk", c.UNK, &g.UNK}, {"sep", c.SEP, &g.SEP},
		{"pad", c.PAD, &g.PAD}, {"mask", c.Mask, &g.Mask}} {
		id, ok := t.ID(string(k.name))
		if !ok || k.name == "" {
			id, ok = ids[k.key]
		}
		if ok && id >= 0 && id < len(g.Tokens) {
			*k.to = &id
		}
	}
	if bos, ok := t.BOS(); ok && g.BOS == nil {
		g.BOS = &bos
	}
	if eos, ok := t.EOS(); ok && g.EOS == nil {
		g.EOS = &eos
	}
	g.surround(t)
	if t.pieces != nil && g.UNK == nil {
		g.UNK = new(int(t.pieces.unknown))
	}
	if t.uni != nil && g.UNK == nil {
		g.UNK = new(int(t.uni.unknown))
	}
	adds := g.BOS != nil && slices.Contains(t.special.prefix, *g.BOS)
	if adds || c.AddBOS != nil || g.BOS != nil && (g.Model != ByteLevel || known().named[g.Pre].AddBOS) {
		g.AddBOS = &adds
	}
	if ends := len(t.special.suffix) > 0; ends || c.AddEOS != nil || t.uni != nil {
		g.AddEOS = &ends
	}
	for _, s := range flatten(f.PostProcessor, func(s *jsonStep) []jsonStep { return s.Processors }) {
		// the token ending the first text
		if n, ok := s.between(); s.Type == "TemplateProcessing" && len(s.Single) > 1 && ok {
			g.AddSEP = new(n > 1)
		}
		if s.Type == "RobertaProcessing" {
			g.AddSEP = new(true)
		}
	}
}

// probes lists texts on which tokenizers of different rules differ: digits, runs of spaces and newlines, contractions,
// letters with combining marks, other scripts, emoji, code, bytes that are no UTF-8.
var probes = []string{
	"Hello, world! The quick brown fox jumps over the lazy dog.",
	"  leading,  double   spaces \t\ttabs\r\n\r\n\nand lines \n ",
	"It's 12345678 and 3.14159; don't we'll THEY'RE I'd",
	"caf\u00e9 cafe\u0301 \u212b \u1e9b\u0323 \ufb01",
	"\u4f60\u597d\uff0c\u4e16\u754c\u3002 \u041f\u0440\u0438\u0432\u0435\u0442 \u0645\u0631\u062d\u0628\u0627 " +
		"\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \ud55c\uad6d\uc5b4",
	"\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 \u2581 \u00a0 \ufffd",
	"func main() {\n\tfor i := 0; i < 10; i++ {\n\t\tfmt.Println(i)\n\t}\n}\n",
	"\xff\xfe\x00\x80", "a", " a", "",
}

// Same reports a difference between two tokenizers: in the spelling of a token, in the tokens around a text, or in the
// ids of probes, with special tokens among them.
func Same(a, b *Tokenizer) error {
	for id := range min(a.VocabSize(), b.VocabSize()) {
		x, kind := a.Token(id)
		if y, _ := b.Token(id); x != y && kind != Unused && kind != UserDefined { // these may be text
			return fmt.Errorf("the other form has token %d as %q, not %q", id, y, x)
		}
	}
	for _, special := range []bool{false, true} {
		for _, text := range probes {
			if special {
				text = surround(a, text)
			}
			if err := compareIDs(a, b, text, Options{AddSpecial: true, ParseSpecial: special}); err != nil {
				return err
			}
		}
	}
	for _, m := range []matcher{a.raw, a.cooked} {
		for _, k := range m.tokens {
			for _, text := range []string{"a " + k.content + " b", "a" + k.content + "b"} {
				if k.flags() == 0 {
					continue
				}
				if err := compareIDs(a, b, text, Options{ParseSpecial: true}); err != nil {
					return err
				}
			}
		}
	}
	for c := range 256 { // a vocabulary may lack tokens of some bytes
		if err := compareIDs(a, b, "a"+string([]byte{byte(c)})+"b", Options{}); err != nil {
			return err
		}
	}
	return nil
}

// compareIDs compares the ids of a text.
func compareIDs(a, b *Tokenizer, text string, o Options) error {
	if x, y := a.Encode(text, o), b.Encode(text, o); !slices.Equal(x, y) {
		return fmt.Errorf("the other form gives %q the ids %v, not %v", text, y, x)
	}
	return nil
}

// surround puts special tokens before, into and after a text.
func surround(t *Tokenizer, text string) string {
	name := "<s>"
	for _, k := range t.tokens {
		if k.kind == Control {
			name = k.text
			break
		}
	}
	return name + text + name + text + name
}
