// Package karatgenkit is a plugin of Genkit with models of Karat, in the program itself.
package karatgenkit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/firebase/genkit/go/ai"
	"github.com/firebase/genkit/go/core"
	"github.com/firebase/genkit/go/core/api"
	"github.com/karat-run/karat"
	"github.com/karat-run/karat/x/internal/turn"
)

// Plugin offers models as karat/NAME. The program closes the models.
type Plugin struct {
	Models    map[string]*karat.Model
	Embedders map[string]Embedder
	Options   karat.GenerateOptions // of each request, before the request's Config
}

// Embedder is a model for vectors, and the way.
type Embedder struct {
	Model   *karat.Model
	Options karat.EmbedOptions
}

// Config is a request's configuration, as are ai.GenerationCommonConfig and a map with the same keys. Unset fields are
// the plugin's, and then the model's.
type Config struct {
	MaxOutputTokens *int     `json:"maxOutputTokens,omitempty"`
	StopSequences   []string `json:"stopSequences,omitempty"`
	Temperature     *float64 `json:"temperature,omitempty"`
	TopK            *int     `json:"topK,omitempty"`
	TopP            *float64 `json:"topP,omitempty"`
	MinP            *float64 `json:"minP,omitempty"`
	Seed            *uint64  `json:"seed,omitempty"`
	Version         string   `json:"version,omitempty"` // of a family of models: none is taken
}

// Name is the plugin's.
func (*Plugin) Name() string { return "karat" }

// Init returns the models for genkit.Init.
func (p *Plugin) Init(context.Context) (actions []api.Action) {
	for _, name := range slices.Sorted(maps.Keys(p.Models)) {
		m := p.Models[name]
		o := &ai.ModelOptions{Label: "Karat - " + name, ConfigSchema: core.InferSchemaMap(Config{}),
			Supports: &ai.ModelSupports{Multiturn: true, SystemRole: true, Tools: true, ToolChoice: true,
				Media: m.Sees(), Constrained: ai.ConstrainedSupportNoTools}}
		actions = append(actions, ai.NewModel(api.NewName(p.Name(), name), o,
			func(ctx context.Context, r *ai.ModelRequest, see ai.ModelStreamCallback) (*ai.ModelResponse, error) {
				return p.generate(ctx, m, r, see)
			}).(api.Action))
	}
	for _, name := range slices.Sorted(maps.Keys(p.Embedders)) {
		e := p.Embedders[name]
		o := &ai.EmbedderOptions{Label: "Karat - " + name, Supports: &ai.EmbedderSupports{Input: []string{"text"}}}
		if n, err := e.Model.EmbedSize(context.Background(), e.Options); err == nil {
			o.Dimensions = n
		}
		actions = append(actions, ai.NewEmbedder(api.NewName(p.Name(), name), o, e.embed).(api.Action))
	}
	return actions
}

func (e *Embedder) embed(ctx context.Context, r *ai.EmbedRequest) (*ai.EmbedResponse, error) {
	o := e.Options
	if r.Options != nil {
		var c struct {
			Prompt     *string `json:"prompt"`
			Dimensions *int    `json:"dimensions"`
		}
		if err := config(r.Options, &c); err != nil {
			return nil, err
		}
		turn.Set(&o.Prompt, c.Prompt)
		turn.Set(&o.Dimensions, c.Dimensions)
	}
	texts := make([]string, len(r.Input))
	for i, d := range r.Input {
		for _, p := range d.Content {
			if !p.IsText() {
				return nil, core.NewError(core.INVALID_ARGUMENT, "document %d: want text alone", i)
			}
			texts[i] += p.Text
		}
	}
	vectors, err := e.Model.Embed(ctx, texts, o)
	if err != nil {
		return nil, err
	}
	out := &ai.EmbedResponse{}
	for _, v := range vectors {
		out.Embeddings = append(out.Embeddings, &ai.Embedding{Embedding: v})
	}
	return out, nil
}

func (p *Plugin) generate(ctx context.Context, m *karat.Model, r *ai.ModelRequest, see ai.ModelStreamCallback) (
	*ai.ModelResponse, error) {
	q, err := p.request(m, r)
	if err != nil {
		return nil, core.NewError(core.INVALID_ARGUMENT, "%v", err)
	}
	a, err := turn.Ask(ctx, m, q, func(part karat.Part) error {
		if see == nil {
			return nil
		}
		g, err := partOf(part)
		if err != nil {
			return err
		}
		return see(ctx, &ai.ModelResponseChunk{Role: ai.RoleModel, Content: []*ai.Part{g}})
	})
	if err != nil {
		return nil, err
	}
	said := &ai.Message{Role: ai.RoleModel}
	for _, part := range turn.Join(a.Message.Parts) {
		g, err := partOf(part)
		if err != nil {
			return nil, err
		}
		said.Content = append(said.Content, g)
	}
	reason := ai.FinishReasonStop
	if a.Stop == karat.StopLength {
		reason = ai.FinishReasonLength
	}
	return &ai.ModelResponse{Request: r, Message: said, FinishReason: reason, Usage: &ai.GenerationUsage{
		InputTokens: a.PromptTokens, CachedContentTokens: a.CachedTokens, OutputTokens: a.GeneratedTokens,
		TotalTokens: a.PromptTokens + a.GeneratedTokens}}, nil
}

// config reads a configuration of any type by way of JSON.
func config(from, to any) error {
	b, err := json.Marshal(from)
	if err != nil {
		return err
	}
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	return nil
}

func (p *Plugin) request(m *karat.Model, r *ai.ModelRequest) (q turn.Request, err error) {
	var c Config
	if r.Config != nil {
		if err := config(r.Config, &c); err != nil {
			return q, err
		}
	}
	if c.Version != "" {
		return q, fmt.Errorf("config: version %q: the plugin's models have none", c.Version)
	}
	q.Options = p.Options
	s := turn.Sampling(m, &p.Options)
	turn.Set(&s.Temperature, c.Temperature)
	turn.Set(&s.TopK, c.TopK)
	turn.Set(&s.TopP, c.TopP)
	turn.Set(&s.MinP, c.MinP)
	turn.Set(&q.Options.MaxTokens, c.MaxOutputTokens)
	s.Seed = cmp.Or(c.Seed, s.Seed)
	q.Options.Sampling = s
	if c.StopSequences != nil {
		q.Options.Stop = c.StopSequences
	}
	if len(r.Tools) > 0 {
		q.Options.Tools = nil
	}
	for _, t := range r.Tools {
		k := karat.Tool{Name: t.Name, Description: t.Description}
		if t.InputSchema != nil {
			if k.Parameters, err = turn.Schema(t.InputSchema); err != nil {
				return q, err
			}
		}
		q.Options.Tools = append(q.Options.Tools, k)
	}
	// Genkit gives the tools in the order of a map.
	slices.SortFunc(q.Options.Tools, func(a, b karat.Tool) int { return strings.Compare(a.Name, b.Name) })
	q.Choice.None, q.Choice.Required = r.ToolChoice == ai.ToolChoiceNone, r.ToolChoice == ai.ToolChoiceRequired
	if r.Output != nil && r.Output.Constrained && r.Output.Schema != nil {
		if q.Schema, err = turn.Schema(r.Output.Schema); err != nil {
			return q, err
		}
	}
	q.Messages, err = turn.Messages(r.Messages, messageOf)
	return q, err
}

// partOf translates a part of an answer.
func partOf(p karat.Part) (*ai.Part, error) {
	switch p := p.(type) {
	case karat.Reasoning:
		return ai.NewReasoningPart(string(p), nil), nil
	case karat.ToolCall:
		var input any
		if err := json.Unmarshal(p.Arguments, &input); err != nil {
			return nil, fmt.Errorf("call of %s: %w", p.Name, err)
		}
		return ai.NewToolRequestPart(&ai.ToolRequest{Name: p.Name, Ref: p.ID, Input: input}), nil
	case karat.Text:
		return ai.NewTextPart(string(p)), nil
	}
	return nil, fmt.Errorf("a part of the type %T in an answer", p)
}

var roles = map[ai.Role]karat.Role{ai.RoleModel: karat.RoleAssistant, ai.RoleUser: karat.RoleUser,
	ai.RoleSystem: karat.RoleSystem, ai.RoleTool: karat.RoleTool}

func messageOf(m *ai.Message) (said karat.Message, err error) {
	role, known := roles[m.Role]
	if !known {
		return said, fmt.Errorf("role %q: want system, user, model or tool", m.Role)
	}
	said.Role = role
	for _, p := range m.Content {
		switch {
		case p.IsText(), p.IsData():
			said.Parts = append(said.Parts, karat.Text(p.Text))
		case p.IsReasoning():
			said.Parts = append(said.Parts, karat.Reasoning(p.Text))
		case p.IsMedia():
			picture, err := turn.Picture(p.Text)
			if err != nil {
				return said, err
			}
			said.Parts = append(said.Parts, picture)
		case p.IsToolRequest():
			arguments, err := json.Marshal(p.ToolRequest.Input)
			if err != nil {
				return said, err
			}
			said.Parts = append(said.Parts, karat.ToolCall{ID: p.ToolRequest.Ref, Name: p.ToolRequest.Name,
				Arguments: arguments})
		case p.IsToolResponse():
			text, err := turn.JSON(p.ToolResponse.Output)
			if err != nil {
				return said, err
			}
			if len(p.ToolResponse.Content) > 0 {
				return said, errors.New("a tool's result has parts beside its output, which are not taken")
			}
			said.Parts = append(said.Parts, karat.ToolResult{ID: p.ToolResponse.Ref, Name: p.ToolResponse.Name,
				Content: text})
		default:
			return said, fmt.Errorf("a part of the kind %d is not taken", p.Kind)
		}
	}
	return said, nil
}
