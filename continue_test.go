package karat_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karat-run/karat"
)

// TestContinue: with each template of the repository and of the shared folder, an answer goes on where the assistant's last text ends, white space included.
func TestContinue(t *testing.T) {
	m := load(t)
	files, err := filepath.Glob("internal/chat/testdata/templates/*.jinja")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d templates, %v", len(files), err)
	}
	shared := os.Getenv("KARAT_SHARED")
	if shared == "" {
		shared = "../shared"
	}
	more, _ := filepath.Glob(filepath.Join(shared, "chat/templates/*.jinja"))
	talk := []karat.Message{karat.TextMessage(karat.RoleUser, "What is six times seven?"), {Role: karat.RoleAssistant, Parts: []karat.Part{karat.Text("The answer "), karat.Text("is \n ")}}}
	for _, file := range append(files, more...) {
		template, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		o := karat.GenerateOptions{Template: string(template)}
		if _, err := m.Render(t.Context(), talk, o); err != nil {
			continue // not a conversation for this template
		}
		o.Continue = true
		got, err := m.Render(t.Context(), talk, o)
		if err != nil || !strings.HasSuffix(got, "The answer is \n ") || strings.Count(got, "The answer is") != 1 {
			t.Errorf("%s: %q, %v", filepath.Base(file), got[max(0, len(got)-200):], err)
		}
	}
}

// TestContinueErrors: an answer goes on with a text of the assistant alone.
func TestContinueErrors(t *testing.T) {
	m := load(t)
	user, call := karat.TextMessage(karat.RoleUser, "Hi"), karat.Message{Role: karat.RoleAssistant, Parts: []karat.Part{karat.ToolCall{Name: "f"}}}
	const first = "{% for m in messages %}{{ m.content[:2] }}{% endfor %}"
	for want, talk := range map[string][]karat.Message{"no message of the assistant": {user}, "a call of a tool": {user, call}, "leaves out the end": {user, karat.TextMessage(karat.RoleAssistant, "Hello")}} {
		if got, err := m.Render(t.Context(), talk, karat.GenerateOptions{Template: first, Continue: true}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q, %v; want %s", got, err, want)
		}
	}
}
