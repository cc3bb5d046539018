package karat_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/check"
	"github.com/karat-run/karat/internal/dev/golden"
)

// shown is a template that writes what it is given.
const shown = "{% for m in messages %}{{ m | tojson }}\n{% endfor %}{{ tools | tojson }}"

// TestMessageParts: templates get messages with the keys that Hugging Face's have.
func TestMessageParts(t *testing.T) {
	m := load(t)
	arguments := json.RawMessage(`{"z": 1.50, "city": "Köln <b>", "a": [true, null]}`)
	talk := []karat.Message{
		karat.TextMessage(karat.RoleSystem, "Be brief."),
		{Role: karat.RoleUser, Parts: []karat.Part{karat.Text("Weather "), karat.Text("in Köln?")}},
		{Role: karat.RoleAssistant, Parts: []karat.Part{karat.Reasoning("I must look."), karat.Text("One moment."),
			karat.ToolCall{ID: "c1", Name: "weather", Arguments: arguments}, karat.ToolCall{Name: "time"}}},
		{Role: karat.RoleTool, Parts: []karat.Part{karat.ToolResult{ID: "c1", Name: "weather", Content: "rain"}, karat.ToolResult{Content: "noon"}}},
		{Role: "critic"},
	}
	o := karat.GenerateOptions{Template: shown, Tools: []karat.Tool{
		{Name: "weather", Description: "of a city", Parameters: json.RawMessage(`{"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}`)}, {Name: "time"}}}
	got, err := m.Render(t.Context(), talk, o)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"role": "system", "content": "Be brief."}
{"role": "user", "content": "Weather in Köln?"}
{"role": "assistant", "content": "One moment.", "reasoning_content": "I must look.", "reasoning": "I must look.", "tool_calls": [{"type": "function", "function": {"name": "weather", "arguments": {"z": 1.5, "city": "Köln <b>", "a": [true, null]}}, "id": "c1"}, {"type": "function", "function": {"name": "time", "arguments": {}}}]}
{"role": "tool", "content": "rain", "name": "weather", "tool_call_id": "c1"}
{"role": "tool", "content": "noon"}
{"role": "critic", "content": ""}
[{"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}}}, {"type": "function", "function": {"name": "time", "description": "", "parameters": {"type": "object", "properties": {}}}}]`
	if got != want {
		t.Errorf("rendered:\n%s\nwant:\n%s", got, want)
	}
	if got, err = m.Render(t.Context(), talk[:1], karat.GenerateOptions{Template: shown}); err != nil || got != "{\"role\": \"system\", \"content\": \"Be brief.\"}\nnull" {
		t.Errorf("without tools: %q, %v", got, err)
	}
}

// TestMessageErrors: an invalid conversation is an error with its place.
func TestMessageErrors(t *testing.T) {
	m := load(t)
	hello := karat.TextMessage(karat.RoleUser, "Hello")
	for want, x := range map[string]struct {
		part  karat.Part
		tools []karat.Tool
	}{
		`message 1: part 1 is a <nil>`:                                       {part: nil},
		`message 1: part 1: a ToolResult is of RoleTool, not of "assistant"`: {part: karat.ToolResult{Content: "x"}},
		`message 1: call of "f": arguments are not JSON`:                     {part: karat.ToolCall{Name: "f", Arguments: json.RawMessage(`{`)}},
		`message 1: call of "g": arguments are not a JSON object`:            {part: karat.ToolCall{Name: "g", Arguments: json.RawMessage(`[1]`)}},
		`tool "h": parameters are not JSON`:                                  {part: karat.Text(""), tools: []karat.Tool{{Name: "h", Parameters: json.RawMessage(`nul`)}}},
		`message 1: call of "d": arguments are not JSON`:                     {part: karat.ToolCall{Name: "d", Arguments: json.RawMessage(strings.Repeat("[", 1<<16) + strings.Repeat("]", 1<<16))}},
		`tool "i": parameters are not a JSON object`:                         {part: karat.Text(""), tools: []karat.Tool{{Name: "i", Parameters: json.RawMessage(`"x"`)}}},
		`message 1: part 1: ToolCall.Name is empty`:                          {part: karat.ToolCall{ID: "c"}},
		`GenerateOptions.Tools[1]: Name is empty`:                            {part: karat.Text(""), tools: []karat.Tool{{Name: "j"}, {}}},
		`GenerateOptions.Tools[1]: Name is "k", as that of Tools[0]`:         {part: karat.Text(""), tools: []karat.Tool{{Name: "k"}, {Name: "k"}}},
	} {
		talk := []karat.Message{hello, {Role: karat.RoleAssistant, Parts: []karat.Part{karat.Text("Yes."), x.part}}}
		if text, err := m.Render(t.Context(), talk, karat.GenerateOptions{Template: shown, Tools: x.tools}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q, %v; want %q", text, err, want)
		}
	}
}

// TestMessageRoles: parts of another role's messages, a message of nobody, and results beside text.
func TestMessageRoles(t *testing.T) {
	m := load(t)
	for want, x := range map[string]karat.Message{
		`message 0: Role is empty`:                                         {Parts: []karat.Part{karat.Text("a")}},
		`message 0: part 1: a ToolResult is of RoleTool, not of "user"`:    {Role: karat.RoleUser, Parts: []karat.Part{karat.Text("a"), karat.ToolResult{Content: "b"}}},
		`message 0: part 0: a ToolCall is of RoleAssistant, not of "user"`: {Role: karat.RoleUser, Parts: []karat.Part{karat.ToolCall{Name: "b"}}},
		`message 0: 1 of its 2 parts are results of tools`:                 {Role: karat.RoleTool, Parts: []karat.Part{karat.Text("a"), karat.ToolResult{Content: "b"}}},
	} {
		if text, err := m.Render(t.Context(), []karat.Message{x}, karat.GenerateOptions{Template: shown}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q, %v; want %q", text, err, want)
		}
	}
}

// TestMessageDropped: what a template has no place for is an error, and not left out in silence.
func TestMessageDropped(t *testing.T) {
	m := load(t)
	const plain = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
	const results = "{% for m in messages %}{% if m.role != 'critic' %}{{ m.content }}{% endif %}{% endfor %}"
	hello := karat.TextMessage(karat.RoleUser, "Hello")
	call := karat.Message{Role: karat.RoleAssistant, Parts: []karat.Part{karat.ToolCall{Name: "weather"}}}
	result := karat.Message{Role: "critic", Parts: []karat.Part{karat.ToolResult{Content: "rain"}}}
	for _, x := range []struct {
		template, want string
		talk           []karat.Message
		tools          []karat.Tool
	}{
		{plain, `GenerateOptions.Tools[0]: the chat template takes no tools, and would leave "weather" out`, []karat.Message{hello}, []karat.Tool{{Name: "weather"}}},
		{plain, `message 1: part 0: the chat template takes no tool calls, and would leave that of "weather" out`, []karat.Message{hello, call}, nil},
		{plain, `and would leave that of "weather" out`, []karat.Message{karat.TextMessage(karat.RoleUser, "The weather?"), call}, nil},
		{plain, `and would leave "weather" out`, []karat.Message{karat.TextMessage(karat.RoleUser, "The weather?")}, []karat.Tool{{Name: "weather"}}},
		{plain, "", []karat.Message{hello, result}, nil},
		{results, `message 1: the chat template would leave out this text of the role "critic": it has no place for the role here; give the text to a user`, []karat.Message{hello, result}, nil},
		{shown, "", []karat.Message{hello, call, result}, []karat.Tool{{Name: "weather"}}},
		{"{% for m in messages %}{{ m | tojson }}{% endfor %}", "", []karat.Message{hello, call, result}, nil},
	} {
		o := karat.GenerateOptions{Template: x.template, Tools: x.tools, MaxTokens: 1, NoToolFallback: true}
		_, err := m.Render(t.Context(), x.talk, o)
		if x.want == "" && err != nil || x.want != "" && (err == nil || !strings.HasSuffix(err.Error(), x.want)) {
			t.Errorf("%q: %v, want %q", x.template, err, x.want)
		}
	}
}

// TestOptionErrors: options that no request can have are told by name, before anything is computed.
func TestOptionErrors(t *testing.T) {
	m := load(t)
	for want, o := range map[string]karat.GenerateOptions{
		"GenerateOptions.Stop[1] is empty, which is in every text": {Stop: []string{"a", ""}},
		"GenerateOptions.TopLogprobs is -1, want 0 or more":        {TopLogprobs: -1},
	} {
		for name, all := range map[string]iter.Seq2[karat.Token, error]{
			"Generate": m.Generate(t.Context(), "a", o), "GenerateIDs": m.GenerateIDs(t.Context(), []int{2}, o),
			"Chat": m.Chat(t.Context(), []karat.Message{karat.TextMessage(karat.RoleUser, "a")}, o),
		} {
			n := 0
			for token, err := range all {
				if n++; err == nil || err.Error() != want || token.Text != "" {
					t.Errorf("%s: %q, %v; want %q", name, token.Text, err, want)
				}
			}
			if n != 1 {
				t.Errorf("%s: %d tokens", name, n)
			}
		}
	}
}

// ids are the tokens of a generation.
func ids(t *testing.T, all iter.Seq2[karat.Token, error]) (ids []int) {
	t.Helper()
	for x, err := range all {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, x.ID)
	}
	return ids
}

// TestGenerateIDs: ids are continued as the text that has them, sampled ones too.
func TestGenerateIDs(t *testing.T) {
	m := load(t)
	const text = "The color of the sky is"
	prompt, err := m.Tokenize(t.Context(), text, karat.TokenizeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := m.NewSession()
	defer s.Close()
	for _, o := range []karat.GenerateOptions{{MaxTokens: 8}, {MaxTokens: 8, Sampling: &karat.Sampling{Temperature: 1, Seed: new(uint64(3))}}} {
		want := ids(t, m.Generate(t.Context(), text, o))
		if got := ids(t, m.GenerateIDs(t.Context(), prompt, o)); !slices.Equal(got, want) {
			t.Errorf("%v, of the text %v", got, want)
		}
		if got := ids(t, s.GenerateIDs(t.Context(), prompt, o)); !slices.Equal(got, want) {
			t.Errorf("in a session %v, of the text %v", got, want)
		}
	}
	if tokens, kept := s.PromptTokens(); tokens != len(prompt) || kept != len(prompt)-1 {
		t.Errorf("the prompt has %d tokens, %d were kept; want %d and %d", tokens, kept, len(prompt), len(prompt)-1)
	}
	vocab, context := m.Info().VocabSize, m.Info().Context
	for _, x := range []struct {
		prompt []int
		want   error
	}{{[]int{-1}, nil}, {[]int{1, vocab}, nil}, {[]int{1 << 32}, nil}, {nil, nil}, {make([]int, context+1), karat.ErrFull}} {
		for token, err := range s.GenerateIDs(t.Context(), x.prompt, karat.GenerateOptions{}) {
			if err == nil || x.want != nil && !errors.Is(err, x.want) {
				t.Errorf("%d ids: token %v, %v", len(x.prompt), token, err)
			}
		}
	}
}

// TestNotForIt: what a request has no use for is an error, and a limit of none is the context's.
func TestNotForIt(t *testing.T) {
	m, err := karat.Load(t.Context(), demo, karat.Options{Context: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	user := []karat.Message{karat.TextMessage(karat.RoleUser, "Hi")}
	for want, tokens := range map[string]iter.Seq2[karat.Token, error]{
		"GenerateOptions.Tools is for Chat":        m.Generate(t.Context(), "a", karat.GenerateOptions{Tools: []karat.Tool{{Name: "f"}}}),
		"GenerateOptions.Template is for Chat":     m.GenerateIDs(t.Context(), []int{2}, karat.GenerateOptions{Template: "x"}),
		"GenerateOptions.TemplateArgs is for Chat": m.Generate(t.Context(), "a", karat.GenerateOptions{TemplateArgs: map[string]any{"a": 1}}),
		"a conversation needs a message":           m.Chat(t.Context(), nil, karat.GenerateOptions{}),
		"the context":                              m.Chat(t.Context(), user, karat.GenerateOptions{}),
	} {
		for _, err := range tokens {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
	}
	n, last := 0, karat.Token{}
	for token, err := range m.GenerateIDs(t.Context(), []int{2, 5, 6}, karat.GenerateOptions{MaxTokens: -1}) {
		if err != nil {
			t.Fatal(err)
		}
		n, last = n+1, token
	}
	if last.Stop == karat.StopLength && n != 8 || last.Stop == "" {
		t.Errorf("%d tokens, the last one %+v", n, last)
	}
	if _, err := karat.Load(t.Context(), "", karat.Options{}); err == nil || !strings.Contains(err.Error(), "the name of the model is empty") {
		t.Error(err)
	}
}

// TestTokenize: names of special tokens are text, but with ParseSpecial; a context ends both.
func TestTokenize(t *testing.T) {
	m := load(t)
	bos := m.Detokenize([]int{2})
	plain, err := m.Tokenize(t.Context(), bos, karat.TokenizeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	special, err := m.Tokenize(t.Context(), bos, karat.TokenizeOptions{ParseSpecial: true})
	if err != nil || len(plain) < 3 || !slices.Equal(special, []int{2, 2}) {
		t.Errorf("%q is %v, and as a special token %v, %v", bos, plain, special, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Tokenize(ended, strings.Repeat("a", 1<<16), karat.TokenizeOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestCheckReport: the report has all that internal/check's has, under the same names.
func TestCheckReport(t *testing.T) {
	for _, pair := range [][2]reflect.Type{{reflect.TypeFor[karat.CheckReport](), reflect.TypeFor[check.Report]()}, {reflect.TypeFor[karat.Finding](), reflect.TypeFor[check.Finding]()}} {
		a, b := pair[0], pair[1]
		if a.NumField() != b.NumField() {
			t.Errorf("%v has %d fields, %v %d", a, a.NumField(), b, b.NumField())
			continue
		}
		for i := range a.NumField() {
			if x, y := a.Field(i), b.Field(i); x.Name != y.Name || x.Tag != y.Tag {
				t.Errorf("%v.%s %s, %v.%s %s", a, x.Name, x.Tag, b, y.Name, y.Tag)
			}
		}
	}
	path := golden.Model(t, "tiny-gemma3")
	got, err := karat.Check(t.Context(), path, karat.CheckOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want, err := check.Run(t.Context(), path, check.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(want)
	if err != nil || string(a) != string(b) || got.Clean() != want.Clean() {
		t.Errorf("%s\nnot\n%s, %v", a, b, err)
	}
}

// TestMessageName: the name of who speaks is there where the template reads it, and else an error.
func TestMessageName(t *testing.T) {
	m := load(t)
	talk := []karat.Message{karat.TextMessage(karat.RoleUser, "Hello"), {Role: karat.RoleUser, Name: "ann", Parts: []karat.Part{karat.Text("I am ann.")}}}
	const users = "{% for m in messages %}{{ m.role }}{% if m.name and m.role == 'user' %} {{ m.name | upper }}{% endif %}: {{ m.content }}\n{% endfor %}"
	got, err := m.Render(t.Context(), talk, karat.GenerateOptions{Template: users})
	if err != nil || got != "user: Hello\nuser ANN: I am ann.\n" {
		t.Errorf("%q, %v", got, err)
	}
	talk[1].Role = karat.RoleSystem
	if got, err := m.Render(t.Context(), talk, karat.GenerateOptions{Template: users}); err == nil || !strings.Contains(err.Error(), `message 1: the chat template has no place for the name of who speaks, and would leave "ann" out`) {
		t.Errorf("%q, %v", got, err)
	}
}

// TestNoAnswer: a prompt without the beginning of the answer.
func TestNoAnswer(t *testing.T) {
	m := load(t)
	const template = "{{ messages[0].content }}{% if add_generation_prompt %} A:{% endif %}"
	for want, none := range map[string]bool{"Hello A:": false, "Hello": true} {
		got, err := m.Render(t.Context(), []karat.Message{karat.TextMessage(karat.RoleUser, "Hello")}, karat.GenerateOptions{Template: template, NoGenerationPrompt: none})
		if err != nil || got != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
}
