//go:build js

package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall/js"

	"github.com/karat-run/karat"
)

// A prompt is a conversation or, if conversation is nil, a text.
type prompt struct {
	messages []karat.Message
	text     string
	options  karat.GenerateOptions
}

// message is a message in the form of OpenAI's API.
type message struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"` // a text, or parts
	Name      string          `json:"name"`
	Reasoning string          `json:"reasoning_content"`
	CallID    string          `json:"tool_call_id"`
	Calls     []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

// parts returns the texts and pictures of a content. Pictures are data: URLs.
func (x *message) parts() (list []karat.Part, err error) {
	var text string
	if len(x.Content) == 0 || string(x.Content) == "null" {
		return nil, nil
	}
	if json.Unmarshal(x.Content, &text) == nil {
		return []karat.Part{karat.Text(text)}, nil
	}
	var parts []struct {
		Type, Text string
		Image      struct{ URL string } `json:"image_url"`
	}
	if err := json.Unmarshal(x.Content, &parts); err != nil {
		return nil, fmt.Errorf("content: %w", err)
	}
	for i, p := range parts {
		switch p.Type {
		case "text":
			list = append(list, karat.Text(p.Text))
		case "image_url":
			_, data, ok := strings.Cut(p.Image.URL, ";base64,")
			picture, err := base64.StdEncoding.DecodeString(data)
			if err != nil || !ok {
				return nil, fmt.Errorf("content[%d]: image_url.url must be a data: URL in base64", i)
			}
			list = append(list, karat.Image{Data: picture})
		default:
			return nil, fmt.Errorf("content[%d]: the type %q is neither text nor image_url", i, p.Type)
		}
	}
	return list, nil
}

// read returns the message as Karat has it.
func (x *message) read() (m karat.Message, err error) {
	m = karat.Message{Role: karat.Role(x.Role), Name: x.Name}
	if x.Reasoning != "" {
		m.Parts = append(m.Parts, karat.Reasoning(x.Reasoning))
	}
	parts, err := x.parts()
	if err != nil {
		return m, err
	}
	if m.Role == karat.RoleTool {
		r := karat.ToolResult{ID: x.CallID, Name: x.Name}
		for _, p := range parts {
			switch p := p.(type) {
			case karat.Text:
				r.Content += string(p)
			case karat.Image:
				r.Images = append(r.Images, p)
			}
		}
		m.Name, m.Parts = "", []karat.Part{r}
		return m, nil
	}
	m.Parts = append(m.Parts, parts...)
	for _, c := range x.Calls {
		m.Parts = append(m.Parts, karat.ToolCall{ID: c.ID, Name: c.Function.Name,
			Arguments: json.RawMessage(c.Function.Arguments)})
	}
	return m, nil
}

func readPrompt(v js.Value) (p prompt, err error) {
	if v.Type() == js.TypeString {
		return prompt{text: v.String()}, nil
	}
	var list []message
	if err := read(v, "messages", &list); err != nil {
		return p, err
	}
	if len(list) == 0 {
		return p, errors.New("there are no messages")
	}
	for i := range list {
		m, err := list[i].read()
		if err != nil {
			return p, fmt.Errorf("messages[%d]: %w", i, err)
		}
		p.messages = append(p.messages, m)
	}
	return p, nil
}

// generateOptions are the options of generate.
type generateOptions struct {
	MaxTokens int             `json:"maxTokens"`
	Sampling  *sampling       `json:"sampling"`
	Stop      []string        `json:"stop"`
	Top       int             `json:"top"`
	Args      map[string]any  `json:"args"`
	Continue  bool            `json:"continue"`
	Schema    json.RawMessage `json:"schema"`
	Regexp    string          `json:"regex"`
	GBNF      string          `json:"grammar"`
	Lark      string          `json:"lark"`
	Receipt   bool            `json:"receipt"`
	Tools     []struct {
		Function struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Parameters  json.RawMessage `json:"parameters"`
			Strict      bool            `json:"strict"`
		} `json:"function"`
	} `json:"tools"`
	Choice string `json:"toolChoice"` // required, or the name of the tool to call; else the model chooses
	Single bool   `json:"singleCall"`
}

func (o *generateOptions) options() karat.GenerateOptions {
	g := karat.GenerateOptions{MaxTokens: o.MaxTokens, Stop: o.Stop, TopLogprobs: o.Top, TemplateArgs: o.Args,
		Continue: o.Continue}
	if o.Sampling != nil {
		g.Sampling = new(karat.Sampling(*o.Sampling))
	}
	return g
}

// tools returns the tools of a conversation.
func (o *generateOptions) tools() (list []karat.Tool) {
	for _, t := range o.Tools {
		f := t.Function
		list = append(list, karat.Tool{Name: f.Name, Description: f.Description, Parameters: f.Parameters,
			Strict: f.Strict})
	}
	return list
}

// generated is the result of generate.
type generated struct {
	Text          string  `json:"text"`
	Stop          string  `json:"stop"`
	Prompt        int     `json:"prompt"`
	Kept          int     `json:"kept"`
	Tokens        int     `json:"tokens"`
	PromptSeconds float64 `json:"promptSeconds"` // to the first token
	Seconds       float64 `json:"seconds"`       // of the others
	Receipt       string  `json:"receipt,omitempty"`
}

// sampling is a karat.Sampling.
type sampling struct {
	Temperature      float64         `json:"temperature"`
	TopK             int             `json:"topK"`
	TopP             float64         `json:"topP"`
	MinP             float64         `json:"minP"`
	RepeatPenalty    float64         `json:"repeatPenalty"`
	RepeatLast       int             `json:"repeatLast"`
	PresencePenalty  float64         `json:"presencePenalty"`
	FrequencyPenalty float64         `json:"frequencyPenalty"`
	Seed             *uint64         `json:"seed"`
	LogitBias        map[int]float32 `json:"-"`
}
