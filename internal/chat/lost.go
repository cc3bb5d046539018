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
// system, a template taking one system message gets all at the beginning as one message, and a template of other forms
// gets the arguments of calls as texts, or contents as lists of parts.
func (t *Template) CheckedSegments(ctx context.Context, in Input) ([]Segment, error) {
	if all := asSystem(in.Messages); all != nil && !strings.Contains(t.source, "developer") {
		in.Messages = all
	}
	segments, err := t.checkedSegments(ctx, in)
	for _, other := range []func([]*jinja.Dict) []*jinja.Dict{asSystem, oneSystem, writeArguments, asParts} {
		if err == nil || ctx.Err() != nil {
			return segments, err
		}
		messages := other(in.Messages)
		if messages == nil || len(in.Named) > 0 {
			continue
		}
		in.Messages = messages
		again, failed := t.checkedSegments(ctx, in)
		if text, _ := Flatten(again); failed == nil && !strings.Contains(strings.ToLower(text), partOf) {
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
		if strings.TrimSpace(contentOf(m)) == "" || shown[i].Content || calls {
			shown[i].Content = true
			continue
		}
		other := replace(m, "content", jinja.String("Some words."))
		if textOf(m, "content") == "" {
			other = asParts([]*jinja.Dict{other})[0]
		}
		marked.Messages[i], missing = other, true
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
	return change(messages, func(m *jinja.Dict) *jinja.Dict {
		if textOf(m, "role") != "developer" {
			return nil
		}
		return replace(m, "role", jinja.String("system"))
	})
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

// partOf is in a prompt that shows a part as Python prints a dict.
const partOf = "part-of-several-5e1c"

// asParts returns the messages with contents in parts, as templates of models for pictures want them, or nil if none
// is a text.
func asParts(messages []*jinja.Dict) []*jinja.Dict {
	return change(messages, func(m *jinja.Dict) *jinja.Dict {
		text := textOf(m, "content")
		if text == "" {
			return nil
		}
		return replace(m, "content", jinja.List(object("type", "text", "text", text, "part", partOf)))
	})
}

// writeArguments returns the messages with the arguments of calls as JSON, as APIs have them, or nil if there are none.
func writeArguments(messages []*jinja.Dict) []*jinja.Dict {
	// parsed here, so that programs without chats link no Jinja
	toJSON, err := jinja.Parse("{{ x | tojson }}", jinja.Options{})
	if err != nil {
		return nil
	}
	return change(messages, func(m *jinja.Dict) *jinja.Dict {
		v, _ := m.Get("tool_calls")
		calls, _ := jinja.Items(v)
		all := make([]jinja.Value, len(calls))
		for i, v := range calls {
			call, _ := v.(*jinja.Dict)
			v, _ = call.Get("function")
			function, _ := v.(*jinja.Dict)
			arguments, _ := function.Get("arguments")
			text, err := toJSON.Execute(context.Background(), object("x", arguments))
			if err != nil {
				return nil
			}
			all[i] = replace(call, "function", replace(function, "arguments", jinja.String(text)))
		}
		if calls == nil {
			return nil
		}
		return replace(m, "tool_calls", jinja.List(all...))
	})
}

// change returns the messages with another in the place of each for which with returns one, or nil if there are none.
func change(messages []*jinja.Dict, with func(*jinja.Dict) *jinja.Dict) (all []*jinja.Dict) {
	for i, m := range messages {
		if other := with(m); other != nil {
			if all == nil {
				all = append(all, messages...)
			}
			all[i] = other
		}
	}
	return all
}

// contentOf returns a message's content, or the texts of its parts.
func contentOf(m *jinja.Dict) string {
	text := textOf(m, "content")
	v, _ := m.Get("content")
	parts, _ := jinja.Items(v)
	for _, p := range parts {
		if part, ok := p.(*jinja.Dict); ok {
			text += textOf(part, "text")
		}
	}
	return text
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

// replace returns a copy of m with another value for a key.
func replace(m *jinja.Dict, key string, value jinja.Value) *jinja.Dict {
	c := jinja.NewDict()
	for _, k := range m.Keys() {
		v, _ := m.Get(k)
		c.Set(k, v)
	}
	c.Set(key, value)
	return c
}
