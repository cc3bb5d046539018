// Package karatlangchain makes a model of Karat a model of LangChain Go, within the program: an llms.Model with tools,
// and an embeddings.Embedder.
package karatlangchain

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/x/internal/turn"
	"github.com/tmc/langchaingo/embeddings"
	"github.com/tmc/langchaingo/llms"
)

// LLM is an llms.Model. Several goroutines may use an LLM.
type LLM struct {
	m *karat.Model
	o karat.GenerateOptions
}

var _ llms.Model = (*LLM)(nil)

// New returns a model over m. The caller closes m. Options of a call replace o's.
func New(m *karat.Model, o karat.GenerateOptions) *LLM { return &LLM{m, o} }

// Call answers a text.
//
// Deprecated: use llms.GenerateFromSinglePrompt.
func (l *LLM) Call(ctx context.Context, prompt string, options ...llms.CallOption) (string, error) {
	return llms.GenerateFromSinglePrompt(ctx, l, prompt, options...)
}

// GenerateContent answers a conversation. A streaming function's error ends the answer.
func (l *LLM) GenerateContent(ctx context.Context, messages []llms.MessageContent, options ...llms.CallOption) (
	*llms.ContentResponse, error) {
	r, o, err := l.request(messages, options)
	if err != nil {
		return nil, err
	}
	c := &llms.ContentChoice{}
	a, err := turn.Ask(ctx, l.m, r, func(p karat.Part) error {
		var text, reasoning string
		switch p := p.(type) {
		case karat.Text:
			text = string(p)
		case karat.Reasoning:
			reasoning = string(p)
		case karat.ToolCall:
			f := &llms.FunctionCall{Name: p.Name, Arguments: string(p.Arguments)}
			if c.FuncCall == nil {
				c.FuncCall = f
			}
			c.ToolCalls = append(c.ToolCalls, llms.ToolCall{ID: p.ID, Type: "function", FunctionCall: f})
			return nil
		}
		c.ReasoningContent += reasoning
		if o.StreamingReasoningFunc != nil {
			if err := o.StreamingReasoningFunc(ctx, []byte(reasoning), []byte(text)); err != nil {
				return err
			}
		}
		if o.StreamingFunc != nil && text != "" {
			return o.StreamingFunc(ctx, []byte(text))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	c.Content, c.StopReason = a.Text, "stop"
	switch {
	case len(c.ToolCalls) > 0:
		c.StopReason = "tool_calls"
	case a.Stop == karat.StopLength:
		c.StopReason = "length"
	}
	c.GenerationInfo = map[string]any{"PromptTokens": a.PromptTokens, "PromptCachedTokens": a.CachedTokens,
		"CompletionTokens": a.GeneratedTokens, "TotalTokens": a.PromptTokens + a.GeneratedTokens,
		"ThinkingContent": c.ReasoningContent, "Seed": a.Seed}
	return &llms.ContentResponse{Choices: []*llms.ContentChoice{c}}, nil
}

// request translates a call. Karat's value stays where no option sets a field.
func (l *LLM) request(messages []llms.MessageContent, options []llms.CallOption) (r turn.Request, o llms.CallOptions,
	err error) {
	const unset = math.MinInt
	s := turn.Sampling(l.m, &l.o)
	o = llms.CallOptions{MaxTokens: l.o.MaxTokens, Temperature: s.Temperature, StopWords: l.o.Stop, TopK: s.TopK,
		TopP: s.TopP, Seed: unset, RepetitionPenalty: s.RepeatPenalty, FrequencyPenalty: s.FrequencyPenalty,
		PresencePenalty: s.PresencePenalty}
	for _, option := range options {
		option(&o)
	}
	switch {
	case o.N > 1 || o.CandidateCount > 1:
		return r, o, fmt.Errorf("several candidates are not given: ask again with another seed")
	case o.MinLength > 0:
		return r, o, fmt.Errorf("a MinLength is not kept")
	case len(o.Functions) > 0 || o.FunctionCallBehavior != "":
		return r, o, fmt.Errorf("functions are LangChain's older form: use tools")
	}
	s.Temperature, s.TopK, s.TopP, s.RepeatPenalty = o.Temperature, o.TopK, o.TopP, o.RepetitionPenalty
	s.FrequencyPenalty, s.PresencePenalty = o.FrequencyPenalty, o.PresencePenalty
	if o.Seed != unset {
		s.Seed = new(uint64(o.Seed))
	}
	r.Options = l.o
	r.Options.Sampling, r.Options.Stop, r.Options.MaxTokens = s, o.StopWords, o.MaxTokens
	if o.MaxLength > 0 && o.MaxTokens == l.o.MaxTokens {
		r.Options.MaxTokens = o.MaxLength
	}
	if o.JSONMode || o.ResponseMIMEType == "application/json" {
		r.Schema = []byte(`{"type": "object"}`)
	}
	if len(o.Tools) > 0 {
		r.Options.Tools = nil
	}
	for i, t := range o.Tools {
		if t.Function == nil {
			return r, o, fmt.Errorf("tool %d of the type %q has no function", i, t.Type)
		}
		k := karat.Tool{Name: t.Function.Name, Description: t.Function.Description, Strict: t.Function.Strict}
		if k.Parameters, err = turn.Schema(t.Function.Parameters); err != nil {
			return r, o, fmt.Errorf("tool %s: %w", k.Name, err)
		}
		r.Options.Tools = append(r.Options.Tools, k)
	}
	if r.Choice, err = choiceOf(o.ToolChoice); err != nil {
		return r, o, err
	}
	r.Messages, err = turn.Messages(messages, messageOf)
	return r, o, err
}

func choiceOf(v any) (c turn.Choice, err error) {
	switch v := v.(type) {
	case nil:
		return c, nil
	case string:
		switch v {
		case "", "auto":
		case "none":
			c.None = true
		case "required", "any":
			c.Required = true
		default:
			return c, fmt.Errorf("tool choice %q: want auto, none, required or an llms.ToolChoice", v)
		}
		return c, nil
	case *llms.ToolChoice:
		if v != nil {
			return choiceOf(*v)
		}
		return c, nil
	case llms.ToolChoice:
		if v.Function == nil {
			return choiceOf(v.Type)
		}
		return turn.Choice{Required: true, Names: []string{v.Function.Name}}, nil
	}
	return c, fmt.Errorf("tool choice of the type %T: want a string or an llms.ToolChoice", v)
}

var roles = map[llms.ChatMessageType]karat.Role{llms.ChatMessageTypeAI: karat.RoleAssistant,
	llms.ChatMessageTypeHuman: karat.RoleUser, llms.ChatMessageTypeGeneric: karat.RoleUser,
	llms.ChatMessageTypeSystem: karat.RoleSystem, llms.ChatMessageTypeTool: karat.RoleTool,
	llms.ChatMessageTypeFunction: karat.RoleTool}

func messageOf(m llms.MessageContent) (said karat.Message, err error) {
	role, known := roles[m.Role]
	if !known {
		return said, fmt.Errorf("role %q: %w", m.Role, llms.ErrUnexpectedChatMessageType)
	}
	said.Role = role
	for _, p := range m.Parts {
		switch p := p.(type) {
		case llms.TextContent:
			said.Parts = append(said.Parts, karat.Text(p.Text))
		case llms.BinaryContent:
			said.Parts = append(said.Parts, karat.Image{Data: p.Data})
		case llms.ImageURLContent:
			picture, err := turn.Picture(p.URL)
			if err != nil {
				return said, err
			}
			said.Parts = append(said.Parts, picture)
		case llms.ToolCall:
			if p.FunctionCall == nil {
				return said, fmt.Errorf("the call %q has no function", p.ID)
			}
			said.Parts = append(said.Parts, karat.ToolCall{ID: p.ID, Name: p.FunctionCall.Name,
				Arguments: json.RawMessage(p.FunctionCall.Arguments)})
		case llms.ToolCallResponse:
			said.Parts = append(said.Parts, karat.ToolResult{ID: p.ToolCallID, Name: p.Name, Content: p.Content})
		default:
			return said, fmt.Errorf("a part of the type %T is not taken", p)
		}
	}
	return said, nil
}

// Embedder is an embeddings.Embedder, with a prompt for queries and another for documents.
type Embedder struct {
	m                *karat.Model
	query, documents karat.EmbedOptions
}

var _ embeddings.Embedder = (*Embedder)(nil)

// NewEmbedder returns an embedder over m. The caller closes m. Most models have a prompt for each kind of text:
// EmbedOptions.Prompt names the prompt.
func NewEmbedder(m *karat.Model, query, documents karat.EmbedOptions) *Embedder {
	return &Embedder{m, query, documents}
}

// EmbedDocuments makes a vector of each text.
func (e *Embedder) EmbedDocuments(ctx context.Context, texts []string) ([][]float32, error) {
	return e.m.Embed(ctx, texts, e.documents)
}

// EmbedQuery makes a vector of a query.
func (e *Embedder) EmbedQuery(ctx context.Context, text string) ([]float32, error) {
	vectors, err := e.m.Embed(ctx, []string{text}, e.query)
	if err != nil {
		return nil, err
	}
	return vectors[0], nil
}
