package tokenizer

import (
	"cmp"
	"fmt"
	"strings"
)

// A GGUF is the tokenizer metadata of a GGUF file, each field under its key tokenizer.ggml.*. A nil pointer is an
// absent key.
type GGUF struct {
	Model    string    // model: ByteLevel, SentencePiece or Merged
	Pre      string    // pre: the pre-tokenizer's name, gpt2 only
	Tokens   []string  // tokens
	Types    []int32   // token_type, a Kind each; absent: all normal
	Scores   []float32 // scores, SentencePiece and Unigram only
	CharsMap []byte    // precompiled_charsmap, Unigram only
	Merges   []string  // merges, "left right" in order of rank; the others
	Flags    []int32   // token_flags, written by no other program: an id and its flags, strips of addedToken

	BOS            *int  // bos_token_id
	EOS            *int  // eos_token_id
	EOT            *int  // eot_token_id
	EOM            *int  // eom_token_id
	UNK            *int  // unknown_token_id
	SEP            *int  // seperator_token_id, spelled so
	PAD            *int  // padding_token_id
	CLS            *int  // cls_token_id
	Mask           *int  // mask_token_id
	AddBOS         *bool // add_bos_token
	AddEOS         *bool // add_eos_token
	AddSEP         *bool // add_sep_token
	AddSpacePrefix *bool // add_space_prefix
	Lowercase      *bool // normalizer.lowercase, WordPiece only
	StripAccents   *bool // normalizer.strip_accents, WordPiece only; absent: as Lowercase
	MergeSpaces    *bool // remove_extra_whitespaces, Unigram only
	NFKC           *bool // normalizer.nfkc, Unigram only, written by no other program
	// normalizer.nfc, written by no other program: false where Pre implies NFC and the tokenizer does not normalize
	NFC *bool
}

// The values of tokenizer.ggml.model, each named after its first user.
const (
	ByteLevel     = "gpt2"   // merges of bytes
	SentencePiece = "llama"  // scores
	Merged        = "gemma4" // merges of SentencePiece's symbols
)

// FromGGUF makes the tokenizer of a GGUF file. Where the file's converter has lost something, the model's own tokenizer
// is followed: qwen2 normalizes to NFC, and tokens with names of markers (<|turn>, <turn|>, <|im_end|>) are special
// although the file calls them normal or user-defined.
func FromGGUF(g GGUF) (*Tokenizer, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	var pre preTokenizer
	if g.Model == ByteLevel {
		var err error
		if pre, err = preTokenizerOf(g.Pre); err != nil {
			return nil, err
		}
		if pre.Merged {
			g.Model = Merged
		}
	}
	tokens := make([]token, len(g.Tokens))
	for i, text := range g.Tokens {
		tokens[i] = token{text, Normal}
		if i < len(g.Types) && g.Types[i] > 0 {
			tokens[i].kind = Kind(g.Types[i])
		}
		if tokens[i].kind == Normal && g.Model != Unigram && isMarker(text) {
			tokens[i].kind = Control
		}
	}
	switch g.Model {
	case WordPiece:
		return g.wordPiece(tokens)
	case Unigram:
		return g.unigram(tokens)
	}
	t, err := newTokenizer(tokens, g.Model == ByteLevel)
	if err != nil {
		return nil, err
	}
	if g.Model == ByteLevel {
		t.bpe.stages, t.bpe.allWhole, t.norm.nfc = splitters(pre.Patterns), pre.IgnoreMerges, pre.NFC &&
			flagOr(g.NFC, true)
	} else {
		t.norm.escape = true
	}
	if g.Model == SentencePiece {
		err = g.setScores(t)
	} else {
		err = setMerges(t, len(g.Merges), func(i int) (string, string, error) { return splitMerge(g.Merges[i], i) })
	}
	if err != nil {
		return nil, err
	}
	setAdded(t, g.added(tokens))
	return t, setGGUFIDs(t, g, pre.AddBOS || g.Model != ByteLevel && !pre.Merged)
}

// setScores sets the fields of SentencePiece. Without byte tokens a run of characters without a token is a single
// unknown token, 0 by default (llama_vocab::impl::load in llama.cpp/src/llama-vocab.cpp).
func (g *GGUF) setScores(t *Tokenizer) error {
	if err := checkBytes(t); err != nil {
		return err
	}
	if t.lossy {
		unknown := 0
		if g.UNK != nil {
			if err := t.setID(&unknown, *g.UNK, "tokenizer.ggml.unknown_token_id"); err != nil {
				return err
			}
		}
		t.unknown, t.fuse = int32(unknown), true
	}
	if flagOr(g.AddSpacePrefix, true) {
		t.norm.prepend = prependSegment
	}
	return setScores(t, g.Scores)
}

// check checks the lengths of the lists and the types.
func (g *GGUF) check() error {
	if len(g.Tokens) == 0 {
		return fmt.Errorf("tokenizer.ggml.tokens: no tokens: %w", ErrNone)
	}
	switch g.Model {
	case ByteLevel, Merged:
		if len(g.Merges) == 0 {
			return fmt.Errorf("tokenizer.ggml.merges: %w", ErrNoMerges)
		}
	case SentencePiece, Unigram:
		if len(g.Scores) != len(g.Tokens) {
			return fmt.Errorf("tokenizer.ggml.scores: %d scores for %d tokens", len(g.Scores), len(g.Tokens))
		}
	case WordPiece:
	default:
		return fmt.Errorf("tokenizer.ggml.model: %q is not supported (%s, %s, %s, %s and %s are)", g.Model, ByteLevel,
			SentencePiece, Merged, WordPiece, Unigram)
	}
	if len(g.Types) != 0 && len(g.Types) != len(g.Tokens) {
		return fmt.Errorf("tokenizer.ggml.token_type: %d types for %d tokens", len(g.Types), len(g.Tokens))
	}
	for i, id := range g.Flags {
		if len(g.Flags)%2 != 0 || i%2 == 0 && (id < 0 || int(id) >= len(g.Tokens)) {
			return fmt.Errorf("tokenizer.ggml.token_flags: entry %d: want the id of a token and its flags in turns", i)
		}
	}
	for i, k := range g.Types {
		if k < 0 || Kind(k) > Byte {
			return fmt.Errorf("tokenizer.ggml.token_type: token %d: unknown type %d", i, k)
		}
	}
	return nil
}

// added lists the tokens to cut out of the text. User-defined tokens always are cut out, except markers.
func (g *GGUF) added(tokens []token) []addedToken {
	var added []addedToken
	flags := map[int32]int32{}
	for i := 0; i+1 < len(g.Flags); i += 2 {
		flags[g.Flags[i]] = g.Flags[i+1]
	}
	for i, k := range tokens {
		special := k.kind == Control || k.kind == Unknown
		if special || k.kind == UserDefined {
			content := k.text
			if g.Model != ByteLevel {
				content = strings.ReplaceAll(content, space, " ")
			}
			a := addedToken{content: content, id: int32(i), special: special || isMarker(k.text)}
			a.setFlags(flags[int32(i)])
			added = append(added, a)
		}
	}
	return added
}

// isMarker reports whether a token has the name of a special token: <|name|>, <|name> or <name|>, and a few known
// names. llama.cpp's converter marks some of them as normal and Gemma 4's <|channel>, visible in a reply, as
// user-defined.
func isMarker(text string) bool {
	switch text {
	case "<mask>", "<start_of_turn>", "<end_of_turn>":
		return true
	}
	n := len(text)
	if n < 4 || text[0] != '<' || text[n-1] != '>' || strings.ContainsAny(text, " \t\r\n") {
		return false
	}
	return text[1] == '|' || text[n-2] == '|'
}

// setGGUFIDs sets the special ids and the tokens around a text.
func setGGUFIDs(t *Tokenizer, g GGUF, addBOS bool) error {
	var eot, eom int
	for _, k := range []struct {
		id   *int
		to   *int
		name string
	}{{g.BOS, &t.special.bos, "bos"}, {g.EOS, &t.special.eos, "eos"}, {g.EOT, &eot, "eot"}, {g.EOM, &eom, "eom"}} {
		if k.id == nil {
			continue
		}
		if err := t.setID(k.to, *k.id, "tokenizer.ggml."+k.name+"_token_id"); err != nil {
			return err
		}
	}
	if flagOr(g.AddBOS, addBOS && t.special.bos >= 0) {
		if t.special.bos < 0 {
			return fmt.Errorf("tokenizer.ggml.add_bos_token: there is no bos_token_id")
		}
		t.special.prefix = []int{t.special.bos}
	}
	if flagOr(g.AddEOS, false) {
		if t.special.eos < 0 {
			return fmt.Errorf("tokenizer.ggml.add_eos_token: there is no eos_token_id")
		}
		t.special.suffix = []int{t.special.eos}
	}
	setGGUFPair(t, g)
	findEndOfTurn(t, g.EOT, g.EOM)
	return nil
}

// useClassified lets CLS and SEP stand for BOS and EOS where a file lacks these.
func (g *GGUF) useClassified() {
	g.BOS, g.EOS = cmp.Or(g.BOS, g.CLS), cmp.Or(g.EOS, g.SEP)
	if g.AddEOS == nil && g.EOS != nil {
		g.AddEOS = new(true)
	}
}

// setGGUFPair sets the form of a pair of texts, perhaps with another separator between the texts. In WordPiece the
// texts have two kinds.
func setGGUFPair(t *Tokenizer, g GGUF) {
	cls, sep := -1, -1
	if len(t.special.prefix) > 0 {
		cls = t.special.prefix[0]
	}
	if len(t.special.suffix) > 0 {
		sep = t.special.suffix[0]
	}
	two := flagOr(g.AddSEP, g.Model == Unigram)
	setPair(t, cls, sep, two)
	if !two && g.Model != WordPiece {
		for i := range t.pair {
			t.pair[i].kind = 0
		}
	}
}

// flagOr returns a flag's value, or the default absent.
func flagOr(flag *bool, absent bool) bool {
	if flag == nil {
		return absent
	}
	return *flag
}

// setMerges adds n merges in order of rank.
func setMerges(t *Tokenizer, n int, at func(i int) (left, right string, err error)) error {
	if n == 0 {
		return ErrNoMerges
	}
	t.bpe.pairs = newPairTable(n)
	for i := range n {
		left, right, err := at(i)
		if err == nil {
			err = addMerge(t, left, right, i)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// splitMerge splits "left right" at its only space.
func splitMerge(merge string, i int) (left, right string, err error) {
	left, right, ok := strings.Cut(merge, " ")
	if !ok || left == "" || right == "" || strings.Contains(right, " ") {
		return "", "", fmt.Errorf("merge %d: %q is not two tokens with a space between", i, merge)
	}
	return left, right, nil
}
