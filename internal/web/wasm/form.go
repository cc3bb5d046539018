//go:build js

package main

import (
	"context"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/syntax"
)

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
