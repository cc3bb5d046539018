package chat

import (
	"context"
	"strings"

	"github.com/karat-run/karat/jinja"
)

// TurnEnds returns the texts that t writes behind an answer, without the white space around them: where the answer is
// the conversation's last message, and where another message follows. For example, both are <|im_end|> in ChatML. A text
// that also opens a message is left out, since no token of its own ends the turn. A conversation that t refuses has none.
func (t *Template) TurnEnds(ctx context.Context, bos, eos string, isToken func(text string) (name string, ok bool)) []string {
	const question, answer = "First.", "Second."
	messages := []*jinja.Dict{Message("user", question), Message("assistant", answer), Message("user", "Third.")}
	var ends []string
	for n := 2; n <= 3; n++ {
		text, err := t.Render(ctx, Input{BOSToken: bos, EOSToken: eos, Messages: messages[:n]})
		before, rest, found := strings.Cut(text, answer)
		opened, _, asked := strings.Cut(before, question)
		if err != nil || !found || !asked {
			continue
		}
		if name, ok := isToken(strings.TrimSpace(rest)); ok && !strings.Contains(strings.TrimPrefix(opened, bos), name) {
			ends = append(ends, name)
		}
	}
	return ends
}
