package server

import (
	"fmt"
	"strings"
	"testing"
)

// TestEmptyChoices: where one of a few words is wanted, "" is none of them, and no absence.
func TestEmptyChoices(t *testing.T) {
	c := speak(t, "Yes.")
	const tools = `"tools":[{"type":"function","function":{"name":"weather"}}]`
	const content = `{"model":"demo","max_tokens":9,"messages":[{"role":"%s","content":[{"type":"%s","text":"Q"}]}]}`
	for _, x := range []struct{ path, param, values, body string }{
		{"/v1/chat/completions", "reasoning_effort", "none, minimal, low", `{` + ask + `,"reasoning_effort":""}`},
		{"/v1/chat/completions", "response_format.type", "text, json_object", `{` + ask + `,"response_format":{"type":""}}`},
		{"/v1/chat/completions", "messages[0].role", "developer, system", `{"model":"demo","messages":[{"role":"","content":"Q"}]}`},
		{"/v1/chat/completions", "messages[0].content[0].type", "text, input_text", fmt.Sprintf(content, "user", "")},
		{"/v1/chat/completions", "messages[0].tool_calls[0].type", "function", `{"model":"demo","messages":[{"role":"assistant","tool_calls":[{"id":"c","type":"","function":{"name":"a"}}]}]}`},
		{"/v1/chat/completions", "tools[0].type", "function", `{` + ask + `,"tools":[{"type":"","function":{"name":"a"}}]}`},
		{"/v1/chat/completions", "tool_choice", "none, auto", `{` + ask + `,` + tools + `,"tool_choice":""}`},
		{"/v1/chat/completions", "tool_choice.type", "function, custom", `{` + ask + `,` + tools + `,"tool_choice":{"type":""}}`},
		{"/v1/chat/completions", "tool_choice.allowed_tools.mode", "auto, required", `{` + ask + `,` + tools + `,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"","tools":[]}}}`},
		{"/v1/chat/completions", "tool_choice.allowed_tools.tools[0].type", "function, custom", `{` + ask + `,` + tools + `,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"","name":"weather"}]}}}`},
		{"/v1/embeddings", "encoding_format", "float, base64", `{"model":"demo","input":"a","encoding_format":""}`},
		{"/v1/rerank", "truncation_direction", "right", `{"model":"demo","query":"a","texts":["b"],"truncation_direction":""}`},
		{"/v1/responses", "truncation", "auto, disabled", `{"model":"demo","input":"Q","truncation":""}`},
		{"/v1/responses", "reasoning.effort", "none, minimal", `{"model":"demo","input":"Q","reasoning":{"effort":""}}`},
		{"/v1/responses", "reasoning.summary", "auto, concise", `{"model":"demo","input":"Q","reasoning":{"summary":""}}`},
		{"/v1/responses", "input[0].type", "message, reasoning", `{"model":"demo","input":[{"type":"","role":"user","content":"Q"}]}`},
		{"/v1/responses", "text.format.type", "text, json_object", `{"model":"demo","input":"Q","text":{"format":{"type":""}}}`},
		{"/v1/responses", "tools[0].type", "function, custom", `{"model":"demo","input":"Q","tools":[{"type":"","name":"a"}]}`},
		{"/v1/responses", "tools[0].format.type", "text, grammar", `{"model":"demo","input":"Q","tools":[{"type":"custom","name":"a","format":{"type":""}}]}`},
		{"/v1/messages", "messages[0].role", "user, assistant", fmt.Sprintf(content, "", "text")},
		{"/v1/messages", "messages[0].content[0].type", "text, image, document, tool_result", fmt.Sprintf(content, "user", "")},
		{"/v1/messages", "messages[0].content[0].source.data", "Missing", `{"model":"demo","max_tokens":1,"messages":[{"role":"user","content":[{"type":"document","source":{"type":"text","text":"a"}}]}]}`},
		{"/v1/messages", "thinking.type", "enabled, adaptive", `{` + asking + `,"thinking":{"type":""}}`},
		{"/v1/messages", "tools[0].type", "custom", `{` + asking + `,"tools":[{"type":"","name":"a"}]}`},
		{"/v1/messages", "tool_choice.type", "auto, any", `{` + asking + `,` + schema + `,"tool_choice":{"type":""}}`},
		{"/api/chat", "think", "none, minimal", `{` + ask + `,"think":""}`},
		{"/api/chat", "messages[0].role", "system, user", `{"model":"demo","messages":[{"role":"","content":"Q"}]}`},
	} {
		status, answer, _ := c.do("POST", x.path, x.body)
		if status != 400 || !strings.Contains(answer, "'"+x.param+"'") || !strings.Contains(answer, x.values) {
			t.Errorf("%s %s: %d %s; want 400, '%s' and %s", x.path, x.body, status, answer, x.param, x.values)
		}
	}
	for path, body := range map[string]string{ // where "" is a text, or null an absence
		"/v1/chat/completions": `{"model":"demo","messages":[{"role":"system","content":""},{"role":"user","content":"Q","name":null}],"reasoning_effort":null,"response_format":null,"tool_choice":null}`,
		"/v1/responses":        `{"model":"demo","input":[{"type":null,"role":"user","content":""},{"role":"user","content":"Q"}],"instructions":"","truncation":null,"reasoning":{"effort":null,"summary":null}}`,
		"/v1/messages":         `{` + asking + `,"system":"","tools":[{"type":null,"name":"a","input_schema":{"type":"object"}}]}`,
		"/api/generate":        `{"model":"demo","prompt":"Q","system":"","suffix":"","format":"","think":null,"stream":false}`,
	} {
		c.post(path, body)
	}
}
