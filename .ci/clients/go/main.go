// Go asks a server of Karat what the clients of Node ask it, through openai-go with its
// accumulator and through other packages: go run . with the server's address in KARAT_URL.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

const (
	model, caller, vectors = "demo", "tiny-llama", "embeddinggemma"
	question, answer       = "What is the capital of Egypt?", "The capital of Egypt is Cairo."
)

var (
	ctx    = context.Background()
	client = openai.NewClient(option.WithBaseURL(os.Getenv("KARAT_URL")), option.WithAPIKey("none"),
		option.WithMaxRetries(0))
	greedy = openai.ChatCompletionNewParams{Model: model, Temperature: openai.Float(0),
		MaxCompletionTokens: openai.Int(128),
		Messages:            []openai.ChatCompletionMessageParamUnion{openai.UserMessage(question)}}
	schema = map[string]any{"type": "object", "additionalProperties": false, "required": []string{"city"},
		"properties": map[string]any{"city": map[string]any{"enum": []string{"Oslo", "Cairo"}}}}
	tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(
		openai.FunctionDefinitionParam{Name: "weather", Parameters: schema, Strict: openai.Bool(true)})}
)

func main() {
	log.SetFlags(0)
	for _, test := range []struct {
		name string
		run  func() error
	}{{"models", models}, {"chat", chat}, {"completions", completions}, {"calls", calls},
		{"structured", structured}, {"embeddings", embeddings}, {"responses", respond}, {"go-openai", goOpenAI},
		{"langchaingo", langchainGo}, {"eino", eino}, {"genkit", genkitGo},
		{"anthropic-sdk-go", anthropicGo}, {"ollama/api", ollamaGo}} {
		if err := test.run(); err != nil {
			log.Fatalf("Go: %s: %v", test.name, err)
		}
	}
	fmt.Println("openai-go: models, chat, completions, calls, structured, embeddings, responses; go-openai, " +
		"langchaingo, eino, genkit, anthropic-sdk-go, ollama/api: an agent each")
}

// want is an error where a value is another.
func want[T comparable](got, want T) error {
	if got != want {
		return fmt.Errorf("got %v, want %v", got, want)
	}
	return nil
}

// refused is an error unless err is the server's, with a status and a text.
func refused(err error, status int, text string) error {
	var e *openai.Error
	if !errors.As(err, &e) || e.StatusCode != status || !strings.Contains(e.Message, text) {
		return fmt.Errorf("got %v, want %d %q", err, status, text)
	}
	return nil
}

func models() error {
	all, err := client.Models.List(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(all.Data, func(m openai.Model) bool { return m.ID == model }) {
		return fmt.Errorf("%v", all.Data)
	}
	_, err = client.Models.Get(ctx, "none")
	return refused(err, 404, "does not exist")
}

func chat() error {
	whole, err := client.Chat.Completions.New(ctx, greedy)
	if err != nil {
		return err
	}
	p := greedy
	p.StreamOptions.IncludeUsage = openai.Bool(true)
	stream, sum := client.Chat.Completions.NewStreaming(ctx, p), openai.ChatCompletionAccumulator{}
	for stream.Next() {
		if !sum.AddChunk(stream.Current()) {
			return errors.New("the accumulator refuses a chunk")
		}
	}
	if err := errors.Join(stream.Err(), want(len(sum.Choices), 1), want(len(whole.Choices), 1)); err != nil {
		return err
	}
	return errors.Join(want(whole.Choices[0].Message.Content, answer), want(sum.Choices[0].Message.Content, answer),
		want(whole.Choices[0].FinishReason, "stop"),
		want(sum.Usage.PromptTokens, whole.Usage.PromptTokens),
		want(sum.Usage.TotalTokens, whole.Usage.PromptTokens+whole.Usage.CompletionTokens))
}

func completions() error {
	p := openai.CompletionNewParams{Model: model, Temperature: openai.Float(0), MaxTokens: openai.Int(8),
		Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("func main() {")}}
	whole, err := client.Completions.New(ctx, p)
	if err != nil {
		return err
	}
	text, stream := "", client.Completions.NewStreaming(ctx, p)
	for stream.Next() {
		text += stream.Current().Choices[0].Text
	}
	return errors.Join(stream.Err(), want(whole.Choices[0].Text, "\n\tGenerate()\n\tDefault"),
		want(text, whole.Choices[0].Text))
}

func calls() error {
	p := greedy
	p.Tools = tools
	p.Model, p.ParallelToolCalls = caller, openai.Bool(false)
	p.ToolChoice.OfAuto = openai.String("required")
	stream, sum, calls := client.Chat.Completions.NewStreaming(ctx, p), openai.ChatCompletionAccumulator{}, 0
	for stream.Next() {
		if !sum.AddChunk(stream.Current()) {
			return errors.New("the accumulator refuses a chunk")
		}
		if call, ok := sum.JustFinishedToolCall(); ok {
			calls++
			if err := errors.Join(want(call.Name, "weather"), city(call.Arguments)); err != nil {
				return err
			}
		}
	}
	return errors.Join(stream.Err(), want(calls, 1))
}

// city is an error unless text is an object of the schema.
func city(text string) error {
	var o struct{ City string }
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	if o.City != "Oslo" && o.City != "Cairo" {
		return fmt.Errorf("%s", text)
	}
	return nil
}

func structured() error {
	p := greedy
	p.ResponseFormat.OfJSONSchema = &openai.ResponseFormatJSONSchemaParam{
		JSONSchema: openai.ResponseFormatJSONSchemaJSONSchemaParam{Name: "city", Schema: schema,
			Strict: openai.Bool(true)}}
	whole, err := client.Chat.Completions.New(ctx, p)
	if err != nil {
		return err
	}
	return city(whole.Choices[0].Message.Content)
}

func embeddings() error {
	p := openai.EmbeddingNewParams{Model: model,
		Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"a", "b c"}}}
	_, err := client.Embeddings.New(ctx, p)
	if err := refused(err, 400, "do not say how to make vectors"); err != nil {
		return err
	}
	p.Model = vectors
	all, err := client.Embeddings.New(ctx, p)
	if err != nil {
		return err
	}
	length := 0.
	for _, x := range all.Data[1].Embedding {
		length += x * x
	}
	return errors.Join(want(len(all.Data), 2), want(length > .9999 && length < 1.0001, true))
}

func respond() error {
	p := responses.ResponseNewParams{Model: model, Temperature: openai.Float(0),
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(question)}}
	whole, err := client.Responses.New(ctx, p)
	if err != nil {
		return err
	}
	text, end, stream := "", "", client.Responses.NewStreaming(ctx, p)
	for stream.Next() {
		switch e := stream.Current().AsAny().(type) {
		case responses.ResponseTextDeltaEvent:
			text += e.Delta
		case responses.ResponseCompletedEvent:
			end = e.Response.OutputText()
		}
	}
	return errors.Join(stream.Err(), want(whole.OutputText(), answer), want(text, answer), want(end, answer))
}
