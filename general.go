package karat

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/chat"
	"github.com/karat-run/karat/internal/syntax"
)

// renderAsText renders a conversation with a chat template without a place for tools, or for calls: the missing parts
// become text, and so do results if the template shows no syntax of calls. The tools go into the system's text, or into
// the first user's if the template takes no system.
func renderAsText(ctx context.Context, t *chat.Template, y *syntax.Syntax, in chat.Input, messages []Message,
	o GenerateOptions) (segments []chat.Segment, err error) {
	told := ""
	if len(o.Tools) > 0 && (y.General || !strings.Contains(t.Source(), "tools")) {
		if told, err = describe(y, o.Tools); err != nil {
			return nil, err
		}
		o.Tools = nil
	}
	bos, eos := in.BOSToken, in.EOSToken
	spell := spelling{y, y.General || !strings.Contains(t.Source(), "tool_calls"), y.General}
	for _, role := range []Role{RoleSystem, RoleUser} {
		texts, origin := spell.texts(messages, told, role)
		if in, err = input(texts, &o); err != nil {
			return nil, err
		}
		in.BOSToken, in.EOSToken = bos, eos
		if segments, err = t.CheckedSegments(ctx, in); err == nil || ctx.Err() != nil {
			return segments, err
		}
		err = placeError(err, texts)
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

// spelling selects the parts of a conversation that become text.
type spelling struct {
	y              *syntax.Syntax
	calls, results bool
}

// texts returns a conversation as texts, with the place of each message in the conversation. The description of the
// tools goes into the text of the system, or into the first of the user.
func (s *spelling) texts(messages []Message, told string, to Role) (all []Message, origin []int) {
	if told != "" && to == RoleSystem && messages[0].Role != RoleSystem {
		all, origin = []Message{TextMessage(RoleSystem, told)}, []int{0}
		told = ""
	}
	result := false // the last message is a tool's
	for i, m := range messages {
		parts, calls := []Part{}, []syntax.Call(nil)
		for _, p := range m.Parts {
			if x, is := p.(ToolCall); is && s.calls {
				calls = append(calls, syntax.Call{Name: x.Name, Arguments: cmp.Or(string(x.Arguments), "{}")})
				continue
			}
			if x, is := p.(ToolResult); is && s.results {
				parts, p = append(parts, Text("<tool_response>\n"+x.Content)), Text("\n</tool_response>\n")
				for _, picture := range x.Images {
					parts = append(parts, picture)
				}
			}
			parts = append(parts, p)
		}
		if text, _ := s.y.Text(calls...); calls != nil {
			if len(parts) > 0 {
				text = "\n" + text
			}
			parts = append(parts, Text(text))
		}
		before := result
		if result = s.results && m.Role == RoleTool; result {
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

// describe tells a model about tools: to write calls in the form read by its parser.
func describe(y *syntax.Syntax, tools []Tool) (string, error) {
	var b bytes.Buffer
	call, _ := y.Text(syntax.Call{Name: "NAME", Arguments: "{}"})
	b.WriteString("You can call tools. To call one, write this, with its name and an object of arguments that fits " +
		"its parameters:\n")
	b.WriteString(call + "\nWrite nothing behind the calls. The results come in the next message")
	if y.General {
		b.WriteString(", between <tool_response> and </tool_response>")
	}
	b.WriteString(". Answer as usual where no tool helps.\nThe tools:\n")
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

// lacksTools reports whether a conversation has tools, calls or results without a place in a chat template, and returns
// the error of the first tool or call left out by the template. A template without the word tool_calls may write whole
// messages: a name found nowhere else shows such a template.
func lacksTools(ctx context.Context, t *chat.Template, messages []Message, o GenerateOptions) (none bool, left error) {
	lacks := func(key string) bool { return !strings.Contains(t.Source(), key) }
	if len(o.Tools) > 0 && lacks("tools") {
		return true, fmt.Errorf("GenerateOptions.Tools[0]: the chat template takes no tools, and would leave %q out",
			o.Tools[0].Name)
	}
	if !lacks("tool_calls") {
		return false, nil
	}
	marked, mark := slices.Clone(messages), rand.Text()
	for i, m := range marked {
		marked[i].Parts = slices.Clone(m.Parts)
		none = none || m.Role == RoleTool
		for k, part := range m.Parts {
			c, is := part.(ToolCall)
			if is && left == nil {
				left = &MessageError{i, fmt.Errorf("part %d: the chat template takes no tool calls, and would leave "+
					"that of %q out", k, c.Name)}
			}
			if is {
				c.Name = mark
				marked[i].Parts[k] = c
			}
		}
	}
	if left == nil {
		return none, nil
	}
	in, err := input(marked, &o)
	if err != nil {
		return false, nil
	}
	if text, err := t.Render(ctx, in); err == nil && strings.Contains(text, mark) {
		return false, nil
	}
	return true, left
}
