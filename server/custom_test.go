package server

import (
	"regexp"
	"strings"
	"testing"
)

// TestCustomTools: the input of a tool is a text that fits its regular expression, streamed or not, and goes on in the next request.
func TestCustomTools(t *testing.T) {
	m, err := withTools()
	if err != nil {
		t.Fatal(err)
	}
	c := serve(t, m, Options{})
	const tools = `"tools":[{"type":"custom","name":"sum","description":"d","format":{"type":"grammar","syntax":"regex","definition":"[1-9]{1,3}( \\+ [1-9]{1,3}){1,2}"}}],"tool_choice":{"type":"custom","name":"sum"}`
	const body = `{"model":"demo","input":"Q","temperature":0,"max_output_tokens":100,"reasoning":{"max_tokens":0},"chat_template_kwargs":{"enable_thinking":false},` + tools + `}`
	o := c.post("/v1/responses", body)
	item := at(o, "output", 0)
	input, _ := at(item, "input").(string)
	if !regexp.MustCompile(`^[1-9]{1,3}( \+ [1-9]{1,3}){1,2}$`).MatchString(input) || at(item, "type") != "custom_tool_call" || at(item, "name") != "sum" || o["status"] != "completed" {
		t.Errorf("%v", o)
	}
	streamed, done := "", any(nil)
	for _, e := range c.events("/v1/responses", strings.Replace(body, "{", `{"stream":true,`, 1)) {
		switch v := parseObject(t, e.data); e.name {
		case "response.custom_tool_call_input.delta":
			streamed += v["delta"].(string)
		case "response.custom_tool_call_input.done":
			done = v["input"]
		}
	}
	if streamed != input || done != input {
		t.Errorf("streamed %q, done %v, want %q", streamed, done, input)
	}
	prompt := c.prompts(m)
	call, _ := encode(item)
	c.post("/v1/responses", `{"model":"demo","max_output_tokens":1,"input":[{"role":"user","content":"Q"},`+string(call)+`,{"type":"custom_tool_call_output","call_id":"`+at(item, "call_id").(string)+`","output":"12"}],`+tools+`}`)
	if !strings.Contains(prompt(), `{"name": "sum", "arguments": {"input": "`+input+`"}}`) || !strings.Contains(prompt(), "<tool_response>\n12\n") {
		t.Errorf("%s", prompt())
	}
	c.refuses(400, "tools[0].format.syntax", "want lark, regex", "POST", "/v1/responses", `{"model":"demo","input":"a","tools":[{"type":"custom","name":"x","format":{"type":"grammar","syntax":"","definition":"a"}}]}`)
	c.refuses(400, "tools[0].format.definition", "Missing", "POST", "/v1/responses", `{"model":"demo","input":"a","tools":[{"type":"custom","name":"x","format":{"type":"grammar","syntax":"lark"}}]}`)
	c.refuses(400, "tools", "line 1: there is no rule a", "POST", "/v1/responses", `{"model":"demo","input":"a","tools":[{"type":"custom","name":"x","format":{"type":"grammar","syntax":"lark","definition":"start: a"}}]}`)
	c.refuses(400, "tools", "pattern", "POST", "/v1/responses", `{"model":"demo","input":"a","tools":[{"type":"custom","name":"x","format":{"type":"grammar","syntax":"regex","definition":"(a"}}]}`)
}

// TestCustomChat: a custom tool of chat completions is called with a text that fits its grammar, streamed or not, and the call goes on in
// the next request.
func TestCustomChat(t *testing.T) {
	m, err := withTools()
	if err != nil {
		t.Fatal(err)
	}
	c := serve(t, m, Options{})
	const sum = `{"type":"custom","custom":{"name":"sum","format":{"type":"grammar","grammar":{"syntax":"lark","definition":"start: term (\" + \" term)~1..2 -> sum\nterm: /[1-9]{1,2}/ | \"<\" start \">\""}}}}`
	const body = `{` + ask + `,"max_tokens":200,"temperature":2,"seed":1,"thinking_budget":0,"chat_template_kwargs":{"enable_thinking":false},"tools":[{"type":"function","function":{"name":"now"}},` + sum + `],"tool_choice":`
	fits := regexp.MustCompile(`^[1-9<]+[1-9<>+ ]* \+ [1-9<>+ ]+$`)
	for _, choice := range []string{`{"type":"custom","custom":{"name":"sum"}}`, `{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"custom","custom":{"name":"sum"}}]}}`} {
		more := body + choice + `,"parallel_tool_calls":false}`
		o := c.post("/v1/chat/completions", more)
		call := at(o, "choices", 0, "message", "tool_calls", 0)
		input, _ := at(call, "custom", "input").(string)
		if !fits.MatchString(input) || at(call, "type") != "custom" || at(call, "custom", "name") != "sum" || at(call, "function") != nil {
			t.Fatalf("%s: %v", choice, o)
		}
		streamed := ""
		for _, e := range c.events("/v1/chat/completions", strings.Replace(more, "{", `{"stream":true,`, 1)) {
			if e.data == "[DONE]" {
				break
			}
			delta := at(parseObject(t, e.data), "choices", 0, "delta", "tool_calls", 0)
			for _, path := range [][]any{{"type"}, {"custom", "name"}, {"custom", "input"}, {"function", "arguments"}} {
				text, _ := at(delta, path...).(string)
				streamed += text
			}
		}
		if streamed != "customsum"+input {
			t.Errorf("streamed %q, want %q", streamed, input)
		}
		prompt := c.prompts(m)
		sent, _ := encode(call)
		c.post("/v1/chat/completions", `{"model":"demo","max_tokens":1,"messages":[{"role":"user","content":"Q"},{"role":"assistant","tool_calls":[`+string(sent)+`]},{"role":"tool","tool_call_id":"`+at(call, "id").(string)+`","content":"12"}],"tools":[`+sum+`]}`)
		if text, _ := encode(input); !strings.Contains(prompt(), `{"name": "sum", "arguments": {"input": `) || !strings.Contains(prompt(), "<tool_response>\n12\n") {
			t.Errorf("%s in %s", text, prompt())
		}
	}
	for param, tool := range map[string]string{
		"tools[0].custom":                       `{"type":"custom"}`,
		"tools[0].function":                     `{"type":"function"}`,
		"tools[0].custom.format.grammar":        `{"type":"custom","custom":{"name":"a","format":{"type":"grammar"}}}`,
		"tools[0].custom.format.grammar.syntax": `{"type":"custom","custom":{"name":"a","format":{"type":"grammar","grammar":{"definition":"a"}}}}`,
		"tools[0].custom.format.syntax":         `{"type":"custom","custom":{"name":"a","format":{"type":"grammar","grammar":{"syntax":"regex","definition":"a"},"syntax":"regex"}}}`,
	} {
		c.refuses(400, param, "", "POST", "/v1/chat/completions", `{`+ask+`,"tools":[`+tool+`]}`)
	}
	c.refuses(400, "messages[0].tool_calls[0].custom", "Missing", "POST", "/v1/chat/completions", `{"model":"demo","messages":[{"role":"assistant","tool_calls":[{"id":"a","type":"custom","function":{"name":"a"}}]}]}`)
	if status, answer, _ := c.do("POST", "/api/chat", `{`+ask+`,"tools":[`+sum+`]}`); status != 400 || !strings.Contains(answer, "tool of type") {
		t.Errorf("%d %s", status, answer)
	}
	c.says(`<tool_call>{"name":"sum","arguments":{"city":"Oslo"}}</tool_call>`) // no grammar lets a model say that
	if status, answer, _ := c.do("POST", "/v1/chat/completions", body+`"auto"}`); status != 500 {
		t.Errorf("a call without an input: %d %s", status, answer)
	}
}
