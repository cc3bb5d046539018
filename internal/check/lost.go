package check

import (
	"context"

	"github.com/karat-run/karat/internal/chat"
	"github.com/karat-run/karat/internal/tokenizer"
)

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
	name := func(id int, ok bool) (text string) {
		if ok {
			text, _ = t.Token(id)
		}
		return text
	}
	return p.LostMarkers(ctx, markers, name(t.BOS()), name(t.EOS()))
}

// judgeLost judges where the template's markers are from.
func judgeLost(c *checker, t *tokenizer.Tokenizer, where []string) {
	if lost, err := LostMarkers(c.ctx, c.model.Template(), t); err == nil && len(lost) > 0 {
		c.add("markers-lost", where, "the template builds %s from a conversation's text, so they reach the model as text",
			list(lost))
	}
}
