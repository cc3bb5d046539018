//go:build js && full

package main

import (
	"bytes"
	"context"
	"errors"
	"syscall/js"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/syntax"
)

// splits says whether conversations' answers are split into reasoning, calls of tools and text.
const splits = true

// moreOf returns the functions of a model in the npm package alone: the page's program has no room for more.
func moreOf(m *model) map[string]func([]js.Value) (any, error) {
	return map[string]func([]js.Value) (any, error){"embed": m.embed, "verify": m.verify}
}

// form gives a request the form of its answer, and its receipt.
func form(ctx context.Context, m *model, o *generateOptions, p *prompt) (err error) {
	if o.Receipt {
		p.options.Receipt = m.m.NewReceipt()
	}
	p.options.Grammar, err = m.grammar(ctx, o, p)
	return err
}

func textOf(r *karat.Receipt) (string, error) {
	text, err := r.Bytes()
	return string(text), err
}

// grammar returns the form of an answer, nil for any.
func (m *model) grammar(ctx context.Context, o *generateOptions, p *prompt) (*karat.Grammar, error) {
	f := karat.ResponseFormat{Schema: o.Schema, Regexp: o.Regexp, GBNF: o.GBNF, Lark: o.Lark, SingleCall: o.Single,
		RequireCall: o.Choice != "" && o.Choice != "auto"}
	bound := f.RequireCall || len(f.Schema) > 0 || f.Regexp+f.GBNF+f.Lark != ""
	for _, t := range p.options.Tools {
		if o.Choice == t.Name || !f.RequireCall || o.Choice == "required" {
			f.Tools = append(f.Tools, t)
		}
		bound = bound || t.Strict
	}
	if !bound {
		return nil, nil
	}
	if p.messages == nil {
		return karat.TextGrammar(ctx, f)
	}
	ids, err := m.m.TokenizeChat(ctx, p.messages, p.options)
	if err != nil {
		return nil, err
	}
	s := syntax.Of(m.m.Info().Template)
	f.InReasoning = s.Opens(m.m.Detokenize(ids[max(0, len(ids)-16):]))
	return m.m.ResponseGrammar(ctx, f)
}

// embed makes a vector of each text.
func (m *model) embed(args []js.Value) (any, error) {
	var texts []string
	var o struct {
		Pooling    karat.Pooling `json:"pooling"`
		Normalize  *bool         `json:"normalize"`
		Dimensions int           `json:"dimensions"`
		Prompt     string        `json:"prompt"`
	}
	if err := errors.Join(read(argument(args, 0), "embed", &texts), read(argument(args, 1), "embed", &o)); err != nil {
		return nil, err
	}
	ctx, end := until(argument(args, 1))
	defer end()
	vectors, err := m.m.Embed(ctx, texts, karat.EmbedOptions{Pooling: o.Pooling, Normalize: o.Normalize,
		Dimensions: o.Dimensions, Prompt: o.Prompt})
	if err != nil {
		return nil, err
	}
	tokens := 0
	for _, text := range texts {
		ids, err := m.m.Tokenize(ctx, text, karat.TokenizeOptions{})
		if err != nil {
			return nil, err
		}
		tokens += len(ids)
	}
	return map[string]any{"vectors": vectors, "tokens": tokens}, nil
}

// verify computes the answer of a receipt again.
func (m *model) verify(args []js.Value) (any, error) {
	r, err := karat.ReadReceipt(bytes.NewReader(bytesOf(argument(args, 0))))
	if err != nil {
		return nil, err
	}
	ctx, end := until(argument(args, 1))
	defer end()
	progress := function(argument(args, 1), "onProgress")
	v, err := m.m.Verify(ctx, r, karat.VerifyOptions{Progress: func(done, total int) { progress(done, total) }})
	if err != nil {
		return nil, err
	}
	return struct {
		*karat.Verdict
		Verified bool `json:"verified"`
	}{v, v.Verified()}, nil
}

// piece is what generate tells of a part of a conversation's answer. Of a token it tells before.
type piece struct {
	Text      string     `json:"text,omitempty"`
	Reasoning string     `json:"reasoning,omitempty"`
	Call      *calledFor `json:"call,omitempty"`
}

// calledFor is a call of a tool.
type calledFor struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// converse answers a conversation.
func converse(ctx context.Context, m *model, p *prompt, g *generated, see func(karat.Token) error,
	tell func(any) error) error {
	var failed error
	p.options.OnToken = func(t karat.Token) {
		if err := see(t); err != nil {
			failed = err
		}
	}
	for part, err := range m.session.ChatParts(ctx, p.messages, p.options) {
		if err == nil {
			err = failed
		}
		if err != nil {
			return err
		}
		var x piece
		switch part := part.(type) {
		case karat.Text:
			x.Text = string(part)
			g.Text += x.Text
		case karat.Reasoning:
			x.Reasoning = string(part)
		case karat.ToolCall:
			x.Call = &calledFor{part.ID, part.Name, string(part.Arguments)}
		}
		if err := tell(x); err != nil {
			return err
		}
	}
	return failed
}
