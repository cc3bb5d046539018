//go:build js && !full

package main

import (
	"context"
	"errors"
	"syscall/js"

	"github.com/karat-run/karat"
)

const splits = false // the parser has no room either: reasoning and calls stay in the text

// moreOf returns nothing.
func moreOf(*model) map[string]func([]js.Value) (any, error) { return nil }

// form refuses forms and receipts, for which the page's program has no room.
func form(_ context.Context, _ *model, o *generateOptions, _ *prompt) error {
	if o.Receipt || len(o.Schema) > 0 || o.Regexp+o.GBNF+o.Lark != "" || o.Choice != "" && o.Choice != "auto" {
		return errors.New("the engine of this page has no forms of answers and no receipts: the npm package has them")
	}
	return nil
}

func textOf(*karat.Receipt) (string, error) { return "", nil }

// converse answers a conversation.
func converse(ctx context.Context, m *model, p *prompt, g *generated, see func(karat.Token) error,
	_ func(any) error) error {
	for t, err := range m.session.Chat(ctx, p.messages, p.options) {
		if g.Text += t.Text; err == nil {
			err = see(t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
