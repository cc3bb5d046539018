package server

import (
	"strings"
	"testing"
)

// TestFunctions: the older form of tools works from its declaration to the result, whole and streamed.
func TestFunctions(t *testing.T) {
	c := speak(t, said)
	const functions = `"functions":[{"name":"weather","description":"d","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}]`
	for _, choice := range []string{"", `,"function_call":"auto"`, `,"function_call":null`} {
		o := at(c.post("/v1/chat/completions", `{`+ask+`,`+functions+choice+`}`), "choices", 0)
		if _, there := at(o, "message").(object)["tool_calls"]; there || at(o, "finish_reason") != "function_call" || at(o, "message", "function_call", "name") != "weather" || at(o, "message", "function_call", "arguments") != wantCall || at(o, "message", "content") != "Let me see." {
			t.Errorf("%s: %v", choice, o)
		}
		name, arguments, finish := "", "", ""
		for _, e := range c.events("/v1/chat/completions", `{`+ask+`,`+functions+choice+`,"stream":true}`) {
			if e.data == "[DONE]" {
				continue
			}
			o := at(parseObject(t, e.data), "choices", 0)
			if f, ok := at(o, "delta", "function_call").(object); ok {
				part, _ := f["name"].(string)
				name, arguments = name+part, arguments+f["arguments"].(string)
			}
			if end, ok := at(o, "finish_reason").(string); ok {
				finish = end
			}
		}
		if name != "weather" || arguments != wantCall || finish != "function_call" {
			t.Errorf("%s: %q %q %q", choice, name, arguments, finish)
		}
	}
	if o := c.post("/v1/chat/completions", `{`+ask+`,`+functions+`,"function_call":"none"}`); at(o, "choices", 0, "finish_reason") != "stop" || at(o, "choices", 0, "message", "function_call") != nil {
		t.Errorf("%v", o)
	}
	const talk = `"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":null,"function_call":{"name":"weather","arguments":"{\"city\":\"Oslo\"}"}},{"role":"function","name":"weather","content":"Rain"}]`
	if o := c.post("/apply-template", `{`+talk+`}`); !strings.Contains(o["prompt"].(string), `"arguments": {"city": "Oslo"}`) || !strings.Contains(o["prompt"].(string), "<tool_response>\nRain") {
		t.Errorf("%v", o)
	}
	for _, x := range []struct{ param, why, more string }{
		{"messages[0].name", "no message before", `"messages":[{"role":"function","name":"weather","content":"Rain"}]`},
		{"function_call", "no tool", ask + `,` + functions + `,"function_call":{"name":"rm"}`},
		{"function_call", "want none", ask + `,` + functions + `,"function_call":"always"`},
		{"function_call", "functions alone", ask + `,"function_call":"auto"`},
		{"functions", "either", ask + `,` + functions + `,` + weather},
	} {
		c.refuses(400, x.param, x.why, "POST", "/v1/chat/completions", `{`+x.more+`}`)
	}
}

// TestAnswersSentBack: clients send back answers with what they keep there, in parts of the text or beside them.
func TestAnswersSentBack(t *testing.T) {
	c := speak(t, "Yes.")
	talk := func(answer string) string {
		return `{"model":"demo","messages":[{"role":"user","content":"Q"},{"role":"assistant",` + answer + `},{"role":"user","content":"Q"}]}`
	}
	c.ignores("messages[1].content[0].role", "/v1/chat/completions", talk(`"content":[{"type":"text","text":"yo","role":"assistant","refusal":null}]`))
	c.ignores("messages[1].content[0].role, messages[1].content[0].reasoning_content", "/v1/chat/completions", talk(`"content":[{"type":"text","text":"yo","role":"assistant","reasoning_content":"Hm."}],"refusal":null,"annotations":[],"audio":null,"tool_calls":null,"function_call":null`))
	c.ignores("messages[1].parsed, messages[1].provider_specific_fields", "/v1/chat/completions", talk(`"content":"yo","parsed":{"a":1},"provider_specific_fields":{"x":1}`))
	c.ignores("", "/v1/chat/completions", talk(`"content":null,"reasoning_content":"Hm."`))
	c.refuses(400, "messages[1].content", "missing", "POST", "/v1/chat/completions", talk(`"contnet":"yo"`))
	c.refuses(400, "messages[1].prefix", "not supported", "POST", "/v1/chat/completions", talk(`"content":"yo","prefix":true`))
	c.ignores("messages[1].tool_calls[0].function.parsed_arguments", "/v1/chat/completions", `{"model":"demo",`+weather+`,"messages":[{"role":"user","content":"Q"},{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"weather","arguments":"{}","parsed_arguments":{"x":1}}}]},{"role":"tool","tool_call_id":"c","content":"x"}]}`)
}

// TestObjectSchema: json_object with a schema is held to it.
func TestObjectSchema(t *testing.T) {
	c := serve(t, demo(t), Options{})
	for seed := range 3 {
		o := c.post("/v1/chat/completions", `{`+hello+`,"temperature":2,"max_tokens":60,"seed":`+string(rune('1'+seed))+`,"response_format":{"type":"json_object","schema":{"type":"object","properties":{"n":{"enum":[1,2]}},"required":["n"],"additionalProperties":false}}}`)
		if text := at(o, "choices", 0, "message", "content").(string); !strings.HasPrefix(text, "{") || at(parseObject(t, text), "n").(float64) > 2 {
			t.Errorf("%q", text)
		}
	}
	c.refuses(400, "response_format.schema", "", "POST", "/v1/chat/completions", `{`+hello+`,"response_format":{"type":"json_object","schema":{"type":"strange"}}}`)
}
