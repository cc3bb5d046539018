package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	einoai "github.com/cloudwego/eino-ext/components/model/openai"
	einoschema "github.com/cloudwego/eino/schema"
	"github.com/firebase/genkit/go/ai"
	"github.com/firebase/genkit/go/genkit"
	"github.com/firebase/genkit/go/plugins/compat_oai"
	"github.com/openai/openai-go/option"
	gopenai "github.com/sashabaranov/go-openai"
	"github.com/tmc/langchaingo/llms"
	lcanthropic "github.com/tmc/langchaingo/llms/anthropic"
	lcollama "github.com/tmc/langchaingo/llms/ollama"
	lcopenai "github.com/tmc/langchaingo/llms/openai"
)

const (
	asks, told = "How is the weather in Oslo?", "It rains in Oslo."
	arguments  = `{"city": "Oslo"}`
)

var parameters = map[string]any{"type": "object",
	"properties": map[string]any{"city": map[string]any{"type": "string"}}, "required": []string{"city"}}

// relay has the parrot teller answer where the result of a call is there, and caller before.
type relay struct{}

func (relay) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		if bytes.Contains(body, []byte(`"role":"tool"`)) || bytes.Contains(body, []byte(`"type":"tool_result"`)) {
			body = bytes.Replace(body, []byte(`"model":"caller"`), []byte(`"model":"teller"`), 1)
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	return http.DefaultTransport.RoundTrip(r)
}

var routed = &http.Client{Transport: relay{}}

// sameCall is an error where a call is not the parrot's.
func sameCall(name, args string) error {
	var a, b any
	if name != "weather" || json.Unmarshal([]byte(args), &a) != nil || json.Unmarshal([]byte(arguments), &b) != nil ||
		fmt.Sprint(a) != fmt.Sprint(b) {
		return fmt.Errorf("the call is of %s %s", name, args)
	}
	return nil
}

func goOpenAI() error {
	c := gopenai.DefaultConfig("none")
	c.BaseURL, c.HTTPClient = os.Getenv("KARAT_URL"), routed
	client := gopenai.NewClientWithConfig(c)
	talk := gopenai.ChatCompletionRequest{Model: "caller",
		Messages: []gopenai.ChatCompletionMessage{{Role: "user", Content: asks}},
		Tools: []gopenai.Tool{{Type: "function",
			Function: &gopenai.FunctionDefinition{Name: "weather", Parameters: parameters}}}}
	first, err := client.CreateChatCompletion(ctx, talk)
	if err != nil {
		return err
	}
	m := first.Choices[0].Message
	if err := sameCall(m.ToolCalls[0].Function.Name, m.ToolCalls[0].Function.Arguments); err != nil {
		return err
	}
	talk.Messages = append(talk.Messages, m, gopenai.ChatCompletionMessage{Role: "tool", ToolCallID: m.ToolCalls[0].ID,
		Content: "rain"})
	stream, err := client.CreateChatCompletionStream(ctx, talk)
	if err != nil {
		return err
	}
	text := ""
	for {
		piece, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return want(text, told)
		}
		if err != nil {
			return err
		}
		text += piece.Choices[0].Delta.Content
	}
}

func langchainGo() error {
	overOpenAI, err := lcopenai.New(lcopenai.WithBaseURL(os.Getenv("KARAT_URL")), lcopenai.WithToken("none"),
		lcopenai.WithModel("caller"), lcopenai.WithHTTPClient(routed))
	if err != nil {
		return err
	}
	overAnthropic, err := lcanthropic.New(lcanthropic.WithBaseURL(os.Getenv("KARAT_URL")),
		lcanthropic.WithToken("none"), lcanthropic.WithModel("caller"), lcanthropic.WithHTTPClient(routed))
	if err != nil {
		return err
	}
	overOllama, err := lcollama.New(lcollama.WithServerURL(root), lcollama.WithModel("teller"),
		lcollama.WithHTTPClient(routed))
	if err != nil {
		return err
	}
	// which sends no tools
	answer, err := streamed(overOllama, []llms.MessageContent{llms.TextParts(llms.ChatMessageTypeHuman, asks)})
	return errors.Join(err, want(answer, told), langchainLoop(overOpenAI), langchainLoop(overAnthropic))
}

// streamed is an answer that comes whole and in pieces.
func streamed(model llms.Model, talk []llms.MessageContent, options ...llms.CallOption) (string, error) {
	text := ""
	whole, err := model.GenerateContent(ctx, talk, append(options,
		llms.WithStreamingFunc(func(_ context.Context, piece []byte) error {
			text += string(piece)
			return nil
		}))...)
	if err != nil {
		return "", err
	}
	all := ""
	for _, c := range whole.Choices { // Anthropic's has one for each block
		all += c.Content
	}
	return text, want(all, text)
}

func langchainLoop(model llms.Model) error {
	talk := []llms.MessageContent{llms.TextParts(llms.ChatMessageTypeHuman, asks)}
	tools := llms.WithTools([]llms.Tool{{Type: "function", Function: &llms.FunctionDefinition{Name: "weather",
		Parameters: parameters}}})
	first, err := model.GenerateContent(ctx, talk, tools, llms.WithMaxTokens(512))
	if err != nil {
		return err
	}
	var call llms.ToolCall
	for _, c := range first.Choices {
		for _, call = range c.ToolCalls {
		}
	}
	if call.FunctionCall == nil {
		return errors.New("no call")
	}
	if err := sameCall(call.FunctionCall.Name, call.FunctionCall.Arguments); err != nil {
		return err
	}
	talk = append(talk, llms.MessageContent{Role: llms.ChatMessageTypeAI, Parts: []llms.ContentPart{call}},
		llms.MessageContent{Role: llms.ChatMessageTypeTool,
			Parts: []llms.ContentPart{llms.ToolCallResponse{ToolCallID: call.ID, Name: "weather", Content: "rain"}}})
	last, err := streamed(model, talk, tools, llms.WithMaxTokens(512))
	return errors.Join(err, want(last, told))
}

func eino() error {
	model, err := einoai.NewChatModel(ctx, &einoai.ChatModelConfig{APIKey: "none", BaseURL: os.Getenv("KARAT_URL"),
		Model: "caller", HTTPClient: routed})
	if err != nil {
		return err
	}
	tool := &einoschema.ToolInfo{Name: "weather", Desc: "weather",
		ParamsOneOf: einoschema.NewParamsOneOfByParams(map[string]*einoschema.ParameterInfo{
			"city": {Type: einoschema.String, Required: true},
		})}
	bound, err := model.WithTools([]*einoschema.ToolInfo{tool})
	if err != nil {
		return err
	}
	talk := []*einoschema.Message{einoschema.UserMessage(asks)}
	first, err := bound.Generate(ctx, talk)
	if err != nil {
		return err
	}
	call := first.ToolCalls[0]
	if err := errors.Join(sameCall(call.Function.Name, call.Function.Arguments),
		want(first.ReasoningContent, "I look.")); err != nil {
		return err
	}
	last, err := bound.Generate(ctx, append(talk, first, einoschema.ToolMessage("rain", call.ID)))
	if err != nil {
		return err
	}
	return want(last.Content, told)
}

func genkitGo() error {
	plugin := &compat_oai.OpenAICompatible{Provider: "karat", APIKey: "none", BaseURL: os.Getenv("KARAT_URL"),
		Opts: []option.RequestOption{option.WithHTTPClient(routed)}}
	g := genkit.Init(ctx, genkit.WithPlugins(plugin))
	model := plugin.DefineModel("karat", "caller", ai.ModelOptions{Supports: &ai.ModelSupports{Multiturn: true,
		Tools: true, SystemRole: true}})
	calls := 0
	tool := genkit.DefineTool(g, "weather", "weather", func(_ *ai.ToolContext, in struct {
		City string `json:"city"`
	}) (string, error) {
		calls++
		return "rain in " + in.City, nil
	})
	answer, err := genkit.Generate(ctx, g, ai.WithModel(model), ai.WithPrompt(asks), ai.WithTools(tool))
	if err != nil {
		return err
	}
	return errors.Join(want(strings.TrimSpace(answer.Text()), told), want(calls, 1))
}
