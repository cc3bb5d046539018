package karat

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"

	"github.com/karat-run/karat/internal/chat"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/sample"
	"github.com/karat-run/karat/internal/tokenizer"
)

// GenerateOptions say how to continue a text. The zero value generates at most
// 256 tokens as the model's publisher recommends, greedily if nothing is
// recommended.
type GenerateOptions struct {
	MaxTokens int       // 0 is 256; negative is no limit but the context, which is an error to fill
	Sampling  *Sampling // nil is the publisher's recommendation, Model.Sampling
	Stop      []string  // strings that end the text; they are no part of it
	Logprob   bool      // report each token's log-probability
	Top       int       // how many of the likeliest tokens to report with each, with their log-probabilities
	Logits    bool      // hand over the logits with each token

	Template     string         // chat template to use instead of the model's
	TemplateArgs map[string]any // variables for the template, such as enable_thinking
}

// Sampling says how a token is chosen from its logits. The zero value is
// greedy: the likeliest. The options apply in the order repeat penalty, top-k,
// top-p, min-p, temperature; a zero switches one off.
type Sampling struct {
	Temperature   float64
	TopK          int
	TopP          float64
	MinP          float64
	RepeatPenalty float64
	RepeatLast    int // tokens that the penalty looks back on: 0 is 64, -1 all
	Seed          uint64
	LogitBias     map[int]float32
}

// Token is one generated token.
type Token struct {
	ID      int
	Text    string    // what it adds; may be empty while a character or a stop string is undecided, and is the rest of these beside an error
	Logprob float64   // natural logarithm of its probability before any sampling option, if it or Top is asked for
	Top     []Logprob // the likeliest tokens, likeliest first
	Logits  []float32 // [VocabSize], that it was chosen by
	Stop    string    // on the last token why it is: "end" of turn, "stop" string, or "length"
}

// Logprob is a token and the natural logarithm of its probability.
type Logprob struct {
	ID      int
	Logprob float64
}

// Message is one turn of a conversation.
type Message struct {
	Role    string // system, user or assistant
	Content string
}

// Sampling is what the model's publisher recommends. The options apply in
// Karat's order: transformers divides by the temperature before top-k, top-p
// and min-p.
func (m *Model) Sampling() Sampling {
	g := m.checkpoint.Generation()
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
// tokens in it are text. Breaking off the loop, or cancelling ctx, ends it.
func (m *Model) Generate(ctx context.Context, prompt string, o GenerateOptions) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		s := m.NewSession()
		defer s.Close()
		s.Generate(ctx, prompt, o)(yield)
	}
}

// Chat continues a conversation, rendered by the model's chat template.
func (m *Model) Chat(ctx context.Context, messages []Message, o GenerateOptions) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		s := m.NewSession()
		defer s.Close()
		s.Chat(ctx, messages, o)(yield)
	}
}

// Session keeps what was computed of a text, so that a longer text which
// begins with it is computed from there. It is for one goroutine at a time. It
// keeps memory for its keys and values until it is closed, for other sessions
// to use then.
type Session struct {
	m            *Model
	s            *engine.Sequence
	prompt, kept int
}

// NewSession is an empty session.
func (m *Model) NewSession() *Session { return &Session{m: m, s: m.engine.NewSequence()} }

// Close frees what the session keeps.
func (s *Session) Close() { s.s.Close() }

// Prompt is how many tokens the prompt of the last request has, and how many of
// them the session had kept from before. One that the context does not hold has none.
func (s *Session) Prompt() (tokens, kept int) { return s.prompt, s.kept }

// Generate is Model.Generate.
func (s *Session) Generate(ctx context.Context, prompt string, o GenerateOptions) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		s.run(ctx, prompt, tokenizer.Options{AddSpecial: true}, o, yield)
	}
}

// Chat is Model.Chat.
func (s *Session) Chat(ctx context.Context, messages []Message, o GenerateOptions) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		text, said, err := s.m.render(ctx, messages, o)
		if err != nil {
			yield(Token{}, err)
			return
		}
		s.run(ctx, text, tokenizer.Options{ParseSpecial: true, Literal: said}, o, yield)
	}
}

// Render is the text that the chat template makes of a conversation, with the
// beginning of the answer.
func (m *Model) Render(ctx context.Context, messages []Message, o GenerateOptions) (string, error) {
	text, _, err := m.render(ctx, messages, o)
	return text, err
}

// TokenizeChat is the ids of the rendered conversation. Names of special
// tokens count where the template wrote them; in what messages say they are text.
func (m *Model) TokenizeChat(ctx context.Context, messages []Message, o GenerateOptions) ([]int, error) {
	text, said, err := m.render(ctx, messages, o)
	if err != nil {
		return nil, err
	}
	var ids []int
	for piece, err := range m.tokenizer.IDs(ctx, text, tokenizer.Options{ParseSpecial: true, Literal: said}) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, piece...)
	}
	return ids, nil
}

// render is the rendered conversation, and the parts of it that messages said.
func (m *Model) render(ctx context.Context, messages []Message, o GenerateOptions) (text string, said []tokenizer.Span, err error) {
	segments, err := m.segments(ctx, messages, o)
	if err != nil {
		return "", nil, fmt.Errorf("karat: %s: %w", m.checkpoint.Path, err)
	}
	var b strings.Builder
	for _, s := range segments {
		if s.FromContent {
			said = append(said, tokenizer.Span{From: b.Len(), To: b.Len() + len(s.Text)})
		}
		b.WriteString(s.Text)
	}
	return b.String(), said, nil
}

func (m *Model) segments(ctx context.Context, messages []Message, o GenerateOptions) ([]chat.Segment, error) {
	if ctx == nil {
		return nil, errNilContext
	}
	t, err := m.template, m.broken
	if o.Template != "" {
		t, err = chat.Parse(o.Template, chat.Limits{})
	}
	if err != nil {
		return nil, err
	}
	in := chat.Input{AddGenerationPrompt: true}
	for _, x := range messages {
		in.Messages = append(in.Messages, chat.Message(x.Role, x.Content))
	}
	if in.Args, err = chat.Args(o.TemplateArgs); err != nil {
		return nil, err
	}
	in.BOSToken, in.EOSToken = m.special(m.tokenizer.BOS()), m.special(m.tokenizer.EOS())
	return t.Segments(ctx, in)
}

func (m *Model) special(id int, ok bool) string {
	if !ok {
		return ""
	}
	text, _ := m.tokenizer.Token(id)
	return text
}

// prompt is the ids of a prompt that the context holds. What is longer is refused before, or
// as soon as, it has too many.
func (m *Model) prompt(ctx context.Context, text string, o tokenizer.Options) (ids []int32, err error) {
	o.Most = m.engine.Context()
	for piece, err := range m.tokenizer.IDs(ctx, text, o) {
		if errors.Is(err, tokenizer.ErrMost) {
			return nil, fmt.Errorf("karat: %w: the prompt has more than the %d tokens that the context holds", ErrFull, o.Most)
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

// run yields the tokens after a prompt.
func (s *Session) run(ctx context.Context, text string, how tokenizer.Options, o GenerateOptions, yield func(Token, error) bool) {
	s.prompt, s.kept = 0, 0
	prompt, err := s.m.prompt(ctx, text, how)
	if err != nil {
		yield(Token{}, err)
		return
	}
	sampling := s.m.Sampling()
	if o.Sampling != nil {
		sampling = *o.Sampling
	}
	if o.MaxTokens == 0 {
		o.MaxTokens = 256
	}
	r := engine.Request{Prompt: prompt, Max: o.MaxTokens, Sample: sample.Options(sampling), Stop: o.Stop,
		End: s.m.checkpoint.EndOfTurn(s.m.tokenizer), Logits: o.Logits, Logprob: o.Logprob, Top: o.Top, Decoder: s.m.tokenizer.Decoder(true)}
	s.prompt, s.kept = len(r.Prompt), s.s.Rewind(r.Prompt)
	for t, err := range s.s.Generate(ctx, r) {
		token := Token{ID: t.ID, Text: t.Text, Logprob: t.Logprob, Logits: t.Logits, Stop: string(t.Stop)}
		for _, x := range t.Top {
			token.Top = append(token.Top, Logprob(x))
		}
		if !yield(token, err) {
			return
		}
	}
}
