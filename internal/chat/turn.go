package chat

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/karat-run/karat/jinja"
)

// Turn is a message of more than text, with the keys that Hugging Face's templates read.
type Turn struct {
	Role, Content string
	Reasoning     string // reasoning_content, reasoning and thinking, as templates call it; "" leaves the keys out
	Calls         []Call // tool_calls
	Name, CallID  string // name and tool_call_id, of what a tool returned; "" leaves the key out
}

// Call is a tool call: {"type": "function", "function": {"name", "arguments"}, "id"}.
type Call struct {
	ID, Name  string
	Arguments []byte // a JSON object, whose keys keep their order; nil is {}
}

// Message is t as templates have it.
func (t *Turn) Message() (*jinja.Dict, error) {
	d := Message(t.Role, t.Content)
	set := func(key, value string) {
		if value != "" {
			d.Set(key, jinja.String(value))
		}
	}
	set("reasoning_content", t.Reasoning)
	set("reasoning", t.Reasoning)
	if t.Content == "" || len(t.Calls) == 0 { // else gpt-oss's template refuses the message
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

// Tool describes a tool as templates have it: {"type": "function", "function": {"name", "description",
// "parameters"}}. parameters is a JSON schema of an object; nil is one without properties.
func Tool(name, description string, parameters []byte) (jinja.Value, error) {
	if parameters == nil {
		parameters = []byte(`{"type": "object", "properties": {}}`)
	}
	schema, err := jsonObject("parameters", parameters)
	if err != nil {
		return nil, fmt.Errorf("tool %q: %w", name, err)
	}
	return object("type", "function", "function", object("name", name, "description", description, "parameters", schema)), nil
}

// jsonObject is a JSON object; nil is an empty one.
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
