package karat

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/chat"
	"github.com/karat-run/karat/internal/syntax"
)

// instructions tell a model of tools whose chat template takes none, in the form that syntax.General reads.
const instructions = `You can call tools. To call one, write this, with its name and an object of arguments that fits its parameters:
<tool_call>
{"name": "NAME", "arguments": {}}
</tool_call>
Write nothing behind the calls. The results come in the next message, between <tool_response> and </tool_response>. Answer as usual where no tool helps.
The tools:
`

// wholly renders a conversation whose chat template takes no tools: they, calls and results become text. The tools
// come in the system's text, or in the first user's where the template takes no system.
func wholly(ctx context.Context, t *chat.Template, in chat.Input, messages []Message, o GenerateOptions) (segments []chat.Segment, err error) {
	told := ""
	if len(o.Tools) > 0 {
		if told, err = describe(o.Tools); err != nil {
			return nil, err
		}
	}
	bos, eos := in.BOSToken, in.EOSToken
	o.Tools = nil
	for _, role := range []Role{RoleSystem, RoleUser} {
		texts, origin := spelled(messages, told, role)
		if in, err = input(texts, &o); err != nil {
			return nil, err
		}
		in.BOSToken, in.EOSToken = bos, eos
		if segments, err = t.Whole(ctx, in); err == nil || ctx.Err() != nil {
			return segments, err
		}
		err = lost(err, texts)
		if of, is := errors.AsType[*MessageError](err); is {
			of.Message = origin[of.Message]
		} else if of, is := errors.AsType[*NameError](err); is {
			of.Message = origin[of.Message]
		}
		if told == "" {
			break
		}
	}
	return segments, err
}

// spelled returns a conversation as texts, with the place of each message in the conversation. What the model is told
// of tools comes to the text of the system, or to the first of the user.
func spelled(messages []Message, told string, to Role) (all []Message, origin []int) {
	if told != "" && to == RoleSystem && messages[0].Role != RoleSystem {
		all, origin = []Message{TextMessage(RoleSystem, told)}, []int{0}
		told = ""
	}
	result := false // the last message is a tool's
	for i, m := range messages {
		parts := []Part{}
		for _, p := range m.Parts {
			switch x := p.(type) {
			case ToolCall:
				p = Text("\n" + callText(x))
			case ToolResult:
				p = Text("<tool_response>\n" + x.Content + "\n</tool_response>\n")
			}
			parts = append(parts, p)
		}
		before := result
		if result = m.Role == RoleTool; result {
			m.Role = RoleUser
		}
		if told != "" && m.Role == to {
			gap := []Part{Text(told + "\n\n")}
			if to == RoleSystem {
				gap, parts = parts, []Part{Text("\n\n" + told)}
			}
			parts, told = append(gap, parts...), ""
		}
		// Templates want users and assistants by turns.
		if n := len(all) - 1; n >= 0 && m.Role == RoleUser && all[n].Role == RoleUser && (result || before) {
			all[n].Parts = append(all[n].Parts, parts...)
			continue
		}
		m.Parts = parts
		all, origin = append(all, m), append(origin, i)
	}
	return all, origin
}

// describe is what a model is told of tools.
func describe(tools []Tool) (string, error) {
	var b bytes.Buffer
	b.WriteString(instructions)
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for _, t := range tools {
		parameters := t.Parameters
		if parameters == nil {
			parameters = []byte(`{"type":"object","properties":{}}`)
		}
		if err := e.Encode(struct {
			Name        string          `json:"name"`
			Description string          `json:"description,omitempty"`
			Parameters  json.RawMessage `json:"parameters"`
		}{t.Name, t.Description, parameters}); err != nil {
			return "", err
		}
	}
	return strings.TrimSpace(b.String()), nil
}

// callText is a call as the instructions want it.
func callText(c ToolCall) string {
	arguments := string(c.Arguments)
	if arguments == "" {
		arguments = "{}"
	}
	name, _ := json.Marshal(c.Name) // a string has JSON
	m, y := syntax.General.Calls[0], syntax.General.Style
	return m.Begin + "\n" + `{"name": ` + string(name) + y.Then[1:] + arguments + y.After + m.End
}

// takesNone reports whether a conversation has tools, calls or results, for which a chat template has no place. A template
// that does not say tool_calls may write whole messages: a name that is nowhere else shows that.
func takesNone(ctx context.Context, t *chat.Template, messages []Message, o GenerateOptions) bool {
	const mark = "name_of_a_call"
	marked, spoken := slices.Clone(messages), false
	for i, m := range marked {
		marked[i].Parts = slices.Clone(m.Parts)
		spoken = spoken || m.Role == RoleTool
		for k, part := range m.Parts {
			if c, is := part.(ToolCall); is {
				c.Name, spoken = mark, true
				marked[i].Parts[k] = c
			}
		}
	}
	lacks := func(key string) bool { return !strings.Contains(t.Source(), key) }
	if !(len(o.Tools) > 0 && lacks("tools") || spoken && lacks("tool_calls")) || !syntax.Of(t.Source()).General {
		return false
	}
	if len(o.Tools) > 0 && lacks("tools") {
		return true
	}
	in, err := input(marked, &o)
	if err != nil {
		return false
	}
	text, err := t.Render(ctx, in)
	return err != nil || !strings.Contains(text, mark)
}
