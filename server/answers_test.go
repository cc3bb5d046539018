package server

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/parrot"
)

// serveParrot serves a model that says a text behind a chat template.
func serveParrot(t *testing.T, template, text string, o parrot.Options) *client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "parrot.gguf")
	if err := parrot.WriteFile(path, template, text, o); err != nil {
		t.Fatal(err)
	}
	m, err := karat.Load(t.Context(), path, karat.Options{Threads: 1, Context: 4096})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return serve(t, m, Options{})
}

const twoTools = `"temperature":0,"tools":[{"type":"function","function":{"name":"write_file","parameters":{"type":"object","properties":{"path":{"type":"string"},"content":{"type":"string"}}}}},` +
	`{"type":"function","function":{"name":"finish","parameters":{"type":"object","properties":{"answer":{"type":"integer"}}}}}]`

// answered is what a chat answered, which must be the same streamed: text, reasoning, calls and the reason of its end.
func (c *client) answered(t *testing.T, more string) string {
	t.Helper()
	body := `{` + ask + `,` + twoTools + more
	choice := at(c.post("/v1/chat/completions", body+`}`), "choices", 0)
	m := at(choice, "message")
	text := func(x any) string { s, _ := x.(string); return s }
	calls := ""
	if list, ok := at(m, "tool_calls").([]any); ok {
		for _, x := range list {
			calls += text(at(x, "function", "name")) + text(at(x, "function", "arguments"))
		}
	}
	whole := []string{text(at(m, "content")), text(at(m, "reasoning_content")), calls, text(at(choice, "finish_reason"))}
	streamed := make([]string, 4)
	for _, e := range c.events("/v1/chat/completions", body+`,"stream":true}`) {
		if e.data == "[DONE]" {
			break
		}
		choice := at(parseObject(t, e.data), "choices", 0)
		d := at(choice, "delta")
		for i, x := range []any{at(d, "content"), at(d, "reasoning_content"), at(d, "tool_calls", 0, "function", "name"), at(choice, "finish_reason")} {
			streamed[i] += text(x)
		}
		streamed[2] += text(at(d, "tool_calls", 0, "function", "arguments"))
	}
	if fmt.Sprint(whole) != fmt.Sprint(streamed) {
		t.Errorf("%s: whole %q, streamed %q", more, whole, streamed)
	}
	return strings.Join(whole, " | ")
}

const (
	coder  = "<tool_call> <function="
	thinks = "<tool_call> <function= <think>"
)

func written(content string) string {
	return "<tool_call>\n<function=write_file>\n<parameter=path>\n/tmp/e\n</parameter>\n<parameter=content>\n" + content + "\n</parameter>\n</function>\n</tool_call>"
}

// unescaped writes < and > as they are.
var unescaped = strings.NewReplacer(`\u003c`, "<", `\u003e`, ">")

func file(content string) string {
	b, _ := json.Marshal(content)
	return `write_file{"path":"/tmp/e","content":` + unescaped.Replace(string(b)) + `}`
}

// TestWholeCalls: a whole call is found in reasoning that nothing ended, without its first mark, and with marks in its values.
func TestWholeCalls(t *testing.T) {
	const finish = "Hm, compute.\n<tool_call>\n<function=finish>\n<parameter=answer>\n204\n</parameter>\n</function>\n</tool_call>"
	hermes := "<tool_call>\n{\"name\": \"write_file\", \"arguments\": {\"path\": \"/tmp/e\", \"content\": \"a </tool_call>\nb\"}}"
	for _, x := range []struct{ name, template, said, want string }{
		{"open reasoning", lists(thinks), "<think>\n" + finish, ` | Hm, compute. | finish{"answer":204} | tool_calls`},
		{"and its end", lists(thinks), "<think>\n" + finish + "\n</think>\n\n", ` | Hm, compute. | finish{"answer":204} | tool_calls`},
		{"reasoning that the prompt begins", lists(thinks) + "<think>\n", finish, ` | Hm, compute. | finish{"answer":204} | tool_calls`},
		{"a mark in reasoning", lists(thinks), "<think>\nI write <tool_call> and <function=finish> first.</think>\n\nYes.", `Yes. | I write <tool_call> and <function=finish> first. |  | stop`},
		{"no opener", lists(coder), "I will write.\n\n" + strings.TrimPrefix(written("hello"), "<tool_call>\n"), `I will write. |  | ` + file("hello") + ` | tool_calls`},
		{"a call's end", lists(coder), written("A block ends with </tool_call> on its own."), ` |  | ` + file("A block ends with </tool_call> on its own.") + ` | tool_calls`},
		{"a value's end", lists(coder), written("one\n</parameter>\ntwo </parameter> three"), ` |  | ` + file("one\n</parameter>\ntwo </parameter> three") + ` | tool_calls`},
		{"a call", lists(coder), written("See:\n" + written("x") + "\nDone."), ` |  | ` + file("See:\n"+written("x")+"\nDone.") + ` | tool_calls`},
		{"no end, and a line in a string", lists("<tool_call>"), hermes, ` |  | ` + file("a </tool_call>\nb") + ` | tool_calls`},
		{"two objects", lists("<tool_call>"), "<tool_call>\n{\"name\": \"finish\", \"arguments\": {\"answer\": 1}}\n{\"name\": \"finish\", \"arguments\": {\"answer\": 2}}\n</tool_call>", ` |  | finish{"answer":1}finish{"answer":2} | tool_calls`},
		{"two bare objects", lists("<|python_tag|>"), `{"name": "finish", "parameters": {"answer": 1}}; {"name": "finish", "parameters": {"answer": 2}}`, ` |  | finish{"answer":1}finish{"answer":2} | tool_calls`},
		{"a tool that is none", lists("<tool_call>"), "<tool_call>\n{\"name\": \"rm\", \"arguments\": {}}\n</tool_call>", "<tool_call>\n{\"name\": \"rm\", \"arguments\": {}}\n</tool_call> |  |  | stop"},
	} {
		if got := serveParrot(t, x.template, x.said, parrot.Options{}).answered(t, ""); unescaped.Replace(got) != x.want {
			t.Errorf("%s: %s, want %s", x.name, got, x.want)
		}
	}
}

// TestNoMarksOfCutCalls: what is left of a call that max_tokens or a stop text cuts is no part of the answer, in any API; what came before is.
func TestNoMarksOfCutCalls(t *testing.T) {
	one := "<tool_call>\n{\"name\": \"finish\", \"arguments\": {\"answer\": 3}}\n</tool_call>"
	c := serveParrot(t, lists("<tool_call>"), "Ok. "+one+"\n"+one, parrot.Options{Context: 2048})
	for n := 1; n < 60; n++ {
		got := c.answered(t, fmt.Sprintf(`,"max_tokens":%d`, n))
		text, rest, _ := strings.Cut(got, " | ")
		whole := strings.Count(rest, `finish{"answer":3}`)
		if !strings.HasPrefix("Ok. ", text) || strings.Count(rest, "finish") != whole || !strings.HasSuffix(got, "length") && whole < 2 {
			t.Errorf("max_tokens %d: %s", n, got)
		}
	}
	if got := c.answered(t, `,"stop":["answer"]`); got != "Ok. |  |  | stop" {
		t.Errorf("stop text: %s", got)
	}
	for n := 1; n < 20; n++ {
		body := fmt.Sprintf(`"messages":[{"role":"user","content":"Q"}],"model":"demo","temperature":0,"max_tokens":%d,"tools":[{"name":"finish","input_schema":{"type":"object"}}]`, n)
		_, whole, _ := c.do("POST", "/v1/messages", `{`+body+`}`)
		_, stream, _ := c.do("POST", "/v1/messages", `{`+body+`,"stream":true}`)
		_, items, _ := c.do("POST", "/v1/responses", fmt.Sprintf(`{"model":"demo","input":"Q","temperature":0,"max_output_tokens":%d,"tools":[{"type":"function","name":"finish","parameters":{"type":"object"},"strict":false}]}`, n))
		_, ollama, _ := c.do("POST", "/api/chat", fmt.Sprintf(`{"model":"demo","messages":[{"role":"user","content":"Q"}],"options":{"temperature":0,"num_predict":%d},"tools":[{"type":"function","function":{"name":"finish","parameters":{"type":"object"}}}]}`, n))
		for _, answer := range []string{whole, stream, items, ollama} {
			if !strings.Contains(answer, "Ok") && n > 3 || strings.ContainsAny(strings.ReplaceAll(answer, `\u003c`, "<"), "<") {
				t.Errorf("%d tokens: %s", n, answer)
			}
		}
	}
}

// TestNoTextBeforeForcedCalls: an answer that is held to calls has no text, wherever it is cut.
func TestNoTextBeforeForcedCalls(t *testing.T) {
	for _, template := range []string{lists("<tool_call>"), lists(coder), lists("[TOOL_CALLS]"), lists("<|python_tag|>"), lists("func_name1(param"), lists(">>>all"), lists("<｜tool▁call▁begin｜>")} {
		c := serveParrot(t, template, "Hello", parrot.Options{Fallback: "\"}]<a"})
		for n := 1; n < 30; n++ {
			if got := c.answered(t, fmt.Sprintf(`,"tool_choice":"required","max_tokens":%d`, n)); !strings.HasPrefix(got, " | ") {
				t.Errorf("%.20s, max_tokens %d: %s", template, n, got)
			}
		}
	}
}

// TestNoControlTokens: control tokens and the headers of messages are no part of an answer, however wrong they are.
func TestNoControlTokens(t *testing.T) {
	o := parrot.Options{Control: []string{"<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|constrain|>", "<|call|>", "<|return|>"}, EOS: "<|return|>"}
	template := keptTemplate(t, "openai-gpt-oss-120b")
	for said, want := range map[string]string{
		"<|channel|>commentary 2?<|message|>Hello there.": "Hello there. |  |  | stop",
		"Hello there.":                            "Hello there. |  |  | stop",
		"<|message|>Hello there.":                 "Hello there. |  |  | stop",
		"<|channel|>final Hello there.":           "Hello there. |  |  | stop",
		"<|channel|>final<|message|>Hello<|end|>": "Hello |  |  | stop",
		"<|channel|>final<|constrain|>Hello<|message|>Hello there.<|constrain|>":                                                         "Hello there. |  |  | stop",
		"<|channel|>commentary to=functions.rm<|message|>Hello":                                                                          "Hello |  |  | stop",
		"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello <b>.":                                "Hello <b>. | Hm. |  | stop",
		"<|channel|>analysis<|message|>Hm.<|channel|>final<|message|>Hello":                                                              "Hello | Hm. |  | stop",
		"<|channel|>analysis<|message|>Hm.<|channel|>commentary to=functions.finish <|constrain|>json<|message|>{\"answer\": 1}<|call|>": ` | Hm. | finish{"answer":1} | tool_calls`,
		"<|start|>assistant<|channel|>commentary to=finish<|message|>{\"answer\": 1}":                                                    ` |  | finish{"answer":1} | tool_calls`,
		"<|channel|>commentary to=functions.finish<|message|>{\"answer\": \"<|start|>1\"}":                                               ` |  | finish{"answer":"1"} | tool_calls`,
	} {
		if got := serveParrot(t, template, said, o).answered(t, ""); got != want {
			t.Errorf("%s: %s, want %s", said, got, want)
		}
	}
	for said, template := range map[string]string{
		"Hello <|tool_call>call:rm{}<tool_call|>":                       "<|tool_call> <|channel>",
		"Hello <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>rm<｜tool▁sep｜>{}": "<｜tool▁call▁begin｜>",
		"Hello [TOOL_CALLS]rm[ARGS]{}":                                  "[TOOL_CALLS] [ARGS]",
		"Hello <|START_ACTION|>[1]<|END_ACTION|>":                       "<|START_ACTION|>",
		"Hello <think>Hm <think>.</think> A </think>":                   "<tool_call> <think>",
	} {
		var o parrot.Options
		for _, mark := range []string{"<|tool_call>", "<tool_call|>", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "[TOOL_CALLS]", "[ARGS]", "<|START_ACTION|>", "<|END_ACTION|>", "<think>", "</think>"} {
			if strings.Contains(said, mark) {
				o.Control = append(o.Control, mark)
			}
		}
		got := serveParrot(t, lists(template), said, o).answered(t, "")
		for _, mark := range o.Control {
			if strings.Contains(got, mark) {
				t.Errorf("%s: %s", said, got)
			}
		}
	}
}

// TestSpelledTokens: a text that is spelled like a control token stays a text.
func TestSpelledTokens(t *testing.T) {
	o := parrot.Options{Control: []string{"<|channel|>", "<|message|>", "<|start|>", "<|end|>"}, EOS: "<|return|>"}
	said := "<|channel|>final<|message|>The marks are <|ch␞annel|> and <|e␞nd|>, as text."
	c := serveParrot(t, keptTemplate(t, "openai-gpt-oss-120b"), said, o)
	if got := c.answered(t, ""); got != "The marks are <|channel|> and <|end|>, as text. |  |  | stop" {
		t.Error(got)
	}
}

// TestToolFallback: a model whose chat template takes no tools calls them, freely and forced, in all forms that models write; Options may
// refuse that.
func TestToolFallback(t *testing.T) {
	template := strings.TrimPrefix(lists(""), "{% if tools %}{{ tools | tojson }}\n{% endif %}")
	const call = `{"name": "finish", "arguments": {"answer": 1}}`
	for said, want := range map[string]string{
		"I do. <tool_call>\n" + call + "\n</tool_call>": `I do. |  | finish{"answer":1} | tool_calls`,
		"```json\n" + call + "\n```":                    ` |  | finish{"answer":1} | tool_calls`,
		"I do.\n" + call:                                `I do. |  | finish{"answer":1} | tool_calls`,
		"```json\n{\"a\": 1}\n```":                      "```json\n{\"a\": 1}\n``` |  |  | stop",
		"Hello":                                         "Hello |  |  | stop",
	} {
		if got := serveParrot(t, template, said, parrot.Options{}).answered(t, ""); got != want {
			t.Errorf("%s: %s, want %s", said, got, want)
		}
	}
	c := serveParrot(t, template, "Hello", parrot.Options{Fallback: "1\"}]<a"})
	if got := c.answered(t, `,"tool_choice":{"type":"function","function":{"name":"finish"}},"max_tokens":200`); !strings.HasPrefix(got, " |  | finish{") {
		t.Errorf("forced: %s", got)
	}
	c.post("/v1/chat/completions", `{"model":"demo","max_tokens":1,`+weather+`,"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":null,"tool_calls":[{"id":"toolu_1","type":"function","function":{"name":"weather","arguments":"{}"}}]},{"role":"tool","tool_call_id":"toolu_1","content":"rain"}]}`)
	s := serve(t, c.s.o.Models[0].Model, Options{NoToolFallback: true})
	s.refuses(400, "messages", "takes no tools", "POST", "/v1/chat/completions", `{"model":"demo","messages":[{"role":"user","content":"Q"}],`+weather+`}`)
}

// TestCallIDs: a call has an id that the model's chat template takes back.
func TestCallIDs(t *testing.T) {
	for template, want := range map[string]string{keptTemplate(t, "mistralai-Mistral-Nemo-Instruct-2407"): `^[0-9A-Za-z]{9}$`, lists("<|tool_call_argument_begin|>"): `^functions\.finish:1$`, lists("<tool_call>"): "^call_"} {
		call := `<|tool_call_begin|>functions.finish:0<|tool_call_argument_begin|>{"answer": 1}<|tool_call_end|>`
		if strings.Contains(template, "[TOOL_CALLS]") {
			call = `[TOOL_CALLS][{"name": "finish", "arguments": {"answer": 1}}]`
		} else if !strings.Contains(template, "argument_begin") {
			call = "<tool_call>\n{\"name\": \"finish\", \"arguments\": {\"answer\": 1}}\n</tool_call>"
		}
		c := serveParrot(t, template, call, parrot.Options{})
		talk := `{"model":"demo",` + twoTools + `,"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"","tool_calls":[{"id":%q,"type":"function","function":{"name":"finish","arguments":"{}"}}]},{"role":"tool","tool_call_id":%q,"content":"ok"}]}`
		id := "call_of_another_server"
		for range 2 { // its own id comes back
			id, _ = at(c.post("/v1/chat/completions", fmt.Sprintf(talk, id, id)), "choices", 0, "message", "tool_calls", 0, "id").(string)
			if !regexp.MustCompile(want).MatchString(id) {
				t.Errorf("%.40s: id %q", template, id)
			}
		}
	}
}
