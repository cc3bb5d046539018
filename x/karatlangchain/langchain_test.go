package karatlangchain_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/talker"
	"github.com/karat-run/karat/x/karatlangchain"
	"github.com/tmc/langchaingo/chains"
	"github.com/tmc/langchaingo/llms"
	"github.com/tmc/langchaingo/prompts"
)

func Example() {
	ctx := context.Background()
	m, err := karat.Load(ctx, talker.Demo(), karat.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	llm := karatlangchain.New(m, karat.GenerateOptions{})
	chain := chains.NewLLMChain(llm, prompts.NewPromptTemplate("What is the capital of {{.country}}?", []string{"country"}))
	fmt.Println(chains.Run(ctx, chain, "Egypt", chains.WithTemperature(0)))

	same := karat.EmbedOptions{Pooling: karat.PoolMean}
	vectors, err := karatlangchain.NewEmbedder(m, same, same).EmbedDocuments(ctx, []string{"Cairo", "Oslo"})
	fmt.Println(len(vectors), err)
	// Output:
	// The capital of Egypt is Cairo. <nil>
	// 2 <nil>
}

func parrot(t *testing.T, text string) *karat.Model {
	m, err := talker.Parrot(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

var (
	talk  = []llms.MessageContent{llms.TextParts(llms.ChatMessageTypeHuman, "How is the weather in Oslo?")}
	tools = llms.WithTools([]llms.Tool{{Type: "function", Function: &llms.FunctionDefinition{Name: "weather", Parameters: json.RawMessage(talker.Schema)}}})
)

// TestLoop: a call, its result, and the answer after, streamed and whole.
func TestLoop(t *testing.T) {
	text, reasoning := "", ""
	stream := llms.WithStreamingReasoningFunc(func(_ context.Context, r, piece []byte) error {
		reasoning += string(r)
		text += string(piece)
		return nil
	})
	first, err := karatlangchain.New(parrot(t, talker.Call), karat.GenerateOptions{}).GenerateContent(t.Context(), talk, tools, stream)
	if err != nil {
		t.Fatal(err)
	}
	c := first.Choices[0]
	if c.StopReason != "tool_calls" || len(c.ToolCalls) != 1 || c.FuncCall.Arguments != `{"city":"Oslo"}` || c.ReasoningContent != "I look." ||
		c.Content != "Let me see." || text != c.Content || reasoning != c.ReasoningContent || c.GenerationInfo["CompletionTokens"] == 0 {
		t.Errorf("the answer is %+v, streamed %q, %q", c, text, reasoning)
	}
	call := c.ToolCalls[0]
	next := append(talk[:1:1], llms.MessageContent{Role: llms.ChatMessageTypeAI, Parts: []llms.ContentPart{llms.TextPart(c.Content), call}},
		llms.MessageContent{Role: llms.ChatMessageTypeTool, Parts: []llms.ContentPart{llms.ToolCallResponse{ToolCallID: call.ID, Name: "weather", Content: "rain"}}})
	teller := karatlangchain.New(parrot(t, talker.Told), karat.GenerateOptions{})
	last, err := teller.GenerateContent(t.Context(), next, tools)
	if err != nil || last.Choices[0].Content != "It rains in Oslo." || last.Choices[0].StopReason != "stop" {
		t.Errorf("%+v, %v", last, err)
	}
	for _, choice := range []any{"required", llms.ToolChoice{Type: "function", Function: &llms.FunctionReference{Name: "weather"}}} {
		forced, err := teller.GenerateContent(t.Context(), talk, tools, llms.WithToolChoice(choice))
		if err != nil || len(forced.Choices[0].ToolCalls) == 0 || forced.Choices[0].FuncCall.Arguments != `{"city":"Oslo"}` {
			t.Errorf("%v: %+v, %v", choice, forced, err)
		}
	}
	form, err := teller.GenerateContent(t.Context(), talk, llms.WithJSONMode(), llms.WithMaxTokens(40))
	if err != nil || !strings.HasPrefix(form.Choices[0].Content, "{") {
		t.Errorf("JSON: %+v, %v", form, err)
	}
}

// TestEnds: a context and a streaming function's error end an endless answer.
func TestEnds(t *testing.T) {
	llm := karatlangchain.New(parrot(t, talker.Endless), karat.GenerateOptions{MaxTokens: -1})
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := llm.GenerateContent(ctx, talk, llms.WithStreamingFunc(func(context.Context, []byte) error {
		cancel()
		return nil
	})); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	enough := errors.New("enough")
	if _, err := llm.GenerateContent(t.Context(), talk, llms.WithStreamingFunc(func(context.Context, []byte) error { return enough })); !errors.Is(err, enough) {
		t.Errorf("ended: %v", err)
	}
	if a, err := llm.GenerateContent(t.Context(), talk, llms.WithMaxTokens(3)); err != nil || a.Choices[0].StopReason != "length" {
		t.Errorf("cut: %+v, %v", a, err)
	}
	one, err := llm.GenerateContent(t.Context(), talk, llms.WithMaxTokens(3), llms.WithSeed(7))
	if err != nil || one.Choices[0].GenerationInfo["Seed"] != uint64(7) {
		t.Errorf("seed: %+v, %v", one, err)
	}
}

// TestRefused: what is not kept is an error.
func TestRefused(t *testing.T) {
	llm := karatlangchain.New(parrot(t, talker.Told), karat.GenerateOptions{})
	for want, o := range map[string]llms.CallOption{"several candidates": llms.WithN(2), "MinLength": llms.WithMinLength(2), "want auto, none": llms.WithToolChoice("some"),
		"there is no tool": llms.WithToolChoice(llms.ToolChoice{Function: &llms.FunctionReference{Name: "other"}})} {
		if _, err := llm.GenerateContent(t.Context(), talk, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
	for want, m := range map[string]llms.MessageContent{"message 0: a picture": {Role: llms.ChatMessageTypeHuman, Parts: []llms.ContentPart{llms.ImageURLPart("https://localhost/a.png")}},
		"unexpected chat message type": {Role: "other"}, "sees no pictures": {Role: llms.ChatMessageTypeHuman, Parts: []llms.ContentPart{llms.BinaryPart("image/png", []byte("x"))}}} {
		if _, err := llm.GenerateContent(t.Context(), []llms.MessageContent{m}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
	if _, err := karatlangchain.NewEmbedder(parrot(t, talker.Told), karat.EmbedOptions{}, karat.EmbedOptions{}).EmbedQuery(t.Context(), "a"); err == nil {
		t.Error("a model without pooling makes vectors")
	}
}
