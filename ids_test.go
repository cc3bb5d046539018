package karat_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/golden"
)

// TestCallIDs: calls and results of any ids, and of none, are rendered by templates that take ids of one kind, each result by its call.
func TestCallIDs(t *testing.T) {
	m := load(t)
	nemo, err := os.ReadFile("internal/chat/testdata/templates/mistralai-Mistral-Nemo-Instruct-2407.jinja")
	if err != nil {
		t.Fatal(err)
	}
	const indexed = `{% for m in messages %}{% for c in m.tool_calls %}<|tool_call_begin|>functions.{{ c.function.name }}:{{ loop.index0 }}<|tool_call_argument_begin|>{{ c.function.arguments | tojson }}{% endfor %}{% if m.role == 'tool' %}## Return of {{ m.tool_call_id }} {% endif %}{{ m.content }}{% endfor %}{# tools tool_calls #}`
	const plain = `{% for m in messages %}{% for c in m.tool_calls %}{{ 'call ' + c['id'] + ' ' + c.function.name }}{% endfor %}{% if m.role == 'tool' %}{{ 'result ' + m.tool_call_id }}{% endif %}{{ m.content }}{% endfor %}{# tools tool_calls #}`
	for _, ids := range [][2]string{{"call_abcdefghijkl", "call_mnopqrstuvwx"}, {"toolu_01", "toolu_02"}, {"abcdefgh1", "abcdefgh2"}, {"functions.f:0", "functions.g:1"}, {"", ""}} {
		arguments := json.RawMessage(`{}`)
		talk := []karat.Message{karat.TextMessage(karat.RoleUser, "Q"),
			{Role: karat.RoleAssistant, Parts: []karat.Part{karat.ToolCall{ID: ids[0], Name: "f", Arguments: arguments}, karat.ToolCall{ID: ids[1], Name: "g", Arguments: arguments}}},
			{Role: karat.RoleTool, Parts: []karat.Part{karat.ToolResult{ID: ids[1], Name: "g", Content: "two"}, karat.ToolResult{ID: ids[0], Name: "f", Content: "one"}}}}
		for name, template := range map[string]string{"nine": string(nemo), "indexed": indexed, "plain": plain} {
			text, err := m.Render(t.Context(), talk, karat.GenerateOptions{Template: template})
			if err != nil {
				t.Errorf("%s, %q: %v", name, ids, err)
				continue
			}
			id := func(before, after string) string {
				_, rest, _ := strings.Cut(text, before)
				id, _, _ := strings.Cut(rest, after)
				return id
			}
			switch name {
			case "nine":
				if f := id(`"name": "f", "arguments": {}, "id": "`, `"`); len(f) != 9 || ids[0] == "abcdefgh1" && f != ids[0] || strings.Count(text, f) != 2 {
					t.Errorf("%s, %q: %s", name, ids, text)
				}
			case "indexed":
				if !strings.Contains(text, "## Return of functions.g:1 two## Return of functions.f:0 one") {
					t.Errorf("%s, %q: %s", name, ids, text)
				}
			case "plain":
				if f := id("call ", " f"); f == "" || !strings.HasSuffix(text, "result "+f+"one") || ids[0] != "" && f != ids[0] {
					t.Errorf("%s, %q: %s", name, ids, text)
				}
			}
		}
	}
}

// TestPublishedIDs: no published template refuses a call of any id.
func TestPublishedIDs(t *testing.T) {
	m := load(t)
	files, err := filepath.Glob(filepath.Join(golden.Shared(t, "chat/templates"), "*.jinja"))
	if err != nil {
		t.Fatal(err)
	}
	refuse := map[string]string{ // calls of any ids
		"Kimi-K2-Instruct":                     "it appends to a list, which the sandbox forbids",
		"Kimi-K2-Thinking":                     "likewise",
		"fireworks-ai-llama-3-firefunction-v2": "it wants the variable functions",
		"llama-cpp-deepseek-r1":                "it writes a generator as JSON",
		"meetkai-functionary-medium-v3.2":      "it wants arguments as a text",
	}
	for _, file := range files {
		if refuse[strings.TrimSuffix(filepath.Base(file), ".jinja")] != "" {
			continue
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"call_abcdefghijkl", "toolu_01", "abcdefgh1", ""} {
			talk := []karat.Message{karat.TextMessage(karat.RoleUser, "Q"), {Role: karat.RoleAssistant, Parts: []karat.Part{karat.ToolCall{ID: id, Name: "f"}}},
				{Role: karat.RoleTool, Parts: []karat.Part{karat.ToolResult{ID: id, Name: "f", Content: "one"}}}}
			if _, err := m.Render(t.Context(), talk, karat.GenerateOptions{Template: string(b), Tools: []karat.Tool{{Name: "f", Description: "d"}}}); err != nil {
				t.Errorf("%s, %q: %v", filepath.Base(file), id, err)
			}
		}
	}
}
