package karat

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/karat-run/karat/internal/chat"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/sample"
	"github.com/karat-run/karat/internal/syntax"
	"github.com/karat-run/karat/internal/tokenizer"
)

// GenerateOptions say how to continue a text. The zero value generates at most 256 tokens. They
// are sampled as the model's publisher recommends; without a recommendation the likeliest is taken.
type GenerateOptions struct {
	MaxTokens int       // 0 is 256; negative is as many as the context holds. A context that is full sooner is ErrFull
	Sampling  *Sampling // nil is the publisher's recommendation; others replace it as a whole (see Sampling)
	Stop      []string  // strings that end the text; they are no part of it
	End       []int     // tokens that end the text beside the model's own; Chat adds TurnEnds

	Logprobs    bool // set Token.Logprob
	TopLogprobs int  // number of Token.TopLogprobs
	Logits      bool // set Token.Logits

	// Adapters are the factors of adapters, by their names in Options.Adapters. Adapters that are
	// not named are not applied. If the map is nil, all are, with the factors in Options.
	Adapters map[string]float64

	// Special names special tokens, such as <|python_tag|>, whose names are a part of Text. Others are not. A name
	// between two bytes 0xff, which no other text has, stands so in Text: then it differs from text that is spelled alike.
	Special []string

	// Grammar is what the text must fit; nil is any text. A text that Stop or MaxTokens cuts is a beginning
	// of one that fits. Log-probabilities are those of all tokens, as without it.
	Grammar *Grammar

	Caller Caller // who asks

	// Hooks see what the model computes for this request, and may change it. Such a request keeps nothing
	// for the session's next one and finds nothing of earlier ones. nil is none.
	Hooks *Hooks

	// For Chat alone: Generate and GenerateIDs render no template, and refuse them.
	Tools        []Tool         // that the model may call; an error if the template has no place for tools
	Template     string         // chat template to use instead of the model's
	TemplateArgs map[string]any // variables for the template, such as enable_thinking

	// NoToolFallback refuses tools, calls and results where the chat template takes none. Else they are written as text, which
	// tells the model how to call: docs/serving.md has the form.
	NoToolFallback bool

	// NoGenerationPrompt leaves out the beginning of the answer, as add_generation_prompt=false does.
	NoGenerationPrompt bool

	// Continue makes the answer go on with the text of the last message, which is the assistant's.
	Continue bool
}

// Caller says who asks, and how urgently.
type Caller struct {
	Key      string // callers of different keys have equal shares of the steps
	Priority int    // the higher goes first

	// PrivateCache keeps cached prompts from callers of other keys, and theirs from this one. So nobody learns
	// from an answer's time what another has asked.
	PrivateCache bool
}

// Sampling says how a token is chosen from its logits. The zero value is greedy: it takes the likeliest token. The
// options apply in the order penalties, top-k, top-p, min-p, temperature. A zero switches an option off.
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
	RepeatLast    int // number of tokens that RepeatPenalty looks back on: 0 is 64, -1 all

	// PresencePenalty is subtracted from the logits of tokens that were generated,
	// FrequencyPenalty as often as they were.
	PresencePenalty, FrequencyPenalty float64

	// Seed chooses the draws: a request with the same seed gives the same text on every machine. If Seed is nil,
	// each request draws one, so two requests differ. Session.Seed and Answer.Seed say which one was drawn.
	Seed *uint64

	LogitBias map[int]float32 // added to the logits of tokens, by their ids; -Inf bans a token
}

// Token is one generated token.
type Token struct {
	ID int

	// Text is what the token adds to the answer. It is empty while a character or a stop string is incomplete.
	// Beside an error it is the text that was held back.
	Text string

	// Logprob is the natural logarithm of the token's probability before any sampling option. It is set if
	// GenerateOptions asks for it or for TopLogprobs.
	Logprob     float64
	TopLogprobs []Logprob // the likeliest tokens, likeliest first
	Logits      []float32 // [VocabSize]; the token was chosen by them
	Stop        StopReason
	Stopped     string // the string of GenerateOptions.Stop that came up
}

// StopReason says why a generation ended. It is "" before the last token.
type StopReason string

// The reasons.
const (
	StopEnd    StopReason = "end"    // the model ended its turn
	StopString StopReason = "stop"   // one of GenerateOptions.Stop came up
	StopLength StopReason = "length" // GenerateOptions.MaxTokens are there, or, if that is negative, the context is full
)

// Logprob is a token and the natural logarithm of its probability.
type Logprob struct {
	ID      int
	Text    string // Model.TokenText of ID
	Logprob float64
}

// Sampling returns the recommendation of the model's publisher. The options apply in
// Karat's order; transformers divides by the temperature before top-k, top-p
// and min-p.
func (m *Model) Sampling() Sampling {
	g := m.opened.Checkpoint.Generation()
	s := Sampling{RepeatPenalty: g.Repeat, RepeatLast: -1} // transformers looks back on the whole text
	for _, id := range g.Suppress {
		if s.LogitBias == nil {
			s.LogitBias = map[int]float32{}
		}
		s.LogitBias[id] = float32(math.Inf(-1))
	}
	if g.Sample {
		s.Temperature, s.TopK, s.TopP, s.MinP = g.Temperature, g.TopK, g.TopP, g.MinP
		if s.Temperature == 0 {
			s.Temperature = 1
		}
	}
	return s
}

// Generate continues a raw text: no chat template is applied, and special
// tokens in it are text. Leaving the loop, or cancelling ctx, ends it.
func (m *Model) Generate(ctx context.Context, prompt string, o GenerateOptions) iter.Seq2[Token, error] {
	return alone(m, func(s *Session) iter.Seq2[Token, error] { return s.Generate(ctx, prompt, o) })
}

// GenerateIDs is Generate for a prompt of token ids. Nothing is added to the prompt, not even BOS.
func (m *Model) GenerateIDs(ctx context.Context, prompt []int, o GenerateOptions) iter.Seq2[Token, error] {
	return alone(m, func(s *Session) iter.Seq2[Token, error] { return s.GenerateIDs(ctx, prompt, o) })
}

// Chat continues a conversation, rendered by the model's chat template. Tools, calls and results that
// the template has no place for are an error.
func (m *Model) Chat(ctx context.Context, messages []Message, o GenerateOptions) iter.Seq2[Token, error] {
	return alone(m, func(s *Session) iter.Seq2[Token, error] { return s.Chat(ctx, messages, o) })
}

// alone yields the results of a request that has a session of its own.
func alone[T any](m *Model, request func(*Session) iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		s := m.NewSession()
		defer s.Close()
		request(s)(yield)
	}
}

// Session keeps the keys and values of a text, so that a longer text which
// begins with it is computed from there. It is for one goroutine at a time. Its
// memory is free for other sessions after Close.
type Session struct {
	m            *Model
	s            *engine.Sequence
	prompt, kept int
	seed         uint64
	tail         string // the end of the prompt's text
	hooked       bool   // s is of the engine for hooks
	closed       bool
}

// NewSession makes an empty session.
func (m *Model) NewSession() *Session { return &Session{m: m, s: m.opened.Engine.NewSequence()} }

// Close frees the session's keys and values.
func (s *Session) Close() {
	s.closed = true
	s.s.Close()
}

// PromptTokens returns the number of tokens of the last request's prompt, and how many of
// them the session had kept. Both are 0 if the prompt did not fit the context.
func (s *Session) PromptTokens() (tokens, cached int) { return s.prompt, s.kept }

// Seed returns the seed of the last request's draws: Sampling.Seed, or the one that was drawn in its place.
func (s *Session) Seed() uint64 { return s.seed }

// Started returns when the first step of the last request began, which may have waited for
// others; the zero time if there was no step.
func (s *Session) Started() time.Time { return s.s.Started() }

// Generate is Model.Generate.
func (s *Session) Generate(ctx context.Context, prompt string, o GenerateOptions) iter.Seq2[Token, error] {
	return s.run(ctx, &o, func() ([]int32, error) {
		if err := o.raw(); err != nil {
			return nil, err
		}
		return s.m.prompt(ctx, prompt, tokenizer.Options{AddSpecial: true})
	})
}

// GenerateIDs is Model.GenerateIDs.
func (s *Session) GenerateIDs(ctx context.Context, prompt []int, o GenerateOptions) iter.Seq2[Token, error] {
	return s.run(ctx, &o, func() ([]int32, error) {
		if err := o.raw(); err != nil {
			return nil, err
		}
		return s.m.promptIDs(ctx, prompt)
	})
}

// Chat is Model.Chat.
func (s *Session) Chat(ctx context.Context, messages []Message, o GenerateOptions) iter.Seq2[Token, error] {
	return s.run(ctx, &o, func() ([]int32, error) {
		text, said, err := s.m.conversation(ctx, messages, o)
		if err == nil {
			var ends []int
			ends, err = s.m.TurnEnds(ctx, o)
			o.End = append(ends, o.End...)
		}
		if err != nil {
			return nil, err
		}
		return s.m.prompt(ctx, text, tokenizer.Options{ParseSpecial: true, Literal: said})
	})
}

// Render returns the text that the chat template makes of a conversation, with the
// beginning of the answer unless o.NoGenerationPrompt is set.
func (m *Model) Render(ctx context.Context, messages []Message, o GenerateOptions) (string, error) {
	text, _, err := m.render(ctx, messages, o)
	return text, err
}

// TokenizeChat returns the ids of the rendered conversation. The name of a special
// token counts where the template wrote it; in messages it is text. A conversation that is
// ExceedsContext is ErrFull.
func (m *Model) TokenizeChat(ctx context.Context, messages []Message, o GenerateOptions) ([]int, error) {
	text, said, err := m.conversation(ctx, messages, o)
	if err == nil && m.ExceedsContext(text) {
		err = m.full()
	}
	if err != nil {
		return nil, err
	}
	return m.tokenize(ctx, text, tokenizer.Options{ParseSpecial: true, Literal: said})
}

// ExceedsContext reports whether a text has more tokens than the context holds for sure. Its length tells,
// so this takes no time. One that is not too long may still have too many.
func (m *Model) ExceedsContext(text string) bool {
	return m.opened.Tokenizer.Exceeds(text, m.opened.Engine.Context())
}

func (m *Model) full() error {
	return &tooLong{fmt.Sprintf("%v: the prompt has more than the %d tokens that the context holds", ErrFull, m.opened.Engine.Context())}
}

// tooLong is the error of a prompt that the context does not hold.
type tooLong struct{ text string }

func (e *tooLong) Error() string { return e.text }

func (e *tooLong) Is(kind error) bool { return kind == ErrFull || kind == ErrTooLong }

// conversation is render of messages, unless the context cannot hold what a user said. White space around that does
// not count, since templates leave it out; nor do other roles, of whose texts templates may leave out more.
func (m *Model) conversation(ctx context.Context, messages []Message, o GenerateOptions) (text string, said []tokenizer.Span, err error) {
	for _, x := range messages {
		for _, p := range x.Parts {
			if s, _ := p.(Text); x.Role == RoleUser && m.ExceedsContext(strings.TrimSpace(string(s))) {
				return "", nil, m.full()
			}
		}
	}
	return m.render(ctx, messages, o)
}

// render is the rendered conversation, and the parts of it that messages said.
func (m *Model) render(ctx context.Context, messages []Message, o GenerateOptions) (text string, said []tokenizer.Span, err error) {
	var segments []chat.Segment
	if o.Continue {
		segments, err = m.unended(ctx, messages, o)
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
	messages = withIDs(t.Source(), messages)
	in, err := input(messages, &o)
	if err != nil {
		return nil, err
	}
	in.BOSToken, in.EOSToken = m.opened.Piece(m.opened.Tokenizer.BOS()), m.opened.Piece(m.opened.Tokenizer.EOS())
	none, left := takesNone(ctx, t, messages, o)
	if y := syntax.Of(t.Source()); none && !o.NoToolFallback {
		if _, writes := y.Text(); writes {
			return wholly(ctx, t, &y, in, messages, o)
		}
	}
	segments, err := t.CheckedSegments(ctx, in)
	if segments != nil && left != nil {
		return nil, left
	}
	return segments, lost(err, messages)
}

// template is that of a text, or the model's own. A program that does not chat links no templates.
func (m *Model) template(text string) (*chat.Template, error) {
	if text != "" {
		return chat.Parse(text, chat.Limits{})
	}
	m.chat.once.Do(func() { m.chat.template, m.chat.broken = chat.Parse(m.opened.Checkpoint.Template(), chat.Limits{}) })
	return m.chat.template, m.chat.broken
}

// TurnEnds returns the tokens with which the chat template ends an answer: Template's, or the model's own. For
// example, one is <|im_end|> in a fine-tune whose settings name <|endoftext|> alone.
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

// prompt returns the ids of a prompt that fits the context. A longer one is refused, at the
// latest when its ids are too many.
func (m *Model) prompt(ctx context.Context, text string, o tokenizer.Options) (ids []int32, err error) {
	o.Most = m.opened.Engine.Context()
	for piece, err := range m.opened.Tokenizer.IDs(ctx, text, o) {
		if errors.Is(err, tokenizer.ErrMost) {
			return nil, m.full()
		}
		if err != nil {
			return nil, err
		}
		for _, id := range piece { // which are below 2³¹
			ids = append(ids, int32(id))
		}
	}
	return ids, nil
}

// promptIDs are the ids of a prompt that the context holds.
func (m *Model) promptIDs(ctx context.Context, ids []int) ([]int32, error) {
	if ctx == nil {
		return nil, errNilContext
	}
	if most := m.opened.Engine.Context(); len(ids) > most {
		return nil, &tooLong{fmt.Sprintf("%v: the prompt has %d tokens, more than the %d that the context holds", ErrFull, len(ids), most)}
	}
	return tokensOf(m.opened.Engine, ids)
}

// check finds what no request can have.
func (o *GenerateOptions) check() error {
	for i, s := range o.Stop {
		if s == "" {
			return fmt.Errorf("GenerateOptions.Stop[%d] is empty, which is in every text", i)
		}
	}
	if o.TopLogprobs < 0 {
		return fmt.Errorf("GenerateOptions.TopLogprobs is %d, want 0 or more", o.TopLogprobs)
	}
	return nil
}

// raw finds what only a chat template can use.
func (o *GenerateOptions) raw() error {
	for _, x := range []struct {
		name string
		set  bool
	}{{"Tools", len(o.Tools) > 0}, {"Template", o.Template != ""}, {"TemplateArgs", len(o.TemplateArgs) > 0}, {"NoGenerationPrompt", o.NoGenerationPrompt}} {
		if x.set {
			return fmt.Errorf("GenerateOptions.%s is for Chat: Generate renders no chat template", x.name)
		}
	}
	return nil
}

// makesTokens is an error of encoders.
func (m *Model) makesTokens() error {
	if m.encoder() {
		return fmt.Errorf("%s: it is an encoder, which makes vectors and no text: Embed, or karat embed, is for it", m.opened.Checkpoint.Path)
	}
	return nil
}

// run yields the tokens after a prompt.
func (s *Session) run(ctx context.Context, o *GenerateOptions, prompt func() ([]int32, error)) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		s.prompt, s.kept = 0, 0
		err := o.check()
		if err == nil {
			err = s.m.makesTokens()
		}
		var ids []int32
		if err == nil {
			ids, err = prompt()
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
		s.follow(ctx, ids, *o, yield)
	}
}

// begin makes the session a beginning of prompt, for what o asks, and returns its length.
func (s *Session) begin(ctx context.Context, prompt []int32, o *GenerateOptions) (kept int, err error) {
	if err := s.hook(ctx, o.Hooks); err != nil {
		return 0, err
	}
	blend, err := s.m.blend(o.Adapters)
	if err != nil {
		return 0, err
	}
	s.s.Adapt(blend)
	s.s.As(o.Caller.engine())
	return s.s.Prefix(prompt, o.Caller.salt()), nil
}

func (c Caller) engine() engine.Caller { return engine.Caller{Key: c.Key, Priority: c.Priority} }

// salt is what callers have in common that may find each other's prefixes.
func (c Caller) salt() string {
	if !c.PrivateCache {
		return ""
	}
	return "key " + c.Key
}

// follow yields the tokens after those of a prompt.
func (s *Session) follow(ctx context.Context, prompt []int32, o GenerateOptions, yield func(Token, error) bool) {
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
	decoder, err := s.m.decoder(o.Special)
	var kept int
	var within engine.Grammar
	if err == nil && o.Grammar != nil {
		within, err = o.Grammar.match(ctx, s.m)
	}
	if err == nil {
		kept, err = s.begin(ctx, prompt, &o)
	}
	if err != nil {
		yield(Token{}, err)
		return
	}
	if sampling.Seed != nil {
		s.seed = *sampling.Seed
	} else {
		s.seed = rand.Uint64()
	}
	r := engine.Request{Prompt: prompt, Max: o.MaxTokens, Sample: sampling.options(s.seed), Stop: o.Stop, Caller: o.Caller.engine(),
		End: append(s.m.opened.Checkpoint.EndOfTurn(s.m.opened.Tokenizer), o.End...), Logits: o.Logits, Logprob: o.Logprobs, Top: o.TopLogprobs, Decoder: decoder, Grammar: within}
	s.prompt, s.kept = len(prompt), kept
	for t, err := range s.s.Generate(ctx, r) {
		token := Token{ID: t.ID, Text: t.Text, Logprob: t.Logprob, TopLogprobs: s.m.logprobs(t.Top), Logits: t.Logits, Stop: StopReason(t.Stop), Stopped: t.Stopped}
		if !yield(token, err) {
			return
		}
	}
}

// Validate returns an error that names a setting out of range.
func (s *Sampling) Validate() error {
	o := s.options(0)
	return o.Validate()
}

// options returns s as the sampler has it.
func (s *Sampling) options(seed uint64) sample.Options {
	return sample.Options{Temperature: s.Temperature, TopK: s.TopK, TopP: s.TopP, MinP: s.MinP, RepeatPenalty: s.RepeatPenalty, RepeatLast: s.RepeatLast,
		PresencePenalty: s.PresencePenalty, FrequencyPenalty: s.FrequencyPenalty, Seed: seed, LogitBias: s.LogitBias}
}

func (m *Model) logprobs(of []sample.Logprob) (all []Logprob) {
	for _, x := range of {
		all = append(all, Logprob{ID: x.ID, Text: m.TokenText(x.ID), Logprob: x.Logprob})
	}
	return all
}
