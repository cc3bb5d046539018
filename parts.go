package karat

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/karat-run/karat/internal/syntax"
)

// ChatParts continues a conversation like Chat, with the answer's parts in place of its tokens, each as soon as
// certain: Text and Reasoning in pieces, a ToolCall whole. Calls are of GenerateOptions.Tools. The program calls the
// tools, and gives their results in the next message.
func (m *Model) ChatParts(ctx context.Context, messages []Message, o GenerateOptions) iter.Seq2[Part, error] {
	return runAlone(m, func(s *Session) iter.Seq2[Part, error] { return s.ChatParts(ctx, messages, o) })
}

// GenerateParts continues a prompt like Generate, with the parts of ChatParts. It finds calls of GenerateOptions.Tools,
// named by the prompt in its own way.
func (m *Model) GenerateParts(ctx context.Context, prompt string, o GenerateOptions) iter.Seq2[Part, error] {
	return runAlone(m, func(s *Session) iter.Seq2[Part, error] { return s.GenerateParts(ctx, prompt, o) })
}

// Complete returns the whole answer to a prompt of Generate. Beside an error, Complete returns the text before the
// error.
func (m *Model) Complete(ctx context.Context, prompt string, o GenerateOptions) (Answer, error) {
	s := m.NewSession()
	defer s.Close()
	return s.Complete(ctx, prompt, o)
}

// CompleteChat returns the whole answer to a conversation of Chat. Beside an error, CompleteChat returns the text
// before the error.
func (m *Model) CompleteChat(ctx context.Context, messages []Message, o GenerateOptions) (Answer, error) {
	s := m.NewSession()
	defer s.Close()
	return s.CompleteChat(ctx, messages, o)
}

// ChatParts continues a conversation like Model.ChatParts.
func (s *Session) ChatParts(ctx context.Context, messages []Message, o GenerateOptions) iter.Seq2[Part, error] {
	return s.chatReader(ctx, messages, o).parts
}

// GenerateParts continues a prompt like Model.GenerateParts.
func (s *Session) GenerateParts(ctx context.Context, prompt string, o GenerateOptions) iter.Seq2[Part, error] {
	return s.textReader(ctx, prompt, o).parts
}

// Complete returns a whole answer like Model.Complete.
func (s *Session) Complete(ctx context.Context, prompt string, o GenerateOptions) (Answer, error) {
	return s.textReader(ctx, prompt, o).whole()
}

// CompleteChat returns a whole answer like Model.CompleteChat.
func (s *Session) CompleteChat(ctx context.Context, messages []Message, o GenerateOptions) (Answer, error) {
	return s.chatReader(ctx, messages, o).whole()
}

// Answer is the answer to a prompt or a conversation.
type Answer struct {
	Text    string  // without reasoning and calls, found in Message alone
	Message Message // the answer in parts, to be appended to a conversation
	Stop    StopReason
	Stopped string // the string of GenerateOptions.Stop found
	Seed    uint64 // of the draws: as Sampling.Seed it repeats the answer

	PromptTokens    int // of the prompt
	CachedTokens    int // of the prompt, not computed again
	GeneratedTokens int // of the answer, including the end token

	FirstTokenTime time.Duration // from the call to the first token, with the time in the queue
	PromptTime     time.Duration // from the first step to the first token
	GenerationTime time.Duration // from the first token to the last
}

// ToolCalls returns the calls of tools in the answer.
func (a *Answer) ToolCalls() (calls []ToolCall) {
	for _, p := range a.Message.Parts {
		if c, is := p.(ToolCall); is {
			calls = append(calls, c)
		}
	}
	return calls
}

// Parse returns the parts of an answer's whole text in the syntax of the model's chat template: reasoning, calls of the
// given tools, and the text between them. A look-alike of a call, but of no such tool, is text.
func (m *Model) Parse(text string, tools ...Tool) Message {
	y := syntax.Of(m.opened.Checkpoint.Template())
	end := strings.Index(text, y.Close)
	begin := strings.Index(text, y.Open)
	p := y.NewParser(toolsOf(tools), y.Close != "" && end >= 0 && (begin < 0 || begin > end))
	said := Message{Role: RoleAssistant}
	said.add(partsOf(p.Write(text))...)
	said.add(partsOf(p.End())...)
	return said
}

// add appends parts to a message, and joins pieces of a text, or of reasoning, into a single part.
func (m *Message) add(parts ...Part) {
	for _, p := range parts {
		last := len(m.Parts) - 1
		if last >= 0 {
			switch before := m.Parts[last].(type) {
			case Text:
				if t, is := p.(Text); is {
					m.Parts[last] = before + t
					continue
				}
			case Reasoning:
				if r, is := p.(Reasoning); is {
					m.Parts[last] = before + r
					continue
				}
			}
		}
		m.Parts = append(m.Parts, p)
	}
}

// toolsOf converts tools for a parser; nil if there are none.
func toolsOf(tools []Tool) (all syntax.Tools) {
	for _, t := range tools {
		all.Add(t.Name, t.Parameters)
	}
	return all
}

// partsOf returns a parser's events as parts.
func partsOf(events []syntax.Event) (parts []Part) {
	for _, e := range events {
		switch {
		case e.Calls != nil:
			for _, c := range e.Calls {
				parts = append(parts, ToolCall{ID: callID(), Name: c.Name, Arguments: json.RawMessage(c.Arguments)})
			}
		case e.Reasoning != "":
			parts = append(parts, Reasoning(e.Reasoning))
		case e.Text != "":
			parts = append(parts, Text(e.Text))
		}
	}
	return parts
}

// callID returns a new id. Its nine letters and digits are the form demanded by Mistral's templates.
func callID() string {
	return strings.ToLower(rand.Text()[:9]) // of A to Z and 2 to 7
}

// reader reads the parts of an answer.
type reader struct {
	s      *Session
	o      GenerateOptions
	tokens func(o GenerateOptions) iter.Seq2[Token, error]
	onward string // of the assistant's last message, the beginning of the answer
	raw    bool   // the answer goes on with a text

	syntax syntax.Syntax
	marks  []string // of the syntax, made of control tokens
	answer Answer
	begun  time.Time
	first  time.Time
}

func (s *Session) chatReader(ctx context.Context, messages []Message, o GenerateOptions) *reader {
	r := &reader{s: s, o: o, tokens: func(o GenerateOptions) iter.Seq2[Token, error] {
		return s.Chat(ctx, messages, o)
	}}
	if o.Continue && len(messages) > 0 {
		for _, p := range messages[len(messages)-1].Parts {
			if t, is := p.(Text); is {
				r.onward += string(t)
			}
		}
	}
	return r.spellMarks(ctx)
}

func (s *Session) textReader(ctx context.Context, prompt string, o GenerateOptions) *reader {
	r := &reader{s: s, o: o, raw: true, tokens: func(o GenerateOptions) iter.Seq2[Token, error] {
		o.Tools = nil
		return s.Generate(ctx, prompt, o)
	}}
	return r.spellMarks(ctx)
}

// spellMarks returns the reader with the answer's marks spelled in its text.
func (r *reader) spellMarks(ctx context.Context) *reader {
	template := r.o.Template
	if template == "" {
		template = r.s.m.opened.Checkpoint.Template()
	}
	r.syntax = syntax.Of(template)
	tokens := r.tokens
	r.tokens = func(o GenerateOptions) iter.Seq2[Token, error] {
		return func(yield func(Token, error) bool) {
			var err error
			if r.marks, err = r.s.m.specialTokens(ctx, &r.syntax); err != nil {
				yield(Token{}, err)
				return
			}
			o.Special = slices.Clone(o.Special)
			for _, mark := range r.marks {
				o.Special = append(o.Special, syntax.Control(mark))
			}
			tokens(o)(yield)
		}
	}
	return r
}

// parser reads the answer, whose prompt is known.
func (r *reader) parser() *syntax.Parser {
	opened := r.syntax.Opens(r.s.tail)
	if r.onward != "" {
		opened = r.syntax.Within(r.onward)
	}
	p := r.syntax.NewParser(toolsOf(r.o.Tools), opened)
	p.Control, p.Required = r.marks, r.o.Grammar != nil && r.o.Grammar.calls
	if r.o.Continue || r.raw && !opened {
		p.Continue()
	}
	return p
}

// parts yields the answer's parts.
func (r *reader) parts(yield func(Part, error) bool) {
	r.begun, r.answer = time.Now(), Answer{Message: Message{Role: RoleAssistant}}
	r.first = time.Time{}
	var p *syntax.Parser
	var failed error
	for t, err := range r.tokens(r.o) {
		if failed = err; err != nil && p == nil {
			break
		}
		if p == nil {
			p = r.parser()
		}
		if r.first.IsZero() {
			r.first = time.Now()
		}
		if err == nil {
			r.answer.GeneratedTokens++
			if r.o.OnToken != nil {
				r.o.OnToken(t)
			}
		}
		r.answer.Stop, r.answer.Stopped = t.Stop, t.Stopped
		if !r.give(p.Write(t.Text), yield) {
			return
		}
	}
	if p != nil {
		rest := p.Cut
		if r.answer.Stop == StopEnd && failed == nil {
			rest = p.End
		}
		if !r.give(rest(), yield) {
			return
		}
	}
	if failed != nil {
		yield(nil, failed)
	}
}

func (r *reader) give(events []syntax.Event, yield func(Part, error) bool) bool {
	for _, p := range partsOf(events) {
		if !yield(p, nil) {
			return false
		}
	}
	return true
}

// whole collects the answer.
func (r *reader) whole() (Answer, error) {
	var failed error
	var said Message
	for p, err := range r.parts {
		if failed = err; err == nil {
			said.add(p)
		}
	}
	a, ended := r.answer, time.Now()
	a.Message.Parts, a.Seed = said.Parts, r.s.seed
	for _, p := range said.Parts {
		if t, is := p.(Text); is {
			a.Text += string(t)
		}
	}
	a.PromptTokens, a.CachedTokens = r.s.PromptTokens()
	if !r.first.IsZero() {
		a.FirstTokenTime, a.GenerationTime = r.first.Sub(r.begun), ended.Sub(r.first)
		if started := r.s.Started(); !started.IsZero() {
			a.PromptTime = max(0, r.first.Sub(started))
		}
	}
	return a, failed
}
