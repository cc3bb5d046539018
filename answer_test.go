package karat_test

import (
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/parrot"
)

// says loads a model that answers with a text. Its chat template is a published one.
func says(t testing.TB, template, text string, o parrot.Options) *karat.Model {
	t.Helper()
	source, err := os.ReadFile("internal/chat/testdata/templates/" + template + ".jinja")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "parrot.gguf")
	if err := parrot.WriteFile(path, string(source), text, o); err != nil {
		t.Fatal(err)
	}
	m, err := karat.Load(t.Context(), path, karat.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// spelled returns parts in a line; pieces of a text are joined.
func spelled(parts []karat.Part) string {
	var all []string
	for _, p := range parts {
		kind := fmt.Sprintf("%T ", p)[len("karat."):]
		text := fmt.Sprint(p)
		if c, is := p.(karat.ToolCall); is {
			text = c.Name + string(c.Arguments)
		}
		if n := len(all); n > 0 && kind != "ToolCall " && strings.HasPrefix(all[n-1], kind) {
			all[n-1] += text
			continue
		}
		all = append(all, kind+text)
	}
	return strings.Join(all, "|")
}

var weather = karat.Tool{Name: "weather", Parameters: json.RawMessage(`{"type": "object", "properties": {"city": {"type": "string"}}}`)}

// TestAnswerParts: the same parts come piece by piece, as a whole, and of the text, in chats and behind prompts.
func TestAnswerParts(t *testing.T) {
	const qwen, hermes = "Qwen-Qwen3-0.6B", "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>"
	marks := parrot.Options{User: []string{"<think>", "</think>", "<tool_call>", "</tool_call>"}}
	for _, x := range []struct {
		name, template, text, want string
		o                          parrot.Options
	}{
		{"text", qwen, "Hello, you.", "Text Hello, you.", marks},
		{"reasoning", qwen, "<think>\nHm.\n</think>\n\nHello.", "Reasoning Hm.|Text Hello.", marks},
		{"a call", qwen, "<think>\nHm.\n</think>\n\nI look.\n" + hermes, `Reasoning Hm.|Text I look.|ToolCall weather{"city":"Oslo"}`, marks},
		{"two calls", qwen, hermes + "\n" + hermes, `ToolCall weather{"city":"Oslo"}|ToolCall weather{"city":"Oslo"}`, marks},
		{"another tool", qwen, "<tool_call>\n{\"name\": \"rm\", \"arguments\": {}}\n</tool_call>", "Text <tool_call>\n{\"name\": \"rm\", \"arguments\": {}}\n</tool_call>", marks},
		{"names of plain text", qwen, "<think>\nHm.\n</think>\n\n" + hermes, `Reasoning Hm.|ToolCall weather{"city":"Oslo"}`, parrot.Options{}},
		{"channels", "openai-gpt-oss-120b", "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello.", "Reasoning Hm.|Text Hello.",
			parrot.Options{Control: []string{"<|channel|>", "<|message|>", "<|end|>", "<|start|>"}, EOS: "<|return|>"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			m := says(t, x.template, x.text, x.o)
			talk := []karat.Message{karat.TextMessage(karat.RoleUser, "Hi.")}
			o := karat.GenerateOptions{MaxTokens: -1, Tools: []karat.Tool{weather}}
			collect := func(parts iter.Seq2[karat.Part, error]) string {
				var all []karat.Part
				for p, err := range parts {
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, p)
				}
				return spelled(all)
			}
			if got := collect(m.ChatParts(t.Context(), talk, o)); got != x.want {
				t.Errorf("chat: %s, want %s", got, x.want)
			}
			if got := collect(m.GenerateParts(t.Context(), "Hi.", o)); got != x.want {
				t.Errorf("prompt: %s, want %s", got, x.want)
			}
			a, err := m.CompleteChat(t.Context(), talk, o)
			if got := spelled(a.Message.Parts); err != nil || got != x.want || a.Message.Role != karat.RoleAssistant || a.Stop != karat.StopEnd {
				t.Errorf("whole: %s, %+v, %v", got, a, err)
			}
			if n := strings.Count(x.want, "ToolCall"); len(a.ToolCalls()) != n || n > 0 && (a.ToolCalls()[0].ID == "" || n > 1 && a.ToolCalls()[0].ID == a.ToolCalls()[1].ID) {
				t.Errorf("calls: %+v", a.ToolCalls())
			}
			if got := spelled(m.Parse(x.text, weather).Parts); got != x.want {
				t.Errorf("of the text: %s", got)
			}
		})
	}
}

// TestAnswerCut: what a cut leaves of a call is no text, and what it leaves of reasoning is reasoning.
func TestAnswerCut(t *testing.T) {
	m := says(t, "Qwen-Qwen3-0.6B", "<think>\nHm, hm.\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>", parrot.Options{})
	whole := `Reasoning Hm, hm.|Text I look.|ToolCall weather{"city":"Oslo"}`
	for n := 1; n < 120; n++ {
		a, err := m.CompleteChat(t.Context(), []karat.Message{karat.TextMessage(karat.RoleUser, "Hi.")}, karat.GenerateOptions{MaxTokens: n, Tools: []karat.Tool{weather}})
		got := spelled(a.Message.Parts)
		if err != nil || !strings.HasPrefix(whole, got) || strings.ContainsAny(a.Text, "<{") || a.GeneratedTokens != n && a.Stop == karat.StopLength {
			t.Errorf("%d tokens: %s, %+v, %v", n, got, a, err)
		}
	}
}

// letters is a grammar of texts that are longer than a test's answers, whatever is drawn.
func letters(t *testing.T) *karat.Grammar {
	t.Helper()
	g, err := karat.Regexp("[a-z ]{200,}")
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestComplete: an answer has its counts, its times and the seed by which it comes again.
func TestComplete(t *testing.T) {
	m := load(t)
	s := m.NewSession()
	defer s.Close()
	var seen []string
	o := karat.GenerateOptions{MaxTokens: 12, Sampling: &karat.Sampling{Temperature: 1}, Grammar: letters(t), OnToken: func(t karat.Token) { seen = append(seen, t.Text) }}
	a, err := s.Complete(t.Context(), "The color of the sky is", o)
	if len(seen) != a.GeneratedTokens || strings.Join(seen, "") != a.Text {
		t.Errorf("OnToken sees %q of %q", seen, a.Text)
	}
	if done, total := s.Progress(); done != total || total != a.PromptTokens {
		t.Errorf("%d of %d tokens of the prompt are read, and it has %d", done, total, a.PromptTokens)
	}
	if err != nil || a.GeneratedTokens != 12 || a.PromptTokens != 7 || a.CachedTokens != 0 || a.Stop != karat.StopLength || a.Text == "" || spelled(a.Message.Parts) != "Text "+a.Text {
		t.Fatalf("%+v, %v", a, err)
	}
	if a.FirstTokenTime <= 0 || a.PromptTime <= 0 || a.GenerationTime <= 0 || a.PromptTime > a.FirstTokenTime {
		t.Errorf("%+v", a)
	}
	text := ""
	again := karat.GenerateOptions{MaxTokens: 12, Sampling: &karat.Sampling{Temperature: 1, Seed: &a.Seed}, Grammar: letters(t)}
	for token, err := range m.Generate(t.Context(), "The color of the sky is", again) {
		if err != nil {
			t.Fatal(err)
		}
		text += token.Text
	}
	if text != a.Text {
		t.Errorf("%q, and with its seed %q", a.Text, text)
	}
	texts := map[string]bool{}
	o.Sampling.Temperature = 2
	for range 8 {
		b, err := s.Complete(t.Context(), "The color of the sky is", o)
		if err != nil || b.Seed == a.Seed || b.CachedTokens == 0 {
			t.Errorf("%+v, %v", b, err)
		}
		texts[b.Text] = true
	}
	if len(texts) == 1 {
		t.Errorf("8 draws without a seed are all alike: %v", texts)
	}
	if a, err := m.Complete(t.Context(), strings.Repeat("word ", 1<<20), o); err == nil || a.Text != "" {
		t.Errorf("%+v, %v", a, err)
	}
}
