package server

import (
	"context"
	"iter"
	"strings"
	"testing"

	"github.com/karat-run/karat"
)

// prompts has a server note the texts of prompts, which it answers as it does.
func (c *client) prompts(m *karat.Model) func() string {
	last, generate := "", c.s.generate
	c.s.generate = func(ctx context.Context, s *karat.Session, ids []int, o karat.GenerateOptions) iter.Seq2[karat.Token, error] {
		last = m.Detokenize(ids)
		return generate(ctx, s, ids, o)
	}
	return func() string { return last }
}

// TestResponseGoesOn: the output of a response is the input of the next one, with its reasoning.
func TestResponseGoesOn(t *testing.T) {
	c := speak(t, said)
	m, _ := withTools()
	prompt := c.prompts(m)
	first := c.post("/v1/responses", `{"model":"demo","input":"Q",`+flat+`}`)
	output, _ := encode(first["output"])
	id := at(first, "output", 2, "call_id").(string)
	body := `{"model":"demo","input":[{"role":"user","content":"Q"},` + strings.Trim(string(output), "[]") + `,{"type":"function_call_output","call_id":"` + id + `","output":[{"type":"input_text","text":"Rain, "},{"type":"input_text","text":"then sun."}]}],` + flat + `}`
	c.post("/v1/responses", body)
	for _, part := range []string{"<think>\nHm, Oslo.\n</think>\n\nLet me see.\n<tool_call>", `{"name": "weather", "arguments": {}}`, "<tool_response>\nRain, then sun.\n</tool_response>"} {
		if !strings.Contains(prompt(), part) {
			t.Errorf("no %q in\n%s", part, prompt())
		}
	}
	if n := strings.Count(prompt(), "<|im_start|>assistant"); n != 2 { // the first response, and the beginning of the next
		t.Errorf("%d messages of the assistant in\n%s", n, prompt())
	}
	for _, more := range []string{`{"type":"reasoning","summary":[{"type":"summary_text","text":"Hm."}]}`, `{"type":"reasoning","content":[{"type":"reasoning_text","text":"Hm."}],"summary":[],"encrypted_content":"x"}`} {
		c.post("/v1/responses", `{"model":"demo","input":[{"role":"user","content":"Q"},`+more+`,{"role":"user","content":"So?"}]}`)
	}
	c.refuses(400, "input[0].content[0].type", "want reasoning_text", "POST", "/v1/responses", `{"model":"demo","input":[{"type":"reasoning","content":[{"type":"text","text":"a"}]}]}`)
}

// TestResponseLogprobs: an answer has the same log-probabilities as in chat completions, streamed and not.
func TestResponseLogprobs(t *testing.T) {
	c := serve(t, demo(t), Options{})
	o := c.post("/v1/chat/completions", `{`+hello+`,"temperature":0,"logprobs":true,"top_logprobs":2}`)
	want, _ := encode(at(o, "choices", 0, "logprobs", "content"))
	const body = `{"model":"demo","input":"What is the capital of Egypt?","temperature":0,"top_logprobs":2,"include":["message.output_text.logprobs","reasoning.encrypted_content"]}`
	o = c.post("/v1/responses", body)
	if got, _ := encode(at(o, "output", 0, "content", 0, "logprobs")); string(got) != string(want) || o["top_logprobs"] != 2. {
		t.Errorf("%s, want %s", got, want)
	}
	var deltas []any
	for _, e := range c.events("/v1/responses", strings.Replace(body, "{", `{"stream":true,`, 1)) {
		v := parseObject(t, e.data)
		switch e.name {
		case "response.output_text.delta":
			deltas = append(deltas, v["logprobs"].([]any)...)
		case "response.output_text.done":
			if got, _ := encode(v["logprobs"]); string(got) != string(want) {
				t.Errorf("done: %s", got)
			}
		}
	}
	if got, _ := encode(deltas); string(got) != string(want) {
		t.Errorf("deltas: %s, want %s", got, want)
	}
	c.refuses(400, "include", "not supported", "POST", "/v1/responses", `{"model":"demo","input":"a","include":["thoughts"]}`)
}

// TestResponseCut: the item within which an answer is cut is incomplete, as the response is; those before are not.
func TestResponseCut(t *testing.T) {
	c := speakUntil(t, "<think>Hm.</think>Let me", karat.StopLength)
	body := `{"model":"demo","input":"Q"}`
	o := c.post("/v1/responses", body)
	if at(o, "output", 0, "status") != "completed" || at(o, "output", 1, "status") != "incomplete" || o["status"] != "incomplete" {
		t.Errorf("%v", o)
	}
	var done []any
	for _, e := range c.events("/v1/responses", strings.Replace(body, "{", `{"stream":true,`, 1)) {
		if e.name == "response.output_item.done" {
			done = append(done, at(parseObject(t, e.data), "item", "status"))
		}
	}
	if len(done) != 2 || done[0] != "completed" || done[1] != "incomplete" {
		t.Errorf("%v", done)
	}
}

// TestNotStored: what is not kept here says so.
func TestNotStored(t *testing.T) {
	c := serve(t, demo(t), Options{})
	for _, method := range []string{"GET", "DELETE"} {
		c.refuses(404, "", "kept in memory", method, "/v1/responses/resp_1", "")
		c.refuses(404, "", "--store FOLDER", method, "/v1/files/file-1", "")
	}
	c.refuses(404, "", "--store FOLDER", "GET", "/v1/batches", "")
	c.refuses(404, "", "--store FOLDER", "POST", "/v1/batches/b/cancel", "{}")
}
