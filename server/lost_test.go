package server

import (
	"strings"
	"testing"
)

// TestLost: a text that the chat template leaves out is refused by its place in the request, in every API.
func TestLost(t *testing.T) {
	c := serveTemplate(t, "tiny-llama", keptTemplate(t, "openai-gpt-oss-120b"))
	const want = `would leave out this text of the role "system": make it the first message, or a user's`
	talk := `[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}, {"role": "system", "content": "SECRET"}, {"role": "user", "content": "hi"}]`
	for _, path := range []string{"/v1/chat/completions", "/apply-template"} {
		c.refuses(400, "messages[2]", want, "POST", path, `{"model": "demo", "messages": `+talk+`}`)
	}
	says := func(want, path, body string) {
		t.Helper()
		if status, answer, _ := c.do("POST", path, body); status != 400 || !strings.Contains(answer, want) {
			t.Errorf("%s %s: %d %s, want %q", path, body, status, answer, want)
		}
	}
	says("messages[2]: the chat template would leave out", "/api/chat", `{"model": "demo", "messages": `+talk+`}`)
	c.refuses(400, "input[2]", want, "POST", "/v1/responses", `{"model": "demo", "instructions": "Be brief.", "input": `+talk+`}`)

	const mute = `{% for m in messages if m.role != 'system' and m.role != 'tool' %}{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name }}{% endfor %}{% endfor %}{# tools tool_calls #}`
	c = serveTemplate(t, "tiny-llama", mute)
	c.refuses(400, "instructions", "the role here; give the text to a user", "POST", "/v1/responses", `{"model": "demo", "instructions": "SECRET", "input": "hi"}`)
	says("system: the chat template would leave out", "/v1/messages", `{"model": "demo", "max_tokens": 1, "system": "SECRET", "messages": [{"role": "user", "content": "hi"}]}`)
	says("system: the chat template would leave out", "/api/generate", `{"model": "demo", "system": "SECRET", "prompt": "hi"}`)
	c.refuses(400, "messages[2]", "result of a tool", "POST", "/v1/chat/completions", `{"model": "demo", "messages": [{"role": "user", "content": "hi"},
		{"role": "assistant", "content": null, "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
		{"role": "tool", "tool_call_id": "a", "content": "SECRET"}]}`)
}
