package check

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/chat"
	"github.com/karat-run/karat/internal/embed"
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/registry"
	"github.com/karat-run/karat/internal/tokenizer"
	"github.com/karat-run/karat/jinja"
)

// chatMLTurns is a form of turns that fine-tunes of any family may have.
var chatMLTurns = family.Turns{Name: "ChatML's", Marks: []string{"<|im_start|>", "<|im_end|>"}}

// marker matches text that looks like a special token in a rendered conversation.
const marker = `<[|｜][^<>\s]{1,40}>|<[^<>\s]{1,40}[|｜]>|<(?:start|end)_of_turn>`

// judgeText judges the tokenizer and the chat template.
func judgeText(c *checker) {
	if c.model == nil || c.hasFinding("arch-key") {
		judgeMerges(c)
		return
	}
	t, err := c.model.Tokenizer()
	switch {
	case errors.Is(err, tokenizer.ErrNoMerges):
		c.addText("merges-missing", "tokenizer.ggml.merges", "the tokenizer has no merges")
	case err != nil && strings.Contains(err.Error(), "but the model embeds"):
		if !c.unfit { // else the embedding's shape was told of
			c.addAs(Error, "vocab-size", []string{c.textKey("tokenizer.ggml.tokens")}, "%s", stripPrefix(err))
		}
	case err != nil:
		c.addText("tokenizer-broken", "tokenizer.ggml", "%s", stripPrefix(err))
	}
	if err != nil {
		return
	}
	judgeVocabulary(c, t)
	judgeBoundaries(c, t)
	if !isEncoder(c) {
		judgeChat(c, t)
	}
}

// judgeMerges judges the merges of a file that cannot be loaded.
func judgeMerges(c *checker) {
	if c.files.gguf == nil {
		return
	}
	m := c.files.gguf.Metadata
	if model, _ := m.String("tokenizer.ggml.model"); model != tokenizer.ByteLevel && model != tokenizer.Merged {
		return
	}
	if v, ok := m.Lookup("tokenizer.ggml.merges"); !ok || v.Len() == 0 {
		c.add("merges-missing", []string{"tokenizer.ggml.merges"}, "the tokenizer has no merges")
	}
}

// textKey returns the key of a GGUF file, or the corresponding file of a folder.
func (c *checker) textKey(key string) string {
	if c.files.dir == "" {
		return key
	}
	return "tokenizer.json"
}

// judgeVocabulary judges sizes, merges, scores and the types of tokens.
func judgeVocabulary(c *checker, t *tokenizer.Tokenizer) {
	missing := t.Missing()
	ascii := slices.DeleteFunc(slices.Clone(missing), func(b byte) bool { return b < ' ' || b > '~' })
	if len(ascii) > 0 {
		c.addText("bytes-missing", "tokenizer.ggml.tokens", "%d characters of ASCII have no token, the first is %q",
			len(ascii), ascii[0])
	} else if len(missing) > 0 {
		c.addAs(Note, "bytes-missing", []string{c.textKey("tokenizer.ggml.tokens")},
			"%d bytes have no token, the first is 0x%02X", len(missing), missing[0])
	}
	n, of := t.Unreachable()
	if n*10 > of { // in a published file no merge makes 2.6 % of the tokens
		c.addText("merges-missing", "tokenizer.ggml.merges",
			"no merge makes %d of the %d tokens of more than one symbol", n,
			of)
	}
	rows := c.number("vocab_size")
	size := t.VocabSize()
	if gap := int(rows) - size; c.unfit { // the embedding's shape was told of
	} else if c.files.gguf != nil && gap != 0 || float64(gap) > 0.05*rows {
		c.addText("vocab-size", "tokenizer.ggml.tokens", "the tokenizer has %d tokens, and the embedding %d rows", size,
			int(rows))
	}
	if c.files.gguf == nil {
		return
	}
	m := c.files.gguf.Metadata
	scores, _ := m.Floats("tokenizer.ggml.scores")
	if model, _ := m.String("tokenizer.ggml.model"); model == tokenizer.SentencePiece {
		slices.Sort(scores)
		if n, distinct := len(scores), len(slices.Compact(scores)); distinct*4 < n {
			c.addText("scores-flat", "tokenizer.ggml.scores", "the %d tokens have %d different scores", n, distinct)
		}
	}
	for _, key := range m.Keys() {
		id, err := m.Int(key)
		none := id == -1 || id == math.MaxUint32 // spellings of llama.cpp
		if strings.HasPrefix(key, "tokenizer.ggml.") && strings.HasSuffix(key, "_token_id") && err == nil && !none &&
			(id < 0 || id >= int64(size)) {
			c.add("token-ids", []string{key}, "%s is %d, outside the vocabulary of %d", key, id, size)
		}
	}
	types, err := m.Ints("tokenizer.ggml.token_type")
	if err != nil {
		if size > 0 {
			c.addText("token-types", "tokenizer.ggml.token_type", "the types of tokens are missing")
		}
		return
	}
	judgeTypes(c, t, types)
}

// judgeTypes judges the types of the tokens that the file calls special.
func judgeTypes(c *checker, t *tokenizer.Tokenizer, types []int64) {
	const key = "tokenizer.ggml.token_type"
	var wrong []string
	var special []int
	if !c.family().Expect.TurnsAsText { // the converter and the loader of such families disagree about the type
		special = t.EndOfTurn()
	}
	for _, get := range []func() (int, bool){t.BOS, t.EOS} {
		if id, ok := get(); ok && !slices.Contains(special, id) {
			special = append(special, id)
		}
	}
	for _, id := range special {
		if piece, _ := t.Token(id); id < len(types) && tokenizer.Kind(types[id]) == tokenizer.Normal && isEdge(piece) {
			wrong = append(wrong, fmt.Sprintf("%s (%d)", piece, id))
		}
	}
	if len(wrong) > 0 {
		c.addText("token-types", key, "tokens that begin or end texts are typed as text: %s", list(wrong))
	}
	text, control := 0, 0
	for id, k := range types {
		piece, _ := t.Token(id)
		if tokenizer.Kind(k) == tokenizer.Control && !strings.ContainsAny(piece, "<>[]") && piece != "" {
			control++
		}
		if tokenizer.Kind(k) == tokenizer.Normal {
			text++
		}
	}
	if control > text {
		c.addText("token-types", key, "%d tokens that look like text are typed as control", control)
	}
}

// isEdge reports whether a token may begin or end a text, by its name.
func isEdge(piece string) bool {
	return pattern(marker).MatchString(piece) || slices.Contains([]string{"<bos>", "<eos>", "<s>", "</s>", "[CLS]",
		"[SEP]"}, piece)
}

// isEncoder reports whether the model is an encoder, which answers nothing.
func isEncoder(c *checker) bool {
	g, _, err := arch.Stored(c.model)
	return err == nil && g.Bidirectional()
}

// wantsEnd reports whether vectors and scores need the token that ends a text. BERT's kin were trained with such a
// token, and a model that pools the last token takes the vector from it.
func wantsEnd(c *checker) bool {
	h, err := c.model.Embedding()
	return c.family().Tokenizer.End || err == nil && h != nil && h.Pooling == embed.Last
}

// judgeBoundaries judges the tokens around a text.
func judgeBoundaries(c *checker, t *tokenizer.Tokenizer) {
	bos, hasBOS := t.BOS()
	key := []string{c.textKey("tokenizer.ggml.add_bos_token")}
	ids := t.Encode("a", tokenizer.Options{AddSpecial: true})
	piece, _ := t.Token(bos)
	deep := strings.HasPrefix(piece, "<｜begin") // DeepSeek's models and distillates
	switch own := c.family().Tokenizer; {
	case hasBOS && len(ids) > 1 && ids[0] == bos && ids[1] == bos:
		c.add("bos-twice", key, "the tokenizer itself writes BOS twice before a text")
	case !own.BOS && t.AddsBOS() && !deep:
		c.add("bos-extra", key, "the tokenizer adds %s before each text; %s has no BOS", piece, c.family().Title)
	case own.BOS && !t.AddsBOS() && (deep || !own.Mixed):
		c.add("bos-missing", key, "the tokenizer adds no BOS; the models of architecture %s begin with one", c.arch)
	}
	if !t.EndsTexts() && wantsEnd(c) {
		c.addText("end-missing", "tokenizer.ggml.add_eos_token", "the tokenizer ends no text with a token")
	}
	eos, ok := t.EOS()
	key = []string{c.textKey("tokenizer.ggml.eos_token_id")}
	piece, _ = t.Token(eos)
	switch {
	case !ok && isEncoder(c): // texts of encoders may end without a token
	case !ok:
		c.add("eos-id", key, "there is no EOS")
	case hasBOS && eos == bos:
		c.add("eos-id", key, "EOS and BOS are the same token, %s (%d)", piece, eos)
	case !isEdge(piece) || !isEncoder(c) && !slices.Contains(declaredEnds(c, t), eos):
		c.add("eos-id", key, "EOS is %q (%d), which ends no text by its name", piece, eos)
	}
}

// judgeChat judges the chat template by its prompts.
func judgeChat(c *checker, t *tokenizer.Tokenizer) {
	source := c.model.Template()
	if source == "" {
		judgeMissing(c, t)
		return
	}
	where := []string{"tokenizer.chat_template"}
	if c.files.dir != "" {
		where = []string{"chat_template.jinja"}
	}
	p, err := chat.Parse(source, chat.Limits{})
	if err != nil {
		c.add("template-broken", where, "%s", err.Error())
		return
	}
	text, err := renderChat(c, p, t, "First.", "Second.", "Third.")
	if err != nil {
		why := err.Error()
		if needs := addFaults(c, source, t, where); needs == "" {
			c.add("template-broken", where, "a conversation of three turns: %s", why)
		} else {
			c.addAs(Note, "template-broken", where, "a conversation of three turns works with %s only: %s", needs, why)
		}
		return
	}
	if !strings.Contains(text, "First.") || !strings.Contains(text, "Third.") {
		c.add("template-broken", where, "what the user said is not in the prompt")
		return
	}
	judgeBOS(c, t, text, where)
	judgeMarkers(c, t, text, where)
	if lost, err := LostMarkers(c.ctx, source, t); err == nil && len(lost) > 0 {
		c.add("markers-lost", where,
			"the template builds %s from a conversation's text, so they reach the model as text",
			list(lost))
	}
	addFaults(c, source, t, where)
	judgeTurnEnd(c, t, text, where)
}

// renderChat writes a conversation and the beginning of the next answer.
func renderChat(c *checker, p *chat.Template, t *tokenizer.Tokenizer, user, assistant, then string) (string, error) {
	bos, eos := edges(t)
	return p.Render(c.ctx, chat.Input{BOSToken: bos, EOSToken: eos, AddGenerationPrompt: true, Messages: []*jinja.Dict{
		chat.Message("user", user), chat.Message("assistant", assistant), chat.Message("user", then)}})
}

// edges returns the tokens that begin and end a text, "" for none.
func edges(t *tokenizer.Tokenizer) (bos, eos string) {
	if id, ok := t.BOS(); ok {
		bos, _ = t.Token(id)
	}
	if id, ok := t.EOS(); ok {
		eos, _ = t.Token(id)
	}
	return bos, eos
}

// addFaults adds the faults of the template, and returns its needs beside messages: "" if no conversation works.
func addFaults(c *checker, source string, t *tokenizer.Tokenizer, where []string) (needs string) {
	bos, eos := edges(t)
	faults, needs, err := judgeTemplate(c.ctx, source, bos, eos, publishers())
	if err != nil {
		return ""
	}
	for _, f := range faults {
		c.addAs(f.severity, f.id, where, "%s", f.what)
	}
	return needs
}

// judgeMissing reports a missing template of a model for chats.
func judgeMissing(c *checker, t *tokenizer.Tokenizer) {
	name := c.report.Path
	if c.files.gguf != nil {
		name, _ = c.files.gguf.Metadata.String("general.name")
	}
	base := pattern(`(?i)\b(base|pt|pretrained)\b`).MatchString(strings.ReplaceAll(name, "_", "-"))
	if id, ok := t.EOS(); ok {
		piece, _ := t.Token(id)
		base = base || piece == "<|end_of_text|>" || piece == "<|endoftext|>"
	}
	severity := Warning
	if base || c.family().Encodes() {
		severity = Note
	}
	c.addAs(severity, "template-missing", []string{c.textKey("tokenizer.chat_template")}, "there is no chat template")
}

// judgeBOS judges how a rendered conversation begins.
func judgeBOS(c *checker, t *tokenizer.Tokenizer, text string, where []string) {
	bos, ok := t.BOS()
	if !ok {
		return
	}
	ids := t.Encode(text, tokenizer.Options{ParseSpecial: true})
	n := 0
	for n < len(ids) && ids[n] == bos {
		n++
	}
	switch {
	case n > 1:
		c.add("bos-twice", where, "the template begins a conversation with BOS %d times", n)
	case n == 0 && t.AddsBOS() && !c.hasFinding("token-types"):
		c.add("bos-missing", where,
			"the tokenizer begins texts with BOS, but the template does not: engines that take its text as it is "+
				"feed none")
	}
}

// judgeMarkers compares the template's markers with the vocabulary.
func judgeMarkers(c *checker, t *tokenizer.Tokenizer, text string, where []string) {
	var wrote, known, unknown []string
	fits := false
	judge := func(f family.Turns, own bool) {
		has := strings.Contains(text, f.Marks[0])
		_, ok := t.ID(f.Marks[0])
		if has {
			wrote = append(wrote, f.Name)
		}
		if ok && (own || !f.Only) {
			known = append(known, f.Name)
			fits = fits || has
		}
	}
	for _, of := range registry.Families {
		for _, f := range of.Expect.Turns {
			judge(f, of.Name == c.arch)
		}
	}
	judge(chatMLTurns, true)
	if len(known) > 0 && !fits {
		what := "none of the markers that are known"
		if len(wrote) > 0 {
			what = "turns in " + list(wrote) + " form"
		}
		c.add("template-family", where, "the template writes %s, but the vocabulary has %s", what, list(known))
		return
	}
	for _, m := range pattern(marker).FindAllString(text, -1) {
		if _, ok := t.ID(m); !ok && !slices.Contains(unknown, m) {
			unknown = append(unknown, m)
		}
	}
	if len(unknown) > 0 {
		c.add("special-split", where, "the template writes %s, which the vocabulary does not have", list(unknown))
	}
}

// judgeTurnEnd compares the token after an answer with the tokens that end an answer.
func judgeTurnEnd(c *checker, t *tokenizer.Tokenizer, text string, where []string) {
	_, after, ok := strings.Cut(text, "Second.")
	if !ok || c.hasFinding("template-family", "special-split") || c.family().Encodes() {
		return
	}
	m := pattern(marker).FindString(after)
	id, ok := t.ID(m)
	if ok && strings.HasPrefix(strings.TrimSpace(after), m) && !slices.Contains(declaredEnds(c, t), id) {
		c.add("eos-id", where, "the template ends an answer with %s (%d), but that ends none in the settings", m, id)
	}
}

// declaredEnds returns the tokens that end an answer by the settings. Karat also ends an answer at tokens with known
// names, and by the template; other engines may not.
func declaredEnds(c *checker, t *tokenizer.Tokenizer) []int {
	ids := slices.Clone([]int(c.model.Generation().End))
	if len(ids) == 0 {
		return t.EndOfTurn()
	}
	if eos, ok := t.EOS(); ok {
		ids = append(ids, eos)
	}
	return ids
}

// LostMarkers returns the special tokens that a chat template builds from a conversation's text, so that the model gets
// them as text; see chat.Template.LostMarkers. A template that does not parse is an error.
func LostMarkers(ctx context.Context, template string, t *tokenizer.Tokenizer) ([]string, error) {
	p, err := chat.Parse(template, chat.Limits{})
	if err != nil {
		return nil, err
	}
	var markers []string
	for id := range t.VocabSize() {
		if text, kind := t.Token(id); kind == tokenizer.Control || kind == tokenizer.UserDefined {
			markers = append(markers, text)
		}
	}
	bos, eos := edges(t)
	return p.LostMarkers(ctx, markers, bos, eos)
}
