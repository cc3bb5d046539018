package server

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// ignores expects an answer, and the fields that the header names.
func (c *client) ignores(want, path, body string) {
	c.t.Helper()
	status, answer, header := c.do("POST", path, body)
	if got := header.Get(hintHeader); status != 200 || got != want {
		c.t.Errorf("%s %.300s: %d, ignored %q, want %q: %.300s", path, body, status, got, want, answer)
	}
}

// TestHints: a field that asks for nothing which could change the answer is taken, and named in a header and in the log.
func TestHints(t *testing.T) {
	c := speak(t, "Yes.")
	const tool = `{"type":"function","function":{"name":"weather","parameters":{"type":"object"}}}`
	const flatTool = `{"type":"function","name":"weather","parameters":{"type":"object"}}`
	chat := func(more string) string { return `{` + ask + `,` + more + `}` }
	respond := func(more string) string { return `{"model":"demo","input":"Q",` + more + `}` }
	message := func(more string) string { return `{` + asking + `,` + more + `}` }
	for _, x := range []struct{ want, path, body string }{
		{"", "/v1/chat/completions", chat(`"temperature":0`)},
		{"user, metadata, service_tier", "/v1/chat/completions", chat(`"metadata":{"a":"b"},"user":"u","service_tier":"flex"`)},
		{"", "/v1/chat/completions", chat(`"metadata":{},"user":"","store":false,"service_tier":null,"audio":null,"functions":[ ],"web_search_options":{ },"function_call":""`)},
		{"tools[0].function.eager, tools[0].x", "/v1/chat/completions", chat(`"tools":[` + strings.Replace(strings.Replace(tool, `"type"`, `"x":1,"type"`, 1), `"name"`, `"eager":true,"name"`, 1) + `]`)},
		{"tools[1]", "/v1/chat/completions", chat(`"tools":[` + tool + `,{"type":"web_search","filters":{}}],"tool_choice":"auto","parallel_tool_calls":true`)},
		{"tools[0]", "/v1/chat/completions", chat(`"tools":[{"type":"code_interpreter"}],"tool_choice":"auto","parallel_tool_calls":true`)},
		{"tools[0].defer_loading", "/v1/chat/completions", chat(`"tools":[` + strings.ReplaceAll(tool+`,`+strings.Replace(tool, "weather", "news", 1), `"type":"function"`, `"type":"function","defer_loading":true`) + `]`)},
		{"client_metadata", "/v1/responses", respond(`"client_metadata":{"a":"b"}`)},
		{"tools[0], tools[2], tools[3]", "/v1/responses", respond(`"tools":[{"type":"web_search_preview_2025_03_11"},` + flatTool + `,{"type":"image_generation"},{"type":"mcp","server_label":"s"}],"tool_choice":"auto"`)},
		{"", "/v1/responses", respond(`"truncation":"auto","background":false,"conversation":{},"previous_response_id":"","prompt":null`)},
		{"messages[0].content[0], messages[0].content[1]", "/v1/messages", `{"model":"demo","max_tokens":9,"messages":[{"role":"assistant","content":[{"type":"server_tool_use","id":"s","name":"web_search","input":{}},{"type":"web_search_tool_result","tool_use_id":"s","content":[]},{"type":"text","text":"a"}]},{"role":"user","content":"q"}]}`},
		{"max_tool_calls", "/v1/responses", respond(`"max_tool_calls":3`)},
		{"messages[].name", "/v1/chat/completions", `{"model":"demo","messages":[{"role":"user","content":"a","name":"bob"},{"role":"assistant","content":"b","name":"model"},{"role":"user","content":"c","name":"ann"}]}`},
		{"input[].name", "/v1/responses", `{"model":"demo","input":[{"role":"user","content":"a","name":"bob"}]}`},
		{"messages[].name", "/apply-template", `{"messages":[{"role":"user","content":"a","name":"bob"}]}`},
		{"metadata", "/v1/messages", message(`"metadata":{"user_id":"u"}`)},
		{"prompt_cache_options, moderation, access_programs", "/v1/chat/completions", chat(`"prompt_cache_options":{"mode":"implicit","ttl":"30m"},"moderation":{"a":1},"access_programs":{"cyber":"standard"}`)},
		{"messages[0].content[0].prompt_cache_breakpoint", "/v1/chat/completions", `{"model":"demo","messages":[{"role":"user","content":[{"type":"text","text":"a","prompt_cache_breakpoint":{"mode":"explicit"}}]}]}`},
		{"image, reasoning.mode, input[1], input[2], input[3]", "/v1/responses", `{"model":"demo","image":{"a":1},"reasoning":{"mode":"pro"},"input":[{"role":"user","content":"a"},{"type":"configuration_update","reasoning":{"effort":"low"}},{"type":"local_shell_call_output","call_id":"x","output":"y"},{"type":"program_output","call_id":"x"}]}`},
		{"compaction, diagnostics, fallbacks, thinking.block_binding", "/v1/messages", message(`"diagnostics":{"previous_message_id":"x"},"fallbacks":[{"model":"x"}],"compaction":{"type":"summarize"},"workspace_id":"","thinking":{"type":"adaptive","display":"updates","block_binding":"x"}`)},
		{"messages[2].content[0].content[0], messages[2].content[0].content[1]", "/v1/messages", `{"model":"demo","max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"x","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"x","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}},{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AAAA"}},{"type":"document","source":{"type":"text","media_type":"text/plain","data":"seen"}}]}]}]}`},
		{"messages[1].tool_calls[0].function.arguments", "/v1/chat/completions", `{"model":"demo","messages":[{"role":"user","content":"a"},{"role":"assistant","tool_calls":[{"id":"x","type":"function","function":{"name":"f","arguments":"{\"a\": "}}]},{"role":"tool","tool_call_id":"x","content":"no JSON"}]}`},
		{"", "/v1/chat/completions", chat(`"tool_choice":"auto","parallel_tool_calls":false`)},
		{"", "/v1/messages", `{"model":"demo","max_tokens":9,"messages":[{"role":"user","content":[{"type":"document","source":{"type":"text","media_type":"text/plain","data":"a"}}]}]}`},
		{"messages[2].content[0]", "/v1/chat/completions", `{"model":"demo","messages":[{"role":"user","content":"a"},{"role":"assistant","tool_calls":[{"id":"x","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"x","content":[{"type":"image_url","image_url":{"url":"https://x/y.png"}}]}]}`},
		{"input[2].output[0]", "/v1/responses", `{"model":"demo","input":[{"role":"user","content":"a"},{"type":"function_call","call_id":"x","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"x","output":[{"type":"input_image","image_url":"data:image/png;base64,AAAA"}]}]}`},
		{"tools[0].input_examples, tools[1]", "/v1/messages", message(`"tools":[{"name":"a","input_schema":{"type":"object"},"input_examples":[1]},{"type":"web_search_20250305","name":"web_search"}]`)},
	} {
		c.ignores(x.want, x.path, x.body)
	}
	for _, x := range []struct{ param, why, path, body string }{
		{"tool_choice.type", "not supported", "/v1/responses", respond(`"tools":[{"type":"web_search"}],"tool_choice":{"type":"web_search"}`)},
		{"tool_choice", "none of the tools", "/v1/responses", respond(`"tools":[{"type":"web_search"}],"tool_choice":"required"`)},
		{"tool_choice", "no tool is allowed", "/v1/responses", respond(`"tools":[{"type":"web_search"}],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"web_search"}]}`)},
		{"tools[0].type", "not supported", "/v1/responses", respond(`"tools":[{"type":"funktion","name":"f"}]`)},
		{"background", "not supported", "/v1/responses", respond(`"background":true`)},
		{"audio", "not supported", "/v1/chat/completions", chat(`"audio":{"voice":"x"}`)},
	} {
		c.refuses(400, x.param, x.why, "POST", x.path, x.body)
	}
}

// TestHintsAreSafe: names that strangers write stay short in the header, and add no line to it or to the log.
func TestHintsAreSafe(t *testing.T) {
	var log bytes.Buffer
	m, err := withTools()
	if err != nil {
		t.Fatal(err)
	}
	c := serve(t, m, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	var keys strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&keys, `,"k%d, é\r\nSet-Cookie: x%s":1`, i, strings.Repeat("y", i))
	}
	_, _, header := c.do("POST", "/v1/chat/completions", `{`+ask+`,"max_tokens":1,"tools":[{"type":"function","function":{"name":"f"`+keys.String()+`}}]}`)
	got := header.Get(hintHeader)
	if len(got) < maxHints/2 || len(got) > maxHints+maxHint || !strings.HasPrefix(got, "tools[0].function.k0???") || !strings.HasSuffix(got, ", ...") || header.Get("Set-Cookie") != "" {
		t.Errorf("%d bytes: %s", len(got), got)
	}
	if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "ignored=\"tools[0].function.k0???") {
		t.Errorf("the log: %s", log.String())
	}
}
