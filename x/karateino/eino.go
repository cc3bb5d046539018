// Package karateino makes a model of Karat a component of Eino: a chat model with tools, and an embedder, within the
// program.
package karateino

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/cloudwego/eino/components/embedding"
	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/schema"
	"github.com/karat-run/karat"
	"github.com/karat-run/karat/x/internal/turn"
)

// ChatModel is a model.ToolCallingChatModel. Several goroutines may use a ChatModel.
type ChatModel struct {
	m     *karat.Model
	o     karat.GenerateOptions
	tools []*schema.ToolInfo
}

var _ model.ToolCallingChatModel = (*ChatModel)(nil)

// NewChatModel returns a chat model over m. The caller closes m. Options of a call replace o's.
func NewChatModel(m *karat.Model, o karat.GenerateOptions) *ChatModel { return &ChatModel{m: m, o: o} }

// GetType names the component in Eino's callbacks.
func (c *ChatModel) GetType() string { return "Karat" }

// WithTools returns the model with tools to call.
func (c *ChatModel) WithTools(tools []*schema.ToolInfo) (model.ToolCallingChatModel, error) {
	if _, err := toolsOf(tools); err != nil {
		return nil, err
	}
	with := *c
	with.tools = slices.Clone(tools)
	return &with, nil
}

// Generate returns a whole answer.
func (c *ChatModel) Generate(ctx context.Context, input []*schema.Message, opts ...model.Option) (
	*schema.Message, error) {
	r, err := c.request(input, opts)
	if err != nil {
		return nil, err
	}
	said := &schema.Message{Role: schema.Assistant}
	a, err := turn.Ask(ctx, c.m, r, func(p karat.Part) error {
		add(said, p, len(said.ToolCalls))
		return nil
	})
	if err != nil {
		return nil, err
	}
	said.ResponseMeta = meta(&a)
	return said, nil
}

// Stream returns an answer in pieces. The last piece has the counts. Closing the stream ends the answer.
func (c *ChatModel) Stream(ctx context.Context, input []*schema.Message, opts ...model.Option) (
	*schema.StreamReader[*schema.Message], error) {
	r, err := c.request(input, opts)
	if err != nil {
		return nil, err
	}
	out, in := schema.Pipe[*schema.Message](1)
	go func() {
		defer in.Close()
		calls := 0
		a, err := turn.Ask(ctx, c.m, r, func(p karat.Part) error {
			piece := &schema.Message{Role: schema.Assistant}
			add(piece, p, calls)
			calls += len(piece.ToolCalls)
			if in.Send(piece, nil) {
				return errClosed
			}
			return nil
		})
		if err != nil {
			in.Send(nil, err)
			return
		}
		in.Send(&schema.Message{Role: schema.Assistant, ResponseMeta: meta(&a)}, nil)
	}()
	return out, nil
}

var errClosed = errors.New("the reader closed the stream")

// request translates a call.
func (c *ChatModel) request(input []*schema.Message, opts []model.Option) (r turn.Request, err error) {
	s := turn.Sampling(c.m, &c.o)
	o := model.GetCommonOptions(&model.Options{Tools: c.tools}, opts...)
	if o.Temperature != nil {
		s.Temperature = float64(*o.Temperature)
	}
	if o.TopP != nil {
		s.TopP = float64(*o.TopP)
	}
	r.Options = c.o
	r.Options.Sampling = s
	turn.Set(&r.Options.MaxTokens, o.MaxTokens)
	if o.Stop != nil {
		r.Options.Stop = o.Stop
	}
	if len(o.Tools) > 0 {
		if r.Options.Tools, err = toolsOf(o.Tools); err != nil {
			return r, err
		}
	}
	r.Choice.Names = o.AllowedToolNames
	if o.ToolChoice != nil {
		switch *o.ToolChoice {
		case schema.ToolChoiceForbidden:
			r.Choice.None = true
		case schema.ToolChoiceForced:
			r.Choice.Required = true
		case schema.ToolChoiceAllowed:
		default:
			return r, fmt.Errorf("tool choice %q: want allowed, forced or forbidden", *o.ToolChoice)
		}
	}
	r.Messages, err = turn.Messages(input, messageOf)
	return r, err
}

func toolsOf(infos []*schema.ToolInfo) (tools []karat.Tool, err error) {
	for _, t := range infos {
		k := karat.Tool{Name: t.Name, Description: t.Desc}
		if t.ParamsOneOf != nil {
			s, err := t.ToJSONSchema()
			if err == nil {
				k.Parameters, err = json.Marshal(s)
			}
			if err != nil {
				return nil, fmt.Errorf("tool %s: %w", t.Name, err)
			}
		}
		tools = append(tools, k)
	}
	return tools, nil
}

func messageOf(m *schema.Message) (said karat.Message, err error) {
	said = karat.Message{Role: karat.Role(m.Role), Name: m.Name}
	if m.Role == schema.Tool {
		if len(m.UserInputMultiContent) > 0 || len(m.MultiContent) > 0 {
			return said, fmt.Errorf("a tool's result of several parts is not taken: want Content")
		}
		said.Parts = []karat.Part{karat.ToolResult{ID: m.ToolCallID, Name: m.ToolName, Content: m.Content}}
		said.Name = ""
		return said, nil
	}
	if m.ReasoningContent != "" {
		said.Parts = append(said.Parts, karat.Reasoning(m.ReasoningContent))
	}
	for _, p := range m.UserInputMultiContent {
		switch {
		case p.Type == schema.ChatMessagePartTypeText:
			said.Parts = append(said.Parts, karat.Text(p.Text))
		case p.Type == schema.ChatMessagePartTypeImageURL && p.Image != nil:
			url := ""
			if b := p.Image.Base64Data; b != nil {
				url = "data:" + p.Image.MIMEType + ";base64," + *b
			} else if p.Image.URL != nil {
				url = *p.Image.URL
			}
			picture, err := turn.Picture(url)
			if err != nil {
				return said, err
			}
			said.Parts = append(said.Parts, picture)
		default:
			return said, fmt.Errorf("a part of the type %q is not taken", p.Type)
		}
	}
	if len(m.MultiContent) > 0 || len(m.AssistantGenMultiContent) > 0 {
		return said, fmt.Errorf("want UserInputMultiContent or Content")
	}
	if m.Content != "" {
		said.Parts = append(said.Parts, karat.Text(m.Content))
	}
	for _, c := range m.ToolCalls {
		said.Parts = append(said.Parts, karat.ToolCall{ID: c.ID, Name: c.Function.Name,
			Arguments: json.RawMessage(c.Function.Arguments)})
	}
	return said, nil
}

// add adds a part to a message. A call has the index call in the answer.
func add(said *schema.Message, p karat.Part, call int) {
	switch p := p.(type) {
	case karat.Text:
		said.Content += string(p)
	case karat.Reasoning:
		said.ReasoningContent += string(p)
	case karat.ToolCall:
		said.ToolCalls = append(said.ToolCalls, schema.ToolCall{Index: &call, ID: p.ID, Type: "function",
			Function: schema.FunctionCall{Name: p.Name, Arguments: string(p.Arguments)}})
	}
}

func meta(a *karat.Answer) *schema.ResponseMeta {
	reason := "stop"
	switch {
	case len(a.ToolCalls()) > 0:
		reason = "tool_calls"
	case a.Stop == karat.StopLength:
		reason = "length"
	}
	return &schema.ResponseMeta{FinishReason: reason, Usage: &schema.TokenUsage{PromptTokens: a.PromptTokens,
		PromptTokenDetails: schema.PromptTokenDetails{CachedTokens: a.CachedTokens},
		CompletionTokens:   a.GeneratedTokens, TotalTokens: a.PromptTokens + a.GeneratedTokens}}
}

// Embedder is an embedding.Embedder.
type Embedder struct {
	m *karat.Model
	o karat.EmbedOptions
}

var _ embedding.Embedder = (*Embedder)(nil)

// NewEmbedder returns an embedder over m. The caller closes m.
func NewEmbedder(m *karat.Model, o karat.EmbedOptions) *Embedder { return &Embedder{m, o} }

// GetType names the component in Eino's callbacks.
func (e *Embedder) GetType() string { return "Karat" }

// EmbedStrings makes a vector of each text.
func (e *Embedder) EmbedStrings(ctx context.Context, texts []string, _ ...embedding.Option) ([][]float64, error) {
	vectors, err := e.m.Embed(ctx, texts, e.o)
	return turn.Wide(vectors), err
}
