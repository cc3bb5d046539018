package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	ollama "github.com/ollama/ollama/api"
)

// root is the server's address without /v1.
var root = strings.TrimSuffix(os.Getenv("KARAT_URL"), "/v1")

func anthropicGo() error {
	client := anthropic.NewClient(anthropicoption.WithBaseURL(root), anthropicoption.WithAPIKey("none"),
		anthropicoption.WithMaxRetries(0), anthropicoption.WithHTTPClient(routed))
	listed, list := false, client.Models.ListAutoPaging(ctx, anthropic.ModelListParams{})
	for list.Next() {
		m := list.Current()
		listed = listed || m.ID == "caller" && m.DisplayName == "caller" && !m.CreatedAt.IsZero()
	}
	if err := errors.Join(list.Err(), want(listed, true)); err != nil {
		return err
	}
	tool := anthropic.ToolUnionParamOfTool(anthropic.ToolInputSchemaParam{Properties: parameters["properties"],
		Required: []string{"city"}}, "weather")
	talk := anthropic.MessageNewParams{Model: "caller", MaxTokens: 512,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(asks))},
		Tools:    []anthropic.ToolUnionParam{tool}}
	whole, err := client.Messages.New(ctx, talk)
	if err != nil {
		return err
	}
	var streamed anthropic.Message
	stream := client.Messages.NewStreaming(ctx, talk)
	for stream.Next() {
		if err := streamed.Accumulate(stream.Current()); err != nil {
			return err
		}
	}
	if err := stream.Err(); err != nil {
		return err
	}
	for _, m := range []*anthropic.Message{whole, &streamed} {
		use := m.Content[len(m.Content)-1].AsToolUse()
		if err := errors.Join(sameCall(use.Name, string(use.Input)),
			want(m.StopReason, anthropic.StopReasonToolUse)); err != nil {
			return err
		}
		next := talk
		next.Messages = append(slices.Clip(talk.Messages), m.ToParam(),
			anthropic.NewUserMessage(anthropic.NewToolResultBlock(use.ID, "rain", false)))
		last, err := client.Messages.New(ctx, next)
		if err != nil {
			return err
		}
		if err := want(last.Content[len(last.Content)-1].Text, told); err != nil {
			return err
		}
	}
	return nil
}

func ollamaGo() error {
	at, err := url.Parse(root)
	if err != nil {
		return err
	}
	client := ollama.NewClient(at, routed)
	all, err := client.List(ctx)
	if err != nil {
		return err
	}
	listed := slices.ContainsFunc(all.Models, func(m ollama.ListModelResponse) bool {
		return strings.HasPrefix(m.Name, "caller")
	})
	about, err := client.Show(ctx, &ollama.ShowRequest{Model: "caller"})
	if err != nil {
		return err
	}
	if err := errors.Join(want(listed, true), want(slices.Contains(about.Capabilities, "tools"), true)); err != nil {
		return err
	}
	tool := ollama.Tool{Type: "function", Function: ollama.ToolFunction{Name: "weather",
		Parameters: ollama.ToolFunctionParameters{Type: "object", Required: []string{"city"},
			Properties: ollama.NewToolPropertiesMap()}}}
	tool.Function.Parameters.Properties.Set("city", ollama.ToolProperty{Type: ollama.PropertyType{"string"}})
	for _, streams := range []bool{false, true} {
		talk := &ollama.ChatRequest{Model: "caller", Messages: []ollama.Message{{Role: "user", Content: asks}},
			Tools: ollama.Tools{tool}, Stream: &streams}
		ask := func() (sum ollama.Message, err error) {
			err = client.Chat(ctx, talk, func(piece ollama.ChatResponse) error {
				sum.Content, sum.Thinking = sum.Content+piece.Message.Content, sum.Thinking+piece.Message.Thinking
				sum.Role, sum.ToolCalls = piece.Message.Role, append(sum.ToolCalls, piece.Message.ToolCalls...)
				return nil
			})
			return sum, err
		}
		first, err := ask()
		if err != nil {
			return err
		}
		if len(first.ToolCalls) != 1 {
			return fmt.Errorf("%d calls", len(first.ToolCalls))
		}
		call := first.ToolCalls[0]
		if err := errors.Join(sameCall(call.Function.Name, call.Function.Arguments.String()),
			want(first.Thinking, "I look.")); err != nil {
			return err
		}
		talk.Messages = append(talk.Messages, first, ollama.Message{Role: "tool", Content: "rain", ToolName: "weather",
			ToolCallID: call.ID})
		last, err := ask()
		if err := errors.Join(err, want(last.Content, told)); err != nil {
			return err
		}
	}
	form, _ := json.Marshal(parameters)
	return client.Chat(ctx,
		&ollama.ChatRequest{Model: "writer", Messages: []ollama.Message{{Role: "user", Content: asks}}, Format: form,
			Stream: new(bool)}, func(all ollama.ChatResponse) error {
			return sameCall("weather", all.Message.Content)
		})
}
