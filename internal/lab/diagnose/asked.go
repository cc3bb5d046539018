package diagnose

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/chat"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/tokenizer"
)

// Asked makes ids of the prompts in the words of a dump.
type Asked struct {
	Tokenizer *tokenizer.Tokenizer
	Template  string // the model's; "" for none
}

// ids returns the ids that p may have, the likeliest first, and names their source.
func (a *Asked) ids(ctx context.Context, p *lab.Prompt) (all [][]int32, how string, err error) {
	switch {
	case p.Input.IDs != nil:
		return [][]int32{p.Input.IDs}, "what was asked for", nil
	case p.Input.Chat != nil:
		ids, err := a.chat(ctx, p.Input.Chat)
		return [][]int32{ids}, "the messages under the model's template", err
	case p.Input.Text != nil:
		return a.text(*p.Input.Text), "the text", nil
	case p.Text != "":
		return a.text(p.Text), "the text", nil
	}
	return nil, "", nil
}

// text returns the ids of a raw text. A text that begins with BOS's name, as a rendered template does, has the ids
// of a rendered text.
func (a *Asked) text(text string) [][]int32 {
	raw := a.encode(text, tokenizer.Options{AddSpecial: true})
	rendered := a.encode(text, tokenizer.Options{ParseSpecial: true})
	both := a.encode(text, tokenizer.Options{ParseSpecial: true, AddSpecial: true})
	if name := a.name(a.Tokenizer.BOS()); name != "" && strings.HasPrefix(text, name) {
		return [][]int32{rendered}
	}
	if slices.Equal(raw, both) { // no special token is named
		return [][]int32{raw}
	}
	return [][]int32{both, rendered, raw}
}

func (a *Asked) name(id int, ok bool) string {
	if !ok {
		return ""
	}
	name, _ := a.Tokenizer.Token(id)
	return name
}

func (a *Asked) encode(text string, o tokenizer.Options) []int32 {
	ids := []int32{}
	for _, id := range a.Tokenizer.Encode(text, o) {
		ids = append(ids, int32(id))
	}
	return ids
}

func (a *Asked) chat(ctx context.Context, messages lab.Chat) ([]int32, error) {
	t, err := chat.Parse(a.Template, chat.Limits{})
	if err != nil {
		return nil, err
	}
	in := chat.Input{AddGenerationPrompt: true, BOSToken: a.name(a.Tokenizer.BOS()),
		EOSToken: a.name(a.Tokenizer.EOS())}
	for _, m := range messages {
		in.Messages = append(in.Messages, chat.Message(m.Role, m.Content))
	}
	segments, err := t.Segments(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("template: %w", err)
	}
	var b strings.Builder
	var said []tokenizer.Span
	for _, s := range segments {
		if s.FromContent {
			said = append(said, tokenizer.Span{From: b.Len(), To: b.Len() + len(s.Text)})
		}
		b.WriteString(s.Text)
	}
	return a.encode(b.String(), tokenizer.Options{ParseSpecial: true, Literal: said}), nil
}
