package karat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/chat"
)

// Message is a turn of a conversation.
type Message struct {
	Role  Role
	Parts []Part
	Name  string // name of the speaker; "" for none. An error if the chat template leaves the name out
}

// Role is the author of a Message.
type Role string

// The usual roles of chat templates. Some templates have others, and not all have these.
const (
	RoleSystem    Role = "system"
	RoleDeveloper Role = "developer" // a system to templates without developers
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool" // results of tools
)

// Part is a part of a Message: Text, Image, Reasoning, ToolCall or ToolResult.
type Part interface{ part() }

// Text is spoken text. The texts of a message are joined unchanged.
type Text string

// Image is a picture: a part of a message of RoleUser, for a model that sees.
type Image struct {
	Name string // of the file, for errors; may be empty
	Data []byte // a JPEG, PNG, WebP, GIF or BMP file, of at most 64 MiB and 64 megapixels
}

// Reasoning is the assistant's thinking before an answer. Most templates leave out the reasoning of earlier turns.
type Reasoning string

// ToolCall asks for a tool: a part of the assistant's message.
type ToolCall struct {
	ID        string          // for the result's reference; may be ""
	Name      string          // of the tool
	Arguments json.RawMessage // a JSON object; nil is {}
}

// ToolResult is the result of a tool: a part of a message of RoleTool, without parts of other kinds.
type ToolResult struct {
	ID      string // of the call; may be ""
	Name    string // of the tool; may be ""
	Content string
	Images  []Image // after the text
}

func (Text) part()       {}
func (Image) part()      {}
func (Reasoning) part()  {}
func (ToolCall) part()   {}
func (ToolResult) part() {}

// Tool describes a function for the model to call. The form of a call in generated text depends on the model:
// Model.ChatParts and CompleteChat give calls as parts.
type Tool struct {
	Name        string
	Description string
	Parameters  json.RawMessage // a JSON schema of the arguments, an object; nil is no properties
	Strict      bool            // for Model.ResponseGrammar: Parameters must be supported
}

// TextMessage returns a message of a text.
func TextMessage(role Role, text string) Message {
	return Message{Role: role, Parts: []Part{Text(text)}}
}

// check returns an error for parts foreign to the message's role, and for calls of no tool.
func (m *Message) check() error {
	if m.Role == "" {
		return errors.New("Role is empty")
	}
	for i, p := range m.Parts {
		switch p := p.(type) {
		case ToolCall:
			if p.Name == "" {
				return fmt.Errorf("part %d: ToolCall.Name is empty", i)
			}
			if m.Role == RoleUser || m.Role == RoleSystem || m.Role == RoleTool {
				return fmt.Errorf("part %d: a ToolCall is of RoleAssistant, not of %q", i, m.Role)
			}
		case ToolResult:
			if m.Role == RoleUser || m.Role == RoleSystem || m.Role == RoleAssistant {
				return fmt.Errorf("part %d: a ToolResult is of RoleTool, not of %q", i, m.Role)
			}
		case Image:
			if m.Role != RoleUser && m.Role != RoleTool {
				return fmt.Errorf("part %d: an Image is of RoleUser or in a ToolResult, not of %q: move it to a "+
					"message of RoleUser", i, m.Role)
			}
		}
	}
	return nil
}

// turns returns the message in the form of templates: each result of a tool is a message of its own.
func (m *Message) turns() ([]chat.Turn, error) {
	var results []chat.Turn
	var text, reasoning strings.Builder
	t := chat.Turn{Role: string(m.Role), Name: m.Name}
	for i, p := range m.Parts {
		switch p := p.(type) {
		case Text:
			text.WriteString(string(p))
			t.Items = append(t.Items, chat.Item{Text: string(p)})
		case Image:
			t.Items = append(t.Items, chat.Item{Image: true})
		case Reasoning:
			reasoning.WriteString(string(p))
		case ToolCall:
			t.Calls = append(t.Calls, chat.Call{ID: p.ID, Name: p.Name, Arguments: p.Arguments})
		case ToolResult:
			r := chat.Turn{Role: string(m.Role), Content: p.Content, Name: p.Name, CallID: p.ID,
				Items: []chat.Item{{Text: p.Content}}}
			for range p.Images {
				r.Items = append(r.Items, chat.Item{Image: true})
			}
			results = append(results, r)
		default:
			return nil, fmt.Errorf("part %d is a %T", i, p)
		}
	}
	if results != nil {
		if m.Name != "" {
			return nil, errors.New("the Name of a message of results is that of each ToolResult")
		}
		if len(results) < len(m.Parts) {
			return nil, fmt.Errorf("%d of its %d parts are results of tools: they need a message of their own",
				len(results), len(m.Parts))
		}
		return results, nil
	}
	t.Content, t.Reasoning = text.String(), reasoning.String()
	return []chat.Turn{t}, nil
}

// input returns the input of the template.
func input(messages []Message, o *GenerateOptions) (in chat.Input, err error) {
	in.AddGenerationPrompt = !o.NoGenerationPrompt && !o.Continue
	for i := range messages {
		err := messages[i].check()
		var turns []chat.Turn
		if err == nil {
			turns, err = messages[i].turns()
		}
		if err != nil {
			return in, &MessageError{i, err}
		}
		if messages[i].Name != "" {
			in.Named = append(in.Named, len(in.Messages))
		}
		for _, t := range turns {
			d, err := t.Message()
			if err != nil {
				return in, &MessageError{i, err}
			}
			in.Messages = append(in.Messages, d)
		}
	}
	for i, t := range o.Tools {
		same := func(u Tool) bool { return u.Name == t.Name }
		if t.Name == "" {
			return in, fmt.Errorf("GenerateOptions.Tools[%d]: Name is empty", i)
		}
		if first := slices.IndexFunc(o.Tools, same); first < i {
			return in, fmt.Errorf("GenerateOptions.Tools[%d]: Name is %q, as that of Tools[%d]", i, t.Name, first)
		}
		d, err := chat.Tool(t.Name, t.Description, t.Parameters)
		if err != nil {
			return in, err
		}
		in.Tools = append(in.Tools, d)
	}
	in.Args, err = chat.Args(o.TemplateArgs)
	return in, err
}

// placeError adds to the error of a rendering the place of its message.
func placeError(err error, messages []Message) error {
	var of *chat.LostError
	if !errors.As(err, &of) {
		return err
	}
	at := 0 // the first turn of a message
	for i, m := range messages {
		turns, _ := m.turns()
		if at += len(turns); of.Message >= at {
			continue
		}
		if of.Name {
			return &NameError{i, m.Name}
		}
		return &MessageError{i, err}
	}
	return err
}

// MessageError is the error of a message of a conversation: its text would be left out by the chat template, or a part
// is foreign to the message's role.
type MessageError struct {
	Message int // its place in the conversation
	Err     error
}

func (e *MessageError) Error() string { return fmt.Sprintf("message %d: %v", e.Message, e.Err) }

func (e *MessageError) Unwrap() error { return e.Err }

// NameError is the error of a conversation whose chat template would leave out the Name of a message.
type NameError struct {
	Message int // its place in the conversation
	Name    string
}

func (e *NameError) Error() string {
	return fmt.Sprintf("message %d: the chat template has no place for the name of who speaks, and would leave %q out",
		e.Message, e.Name)
}

// renderUnended renders a conversation up to the end of its last text. A mark after the text shows the template's end
// of the turn, and keeps the template from trimming the text.
func (m *Model) renderUnended(ctx context.Context, messages []Message, o GenerateOptions) ([]chat.Segment, error) {
	const mark = "|the answer goes on here|"
	n := len(messages) - 1
	if n < 0 || messages[n].Role != RoleAssistant {
		return nil, errors.New("there is no message of the assistant at the end, which the answer could go on with")
	}
	last := messages[n]
	if slices.ContainsFunc(last.Parts, func(p Part) bool { _, is := p.(ToolCall); return is }) {
		return nil, fmt.Errorf("message %d: it has a call of a tool, and no answer goes on behind one", n)
	}
	last.Parts = append(slices.Clone(last.Parts), Text(mark))
	segments, err := m.segments(ctx, append(slices.Clone(messages[:n]), last), o)
	if err != nil {
		return nil, err
	}
	for i, s := range slices.Backward(segments) {
		if end := strings.LastIndex(s.Text, mark); end >= 0 {
			segments[i].Text = s.Text[:end]
			return segments[:i+1], nil
		}
	}
	return nil, fmt.Errorf("message %d: the chat template leaves out the end of its text, so that no answer can go "+
		"on with it", n)
}
