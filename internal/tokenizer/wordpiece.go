package tokenizer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/karat-run/karat/internal/jsonerr"
	"golang.org/x/text/unicode/norm"
)

// WordPiece is the value of tokenizer.ggml.model for WordPiece.
const WordPiece = "bert"

// continuation precedes, in a vocabulary file, a piece that continues a word.
const continuation = "##"

// maxWord is the maximal number of characters of a word cut into pieces; a longer word is unknown.
const maxWord = 100

// anyWidth is Tokenizer.widest if a token may be any text: an unknown word.
const anyWidth = 1 << 30

// A wordPiece cuts text as BERT does: text is cleaned, Chinese characters are set apart, white space and punctuation
// split words, and the longest piece is taken again and again. A word with a rest is unknown. (BertNormalizer,
// BertPreTokenizer and WordPiece of the tokenizers library.)
type wordPiece struct {
	clean, chinese, strip, lower bool
	begins, continues            map[string]int32
	longest                      int // bytes of a piece
	unknown                      int32
	most                         int // characters of a word
}

// newWordPiece indexes a vocabulary, whose unknown token has a name.
func newWordPiece(tokens []token, w *wordPiece, unknown string) (*Tokenizer, error) {
	t, err := indexVocabulary(tokens, false)
	if err != nil {
		return nil, err
	}
	id, ok := t.ids[unknown]
	if !ok {
		return nil, fmt.Errorf("the unknown token %q is not in the vocabulary", unknown)
	}
	tokens[id].kind, w.unknown = Unknown, id
	w.begins, w.continues = map[string]int32{}, map[string]int32{}
	for i, k := range tokens {
		if !k.kind.isText() {
			continue
		}
		text, ok := strings.CutPrefix(k.text, continuation)
		to := w.begins
		if ok && text != "" {
			to = w.continues
		} else {
			text = k.text
		}
		to[text], w.longest = int32(i), max(w.longest, len(text))
	}
	t.pieces = w
	return t, nil
}

// normalize applies BertNormalizer.
func (w *wordPiece) normalize(s string, work *watch) string {
	var out strings.Builder
	out.Grow(len(s))
	var parts []byte
	for _, r := range s {
		if !work.spend(1) {
			break
		}
		if w.clean {
			if r == 0 || r == utf8.RuneError || isOther(r) {
				continue
			}
			if unicode.IsSpace(r) {
				r = ' '
			}
		}
		apart := w.chinese && isChinese(r)
		if apart {
			out.WriteByte(' ')
		}
		parts = utf8.AppendRune(parts[:0], r)
		if w.strip && r >= 0xC0 {
			parts = norm.NFD.AppendString(parts[:0], string(r))
		}
		for _, p := range string(parts) {
			if w.strip && unicode.Is(unicode.Mn, p) {
				continue
			}
			if w.lower && p == 'İ' { // its small form is two characters
				out.WriteString("i̇")
				continue
			}
			if w.lower {
				p = unicode.ToLower(p)
			}
			out.WriteRune(p)
		}
		if apart {
			out.WriteByte(' ')
		}
	}
	return out.String()
}

// isOther reports whether r is in one of Unicode's categories C, including unassigned characters, and no white space.
func isOther(r rune) bool {
	if r == '\t' || r == '\n' || r == '\r' {
		return false
	}
	return !unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S, unicode.Z)
}

// isChinese reports whether r is an ideograph by the ranges of BERT.
func isChinese(r rune) bool {
	return r >= 0x4E00 && r <= 0x9FFF || r >= 0x3400 && r <= 0x4DBF || r >= 0x20000 && r <= 0x2A6DF || r >= 0x2A700 &&
		r <= 0x2B73F ||
		r >= 0x2B740 && r <= 0x2B81F || r >= 0x2B920 && r <= 0x2CEAF || r >= 0xF900 && r <= 0xFAFF || r >= 0x2F800 &&
		r <= 0x2FA1F
}

// isPunctuation reports whether r is a separate word.
func isPunctuation(r rune) bool {
	return r >= '!' && r <= '/' || r >= ':' && r <= '@' || r >= '[' && r <= '`' || r >= '{' && r <= '~' ||
		unicode.Is(unicode.P, r)
}

// wordPieces appends the ids of text.
func (e *encoder) wordPieces(s string) {
	w := e.t.pieces
	s = w.normalize(s, &e.watch)
	begin := 0 // of the word
	for i := 0; i < len(s) && e.hasRoom(); {
		r, n := utf8.DecodeRuneInString(s[i:])
		space, mark := unicode.IsSpace(r), isPunctuation(r)
		if space || mark {
			e.pieces(s[begin:i])
			begin = i + n
		}
		if mark {
			e.pieces(s[i : i+n])
		}
		i += n
	}
	e.pieces(s[begin:])
}

// pieces appends the ids of a word.
func (e *encoder) pieces(word string) {
	w := e.t.pieces
	if word == "" || !e.spend(len(word)) {
		return
	}
	if len(word) > w.most && utf8.RuneCountInString(word) > w.most {
		e.add(w.unknown)
		return
	}
	var ids []int32
	for at, from := 0, w.begins; at < len(word); from = w.continues {
		id, n := longest(from, word[at:], w.longest)
		if n == 0 {
			e.add(w.unknown)
			return
		}
		ids = append(ids, id)
		at += n
	}
	for _, id := range ids {
		e.add(id)
	}
}

// longest returns the longest piece at the beginning of s, and its length; 0 for none.
func longest(pieces map[string]int32, s string, most int) (id int32, n int) {
	for n = min(len(s), most); n > 0; n-- {
		if n < len(s) && !utf8.RuneStart(s[n]) {
			continue
		}
		if id, ok := pieces[s[:n]]; ok {
			return id, n
		}
	}
	return 0, 0
}

// wordPiece makes the tokenizer of a tokenizer.json whose model is WordPiece.
func (f *jsonFile) wordPiece(c *config) (*Tokenizer, error) {
	n, p := f.Normalizer, f.PreTokenizer
	if n == nil || n.Type != "BertNormalizer" || p == nil || p.Type != "BertPreTokenizer" {
		return nil, errors.New("tokenizer.json: WordPiece without BertNormalizer and BertPreTokenizer is not supported")
	}
	tokens, added, err := f.tokens(c)
	if err != nil {
		return nil, err
	}
	w := &wordPiece{clean: flagOr(n.CleanText, true), chinese: flagOr(n.Chinese, true),
		lower: flagOr(n.Lowercase, true),
		most:  maxWord}
	if w.strip = flagOr(n.StripAccents, w.lower); f.Model.MaxChars > 0 {
		w.most = f.Model.MaxChars
	}
	t, err := newWordPiece(tokens, w, f.Model.Unknown)
	if err != nil {
		return nil, err
	}
	setAdded(t, added)
	t.widest = anyWidth
	return t, nil
}

// wordPiece makes the tokenizer of GGUF's metadata. A piece beginning a word has ▁ before it there, and others have
// nothing.
func (g GGUF) wordPiece(tokens []token) (*Tokenizer, error) {
	for i, k := range tokens {
		if k.kind != Normal {
			continue
		}
		if text, ok := strings.CutPrefix(k.text, space); ok && text != "" {
			tokens[i].text = text
		} else if k.text != "" {
			tokens[i].text = continuation + k.text
		}
	}
	if g.UNK == nil || *g.UNK < 0 || *g.UNK >= len(tokens) {
		return nil, errors.New("tokenizer.ggml.unknown_token_id: missing, or no token")
	}
	g.useClassified()
	w := &wordPiece{clean: true, chinese: true, lower: flagOr(g.Lowercase, true), most: maxWord}
	w.strip = flagOr(g.StripAccents, w.lower)
	t, err := newWordPiece(tokens, w, tokens[*g.UNK].text)
	if err != nil {
		return nil, err
	}
	setAdded(t, g.added(tokens))
	t.widest = anyWidth
	return t, setGGUFIDs(t, g, true)
}

// setPieces writes the metadata that wordPiece reads.
func (g *GGUF) setPieces(t *Tokenizer, pre string) {
	if g.Model, g.Pre, g.Lowercase = WordPiece, pre, &t.pieces.lower; t.pieces.strip != t.pieces.lower {
		g.StripAccents = &t.pieces.strip
	}
	for _, k := range t.tokens {
		switch text, ok := strings.CutPrefix(k.text, continuation); {
		case k.kind == Unknown:
			k.kind = Control
		case k.kind != Normal:
		case ok && text != "":
			k.text = text
		default:
			k.text = space + k.text
		}
		g.Tokens, g.Types = append(g.Tokens, k.text), append(g.Types, int32(k.kind))
	}
}

// FromVocab makes the tokenizer.json for a vocab.txt of BERT, with a token on each line, and the tokenizer_config.json
// beside it, which may be nil. (BertConverter of transformers)
func FromVocab(vocab, config []byte) ([]byte, error) {
	c := struct {
		Lower   *bool  `json:"do_lower_case"`
		Chinese *bool  `json:"tokenize_chinese_chars"`
		Strip   *bool  `json:"strip_accents"`
		UNK     nameOf `json:"unk_token"`
		SEP     nameOf `json:"sep_token"`
		CLS     nameOf `json:"cls_token"`
		PAD     nameOf `json:"pad_token"`
		Mask    nameOf `json:"mask_token"`
	}{}
	if len(config) > 0 {
		if err := json.Unmarshal(config, &c); err != nil {
			return nil, fmt.Errorf("tokenizer_config.json: %w", jsonerr.Plain(err, ""))
		}
	}
	ids := map[string]int{}
	for i, line := range strings.Split(strings.TrimSuffix(string(vocab), "\n"), "\n") {
		text := strings.TrimRight(line, " \t\r\n")
		if other, ok := ids[text]; ok || text == "" {
			return nil, fmt.Errorf("vocab.txt: line %d: %q is empty, or the token of line %d", i+1, text, other+1)
		}
		ids[text] = i
	}
	added := []object{}
	name := func(given nameOf, usual string) string {
		text := cmp.Or(string(given), usual)
		if id, ok := ids[text]; ok {
			added = append(added, object{"id": id, "content": text, "special": true})
		}
		return text
	}
	unk, cls, sep := name(c.UNK, "[UNK]"), name(c.CLS, "[CLS]"), name(c.SEP, "[SEP]")
	name(c.PAD, "[PAD]")
	name(c.Mask, "[MASK]")
	for _, text := range []string{unk, cls, sep} {
		if _, ok := ids[text]; !ok {
			return nil, errors.New("vocab.txt: it has no " + text)
		}
	}
	return json.Marshal(object{
		"added_tokens": added,
		"normalizer": object{"type": "BertNormalizer", "clean_text": true,
			"handle_chinese_chars": flagOr(c.Chinese, true),
			"strip_accents":        c.Strip,
			"lowercase":            flagOr(c.Lower, true)},
		"pre_tokenizer":  object{"type": "BertPreTokenizer"},
		"post_processor": object{"type": "BertProcessing", "cls": []any{cls, ids[cls]}, "sep": []any{sep, ids[sep]}},
		"decoder":        object{"type": "WordPiece", "prefix": continuation},
		"model": object{"type": "WordPiece", "unk_token": unk, "continuing_subword_prefix": continuation,
			"max_input_chars_per_word": maxWord, "vocab": ids},
	})
}
