package parrot_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/parrot"
)

const template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"

// say asks a model that says a text for an answer.
func say(t *testing.T, text string, o parrot.Options, g *karat.Grammar) (said string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "parrot.gguf")
	if err := parrot.WriteFile(path, template, text, o); err != nil {
		t.Fatal(err)
	}
	m, err := karat.Load(context.Background(), path, karat.Options{Threads: 1, Context: 1024})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ask := karat.GenerateOptions{Special: o.Control, Grammar: g}
	for token, err := range m.Chat(t.Context(), []karat.Message{{Role: karat.RoleUser, Parts: []karat.Part{karat.Text("What is it\n in the end? " + strings.Repeat("x ", 99))}}}, ask) {
		if err != nil {
			t.Fatal(err)
		}
		said += token.Text
	}
	return said
}

// TestParrot: a model says its text, whatever repeats in it, and ends.
func TestParrot(t *testing.T) {
	channels := []string{"<|channel|>", "<|message|>", "<|start|>", "<|end|>"}
	for _, x := range []struct {
		text string
		o    parrot.Options
	}{
		{"Hello there, here 😀 I am.\n\n", parrot.Options{}},
		{strings.Repeat("a", 40), parrot.Options{}},
		{"<tool_call>\nA\n</tool_call>\n<tool_call>\nB\n</tool_call>\nC\n<tool_call>\nD\n</tool_call>", parrot.Options{User: []string{"<tool_call>", "</tool_call>"}}},
		{"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.", parrot.Options{Control: channels, EOS: "<|return|>", BOS: "<s>"}},
	} {
		if got := say(t, x.text, x.o, nil); got != x.text {
			t.Errorf("said %q, want %q", got, x.text)
		}
	}
}

// TestOptions: what a grammar forbids gives way to other bytes, logits are those that were asked for, a text may come again and again.
func TestOptions(t *testing.T) {
	g, err := karat.Regexp("[{}]+")
	if err != nil {
		t.Fatal(err)
	}
	if got := say(t, "abc", parrot.Options{Fallback: "{}"}, g); !strings.HasPrefix(got, "{{") {
		t.Errorf("within a grammar it said %q", got)
	}
	if got := say(t, "", parrot.Options{Logits: map[byte]float32{'A': 3, 'B': 2}}, nil); got != strings.Repeat("A", 256) {
		t.Errorf("with logits it said %q", got)
	}
	for after, want := range map[string]string{"<|im_end|>": "XY. Z", "<|result|>": "abcd"} {
		if got := say(t, "abcd", parrot.Options{Control: []string{"<|result|>"}, After: after, Then: "XY. Z"}, nil); got != want {
			t.Errorf("after %s it said %q", after, got)
		}
	}
	if got := say(t, "abcd", parrot.Options{Loop: true}, nil); !strings.HasPrefix(got, "abcdabcd") {
		t.Errorf("in a loop it said %q", got)
	}
}
