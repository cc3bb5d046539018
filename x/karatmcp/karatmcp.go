// Package karatmcp offers models of Karat to clients of the Model Context Protocol, as tools: generate, embed, rerank.
package karatmcp

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/x/internal/turn"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Models are the models behind the tools. A nil model has no tool. The caller closes the models.
type Models struct {
	Generate, Embed, Rerank *karat.Model

	Options karat.GenerateOptions // of generate, before the call's arguments
	Vectors karat.EmbedOptions    // of embed, before the call's arguments
	Pairs   karat.RerankOptions   // of rerank
}

// Question are the arguments of generate.
type Question struct {
	Prompt      string         `json:"prompt" jsonschema:"the user's message"`
	System      string         `json:"system,omitempty" jsonschema:"instructions before the message"`
	MaxTokens   int            `json:"max_tokens,omitempty" jsonschema:"most tokens of the answer"`
	Temperature *float64       `json:"temperature,omitempty" jsonschema:"0 chooses the likeliest token"`
	Seed        *uint64        `json:"seed,omitempty" jsonschema:"of the draws: the same seed gives the same answer"`
	Schema      map[string]any `json:"schema,omitempty" jsonschema:"JSON schema that the answer fits"`
}

// Answer is the result of generate.
type Answer struct {
	Text      string `json:"text"`
	Reasoning string `json:"reasoning,omitempty"`
	Stop      string `json:"stop"` // end, stop or length
	Prompt    int    `json:"prompt_tokens"`
	Generated int    `json:"generated_tokens"`
	Seed      uint64 `json:"seed"`
}

// Texts are the arguments of embed.
type Texts struct {
	Texts      []string `json:"texts"`
	Prompt     *string  `json:"prompt,omitempty" jsonschema:"name of the model's prompt, such as query"`
	Dimensions int      `json:"dimensions,omitempty" jsonschema:"number of first features to keep"`
}

// Vectors is the result of embed.
type Vectors struct {
	Vectors [][]float32 `json:"vectors"`
}

// Documents are the arguments of rerank.
type Documents struct {
	Query     string   `json:"query"`
	Documents []string `json:"documents"`
	Top       int      `json:"top,omitempty" jsonschema:"most documents to return"`
}

// Ranking is the result of rerank, best first.
type Ranking struct {
	Results []Ranked `json:"results"`
}

// Ranked is a document with a score.
type Ranked struct {
	Index int     `json:"index"`
	Score float32 `json:"score"`
}

// New returns a server, to be run over any transport of the kit. To a client with a progress token generate sends each
// piece of the answer as progress. A client's cancellation ends the work.
func New(m Models) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "karat", Version: karat.Version()}, nil)
	if m.Generate != nil {
		mcp.AddTool(s, &mcp.Tool{Name: "generate", Description: "Ask a language model on this machine."}, m.generate)
	}
	if m.Embed != nil {
		mcp.AddTool(s, &mcp.Tool{Name: "embed", Description: "Make a vector of each text."}, m.embed)
	}
	if m.Rerank != nil {
		mcp.AddTool(s, &mcp.Tool{Name: "rerank", Description: "Order documents by their answer to a query."}, m.rerank)
	}
	return s
}

func (m Models) generate(ctx context.Context, r *mcp.CallToolRequest, q Question) (*mcp.CallToolResult, Answer, error) {
	ask := turn.Request{Options: m.Options}
	if q.Schema != nil {
		b, err := json.Marshal(q.Schema)
		if err != nil {
			return nil, Answer{}, err
		}
		ask.Schema = b
	}
	s := turn.Sampling(m.Generate, &m.Options)
	turn.Set(&s.Temperature, q.Temperature)
	s.Seed = cmp.Or(q.Seed, s.Seed)
	ask.Options.Sampling = s
	ask.Options.MaxTokens = cmp.Or(q.MaxTokens, ask.Options.MaxTokens)
	if q.System != "" {
		ask.Messages = append(ask.Messages, karat.TextMessage(karat.RoleSystem, q.System))
	}
	ask.Messages = append(ask.Messages, karat.TextMessage(karat.RoleUser, q.Prompt))
	token, sent := r.Params.GetProgressToken(), 0.0
	said := Answer{}
	a, err := turn.Ask(ctx, m.Generate, ask, func(p karat.Part) error {
		text, is := p.(karat.Text)
		if thought, thinks := p.(karat.Reasoning); thinks {
			said.Reasoning += string(thought)
		}
		if !is || token == nil {
			return nil
		}
		sent++
		return r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: sent,
			Message: string(text)})
	})
	said.Text, said.Stop, said.Seed = a.Text, string(a.Stop), a.Seed
	said.Prompt, said.Generated = a.PromptTokens, a.GeneratedTokens
	return nil, said, err
}

func (m Models) embed(ctx context.Context, _ *mcp.CallToolRequest, t Texts) (*mcp.CallToolResult, Vectors, error) {
	o := m.Vectors
	turn.Set(&o.Prompt, t.Prompt)
	o.Dimensions = cmp.Or(t.Dimensions, o.Dimensions)
	vectors, err := m.Embed.Embed(ctx, t.Texts, o)
	return nil, Vectors{vectors}, err
}

func (m Models) rerank(ctx context.Context, _ *mcp.CallToolRequest, d Documents) (*mcp.CallToolResult, Ranking, error) {
	results, err := m.Rerank.Rerank(ctx, d.Query, d.Documents, m.Pairs)
	out := Ranking{Results: []Ranked{}}
	for _, r := range results {
		if d.Top <= 0 || len(out.Results) < d.Top {
			out.Results = append(out.Results, Ranked{r.Index, r.Score})
		}
	}
	return nil, out, err
}
