//go:build js

package main

import (
	"context"
	"errors"
	"syscall/js"
	"time"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/web/probe"
)

// generate answers a prompt, and tells each token with its text. Of a conversation that it splits into parts it tells
// each token with the text as token, then the parts that are certain now.
func (m *model) generate(args []js.Value) (any, error) {
	p, err := readPrompt(argument(args, 0))
	if err != nil {
		return nil, err
	}
	options, onToken := argument(args, 1), argument(args, 2)
	var o generateOptions
	if err := read(options, "generate", &o); err != nil {
		return nil, err
	}
	ctx, end := until(options)
	defer end()
	p.options = o.options()
	p.options.Tools = o.tools()
	var text func() (string, error)
	if p.options.Receipt, text, err = receipt(m, o.Receipt); err != nil {
		return nil, err
	}
	if p.options.Grammar, err = m.grammar(ctx, &o, &p); err != nil {
		return nil, err
	}
	var g generated
	start := time.Now()
	tell := func(v any) error {
		if onToken.Type() != js.TypeFunction {
			return nil
		}
		x, err := plain(v)
		if err == nil {
			onToken.Invoke(x)
		}
		return err
	}
	see := func(t karat.Token) error {
		if g.Tokens++; g.Tokens == 1 {
			g.PromptSeconds = time.Since(start).Seconds()
		}
		g.Stop = string(t.Stop)
		return tell(tokenOf(m, t, p.messages != nil))
	}
	if p.messages != nil {
		err = converse(ctx, m, &p, &g, see, tell)
	} else {
		for t, e := range m.session.Generate(ctx, p.text, p.options) {
			if err = e; e == nil {
				err = see(t)
			}
			if g.Text += t.Text; err != nil {
				break
			}
		}
	}
	if errors.Is(err, context.Canceled) {
		g.Stop, err = "aborted", nil
	} else if err != nil {
		return nil, err
	}
	g.Prompt, g.Kept = m.session.PromptTokens()
	g.Seconds = time.Since(start).Seconds() - g.PromptSeconds
	if text != nil && g.Stop != "aborted" {
		g.Receipt, err = text()
	}
	return g, err
}

// told is what generate tells of a token.
type told struct {
	likely
	Text  *string  `json:"text,omitempty"`
	Token *string  `json:"token,omitempty"`
	Top   []likely `json:"top,omitempty"`
	Stop  string   `json:"stop,omitempty"`
}

// likely is a token that may come.
type likely struct {
	ID      int      `json:"id"`
	Text    string   `json:"text"`
	Logprob *float64 `json:"logprob,omitempty"` // if the likeliest are asked for
}

// tokenOf returns a token for JavaScript.
func tokenOf(m *model, t karat.Token, inParts bool) any {
	v := told{likely: likely{ID: t.ID}, Text: &t.Text, Stop: string(t.Stop)}
	if inParts {
		v.Text, v.Token = nil, new(probe.Text(m.m.TokenBytes(t.ID)))
	}
	if t.TopLogprobs != nil {
		v.Logprob = &t.Logprob
	}
	for _, x := range t.TopLogprobs {
		v.Top = append(v.Top, likely{x.ID, probe.Text(m.m.TokenBytes(x.ID)), &x.Logprob})
	}
	return v
}
