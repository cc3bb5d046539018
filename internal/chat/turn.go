package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/karat-run/karat/jinja"
)

// Turn is a message of more than text, with the keys read by Hugging Face's templates.
type Turn struct {
	Role, Content string
	Reasoning     string // reasoning_content, reasoning and thinking; "" leaves the keys out
	Calls         []Call // tool_calls
	Name, CallID  string // name and tool_call_id, of a tool's result; "" leaves the key out
	Items         []Item // texts and pictures: the content with a picture is their list, without the texts together
}

// Item is a text or a picture of a content.
type Item struct {
	Text  string
	Image bool
}

// Call is a tool call: {"type": "function", "function": {"name", "arguments"}, "id"}.
type Call struct {
	ID, Name  string
	Arguments []byte // a JSON object, whose keys keep their order; nil is {}
}

// Message returns t in the form of templates.
func (t *Turn) Message() (*jinja.Dict, error) {
	d := Message(t.Role, t.Content)
	if slices.ContainsFunc(t.Items, func(x Item) bool { return x.Image }) {
		var list []jinja.Value
		for _, x := range t.Items {
			if x.Image {
				list = append(list, object("type", "image"))
			} else if x.Text != "" {
				list = append(list, object("type", "text", "text", x.Text))
			}
		}
		d.Set("content", jinja.List(list...))
	}
	set := func(key, value string) {
		if value != "" {
			d.Set(key, jinja.String(value))
		}
	}
	set("reasoning_content", t.Reasoning)
	set("reasoning", t.Reasoning)
	if t.Content == "" || len(t.Calls) == 0 { // else a template that has the key refuses the message
		set("thinking", t.Reasoning)
	}
	set("name", t.Name)
	set("tool_call_id", t.CallID)
	var calls []jinja.Value
	for _, c := range t.Calls {
		arguments, err := jsonObject("arguments", c.Arguments)
		if err != nil {
			return nil, fmt.Errorf("call of %q: %w", c.Name, err)
		}
		call := object("type", "function", "function", object("name", c.Name, "arguments", arguments))
		if c.ID != "" {
			call.Set("id", jinja.String(c.ID))
		}
		calls = append(calls, call)
	}
	if calls != nil {
		d.Set("tool_calls", jinja.List(calls...))
	}
	return d, nil
}

// Tool describes a tool in the form of templates: {"type": "function", "function": {"name", "description",
// "parameters"}}. parameters is a JSON schema of an object; nil stands for no properties.
func Tool(name, description string, parameters []byte) (jinja.Value, error) {
	if parameters == nil {
		parameters = []byte(`{"type": "object", "properties": {}}`)
	}
	schema, err := jsonObject("parameters", parameters)
	if err != nil {
		return nil, fmt.Errorf("tool %q: %w", name, err)
	}
	function := object("name", name, "description", description, "parameters", schema)
	return object("type", "function", "function", function), nil
}

// jsonObject parses a JSON object. Nil gives an empty dict.
func jsonObject(what string, data []byte) (*jinja.Dict, error) {
	if data == nil {
		return jinja.NewDict(), nil
	}
	if !json.Valid(data) {
		return nil, errors.New(what + " are not JSON")
	}
	v, err := jinja.DecodeJSON(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	d, ok := v.(*jinja.Dict)
	if !ok {
		return nil, errors.New(what + " are not a JSON object")
	}
	return d, nil
}

// Args makes template variables of Go values, by way of JSON.
func Args(args map[string]any) (*jinja.Dict, error) {
	if len(args) == 0 {
		return nil, nil
	}
	data, err := json.Marshal(args)
	if err != nil {
		return nil, fmt.Errorf("template arguments: %w", err)
	}
	v, err := jinja.DecodeJSON(data)
	if err != nil {
		return nil, fmt.Errorf("template arguments: %w", err)
	}
	return v.(*jinja.Dict), nil
}

// TurnEnds returns the tokens written by t after an answer, without the white space around them: for an answer at the
// conversation's end, and for an answer before another message. In ChatML both are <|im_end|>. A token also opening a
// message is left out, since no token of its own ends the turn. A conversation refused by t has none.
func (t *Template) TurnEnds(ctx context.Context, bos, eos string,
	isToken func(text string) (name string, ok bool)) []string {
	const question, answer = "First.", "Second."
	messages := []*jinja.Dict{Message("user", question), Message("assistant", answer), Message("user", "Third.")}
	var ends []string
	for n := 2; n <= 3; n++ {
		segments, err := t.CheckedSegments(ctx, Input{BOSToken: bos, EOSToken: eos, Messages: messages[:n]})
		text, _ := Flatten(segments)
		before, rest, found := strings.Cut(text, answer)
		opened, _, asked := strings.Cut(before, question)
		if err != nil || !found || !asked {
			continue
		}
		if name, ok := isToken(strings.TrimSpace(rest)); ok && !strings.Contains(strings.TrimPrefix(opened, bos),
			name) {
			ends = append(ends, name)
		}
	}
	return ends
}
