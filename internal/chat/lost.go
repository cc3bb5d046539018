package chat

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/karat-run/karat/jinja"
)

// LostError is the error of a message whose text, or whose name, the template leaves out.
type LostError struct {
	Message int // index in Input.Messages
	Role    string
	Name    bool // the name is left out, not the text
}

func (e *LostError) Error() string {
	if e.Name {
		return "the chat template has no place for the name of who speaks, and would leave it out"
	}
	const left = "the chat template would leave out this text of the role %q: "
	switch {
	case e.Role == "tool":
		return "the chat template would leave out this result of a tool: it has no place for one here"
	case e.Message > 0 && (e.Role == "system" || e.Role == "developer"):
		return fmt.Sprintf(left+"make it the first message, or a user's", e.Role)
	case e.Role == "user" || e.Role == "assistant":
		return fmt.Sprintf(left+"it has no place for it between these messages", e.Role)
	}
	return fmt.Sprintf(left+"it has no place for the role here; give the text to a user", e.Role)
}

// Whole returns Segments, unless they leave out a message's text or name: that is a LostError beside them. Reasoning
// may be missing, and so may an assistant's text beside calls of tools. A developer is a system to a template that does
// not know it, and messages of both at the beginning are one message to a template that takes one.
func (t *Template) Whole(ctx context.Context, in Input) ([]Segment, error) {
	if all := asSystem(in.Messages); all != nil && !strings.Contains(t.source, "developer") {
		in.Messages = all
	}
	segments, err := t.whole(ctx, in)
	for _, other := range []func([]*jinja.Dict) []*jinja.Dict{asSystem, oneSystem} {
		if err == nil || ctx.Err() != nil {
			return segments, err
		}
		messages := other(in.Messages)
		if messages == nil || len(in.Named) > 0 {
			continue
		}
		in.Messages = messages
		if again, failed := t.whole(ctx, in); failed == nil {
			return again, nil
		}
	}
	return segments, err
}

// whole does what Whole does with messages as they are.
func (t *Template) whole(ctx context.Context, in Input) ([]Segment, error) {
	segments, shown, err := t.Trace(ctx, in)
	if err != nil {
		return nil, err
	}
	marked, missing := in, false
	marked.Messages = append([]*jinja.Dict(nil), in.Messages...)
	for i, m := range in.Messages {
		if slices.Contains(in.Named, i) && !shown[i].Name {
			return segments, &LostError{i, textOf(m, "role"), true}
		}
		_, calls := m.Get("tool_calls")
		if strings.TrimSpace(textOf(m, "content")) == "" || shown[i].Content || calls {
			shown[i].Content = true
			continue
		}
		marked.Messages[i], missing = with(m, "content", "Some words."), true
	}
	if !missing {
		return segments, nil
	}
	// The template may have taken a text for what it is: a switch such as /no_think, or reasoning between its marks.
	// Other words in its place come out then.
	_, again, err := t.Trace(ctx, marked)
	if err != nil {
		again = shown
	}
	for i, m := range in.Messages {
		if !shown[i].Content && !again[i].Content {
			return segments, &LostError{i, textOf(m, "role"), false}
		}
	}
	return segments, ctx.Err()
}

// asSystem returns the messages with developers' as the system's, or nil if no message is a developer's.
func asSystem(messages []*jinja.Dict) []*jinja.Dict {
	var all []*jinja.Dict
	for i, m := range messages {
		if textOf(m, "role") != "developer" {
			continue
		}
		if all == nil {
			all = append(all, messages...)
		}
		all[i] = with(m, "role", "system")
	}
	return all
}

// oneSystem returns the messages with the system's at the beginning as one, or nil if there is at most one.
func oneSystem(messages []*jinja.Dict) []*jinja.Dict {
	var texts []string
	for _, m := range messages {
		if role := textOf(m, "role"); role != "system" && role != "developer" {
			break
		}
		texts = append(texts, textOf(m, "content"))
	}
	if len(texts) < 2 {
		return nil
	}
	first := Message("system", strings.Join(texts, "\n\n"))
	return append([]*jinja.Dict{first}, messages[len(texts):]...)
}

// textOf returns the text of a message's key, "" for none.
func textOf(m *jinja.Dict, key string) string {
	v, ok := m.Get(key)
	if !ok {
		return ""
	}
	text, _ := jinja.Text(v)
	return text
}

// with returns a copy of m with another text for a key.
func with(m *jinja.Dict, key, text string) *jinja.Dict {
	c := jinja.NewDict()
	for _, k := range m.Keys() {
		v, _ := m.Get(k)
		c.Set(k, v)
	}
	c.Set(key, jinja.String(text))
	return c
}
