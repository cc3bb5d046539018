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

// CheckedSegments returns Segments, or a LostError beside them if they leave out a message's text or name. Reasoning
// may be missing, as may an assistant's text beside calls of tools. A template without developers gets a developer as a
// system, and a template taking one system message gets all at the beginning as one message.
func (t *Template) CheckedSegments(ctx context.Context, in Input) ([]Segment, error) {
	if all := asSystem(in.Messages); all != nil && !strings.Contains(t.source, "developer") {
		in.Messages = all
	}
	segments, err := t.checkedSegments(ctx, in)
	for _, other := range []func([]*jinja.Dict) []*jinja.Dict{asSystem, oneSystem} {
		if err == nil || ctx.Err() != nil {
			return segments, err
		}
		messages := other(in.Messages)
		if messages == nil || len(in.Named) > 0 {
			continue
		}
		in.Messages = messages
		if again, failed := t.checkedSegments(ctx, in); failed == nil {
			return again, nil
		}
	}
	return segments, err
}

// checkedSegments returns Segments or a LostError, with messages as they are.
func (t *Template) checkedSegments(ctx context.Context, in Input) ([]Segment, error) {
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
		marked.Messages[i], missing = replaceText(m, "content", "Some words."), true
	}
	if !missing {
		return segments, nil
	}
	// The template may have acted on a text, such as a switch like /no_think, or reasoning between its marks. Other
	// words in its place come out then.
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
		all[i] = replaceText(m, "role", "system")
	}
	return all
}

// oneSystem returns the messages with the system's at the beginning joined, or nil if there is at most one.
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

// replaceText returns a copy of m with another text for a key.
func replaceText(m *jinja.Dict, key, text string) *jinja.Dict {
	c := jinja.NewDict()
	for _, k := range m.Keys() {
		v, _ := m.Get(k)
		c.Set(k, v)
	}
	c.Set(key, jinja.String(text))
	return c
}
