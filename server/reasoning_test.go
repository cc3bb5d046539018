package server

import (
	"fmt"
	"strings"
	"testing"
)

// TestEffort: how much an answer reasons is told to the chat template, in the words of each API; a model that has no place for it says so.
func TestEffort(t *testing.T) {
	c := speak(t, "ok")
	m, _ := withTools()
	prompt := c.prompts(m)
	const off = "<think>\n\n</think>"
	for _, x := range []struct {
		path, more string
		off        bool
	}{
		{"/v1/chat/completions", `"reasoning_effort":"none"`, true}, {"/v1/chat/completions", `"reasoning_effort":"low"`, false}, {"/v1/chat/completions", `"reasoning_effort":"none","chat_template_kwargs":{"enable_thinking":true}`, false},
		{"/v1/responses", `"reasoning":{"effort":"none"}`, true}, {"/v1/responses", `"reasoning":{"effort":"high","summary":"auto"}`, false}, {"/v1/responses", `"reasoning":{"effort":null,"summary":null},"chat_template_kwargs":{"enable_thinking":false}`, true},
		{"/api/chat", `"think":false`, true}, {"/api/chat", `"think":"low"`, false}, {"/api/chat", `"think":"none"`, true}, {"/v1/messages", `"thinking":{"type":"disabled"}`, true},
	} {
		body := map[string]string{"/v1/responses": `"model":"demo","input":"Q"`, "/v1/messages": asking}[x.path]
		if body == "" {
			body = ask
		}
		if c.do("POST", x.path, `{`+body+`,`+x.more+`}`); strings.HasSuffix(strings.TrimSpace(prompt()), off) != x.off {
			t.Errorf("%s %s: %q", x.path, x.more, prompt())
		}
	}
	c.refuses(400, "reasoning.effort", "want none", "POST", "/v1/responses", `{"model":"demo","input":"a","reasoning":{"effort":"lots"}}`)
	c.refuses(400, "reasoning.summary", "not supported", "POST", "/v1/responses", `{"model":"demo","input":"a","reasoning":{"summary":"detailed"}}`)
	c.refuses(400, "reasoning.x", "Unrecognized", "POST", "/v1/responses", `{"model":"demo","input":"a","reasoning":{"x":1}}`)
	plain := serve(t, demo(t), Options{})
	plain.refuses(400, "reasoning_effort", "does not reason", "POST", "/v1/chat/completions", `{`+hello+`,"reasoning_effort":"low"}`)
	plain.refuses(400, "reasoning.effort", "does not reason", "POST", "/v1/responses", `{"model":"demo","input":"a","reasoning":{"effort":"high"}}`)
	for _, think := range []string{`true`, `"high"`} {
		if status, answer, _ := plain.do("POST", "/api/chat", `{`+hello+`,"think":`+think+`}`); status != 400 || !strings.Contains(answer, "does not reason") {
			t.Errorf("%s: %d %s", think, status, answer)
		}
	}
	plain.post("/api/chat", `{`+hello+`,"stream":false,"think":false,"options":{"num_predict":1}}`)
}

// TestTopP0: a top_p of 0 is the likeliest token alone, in every API.
func TestTopP0(t *testing.T) {
	c := serve(t, demo(t), Options{})
	const want = "The capital of Egypt is Cairo."
	for seed := range 3 {
		o := c.post("/api/chat", fmt.Sprintf(`{%s,"stream":false,"options":{"temperature":2,"top_p":0,"seed":%d}}`, hello, seed))
		if at(o, "message", "content") != want {
			t.Errorf("ollama: %v", o)
		}
		o = c.post("/v1/chat/completions", fmt.Sprintf(`{%s,"temperature":2,"top_p":0,"seed":%d}`, hello, seed))
		if at(o, "choices", 0, "message", "content") != want {
			t.Errorf("chat: %v", o)
		}
	}
	o := c.post("/v1/messages", `{`+hello+`,"max_tokens":30,"temperature":1,"top_p":0}`)
	if at(o, "content", 0, "text") != want {
		t.Errorf("messages: %v", o)
	}
	if o := c.post("/v1/responses", `{"model":"demo","input":"What is the capital of Egypt?","temperature":2,"top_p":0}`); at(o, "output", 0, "content", 0, "text") != want {
		t.Errorf("responses: %v", o)
	}
}
