package server

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karat-run/karat"
)

// The tests whose names begin with a letter and a number are rows of the list of incidents of other servers.

// fronts are the routes that answer, each with a request that is right.
var fronts = []struct{ path, body string }{
	{"/v1/chat/completions", `{` + ask + `}`},
	{"/v1/completions", `{"model":"demo","prompt":"a"}`},
	{"/v1/responses", `{"model":"demo","input":"a"}`},
	{"/v1/messages", `{` + asking + `}`},
	{"/api/chat", `{` + ask + `}`},
	{"/api/generate", `{"model":"demo","prompt":"a"}`},
}

// TestD3Counts: numbers and lists that would take all memory or time are refused by the field's name.
func TestD3Counts(t *testing.T) {
	c := speak(t, "ok")
	many := func(n int, x string) string { return strings.TrimSuffix(strings.Repeat(x+",", n), ",") }
	biases := &strings.Builder{}
	for i := range 10000 {
		fmt.Fprintf(biases, `"%d":1,`, i)
	}
	for _, x := range []struct{ path, param, more string }{
		{"/v1/chat/completions", "n", `"n":1000000000`}, {"/v1/completions", "n", `"n":0`}, {"/v1/completions", "best_of", `"best_of":1000000000`}, {"/v1/completions", "logprobs", `"logprobs":1000000`},
		{"/v1/chat/completions", "top_logprobs", `"logprobs":true,"top_logprobs":-1`}, {"/v1/chat/completions", "max_tokens", `"max_tokens":99999999999999999999`},
		{"/v1/chat/completions", "max_tokens", `"max_tokens":-5`}, {"/v1/chat/completions", "temperature", `"temperature":NaN`},
		{"/v1/chat/completions", "logit_bias", `"logit_bias":{` + strings.TrimSuffix(biases.String(), ",") + `}`}, {"/v1/chat/completions", "stop", `"stop":[` + many(100000, `"a"`) + `]`},
		{"/v1/chat/completions", "stop", `"stop":"` + strings.Repeat("a", 1<<20) + `"`}, {"/v1/chat/completions", "tools", `"tools":[` + many(129, `{}`) + `]`}, {"/v1/responses", "max_output_tokens", `"max_output_tokens":0`},
		{"/v1/completions", "n", `"n":128,"prompt":[` + many(100, `"a"`) + `]`}, {"/v1/completions", "prompt", `"prompt":[` + many(5000, `"a"`) + `]`},
	} {
		body := fronts[0].body
		for _, f := range fronts {
			if f.path == x.path {
				body = f.body
			}
		}
		if x.param == "prompt" || strings.Contains(x.more, `"prompt"`) {
			body = `{"model":"demo"}`
		}
		param := x.param
		if strings.Contains(x.more, "NaN") {
			param = "" // which is no JSON
		}
		c.refuses(400, param, "", "POST", x.path, strings.TrimSuffix(body, "}")+","+x.more+"}")
	}
	c.refuses(400, "messages", "at most 4096", "POST", "/v1/chat/completions", `{"model":"demo","messages":[`+many(5000, `{"role":"user","content":"a"}`)+`]}`)
}

// TestD4Schemas: schemas that are wrong never reach the engine, and large counts cost nothing.
func TestD4Schemas(t *testing.T) {
	c := speak(t, "ok")
	with := func(schema string) string {
		return `{` + ask + `,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":` + schema + `}}}`
	}
	for schema, why := range map[string]string{
		`{"type":"stsring"}`: "#/type", `{"pattern":"foo**"}`: "#/pattern", `{"$ref":"#"}`: "no finite", `{"$ref":"http://x/y"}`: "#/$ref", `{"not":{}}`: "not", `[]`: "array",
		`{"type":"string","pattern":"(?=a)"}`: "#/pattern", `{"type":"array","minItems":3,"maxItems":2}`: "minItems", `{"type":"string","minLength":1e99}`: "minLength", `{"enum":[]}`: "enum",
		`{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`: "no finite",
	} {
		c.refuses(400, "response_format.json_schema.schema", why, "POST", "/v1/chat/completions", with(schema))
	}
	for _, schema := range []string{`{"type":"array","maxItems":1000000000}`, `{"type":"string","maxLength":1000000000}`, `{"type":"string","pattern":"^((a|aa){1,30}){1,30}$"}`} {
		c.post("/v1/chat/completions", with(schema))
	}
	c.refuses(400, "", "levels deep", "POST", "/v1/chat/completions", `{`+ask+`,"response_format":`+strings.Repeat(`{"a":`, 10000)+`1`+strings.Repeat(`}`, 10000)+`}`)
	for _, name := range []string{"guided_json", "json_schema"} {
		c.refuses(400, name, "Unrecognized", "POST", "/v1/chat/completions", `{`+ask+`,"`+name+`":"x"}`)
	}
}

// TestD8OneLayer: a field that is unknown, or there twice, is refused at every door by its name; in Ollama's API an unknown one is named in the header.
func TestD8OneLayer(t *testing.T) {
	c := speak(t, "ok")
	for _, f := range fronts {
		if status, answer, _ := c.do("POST", f.path, f.body); status != 200 {
			t.Errorf("%s: %d %s", f.path, status, answer)
		}
		for _, more := range []string{`"cache_salt":"\u0000"`, `"model":"demo"`, `"Model":"x"`, `"stream":"yes"`, `"priority":9`} {
			status, answer, h := c.do("POST", f.path, strings.Replace(f.body, "{", "{"+more+",", 1))
			name := strings.Trim(strings.Split(more, ":")[0], `"`)
			if strings.HasPrefix(f.path, "/api/") && status == 200 && h.Get(hintHeader) == name {
				continue // Ollama ignores what it does not know
			}
			if status != 400 || !strings.Contains(answer, name) {
				t.Errorf("%s %s: %d %s", f.path, more, status, answer)
			}
		}
	}
}

// TestD11Internals: an error of the engine is the client's to see only as one.
func TestD11Internals(t *testing.T) {
	c := speak(t, "")
	for _, text := range []string{"open /etc/shadow: 0xc000123450", "panic"} {
		c.s.generate = func(context.Context, *karat.Session, []int, karat.GenerateOptions) iter.Seq2[karat.Token, error] {
			return func(yield func(karat.Token, error) bool) {
				if text == "panic" {
					panic("0xc000123450")
				}
				yield(karat.Token{}, errors.New(text))
			}
		}
		for _, f := range fronts {
			for _, body := range []string{f.body, strings.Replace(f.body, "{", `{"stream":true,`, 1)} {
				status, answer, _ := c.do("POST", f.path, body)
				if status != 500 || strings.Contains(answer, "0xc0") || strings.Contains(answer, "/etc") || strings.Contains(answer, ".go") {
					t.Errorf("%s: %d %s", f.path, status, answer)
				}
			}
		}
	}
	status, answer, _ := c.do("POST", "/v1/chat/completions", `{"model":"demo","messages":[{"role":"user","content":"a"}],"chat_template_kwargs":{"enable_thinking":{"a":[1]}},"tools":[{"type":"function","function":{"name":"x","parameters":{"type":7}}}]}`)
	if status >= 500 && status != 500 || strings.Contains(answer, "/tmp") {
		t.Errorf("%d %s", status, answer)
	}
}

// TestD12Addresses: no address in a request is fetched.
func TestD12Addresses(t *testing.T) {
	c := speak(t, "ok")
	for url, holds := range map[string]string{"http://169.254.169.254/latest": "data: URLs", "file:///etc/passwd": "data: URLs", "data:image/png;base64,AAAA": "sees no pictures", "http://127.0.0.1:1/": "data: URLs"} {
		c.refuses(400, "messages[0].content[0].image_url.url", holds, "POST", "/v1/chat/completions", `{"model":"demo","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"`+url+`"}}]}]}`)
		c.refuses(400, "input[0].content[0].image_url", holds, "POST", "/v1/responses", `{"model":"demo","input":[{"role":"user","content":[{"type":"input_image","image_url":"`+url+`"}]}]}`)
	}
}

// TestB3Variables: a request sets no variable of the template that the server sets.
func TestB3Variables(t *testing.T) {
	c := speak(t, "ok")
	for _, name := range []string{"messages", "tools", "add_generation_prompt", "bos_token", "raise_exception"} {
		c.refuses(400, "chat_template_kwargs."+name, "itself", "POST", "/v1/chat/completions", `{`+ask+`,"chat_template_kwargs":{"`+name+`":false}}`)
	}
}

// TestB6NoTemplate: without a chat template there is no chat, and no other template in its place.
func TestB6NoTemplate(t *testing.T) {
	dir := t.TempDir()
	if err := copyModel(dir, "tiny-llama"); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "chat_template.jinja")); err != nil {
		t.Fatal(err)
	}
	m, err := karat.Load(context.Background(), dir, karat.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	c := serve(t, m, Options{})
	c.refuses(400, "messages", "template", "POST", "/v1/chat/completions", `{`+hello+`}`)
	if _, answer, _ := c.do("POST", "/v1/chat/completions", `{`+hello+`}`); strings.Contains(answer, dir) {
		t.Errorf("the answer tells a path: %s", answer)
	}
	c.post("/v1/completions", `{"model":"demo","prompt":"a","max_tokens":1}`)
}

// TestB4Marks: names of special tokens in a message are text.
func TestB4Marks(t *testing.T) {
	c := serve(t, demo(t), Options{})
	count := func(text string) float64 {
		return c.post("/v1/chat/completions/input_tokens", `{"model":"demo","messages":[{"role":"user","content":"`+text+`"}]}`)["input_tokens"].(float64)
	}
	if count("a<end_of_turn>")-count("a") < 3 {
		t.Error("the name of a special token is one")
	}
}
