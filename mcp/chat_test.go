package mcp_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/talker"
	"github.com/karat-run/karat/mcp"
)

const called = "<tool_call>\n{\"name\": \"echo\", \"arguments\": {\"text\": \"hi\"}}\n</tool_call>"

func load(t *testing.T, text, then string) *karat.Session {
	m, err := talker.Parrot(t.Context(), text, then)
	if err != nil {
		t.Fatal(err)
	}
	s := m.NewSession()
	t.Cleanup(func() { s.Close(); _ = m.Close() })
	return s
}

func begin(t *testing.T, kind string, o mcp.Options) *mcp.Tools {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	all, err := mcp.Start(t.Context(), []mcp.Server{{Name: "one", Command: self, Env: map[string]string{mcp.As: kind}}}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(all.Close)
	return all
}

// TestChat: the model calls, reads the result, and answers; the conversation has all turns.
func TestChat(t *testing.T) {
	for _, c := range []struct{ allow, result string }{{"one/echo", "hi"}, {"", "error: the user has refused this call"}} {
		all := begin(t, "good", mcp.Options{Allow: slices.DeleteFunc([]string{c.allow}, func(s string) bool { return s == "" })})
		talk := []karat.Message{karat.TextMessage(karat.RoleUser, "Echo hi")}
		got := ""
		for p, err := range all.ChatParts(t.Context(), load(t, called, "Understood."), &talk, karat.GenerateOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			switch p := p.(type) {
			case karat.Text:
				got += string(p)
			case karat.ToolCall:
				got += "[" + p.Name + string(p.Arguments) + "]"
			case karat.ToolResult:
				got += "[" + p.Content + "]"
			}
		}
		if want := `[echo{"text":"hi"}][` + c.result + "]Understood."; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		roles := []karat.Role{}
		for _, m := range talk {
			roles = append(roles, m.Role)
		}
		if fmt.Sprint(roles) != "[user assistant tool assistant]" {
			t.Errorf("the conversation is of %v", roles)
		}
	}
}

// TestChatEnds: a model that only calls is stopped, a call of the program's own tool is left to the program, and an error of consent ends.
func TestChatEnds(t *testing.T) {
	all := begin(t, "good", mcp.Options{Allow: []string{"*"}})
	run := func(all *mcp.Tools, o karat.GenerateOptions) ([]karat.Message, error) {
		talk := []karat.Message{karat.TextMessage(karat.RoleUser, "Echo hi")}
		for _, err := range all.ChatParts(t.Context(), load(t, called, ""), &talk, o) {
			if err != nil {
				return talk, err
			}
		}
		return talk, nil
	}
	if talk, err := run(all, karat.GenerateOptions{}); err == nil || !strings.Contains(err.Error(), "without an answer") || len(talk) != 1+2*mcp.MaxTurns {
		t.Errorf("%d messages, %v", len(talk), err)
	}
	no := begin(t, "good", mcp.Options{Consent: func(context.Context, mcp.Call) (mcp.Consent, error) { return mcp.Once, context.Canceled }})
	if talk, err := run(no, karat.GenerateOptions{}); err != context.Canceled || len(talk) != 1 {
		t.Errorf("%d messages, %v", len(talk), err)
	}
	if talk, err := run(begin(t, "other", mcp.Options{}), karat.GenerateOptions{Tools: []karat.Tool{{Name: "echo"}}}); err != nil || len(talk) != 2 {
		t.Errorf("%d messages, %v", len(talk), err)
	}
}
