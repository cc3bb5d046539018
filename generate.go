package karat

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/karat-run/karat/internal/chat"
	"github.com/karat-run/karat/internal/draft"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/sample"
	"github.com/karat-run/karat/internal/syntax"
	"github.com/karat-run/karat/internal/tokenizer"
)

// GenerateOptions say how to continue a text. The zero value generates at most 256 tokens, sampled by the
// recommendation of the model's publisher; without a recommendation, greedily.
type GenerateOptions struct {
	MaxTokens int       // 0 is 256; negative fills the context. A context full earlier is ErrFull
	Sampling  *Sampling // nil is the publisher's recommendation, replaced as a whole (see Sampling)
	Stop      []string  // strings ending the text, and no part of the text
	End       []int     // tokens ending the text beside the model's own; Chat adds TurnEnds

	Logprobs    bool // set Token.Logprob
	TopLogprobs int  // number of Token.TopLogprobs
	Logits      bool // set Token.Logits

	// Adapters are the factors of adapters, by their names in Options.Adapters. An adapter without a factor is off. A
	// nil map applies all, with the factors in Options.
	Adapters map[string]float64

	// Special names special tokens to be spelled in Text, such as <|python_tag|>. Other special tokens are left out. A
	// name between two bytes 0xff, found in no other text, stands so in Text, unlike text spelled alike.
	Special []string

	// Grammar is the form of the text; nil allows any text. A text cut by Stop or MaxTokens is a beginning of a fitting
	// text. Log-probabilities are the same as without a grammar.
	Grammar *Grammar

	Caller Caller // author of the request

	Draft Draft // source of drafts; "" is Options.Draft

	Receipt *Receipt // filled by the request, from Model.NewReceipt; nil is none

	// Prediction is a text repeated by large parts of the answer, such as a file to edit. A prediction changes the
	// speed alone.
	Prediction string

	// Hooks see the values computed by the model for this request, and may change them. A request with hooks keeps
	// nothing for the session's next request and finds nothing of earlier ones. Nil is no hooks.
	Hooks *Hooks

	OnToken func(Token) // sees each token of ChatParts, GenerateParts, Complete and CompleteChat before its parts

	// For Chat alone: Generate and GenerateIDs render no template, and refuse these options.
	Tools        []Tool         // functions for the model to call; an error if the template has no place for tools
	Template     string         // chat template to use instead of the model's
	TemplateArgs map[string]any // variables for the template, such as enable_thinking

	// NoToolFallback refuses tools, calls and results without a place in the chat template. By default Chat writes them
	// as text and explains the form of a call to the model: docs/serving.md has the form.
	NoToolFallback bool

	// NoGenerationPrompt leaves out the beginning of the answer, as add_generation_prompt=false does.
	NoGenerationPrompt bool

	// Continue makes the answer go on with the text of the last message, from the assistant.
	Continue bool
}

// Caller is the author of a request, with its urgency.
type Caller struct {
	Key      string // callers of different keys have equal shares of the steps
	Priority int    // the higher goes first

	// PrivateCache shares cached prompts only among callers of the same key. The time of an answer then shows nobody
	// the requests of others.
	PrivateCache bool
}

// Sampling says how a token is chosen from its logits. The zero value is greedy: the likeliest token. The options apply
// in the order penalties, top-k, top-p, min-p, temperature. A zero switches an option off.
//
// A Sampling replaces the publisher's recommendation as a whole. To change one setting of it:
//
//	s := m.Sampling()
//	s.Temperature = 0.7
//	o.Sampling = &s
type Sampling struct {
	Temperature   float64
	TopK          int
	TopP          float64
	MinP          float64
	RepeatPenalty float64
	RepeatLast    int // number of tokens in reach of RepeatPenalty: 0 is 64, -1 all

	// PresencePenalty is subtracted from the logits of generated tokens, FrequencyPenalty once per occurrence.
	PresencePenalty, FrequencyPenalty float64

	// Seed chooses the draws: a request with the same seed gives the same text on every machine. Without a Seed each
	// request draws a seed, so two requests differ. Session.Seed and Answer.Seed report the drawn seed.
	Seed *uint64

	LogitBias map[int]float32 // added to the logits of tokens, by their ids; -Inf bans a token
}

// Token is a generated token.
type Token struct {
	ID int

	// Text is the token's part of the answer, empty while a character or a stop string is incomplete. Beside an error
	// Text is the text held back.
	Text string

	// Logprob is the natural logarithm of the token's probability before any sampling option, set if GenerateOptions
	// asks for Logprobs or for TopLogprobs.
	Logprob     float64
	TopLogprobs []Logprob // the likeliest tokens, likeliest first
	Logits      []float32 // [VocabSize], the logits behind the choice
	Stop        StopReason
	Stopped     string // the string of GenerateOptions.Stop found
}

// StopReason is the reason for the end of a generation, "" before the last token.
type StopReason string

// The reasons.
const (
	StopEnd    StopReason = "end"    // the model ended its turn
	StopString StopReason = "stop"   // a string of GenerateOptions.Stop came up
	StopLength StopReason = "length" // GenerateOptions.MaxTokens are generated, or, if negative, the context is full
)

// Logprob is a token and the natural logarithm of its probability.
type Logprob struct {
	ID      int
	Text    string // Model.TokenText of ID
	Logprob float64
}

// Sampling returns the recommendation of the model's publisher. The options apply in Karat's order; transformers
// divides by the temperature before top-k, top-p and min-p.
func (m *Model) Sampling() Sampling {
	g := m.opened.Checkpoint.Generation()
	s := Sampling{RepeatPenalty: g.Repeat, RepeatLast: -1} // transformers looks back on the whole text
	for _, id := range g.Suppress {
		if s.LogitBias == nil {
			s.LogitBias = map[int]float32{}
		}
		if id < m.opened.Engine.VocabSize() { // else no token, and an error as a key
			s.LogitBias[id] = float32(math.Inf(-1))
		}
	}
	if g.Sample {
		s.Temperature, s.TopK, s.TopP, s.MinP = cmp.Or(g.Temperature, 1), g.TopK, g.TopP, g.MinP
	}
	return s
}

// Draft is a source of drafts: tokens guessed to come next, several verified in a step. Drafts change the speed of an
// answer, not its tokens, nor a bit of its logits. A step has as many drafts as raise the speed, by their luck so far
// and by the measured time of steps.
type Draft string

// The sources.
const (
	DraftAuto  Draft = "auto"  // all there are
	DraftOff   Draft = "off"   // no drafts
	DraftNgram Draft = "ngram" // the text behind an earlier occurrence of its end, in prompt, answer or Prediction
	DraftMTP   Draft = "mtp"   // the model's own head for further tokens, if its file has one
)

var errNoHead = errors.New("the model has no head that predicts further tokens")

// guesses reports whether d includes the model's head.
func (d Draft) guesses() bool { return d == "" || d == DraftAuto || d == DraftMTP }

// DraftCount counts verified tokens of drafts.
type DraftCount struct{ Accepted, Rejected int }

// Validate returns an error for an unknown source.
func (d Draft) Validate() error {
	switch d {
	case "", DraftAuto, DraftOff, DraftNgram, DraftMTP:
		return nil
	}
	return fmt.Errorf("drafts of %q, want %s, %s, %s or %s", string(d), DraftAuto, DraftNgram, DraftMTP, DraftOff)
}

// Generate continues a raw text: Generate applies no chat template, and special tokens in the prompt are text. Leaving
// the loop, or cancelling ctx, ends the generation.
func (m *Model) Generate(ctx context.Context, prompt string, o GenerateOptions) iter.Seq2[Token, error] {
	return runAlone(m, func(s *Session) iter.Seq2[Token, error] { return s.Generate(ctx, prompt, o) })
}

// GenerateIDs continues a prompt of token ids like Generate, adding nothing to the prompt, not even BOS.
func (m *Model) GenerateIDs(ctx context.Context, prompt []int, o GenerateOptions) iter.Seq2[Token, error] {
	return runAlone(m, func(s *Session) iter.Seq2[Token, error] { return s.GenerateIDs(ctx, prompt, o) })
}

// Chat continues a conversation, rendered by the model's chat template. Tools, calls and results without a place in the
// template are an error.
func (m *Model) Chat(ctx context.Context, messages []Message, o GenerateOptions) iter.Seq2[Token, error] {
	return runAlone(m, func(s *Session) iter.Seq2[Token, error] { return s.Chat(ctx, messages, o) })
}

// runAlone yields the results of a request in a session of its own.
func runAlone[T any](m *Model, request func(*Session) iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		s := m.NewSession()
		defer s.Close()
		request(s)(yield)
	}
}

// Session keeps the keys and values of a text, so the work for a longer text with the same beginning starts at its end.
// A Session is for one goroutine at a time. Close frees its memory for other sessions.
type Session struct {
	m            *Model
	s            *engine.Sequence
	prompt, kept int
	reads        atomic.Int64 // prompt, for Progress
	seed         uint64
	tail         string         // the end of the prompt's text
	drafter      *draft.Drafter // of the running request; nil for none
	drafts       draft.Counts   // of the last request
	hooked       bool           // s is of the engine for hooks
	closed       bool
}

// NewSession makes an empty session.
func (m *Model) NewSession() *Session { return &Session{m: m, s: m.opened.Engine.NewSequence()} }

// Close frees the session's keys and values.
func (s *Session) Close() {
	s.closed = true
	s.s.Close()
}

// PromptTokens returns the number of tokens of the last request's prompt, and the number kept by the session from
// before. Both are 0 if the prompt did not fit the context.
func (s *Session) PromptTokens() (tokens, cached int) { return s.prompt, s.kept }

// Progress returns how many tokens of the running request's prompt are computed or kept, and of how many. Unlike the
// other methods, Progress may be called beside a request, without Hooks.
func (s *Session) Progress() (done, total int) {
	total = int(s.reads.Load())
	return min(s.s.Computed(), total), total
}

// Seed returns the seed of the last request's draws: Sampling.Seed, or the seed drawn in its place.
func (s *Session) Seed() uint64 { return s.seed }

// Started returns the start of the last request's first step, perhaps after a wait for others; the zero time if there
// was no step.
func (s *Session) Started() time.Time { return s.s.Started() }

// Drafts returns the counts of the last request's drafts, by "ngram", "prediction", "grammar" and "mtp", without zeros.
func (s *Session) Drafts() map[string]DraftCount {
	all := map[string]DraftCount{}
	for k, c := range s.drafts {
		if n := DraftCount(c); n != (DraftCount{}) {
			all[draft.Kind(k).String()] = n
		}
	}
	return all
}

// draft returns the maker of the request's drafts.
func (s *Session) draft(ctx context.Context, prompt []int32, o *GenerateOptions) func() *draft.Drafter {
	if cmp.Or(o.Draft, s.m.drafts) == DraftOff {
		return nil
	}
	return func() *draft.Drafter {
		predicted, err := s.m.prompt(ctx, o.Prediction, tokenizer.Options{})
		if err != nil { // longer than an answer can be
			predicted = nil
		}
		if s.drafter = draft.New(prompt, predicted); cmp.Or(o.Draft, s.m.drafts) == DraftMTP {
			s.drafter.Restrict()
		}
		return s.drafter
	}
}

// force returns the tokens of a text that a grammar forces.
func (m *Model) force(text []byte) []int32 {
	ids := m.opened.Tokenizer.Encode(string(text), tokenizer.Options{})
	if len(ids) > 0 { // without the space that some tokenizers put before every text
		first := m.opened.Tokenizer.Bytes(ids[0])
		if rest, ok := bytes.CutPrefix(first, []byte(" ")); ok && text[0] != ' ' {
			id, ok := m.opened.Tokenizer.ID(string(rest))
			if !ok {
				return nil
			}
			ids[0] = id
		}
	}
	forced := make([]int32, len(ids))
	for i, id := range ids {
		forced[i] = int32(id)
	}
	return forced
}

// Generate continues a raw text like Model.Generate.
func (s *Session) Generate(ctx context.Context, prompt string, o GenerateOptions) iter.Seq2[Token, error] {
	return s.run(ctx, &o, func() (ids []int32, _ engine.Mixed, err error) {
		if err = o.checkRaw(); err == nil {
			ids, err = s.m.prompt(ctx, prompt, tokenizer.Options{AddSpecial: true})
		}
		return ids, engine.Mixed{}, err
	})
}

// GenerateIDs continues a prompt of ids like Model.GenerateIDs.
func (s *Session) GenerateIDs(ctx context.Context, prompt []int, o GenerateOptions) iter.Seq2[Token, error] {
	return s.run(ctx, &o, func() (ids []int32, _ engine.Mixed, err error) {
		if err = o.checkRaw(); err == nil {
			ids, err = s.m.promptIDs(ctx, prompt)
		}
		return ids, engine.Mixed{}, err
	})
}

// Chat continues a conversation like Model.Chat.
func (s *Session) Chat(ctx context.Context, messages []Message, o GenerateOptions) iter.Seq2[Token, error] {
	return s.run(ctx, &o, func() ([]int32, engine.Mixed, error) {
		ids, mixed, err := s.m.chatIDs(ctx, messages, o)
		if err == nil {
			var ends []int
			ends, err = s.m.TurnEnds(ctx, o)
			o.End = append(ends, o.End...)
		}
		if o.Receipt != nil {
			o.Receipt.RenderedBy(s.m, o.Template)
		}
		return ids, mixed, err
	})
}

// chatIDs returns the ids of a rendered conversation, and the rows of its pictures.
func (m *Model) chatIDs(ctx context.Context, messages []Message, o GenerateOptions) (ids []int32, mixed engine.Mixed,
	err error) {
	if images := imagesOf(messages); len(images) > 0 {
		return m.look(ctx, messages, images, o, m.see)
	}
	text, said, err := m.conversation(ctx, messages, o)
	if err != nil {
		return nil, mixed, err
	}
	ids, err = m.prompt(ctx, text, tokenizer.Options{ParseSpecial: true, Literal: said})
	return ids, mixed, err
}

// Render returns the chat template's text of a conversation, with the beginning of the answer unless
// o.NoGenerationPrompt is set.
func (m *Model) Render(ctx context.Context, messages []Message, o GenerateOptions) (string, error) {
	text, _, err := m.render(ctx, messages, o)
	return text, err
}

// TokenizeChat returns the ids of the rendered conversation. The name of a special token counts if written by the
// template; in messages a name is text. An ExceedsContext conversation is ErrFull.
func (m *Model) TokenizeChat(ctx context.Context, messages []Message, o GenerateOptions) (ids []int, err error) {
	if images := imagesOf(messages); len(images) > 0 {
		var list []int32
		list, _, err = m.look(ctx, messages, images, o, m.see)
		for _, id := range list {
			ids = append(ids, int(id))
		}
		return ids, err
	}
	text, said, err := m.conversation(ctx, messages, o)
	if err == nil && m.ExceedsContext(text) {
		err = m.full()
	}
	if err != nil {
		return nil, err
	}
	return m.tokenize(ctx, text, tokenizer.Options{ParseSpecial: true, Literal: said})
}

// CountChat returns the number of TokenizeChat's ids. Of a picture only the size is read, and no row is computed.
func (m *Model) CountChat(ctx context.Context, messages []Message, o GenerateOptions) (int, error) {
	ids, _, err := m.LocateImages(ctx, messages, o)
	return len(ids), err
}

// ImagePlace is where a picture lies in a prompt.
type ImagePlace struct {
	Hash           string // SHA-256 of the picture's file, in hexadecimal
	Offset, Length int    // of the ids from the picture's first row to the last
}

// LocateImages returns TokenizeChat's ids, and where the pictures lie among them. Of a picture only the size is read.
func (m *Model) LocateImages(ctx context.Context, messages []Message, o GenerateOptions) (ids []int,
	places []ImagePlace, err error) {
	images := imagesOf(messages)
	if len(images) == 0 {
		ids, err = m.TokenizeChat(ctx, messages, o)
		return ids, nil, err
	}
	list, mixed, err := m.look(ctx, messages, images, o, m.measure)
	for _, id := range list {
		ids = append(ids, int(id))
	}
	if err != nil {
		return ids, nil, err
	}
	runs := mixed.Groups // of rows; a picture has several where tokens part its rows
	for _, x := range images {
		p := ImagePlace{Hash: fmt.Sprintf("%x", sha256.Sum256(x.Data)), Offset: int(runs[0].First)}
		for ; x.rows > 0; runs = runs[1:] {
			x.rows -= int(runs[0].End - runs[0].First)
			p.Length = int(runs[0].End) - p.Offset
		}
		places = append(places, p)
	}
	return ids, places, nil
}

// ExceedsContext reports whether a text surely has more tokens than the context. The text's length decides, so the call
// takes no time. A shorter text may still have too many tokens.
func (m *Model) ExceedsContext(text string) bool {
	return m.opened.Tokenizer.Exceeds(text, m.opened.Engine.Context())
}

func (m *Model) full() error {
	return &tooLong{fmt.Sprintf("%v: the prompt has more than the %d tokens that the context holds", ErrFull,
		m.opened.Engine.Context())}
}

// tooLong is the error of a prompt longer than the context.
type tooLong struct{ text string }

func (e *tooLong) Error() string { return e.text }

func (e *tooLong) Is(kind error) bool { return kind == ErrFull || kind == ErrTooLong }

// conversation renders messages, unless the context cannot hold the user's texts. White space around a text does not
// count, since templates leave white space out; nor do other roles, whose texts templates may shorten further.
func (m *Model) conversation(ctx context.Context, messages []Message, o GenerateOptions) (text string,
	said []tokenizer.Span, err error) {
	if err := m.blind(); err != nil && len(imagesOf(messages)) > 0 {
		return "", nil, err
	}
	for _, x := range messages {
		for _, p := range x.Parts {
			if s, _ := p.(Text); x.Role == RoleUser && m.ExceedsContext(strings.TrimSpace(string(s))) {
				return "", nil, m.full()
			}
		}
	}
	return m.render(ctx, messages, o)
}

// render returns the rendered conversation, and the parts of the text from messages.
func (m *Model) render(ctx context.Context, messages []Message, o GenerateOptions) (text string, said []tokenizer.Span,
	err error) {
	var segments []chat.Segment
	if o.Continue {
		segments, err = m.renderUnended(ctx, messages, o)
	} else {
		segments, err = m.segments(ctx, messages, o)
	}
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", m.opened.Checkpoint.Path, err)
	}
	text, spans := chat.Flatten(segments)
	for _, s := range spans {
		said = append(said, tokenizer.Span(s))
	}
	return text, said, nil
}

func (m *Model) segments(ctx context.Context, messages []Message, o GenerateOptions) ([]chat.Segment, error) {
	if ctx == nil {
		return nil, errNilContext
	}
	t, err := m.template(o.Template)
	if err != nil {
		return nil, err
	}
	if len(messages) == 0 {
		return nil, errors.New("a conversation needs a message")
	}
	messages = assignIDs(t.Source(), messages)
	in, err := input(messages, &o)
	if err != nil {
		return nil, err
	}
	in.BOSToken, in.EOSToken = m.opened.Piece(m.opened.Tokenizer.BOS()), m.opened.Piece(m.opened.Tokenizer.EOS())
	none, left := lacksTools(ctx, t, messages, o)
	if y := syntax.Of(t.Source()); none && !o.NoToolFallback {
		if _, writes := y.Text(); writes {
			return renderAsText(ctx, t, &y, in, messages, o)
		}
	}
	segments, err := t.CheckedSegments(ctx, in)
	if segments != nil && left != nil {
		return nil, left
	}
	return segments, placeError(err, messages)
}

// template returns the template of a text, or the model's own. A program without chats links no templates.
func (m *Model) template(text string) (*chat.Template, error) {
	if text != "" {
		return chat.Parse(text, chat.Limits{})
	}
	m.chat.once.Do(func() {
		m.chat.template, m.chat.broken = chat.Parse(m.opened.Checkpoint.Template(), chat.Limits{})
	})
	return m.chat.template, m.chat.broken
}

// TurnEnds returns the tokens at the end of an answer in the chat template: Template's, or the model's own. An example
// is <|im_end|> in a fine-tune with only <|endoftext|> in its settings.
func (m *Model) TurnEnds(ctx context.Context, o GenerateOptions) (ids []int, err error) {
	t, err := m.template(o.Template)
	if err != nil {
		return nil, err
	}
	bos, eos := m.opened.Piece(m.opened.Tokenizer.BOS()), m.opened.Piece(m.opened.Tokenizer.EOS())
	for _, name := range t.TurnEnds(ctx, bos, eos, func(text string) (string, bool) {
		for id, err := range m.opened.Tokenizer.IDs(ctx, text, tokenizer.Options{ParseSpecial: true}) {
			if err != nil {
				break
			}
			name, kind := m.opened.Tokenizer.Token(id[0])
			return name, kind == tokenizer.Control || kind == tokenizer.UserDefined
		}
		return "", false
	}) {
		if id, ok := m.opened.Tokenizer.ID(name); ok {
			ids = append(ids, id)
		}
	}
	return ids, ctx.Err()
}

// prompt returns the ids of a prompt inside the context. A longer prompt is refused, at the latest after too many ids.
func (m *Model) prompt(ctx context.Context, text string, o tokenizer.Options) (ids []int32, err error) {
	o.Most = m.opened.Engine.Context()
	for piece, err := range m.opened.Tokenizer.IDs(ctx, text, o) {
		if errors.Is(err, tokenizer.ErrMost) {
			return nil, m.full()
		}
		if err != nil {
			return nil, err
		}
		for _, id := range piece { // ids are below 2³¹
			ids = append(ids, int32(id))
		}
	}
	return ids, nil
}

// promptIDs converts the ids of a text, checked against the context's size.
func (m *Model) promptIDs(ctx context.Context, ids []int) ([]int32, error) {
	if ctx == nil {
		return nil, errNilContext
	}
	if most := m.opened.Engine.Context(); len(ids) > most {
		return nil, &tooLong{fmt.Sprintf("%v: the prompt has %d tokens, more than the %d that the context holds",
			ErrFull, len(ids), most)}
	}
	list, err := tokensOf(m.opened.Engine, ids)
	if at := m.picture(list); at >= 0 {
		return nil, fmt.Errorf("id %d of the prompt: %w", at, ErrPictureIDs)
	}
	return list, err
}

// check returns an error for options impossible in every request.
func (o *GenerateOptions) check() error {
	for i, s := range o.Stop {
		if s == "" {
			return fmt.Errorf("GenerateOptions.Stop[%d] is empty, which is in every text", i)
		}
	}
	if err := o.Draft.Validate(); err != nil {
		return fmt.Errorf("GenerateOptions.Draft: %w", err)
	}
	if o.TopLogprobs < 0 {
		return fmt.Errorf("GenerateOptions.TopLogprobs is %d, want 0 or more", o.TopLogprobs)
	}
	return nil
}

// checkRaw returns an error for options of chat templates alone.
func (o *GenerateOptions) checkRaw() error {
	for _, x := range []struct {
		name string
		set  bool
	}{{"Tools", len(o.Tools) > 0}, {"Template", o.Template != ""},
		{"TemplateArgs", len(o.TemplateArgs) > 0}, {"NoGenerationPrompt", o.NoGenerationPrompt}} {
		if x.set {
			return fmt.Errorf("GenerateOptions.%s is for Chat: Generate renders no chat template", x.name)
		}
	}
	return nil
}

// makesTokens returns an error for encoders.
func (m *Model) makesTokens() error {
	if m.encoder() {
		return fmt.Errorf("%s: it is an encoder, which makes vectors and no text: Embed, or karat embed, is for it",
			m.opened.Checkpoint.Path)
	}
	return nil
}

// run yields the tokens after a prompt.
func (s *Session) run(ctx context.Context, o *GenerateOptions,
	prompt func() ([]int32, engine.Mixed, error)) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		s.prompt, s.kept, s.drafts = 0, 0, draft.Counts{}
		err := o.check()
		if err == nil {
			err = s.m.makesTokens()
		}
		var ids []int32
		var mixed engine.Mixed
		if err == nil {
			ids, mixed, err = prompt()
		}
		if err != nil {
			yield(Token{}, err)
			return
		}
		last := make([]int, 0, 16)
		for _, id := range ids[max(0, len(ids)-16):] {
			last = append(last, int(id))
		}
		s.tail = s.m.Detokenize(last)
		s.follow(ctx, ids, mixed, *o, yield)
	}
}

// begin prepares the session for a prompt under o, and returns the length of the beginning kept.
func (s *Session) begin(ctx context.Context, prompt []int32, mixed engine.Mixed, o *GenerateOptions) (kept int,
	err error) {
	if err := s.hook(ctx, o.Hooks); err != nil {
		return 0, err
	}
	blend, err := s.m.blend(o.Adapters)
	if err != nil {
		return 0, err
	}
	s.s.Adapt(blend)
	s.s.As(o.Caller.engine())
	return s.s.Mix(prompt, mixed, o.Caller.salt())
}

func (c Caller) engine() engine.Caller { return engine.Caller{Key: c.Key, Priority: c.Priority} }

// salt returns the group of callers that share prefixes.
func (c Caller) salt() string {
	if !c.PrivateCache {
		return ""
	}
	return "key " + c.Key
}

// follow yields the tokens after a prompt.
func (s *Session) follow(ctx context.Context, prompt []int32, mixed engine.Mixed, o GenerateOptions,
	yield func(Token, error) bool) {
	sampling := s.m.Sampling()
	if o.Sampling != nil {
		sampling = *o.Sampling
	}
	switch {
	case o.MaxTokens == 0:
		o.MaxTokens = 256
	case o.MaxTokens < 0: // the last token takes no place
		o.MaxTokens = max(1, s.m.opened.Engine.Context()-len(prompt)+1)
	}
	if sampling.Seed != nil {
		s.seed = *sampling.Seed
	} else {
		s.seed = rand.Uint64()
	}
	decoder, err := s.m.decoder(o.Special)
	var kept int
	var within engine.Grammar
	if err == nil && o.Grammar != nil {
		within, err = o.Grammar.match(ctx, s.m)
	}
	if err == nil && o.Receipt != nil && len(mixed.Embeddings) > 0 {
		err = errors.New("GenerateOptions.Receipt: a receipt of an answer about pictures is not possible")
	}
	if err == nil && o.Receipt != nil {
		err = o.Receipt.begin(ctx, s, prompt, sampling, &o)
	}
	if err == nil {
		kept, err = s.begin(ctx, prompt, mixed, &o)
	}
	if err != nil {
		yield(Token{}, err)
		return
	}
	r := engine.Request{Prompt: prompt, Max: o.MaxTokens, Sample: sampling.options(s.seed), Stop: o.Stop,
		Caller: o.Caller.engine(),
		End:    append(s.m.ends(), o.End...),
		Logits: o.Logits || o.Receipt != nil, Logprob: o.Logprobs, Top: o.TopLogprobs, Decoder: decoder,
		Grammar: within, Draft: s.draft(ctx, prompt, &o), Mixed: mixed}
	drafts := cmp.Or(o.Draft, s.m.drafts)
	if r.Head = drafts.guesses(); drafts == DraftAuto || drafts == "" {
		r.Force = s.m.force
	}
	s.prompt, s.kept = len(prompt), kept
	s.reads.Store(int64(len(prompt)))
	defer func() {
		if s.drafter != nil { // as large as the text
			s.drafts, s.drafter = s.drafter.Counts(), nil
		}
	}()
	for t, err := range s.s.Generate(ctx, r) {
		token := Token{ID: t.ID, Text: t.Text, Logprob: t.Logprob, TopLogprobs: s.m.logprobs(t.Top), Logits: t.Logits,
			Stop: StopReason(t.Stop), Stopped: t.Stopped}
		if o.Receipt != nil && err == nil {
			err = o.Receipt.add(&t)
		}
		if o.Receipt != nil && !o.Logits {
			s.s.Reuse(t.Logits)
			token.Logits = nil
		}
		if !yield(token, err) {
			return
		}
	}
}

// Validate returns an error with the name of a setting out of range.
func (s *Sampling) Validate() error {
	o := s.options(0)
	return o.Validate()
}

// options converts s for the sampler.
func (s *Sampling) options(seed uint64) sample.Options {
	return sample.Options{Temperature: s.Temperature, TopK: s.TopK, TopP: s.TopP, MinP: s.MinP,
		RepeatPenalty: s.RepeatPenalty, RepeatLast: s.RepeatLast, PresencePenalty: s.PresencePenalty,
		FrequencyPenalty: s.FrequencyPenalty, Seed: seed, LogitBias: s.LogitBias}
}

func (m *Model) logprobs(of []sample.Logprob) (all []Logprob) {
	for _, x := range of {
		all = append(all, Logprob{ID: x.ID, Text: m.TokenText(x.ID), Logprob: x.Logprob})
	}
	return all
}
