package server

import (
	"fmt"
	"strings"
	"testing"
)

// TestOllamaUnasked: fields that Ollama's clients send and that change nothing here are taken and named; what is none of the server's is refused.
func TestOllamaUnasked(t *testing.T) {
	c := speak(t, "Yes.")
	const chat, generate = `"model":"demo","stream":false,"messages":[{"role":"user","content":"Q"}]`, `"model":"demo","stream":false,"prompt":"Q"`
	for _, x := range []struct{ path, body, ignored string }{
		{"chat", chat + `,"truncate":true,"shift":true`, "truncate, shift"},
		{"chat", chat + `,"truncate":false,"shift":false,"images":[]`, ""},
		{"chat", chat + `,"temperature":0.2,"max_output_tokens":5`, "temperature, max_output_tokens"},
		{"chat", chat + `,"options":{"num_ctx":99999}`, "options.num_ctx"},
		{"chat", chat + `,"options":{"num_ctx":100,"penalize_newline":false,"num_predict":-1}`, ""},
		{"chat", chat + `,"options":{"num_predict":-2,"penalize_newline":false,"repeat_penalty":1.1}`, "options.penalize_newline"},
		{"generate", generate + `,"keep_alive":"5m","suffix":"","template":"","system":"","images":null,"context":[],"debug":1`, "debug"},
		{"embed", `"model":"demo","input":"a","shift":true`, "error"},
		{"chat", chat + `,"options":{"mirostat":1}`, "error"},
		{"generate", generate + `,"suffix":"x"`, "error"},
		{"generate", generate + `,"context":"x"`, "error"},
		{"generate", generate + `,"context":[99999999]`, "error"},
	} {
		status, answer, h := c.do("POST", "/api/"+x.path, `{`+x.body+`}`)
		if x.ignored == "error" {
			if status != 400 {
				t.Errorf("%s: %d %s", x.body, status, answer)
			}
			continue
		}
		if got := h.Get(hintHeader); status != 200 || got != x.ignored {
			t.Errorf("%s: %d %s: %s has %q, want %q", x.body, status, answer, hintHeader, got, x.ignored)
		}
	}
}

// TestOllamaCalls: a call has an id, by which the tool's result finds its name; so do the fields name and tool_name.
func TestOllamaCalls(t *testing.T) {
	c := speak(t, said)
	o := c.post("/api/chat", `{"stream":false,`+ask+`,`+weather+`}`)
	id, _ := at(o, "message", "tool_calls", 1, "id").(string)
	if at(o, "message", "tool_calls", 1, "function", "index") != 1. || !strings.HasPrefix(id, "call_") {
		t.Fatalf("%v", o)
	}
	const talk = `{"model":"demo","messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"","tool_calls":[{"id":"a","function":{"name":"weather","arguments":{"city":"Oslo"}}}]},{"role":"tool","content":"x",%s}],` + weather + `}`
	want := c.post("/api/chat", fmt.Sprintf(strings.Replace(talk, "{", `{"stream":false,`, 1), `"tool_name":"weather"`))["prompt_eval_count"]
	for _, by := range []string{`"tool_call_id":"a"`, `"name":"weather"`, `"tool_call_id":"a","tool_name":"weather"`, `"tool_call_id":"of nobody"`} {
		if got := c.post("/api/chat", fmt.Sprintf(strings.Replace(talk, "{", `{"stream":false,`, 1), by)); got["prompt_eval_count"] != want {
			t.Errorf("%s: %v tokens, want %v", by, got["prompt_eval_count"], want)
		}
	}
}

// TestOllamaGoesOn: a conversation that ends with the assistant's words is continued; one that ends with its calls is not.
func TestOllamaGoesOn(t *testing.T) {
	c := speak(t, " 42.")
	tokens := func(path, body string) any { return c.post(path, body)["prompt_eval_count"] }
	const talk = `"stream":false,"model":"demo","messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"The answer is"}]`
	o := c.post("/api/chat", `{`+talk+`}`)
	want := len(c.post("/tokenize", `{"content":"`+strings.ReplaceAll(c.post("/apply-template", `{`+strings.TrimPrefix(talk, `"stream":false,`)+`,"continue_final_message":true}`)["prompt"].(string), "\n", `\n`)+`"}`)["tokens"].([]any))
	if at(o, "message", "content") != " 42." || o["prompt_eval_count"] != float64(want) {
		t.Errorf("%v, want %d tokens", o, want)
	}
	if status, answer, _ := c.do("POST", "/api/chat", `{`+talk+`,"format":"json"}`); status != 400 {
		t.Errorf("%d %s", status, answer)
	}
	if again := tokens("/api/chat", `{`+strings.Replace(talk, "The answer is", "", 1)+`}`); again == o["prompt_eval_count"] {
		t.Errorf("an empty message of the assistant is continued: %v", again)
	}
}

// TestOllamaContext: the context that a generation gives back comes before the next prompt.
func TestOllamaContext(t *testing.T) {
	c := serve(t, demo(t), Options{})
	const ask = `{"model":"demo","stream":%v,"options":{"temperature":0,"num_predict":3},"prompt":"Q"%s}`
	first := c.post("/api/generate", fmt.Sprintf(ask, false, ""))
	ids := first["context"].([]any)
	if len(ids) != int(first["prompt_eval_count"].(float64)+first["eval_count"].(float64)) {
		t.Fatalf("%v", first)
	}
	second := c.post("/api/generate", fmt.Sprintf(ask, false, `,"context":`+strings.ReplaceAll(fmt.Sprint(ids), " ", ",")))
	if got := second["context"].([]any); fmt.Sprint(got[:len(ids)]) != fmt.Sprint(ids) || second["prompt_eval_count"].(float64) != float64(len(ids))+first["prompt_eval_count"].(float64)-1 || got[len(ids)] == 2. {
		t.Errorf("%v", second)
	}
	_, answer, _ := c.do("POST", "/api/generate", fmt.Sprintf(ask, true, ""))
	lines := strings.Split(strings.TrimSpace(answer), "\n")
	if last := parseObject(t, lines[len(lines)-1]); fmt.Sprint(last["context"]) != fmt.Sprint(ids) {
		t.Errorf("%v", last)
	}
}

// TestOllamaFacts: answers have all durations and, if they are asked for, log-probabilities; the version is that of Ollama's API; models say what they can do.
func TestOllamaFacts(t *testing.T) {
	c, m := encoder(t, Options{})
	for _, path := range []string{"/api/chat", "/api/generate"} {
		for _, stream := range []bool{true, false} {
			_, answer, _ := c.do("POST", path, fmt.Sprintf(`{"model":"demo","messages":[{"role":"user","content":"What is the capital of Egypt?"}],"prompt":"What is the capital of Egypt?","logprobs":true,"top_logprobs":2,"options":{"num_predict":4,"temperature":0},"stream":%v}`, stream))
			lines := strings.Split(strings.TrimSpace(answer), "\n")
			last, scored := parseObject(t, lines[len(lines)-1]), 0
			for _, name := range []string{"total_duration", "load_duration", "prompt_eval_duration", "eval_duration"} {
				if ns, ok := last[name].(float64); !ok || ns <= 0 {
					t.Errorf("%s, streamed %v: %s is %v", path, stream, name, last[name])
				}
			}
			for _, line := range lines {
				all, _ := parseObject(t, line)["logprobs"].([]any)
				scored += len(all)
				for _, x := range all {
					if len(at(x, "top_logprobs").([]any)) != 2 || at(x, "logprob").(float64) > 0 {
						t.Errorf("%v", x)
					}
				}
			}
			if scored != 4 {
				t.Errorf("%s, streamed %v: %d log-probabilities: %s", path, stream, scored, answer)
			}
		}
	}
	_, answer, _ := c.do("GET", "/api/version", "")
	if v := parseObject(t, answer); v["version"] != ollamaAPI || v["karat"] == "" {
		t.Errorf("%s", answer)
	}
	if o := c.post("/api/show", `{"model":"demo","system":"","template":"","verbose":false,"options":null}`); fmt.Sprint(o["capabilities"]) != "[completion tools]" {
		t.Errorf("%v", o)
	}
	o := c.post("/api/show", `{"name":"vectors","verbose":true}`)
	if about := o["model_info"].(object); fmt.Sprint(o["capabilities"]) != "[embedding]" || about[m.Info().Architecture+".embedding_length"].(float64) < 1 {
		t.Errorf("%v", o)
	}
}

// TestOllamaLacks: routes that change models say what to type instead. A model that is served is there already.
func TestOllamaLacks(t *testing.T) {
	c := serve(t, demo(t), Options{})
	for _, x := range []struct{ method, path, body, want string }{
		{"POST", "/api/pull", `{"model":"qwen3:0.6b"}`, "karat pull oci://registry.ollama.ai/library/qwen3:0.6b"},
		{"POST", "/api/pull", `{"name":"hf.co/org/model:Q4_K_M"}`, "karat pull hf.co/org/model:Q4_K_M"},
		{"POST", "/api/pull", `{}`, "karat pull MODEL"},
		{"POST", "/api/push", `{"model":"a"}`, "a"},
		{"POST", "/api/create", `{"model":"a","from":"b"}`, "karat convert"},
		{"POST", "/api/copy", `{"source":"demo","destination":"b"}`, "--alias NAME=demo"},
		{"DELETE", "/api/delete", `{"model":"demo"}`, "karat rm demo"},
		{"POST", "/api/blobs/sha256:00", "GGUF", "karat serve FILE"},
	} {
		status, answer, _ := c.do(x.method, x.path, x.body)
		if text, _ := parseObject(t, answer)["error"].(string); status != 501 || !strings.Contains(text, x.want) {
			t.Errorf("%s %s %s: %d %s", x.method, x.path, x.body, status, answer)
		}
	}
	for _, stream := range []string{"", `,"stream":false`} {
		if o := c.post("/api/pull", `{"model":"demo:latest"`+stream+`}`); o["status"] != "success" {
			t.Errorf("%v", o)
		}
	}
}
