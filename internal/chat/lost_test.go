package chat

import (
	"errors"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/jinja"
)

// TestCheckedCases: of the recorded conversations with the published templates those are refused whose texts are not in
// the prompt, and no others.
func TestCheckedCases(t *testing.T) {
	inputs, template := conversations(t, golden.Shared(t, "chat/conversations.json")), templates(t, golden.Shared(t, "chat/templates"))
	refused, whole := 0, 0
	for _, c := range readLines[recorded](t, golden.Shared(t, "chat/cases.jsonl")) {
		if c.Render == nil {
			continue
		}
		tmpl, err := template(c.Template)
		if err != nil {
			t.Fatal(err)
		}
		in := inputs[c.Conversation]
		segments, err := tmpl.CheckedSegments(t.Context(), in)
		var lost *LostError
		if errors.As(err, &lost) {
			if refused++; strings.Contains(*c.Render, strings.TrimSpace(contentOf(in.Messages[lost.Message]))) {
				t.Errorf("%s, %s: %v", c.Template, c.Conversation, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s, %s: %v", c.Template, c.Conversation, err)
		}
		whole++
		prompt, _ := Flatten(segments)
		for i, m := range in.Messages {
			text := textOf(m, "content")
			role := textOf(m, "role")
			if role != "assistant" && role != "tool" && !strings.Contains(prompt, strings.TrimSpace(text)) && !strings.Contains(*c.Render, text) {
				t.Errorf("%s, %s: message %d, %q", c.Template, c.Conversation, i, text)
			}
		}
	}
	if refused != 76 || whole != 1807-refused {
		t.Errorf("%d refused, %d whole", refused, whole)
	}
}

// TestChecked: each message's text comes out, in its own place or as a switch; else the error says which message, and what to do.
func TestChecked(t *testing.T) {
	const (
		first = "{% for m in messages %}{% if m.role == 'system' and loop.first or m.role in ['user', 'assistant'] %}<{{ m.role }}>{{ m.content | trim }}{% endif %}{% endfor %}"
		any   = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
		think = "{% for m in messages %}<{{ m.role }}>{{ m.content.split('</think>')[-1].replace('/no_think', '') }}{% if m.tool_calls %}call{% endif %}{% endfor %}"
		upper = "{% for m in messages if m.role != 'tool' %}{{ ' ' ~ m.content | upper }}{% endfor %}"
		all   = "{{ messages | tojson }}"
		last  = "{{ messages[-1].content }}"
		parts = "{% for m in messages if m.role != 'system' %}<{{ m.role }}>{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}"
		texts = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name + c.function.arguments }}{% endfor %}{% endfor %}"
	)
	user, yo := Message("user", "hi"), Message("assistant", "yo")
	called := replace(Message("assistant", "I look."), "tool_calls", jinja.String("x"))
	turn := Turn{Role: "assistant", Calls: []Call{{Name: "f", Arguments: []byte(`{"a":[1, "é"]}`)}}}
	calls, err := turn.Message()
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		template string
		messages []*jinja.Dict
		want     string
	}{
		{parts, []*jinja.Dict{user, yo}, "<user>hi<assistant>yo"},
		{parts, []*jinja.Dict{Message("user", "One of several parts")}, "<user>One of several parts"},
		{parts, []*jinja.Dict{Message("system", "s"), user}, `0: the chat template would leave out this text of the role "system": it has no place for the role here; give the text to a user`},
		{"{% if messages[0].content is not string %}" + any + "{% endif %}", []*jinja.Dict{user}, `0: the chat template would leave out this text of the role "user": it has no place for it between these messages`},
		{texts, []*jinja.Dict{user, calls}, `<user>hi<assistant>f{"a": [1, "é"]}`},
		{first, []*jinja.Dict{Message("system", " s "), user, yo, user}, ""},
		{first, []*jinja.Dict{Message("developer", "s"), user}, "<system>s<user>hi"},
		{first, []*jinja.Dict{Message("system", "s"), Message("developer", "d"), user}, "<system>s\n\nd<user>hi"},
		{first, []*jinja.Dict{user, yo, Message("system", "s"), user}, `2: the chat template would leave out this text of the role "system": make it the first message, or a user's`},
		{first, []*jinja.Dict{user, yo, Message("developer", "s"), user}, `2: the chat template would leave out this text of the role "system": make it the first message, or a user's`},
		{first, []*jinja.Dict{user, Message("robot", "hi")}, `1: the chat template would leave out this text of the role "robot": it has no place for the role here; give the text to a user`},
		{first, []*jinja.Dict{user, Message("tool", "hi")}, "1: the chat template would leave out this result of a tool: it has no place for one here"},
		{first, []*jinja.Dict{user, Message("robot", " \n")}, ""},
		{any, []*jinja.Dict{Message("robot", "hi"), Message("developer", "d")}, "<robot>hi<system>d"},
		{any + "{# developer #}", []*jinja.Dict{Message("developer", "d")}, "<developer>d"},
		{first + "{# developer #}", []*jinja.Dict{Message("developer", "d"), user}, "<system>d<user>hi"},
		{think, []*jinja.Dict{Message("system", "/no_think"), user, Message("assistant", "<think>hm</think>"), user}, ""},
		{think, []*jinja.Dict{user, called}, ""},
		{first, []*jinja.Dict{user, replace(Message("model", "I look."), "tool_calls", jinja.String("x"))}, ""},
		{upper, []*jinja.Dict{Message("system", "straße"), user}, ""},
		{upper, []*jinja.Dict{user, Message("tool", "hi")}, "1: the chat template would leave out this result of a tool: it has no place for one here"},
		{all, []*jinja.Dict{Message("robot", `a "b"`), user}, ""},
		{last, []*jinja.Dict{user, user}, `0: the chat template would leave out this text of the role "user": it has no place for it between these messages`},
	} {
		tmpl, err := Parse(x.template, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		segments, err := tmpl.CheckedSegments(t.Context(), Input{Messages: x.messages})
		got, _ := Flatten(segments)
		var lost *LostError
		if errors.As(err, &lost) {
			got = string(rune('0'+lost.Message)) + ": " + err.Error()
		}
		if x.want == "" && err != nil || x.want != "" && got != x.want {
			t.Errorf("%s: %q, %v; want %q", x.template, got, err, x.want)
		}
	}
}
