package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestTextOffset: a token that is whole characters stands at its offset in the text, whatever characters are cut over tokens before it: echoed, drawn, streamed, and with a stop text.
func TestTextOffset(t *testing.T) {
	m, err := withTemplate("tiny-llama", "{{ messages[0].content }}")
	if err != nil {
		t.Fatal(err)
	}
	c := serve(t, m, Options{})
	const held = `,"grammar":"root ::= \"é😀 ok \\u20ac.\"","temperature":0,"max_tokens":60,"logprobs":1`
	for _, x := range []struct{ prompt, more string }{
		{`"Hi 😀 you"`, `,"echo":true,"max_tokens":2,"logprobs":1,"temperature":0`}, {`"a\u0301 Ω≈ç😀😀 z"`, `,"echo":true,"max_tokens":0,"logprobs":0`}, {`"Hi"`, held}, {`"Hi 😀"`, held + `,"echo":true`},
		{`"Hi"`, held + `,"stop":["€"]`}, {`"Hi"`, held + `,"stop":["ok €!"],"echo":true`},
	} {
		body := `{"model":"demo","prompt":` + x.prompt + x.more
		o := c.post("/v1/completions", body+`}`)
		text, l := []rune(at(o, "choices", 0, "text").(string)), at(o, "choices", 0, "logprobs")
		cut, last := 0, 0
		for i, token := range at(l, "tokens").([]any) {
			name, from := token.(string), int(at(l, "text_offset", i).(float64))
			if from < last || from > len(text) {
				t.Fatalf("%s: token %d, %q, is at %d after %d", body, i, name, from, last)
			}
			last = from
			switch {
			case strings.HasPrefix(name, "bytes:"):
				cut++
			case strings.HasPrefix(name, "<|"):
			case !strings.HasPrefix(string(text[from:]), name) && !strings.Contains(x.more, `"stop":["€"`): // that cut it off
				t.Errorf("%s: token %d, %q, is not at %d of %q", body, i, name, from, string(text))
			}
		}
		if cut == 0 {
			t.Errorf("%s: no character is cut", body)
		}
		var streamed []any
		for _, e := range c.events("/v1/completions", body+`,"stream":true}`) {
			if e.data == "[DONE]" {
				continue
			}
			if of, _ := at(parseObject(t, e.data), "choices", 0, "logprobs").(object); of != nil {
				streamed = append(streamed, of["text_offset"].([]any)...)
			}
		}
		a, _ := json.Marshal(at(l, "text_offset"))
		if b, _ := json.Marshal(streamed); string(a) != string(b) {
			t.Errorf("%s: %s, streamed %s", body, a, b)
		}
	}
	o := c.post("/v1/completions", `{"model":"demo","prompt":"Hi 😀 you","echo":true,"max_tokens":2,"logprobs":1,"temperature":0}`)
	if got := fmt.Sprint(at(o, "choices", 0, "logprobs", "text_offset")); got != "[0 0 1 2 3 3 4 6 7 8 9]" {
		t.Errorf("%s", got)
	}
	ids := c.post("/tokenize", `{"content":"Hi 😀 you"}`)["tokens"].([]any)
	broken, _ := json.Marshal(append(append([]any{}, ids[:3]...), ids[5:]...)) // without the end of the character
	o = c.post("/v1/completions", `{"model":"demo","prompt":`+string(broken)+`,"echo":true,"max_tokens":0,"logprobs":0}`)
	if text, got := at(o, "choices", 0, "text"), fmt.Sprint(at(o, "choices", 0, "logprobs", "text_offset")); text != "Hi \uFFFD you" || got != "[0 1 2 4 6 7]" {
		t.Errorf("%q %s", text, got)
	}
}
