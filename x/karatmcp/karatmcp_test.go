package karatmcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/dev/talker"
	ours "github.com/karat-run/karat/mcp"
	"github.com/karat-run/karat/x/karatmcp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestMain makes this test's program a server where a variable says so.
func TestMain(m *testing.M) {
	if os.Getenv("KARAT_MCP_SERVE") == "" {
		os.Exit(m.Run())
	}
	demo, err := karat.Load(context.Background(), talker.Demo(), karat.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := karatmcp.New(karatmcp.Models{Generate: demo}).Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		log.Fatal(err)
	}
}

func Example() {
	ctx := context.Background()
	m, err := karat.Load(ctx, talker.Demo(), karat.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	s := karatmcp.New(karatmcp.Models{Generate: m, Embed: m, Vectors: karat.EmbedOptions{Pooling: karat.PoolMean}})
	here, there := mcp.NewInMemoryTransports() // a program for Claude Desktop runs s over &mcp.StdioTransport{}
	if _, err := s.Connect(ctx, here, nil); err != nil {
		log.Fatal(err)
	}
	client, err := mcp.NewClient(&mcp.Implementation{Name: "example", Version: "1"}, nil).Connect(ctx, there, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	r, err := client.CallTool(ctx, &mcp.CallToolParams{Name: "generate", Arguments: karatmcp.Question{Prompt: "What is the capital of Egypt?"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.StructuredContent.(map[string]any)["text"])
	// Output: The capital of Egypt is Cairo.
}

// connect returns a client of a server of models.
func connect(t *testing.T, m karatmcp.Models, o *mcp.ClientOptions) *mcp.ClientSession {
	here, there := mcp.NewInMemoryTransports()
	if _, err := karatmcp.New(m).Connect(t.Context(), here, nil); err != nil {
		t.Fatal(err)
	}
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, o).Connect(t.Context(), there, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func load(t *testing.T, text string) *karat.Model {
	m, err := talker.Parrot(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// ask calls a tool, whose structured result goes to out, and returns the text of an error.
func ask(t *testing.T, s *mcp.ClientSession, tool string, arguments map[string]any, out any) string {
	r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		return err.Error()
	}
	if r.IsError {
		return r.Content[0].(*mcp.TextContent).Text
	}
	b, err := json.Marshal(r.StructuredContent)
	if err == nil {
		err = json.Unmarshal(b, out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ""
}

// TestTools: each tool answers, its parts come as progress, and what is wrong is an error of the tool.
func TestTools(t *testing.T) {
	judge, err := karat.Load(t.Context(), golden.Model(t, "xlm-roberta-reranker"), karat.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = judge.Close() })
	teller := load(t, talker.Told)
	pieces := make(chan string, 100)
	s := connect(t, karatmcp.Models{Generate: teller, Embed: teller, Rerank: judge, Vectors: karat.EmbedOptions{Pooling: karat.PoolMean}},
		&mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { pieces <- r.Params.Message }})
	var a karatmcp.Answer
	if text := ask(t, s, "generate", map[string]any{"prompt": "Oslo?", "system": "Be brief."}, &a); text != "" || a.Text != "It rains in Oslo." || a.Reasoning != "So it is." || a.Stop != "end" || a.Generated == 0 {
		t.Errorf("%+v, %s", a, text)
	}
	var city struct{ City string }
	if text := ask(t, s, "generate", map[string]any{"prompt": "Oslo?", "schema": json.RawMessage(talker.Schema)}, &a); text != "" || json.Unmarshal([]byte(a.Text), &city) != nil || city.City != "Oslo" {
		t.Errorf("a form: %+v, %s", a, text)
	}
	if text := ask(t, s, "generate", map[string]any{"prompt": "Oslo?", "max_tokens": 2}, &a); text != "" || a.Stop != "length" || a.Generated != 2 {
		t.Errorf("cut: %+v, %s", a, text)
	}
	p := &mcp.CallToolParams{Name: "generate", Arguments: map[string]any{"prompt": "Oslo?"}}
	p.SetProgressToken("here")
	if _, err := s.CallTool(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	for text := ""; text != "It rains in Oslo."; text += <-pieces {
	}
	var v karatmcp.Vectors
	if text := ask(t, s, "embed", map[string]any{"texts": []string{"a", "b"}, "dimensions": 8}, &v); text != "" || len(v.Vectors) != 2 || len(v.Vectors[1]) != 8 {
		t.Errorf("%d vectors, %s", len(v.Vectors), text)
	}
	var r karatmcp.Ranking
	if text := ask(t, s, "rerank", map[string]any{"query": "a", "documents": []string{"b", "c", "d"}, "top": 2}, &r); text != "" || len(r.Results) != 2 || r.Results[0].Score < r.Results[1].Score {
		t.Errorf("%+v, %s", r, text)
	}
	for _, wrong := range []struct {
		tool, want string
		arguments  map[string]any
	}{{"generate", "emperature", map[string]any{"prompt": "a", "temperature": -1}}, {"generate", "prompt", map[string]any{}}, {"generate", "", map[string]any{"prompt": "a", "schema": map[string]any{"type": "nothing"}}},
		{"embed", "", map[string]any{"texts": []string{""}, "prompt": "none"}}, {"rerank", "documents", map[string]any{"query": "a"}}, {"none", "none", nil}} {
		if text := ask(t, s, wrong.tool, wrong.arguments, &a); text == "" || !strings.Contains(text, wrong.want) {
			t.Errorf("%s %v: %q", wrong.tool, wrong.arguments, text)
		}
	}
}

// TestCancel: a client's context ends an endless answer.
func TestCancel(t *testing.T) {
	m := load(t, talker.Endless)
	ctx, cancel := context.WithCancel(t.Context())
	s := connect(t, karatmcp.Models{Generate: m, Options: karat.GenerateOptions{MaxTokens: -1}},
		&mcp.ClientOptions{ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { cancel() }})
	p := &mcp.CallToolParams{Name: "generate", Arguments: map[string]any{"prompt": "Go"}}
	p.SetProgressToken(1)
	if _, err := s.CallTool(ctx, p); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	for m.Stats().Running+m.Stats().Queued > 0 { // the answer ends, else this never does
	}
}

// TestOurClient: Karat's own client calls the server's tool in a process of its own.
func TestOurClient(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	all, err := ours.Start(t.Context(), []ours.Server{{Name: "demo", Command: self, Env: map[string]string{"KARAT_MCP_SERVE": "1"}}}, ours.Options{Allow: []string{"demo/generate"}})
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	r, err := all.Call(t.Context(), karat.ToolCall{Name: "generate", Arguments: json.RawMessage(`{"prompt": "What is the capital of Egypt?"}`)})
	if err != nil || !strings.Contains(r.Content, `"text":"The capital of Egypt is Cairo."`) {
		t.Errorf("%+v, %v", r, err)
	}
}
