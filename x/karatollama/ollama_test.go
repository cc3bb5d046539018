// Package karatollama holds Ollama's Go client against the routes of a server inside the program.
package karatollama

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/talker"
	"github.com/karat-run/karat/server"
	"github.com/ollama/ollama/api"
)

// serve starts a server of a model and returns a client.
func serve(ctx context.Context, name string, m *karat.Model) (*api.Client, func(), error) {
	s, err := server.New(ctx, server.Options{Models: []server.Model{{Name: name, Model: m}}})
	if err != nil {
		return nil, nil, err
	}
	at := httptest.NewServer(s)
	u, err := url.Parse(at.URL)
	return api.NewClient(u, at.Client()), at.Close, err
}

func Example() {
	ctx := context.Background()
	m, err := karat.Load(ctx, talker.Demo(), karat.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	client, stop, err := serve(ctx, "demo", m)
	if err != nil {
		log.Fatal(err)
	}
	defer stop()
	ask := &api.ChatRequest{Model: "demo", Messages: []api.Message{{Role: "user", Content: "What is the capital of Egypt?"}},
		Options: map[string]any{"temperature": 0}}
	if err := client.Chat(ctx, ask, func(piece api.ChatResponse) error {
		fmt.Print(piece.Message.Content)
		return nil
	}); err != nil {
		log.Fatal(err)
	}
	// Output: The capital of Egypt is Cairo.
}

// TestClient: calls, forms, the end by a callback and by a context, and errors, as the client understands them.
func TestClient(t *testing.T) {
	ask := func(text string, r *api.ChatRequest, see func(api.ChatResponse) error) error {
		m, err := talker.Parrot(t.Context(), text)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		client, stop, err := serve(t.Context(), "parrot", m)
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		r.Model, r.Messages = "parrot", []api.Message{{Role: "user", Content: "How is the weather in Oslo?"}}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		return client.Chat(ctx, r, func(piece api.ChatResponse) error {
			err := see(piece)
			if err == errCancel {
				cancel()
				return nil
			}
			return err
		})
	}
	tool := api.Tool{Type: "function", Function: api.ToolFunction{Name: "weather", Parameters: api.ToolFunctionParameters{Type: "object",
		Required: []string{"city"}, Properties: api.NewToolPropertiesMap()}}}
	tool.Function.Parameters.Properties.Set("city", api.ToolProperty{Type: api.PropertyType{"string"}})
	var said api.Message
	if err := ask(talker.Call, &api.ChatRequest{Tools: api.Tools{tool}}, func(p api.ChatResponse) error {
		said.Content, said.Thinking, said.ToolCalls = said.Content+p.Message.Content, said.Thinking+p.Message.Thinking, append(said.ToolCalls, p.Message.ToolCalls...)
		return nil
	}); err != nil || len(said.ToolCalls) != 1 || said.ToolCalls[0].Function.Arguments.String() != `{"city":"Oslo"}` || said.Thinking != "I look." {
		t.Errorf("the answer is %+v, %v", said, err)
	}
	form := ""
	if err := ask(talker.Told, &api.ChatRequest{Format: json.RawMessage(talker.Schema)}, func(p api.ChatResponse) error {
		form += p.Message.Content
		return nil
	}); err != nil || strings.Join(strings.Fields(form), "") != `{"city":"Oslo"}` {
		t.Errorf("a form: %q, %v", form, err)
	}
	endless := func() *api.ChatRequest { return &api.ChatRequest{Options: map[string]any{"num_predict": -1}} }
	if err := ask(talker.Endless, endless(), func(api.ChatResponse) error { return errCancel }); err != nil && !errors.Is(err, context.Canceled) { // the client says either
		t.Errorf("cancelled: %v", err)
	}
	enough := errors.New("enough")
	if err := ask(talker.Endless, endless(), func(api.ChatResponse) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("ended: %v", err)
	}
	err := ask(talker.Told, &api.ChatRequest{Options: map[string]any{"temperature": -1}}, func(api.ChatResponse) error { return nil })
	if status := (api.StatusError{}); !errors.As(err, &status) || status.StatusCode != 400 || !strings.Contains(err.Error(), "temperature") {
		t.Errorf("an error: %v", err)
	}
}

var errCancel = errors.New("cancel")
