package karat_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/karat-run/karat"
)

// TestToolFallback: a chat template that takes no tools tells the model of them in a text, and of calls and results.
func TestToolFallback(t *testing.T) {
	m := load(t)
	weather := karat.Tool{Name: "weather", Description: "Tells it.", Parameters: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}}}`)}
	call := karat.Message{Role: karat.RoleAssistant, Parts: []karat.Part{karat.Text("I look."), karat.ToolCall{ID: "call_1", Name: "weather", Arguments: json.RawMessage(`{"city":"Oslo"}`)}}}
	result := karat.Message{Role: karat.RoleTool, Parts: []karat.Part{karat.ToolResult{ID: "call_1", Content: "rain"}, karat.ToolResult{ID: "call_2", Content: "snow"}}}
	user := func(text string) karat.Message { return karat.TextMessage(karat.RoleUser, text) }
	system := karat.TextMessage(karat.RoleSystem, "Be brief.")
	told := `{"name":"weather","description":"Tells it.","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}`
	called := "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\":\"Oslo\"}}\n</tool_call>"
	for _, name := range []string{"google-gemma-2-2b-it", "tiny-gemma3", "microsoft-Phi-3.5-mini-instruct", "tiny-llama"} {
		b, err := os.ReadFile("internal/chat/testdata/templates/" + name + ".jinja")
		if os.IsNotExist(err) {
			b, err = []byte("{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}"), nil
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, talk := range [][]karat.Message{{user("Rain?")}, {user("Rain?"), call, result}, {user("Rain?"), call, result, user("And?")}, {system, user("Rain?"), call, result, karat.TextMessage(karat.RoleAssistant, "Yes."), user("And?")}} {
			if talk[0].Role == karat.RoleSystem && name == "google-gemma-2-2b-it" {
				continue // it takes no system
			}
			o := karat.GenerateOptions{Template: string(b), Tools: []karat.Tool{weather}}
			text, err := m.Render(t.Context(), talk, o)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			for _, part := range []string{told, "<tool_call>", "Rain?"} {
				if !strings.Contains(text, part) {
					t.Errorf("%s: no %q in %q", name, part, text)
				}
			}
			if len(talk) > 2 && (!strings.Contains(text, "I look.\n"+called) || !strings.Contains(text, "<tool_response>\nrain\n</tool_response>\n<tool_response>\nsnow\n</tool_response>")) {
				t.Errorf("%s: no call or no results in %q", name, text)
			}
			o.NoToolFallback = true
			if _, err := m.Render(t.Context(), talk, o); err == nil || len(talk) == 1 && !strings.Contains(err.Error(), "takes no tools") {
				t.Errorf("%s: without the fallback: %v", name, err)
			}
		}
	}
}

// TestPicturesAsText: a picture of a result stands behind the result's words, where results are text.
func TestPicturesAsText(t *testing.T) {
	var results []karat.Part
	for _, said := range []string{"rain", "snow"} {
		results = append(results, karat.ToolResult{Content: said, Images: []karat.Image{{Data: []byte(said)}}})
	}
	const turns = `{% for m in messages %}{% for x in m.content %}{{ x.text if x.type == 'text' else 'IMG' }}{% endfor %}{% endfor %}`
	text, err := load(t).Render(t.Context(), []karat.Message{{Role: karat.RoleTool, Parts: results}}, karat.GenerateOptions{Template: turns})
	if want := "<tool_response>\nrainIMG\n</tool_response>\n<tool_response>\nsnowIMG\n</tool_response>\n"; err != nil || text != want {
		t.Errorf("%q, %v, want %q", text, err, want)
	}
}

// TestCallsAsText: where a chat template takes tools and no calls, or calls and no tools, what it lacks is text in the
// syntax that it shows.
func TestCallsAsText(t *testing.T) {
	m := load(t)
	const turns = `{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m[calls] %}{{ c.function.name }}{% endfor %}</>{% endfor %}`
	const none, native = `{% set calls = 'none' %}`, `{% set calls = 'tool_calls' %}`
	weather := karat.Tool{Name: "weather"}
	talk := []karat.Message{karat.TextMessage(karat.RoleUser, "The weather?"),
		{Role: karat.RoleAssistant, Parts: []karat.Part{karat.ToolCall{Name: "weather", Arguments: json.RawMessage(`{"city":"Oslo","days":[1, 2]}`)}, karat.ToolCall{Name: "weather"}}},
		{Role: karat.RoleTool, Parts: []karat.Part{karat.ToolResult{Content: "rain"}}}}
	for template, want := range map[string]string{
		`{{ 'List of tools: ' }}{{ tools | length }}` + none + turns: `<assistant><|tool_call_start|>[weather(city="Oslo", days=[1, 2]), weather()]<|tool_call_end|></><tool>rain</>`,
		`{{ tools | length }}{# <|tool_call|> #}` + none + turns:     `<assistant><|tool_call|>[{"name": "weather", "arguments": {"city":"Oslo","days":[1, 2]}}, {"name": "weather", "arguments": {}}]</><tool>rain</>`,
		`{# <｜tool▁call▁begin｜> #}` + native + turns:                 "<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{}<｜tool▁call▁end｜>",
	} {
		text, err := m.Render(t.Context(), talk, karat.GenerateOptions{Template: template, Tools: []karat.Tool{weather}})
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if strings.Contains(template, "'none'") == strings.Contains(text, "You can call tools") {
			t.Errorf("%q: told of tools", text)
		}
		if _, err := m.Render(t.Context(), talk, karat.GenerateOptions{Template: template, Tools: []karat.Tool{weather}, NoToolFallback: true}); err == nil {
			t.Errorf("%q: no error without the fallback", template)
		}
	}
}
