package server

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/parrot"
)

// TestAgents replays requests of agents as they send them, whole and streamed. An answer has the tool's call; what changes nothing is named.
func TestAgents(t *testing.T) {
	const cache = "system[].cache_control, messages[].content[].cache_control"
	for agent, want := range map[string]struct{ tool, ignored string }{
		"claude-code":         {"Bash", "metadata, context_management, " + cache + ", tools[].eager_input_streaming"},
		"copilot":             {"read_file", "context_management, " + cache + ", tools[0], tools[].cache_control, tools[].defer_loading"},
		"qwen-code-anthropic": {"run_shell_command", "system[].cache_control, tools[].cache_control"},
	} {
		c, body := replay(t, agent, want.tool)
		c.header = map[string]string{"Anthropic-Version": "2023-06-01", "Anthropic-Beta": "claude-code-20250219,interleaved-thinking-2025-05-14,of-tomorrow-2027-01-01"}
		status, answer, h := c.do("POST", "/v1/messages?beta=true", body)
		if status != 200 || !strings.Contains(answer, `"name":"`+want.tool+`"`) || !strings.Contains(answer, `"stop_reason":"tool_use"`) || strings.Contains(body, "context_management") != strings.Contains(answer, `"context_management":{"applied_edits":[]}`) {
			t.Errorf("%s: %d %s", agent, status, answer)
		}
		for _, name := range strings.Split(want.ignored, ", ") {
			if !strings.Contains(place.ReplaceAllString(h.Get(hintHeader), "[]"), place.ReplaceAllString(name, "[]")) {
				t.Errorf("%s: %s is not in %q", agent, name, h.Get(hintHeader))
			}
		}
		o := c.post("/v1/messages?beta=true", strings.Replace(body, `"stream":true`, `"stream":false`, 1))
		if at(o, "content", 1, "name") != want.tool {
			t.Errorf("%s: %v", agent, o)
		}
		if n := c.post("/v1/messages/count_tokens", body)["input_tokens"]; n.(float64) < 100 {
			t.Errorf("%s: %v tokens", agent, n)
		}
	}
	for agent, tool := range map[string]string{"opencode": "bash", "qwen-code": "run_shell_command", "continue": "Bash"} {
		c, body := replay(t, agent, tool)
		status, answer, h := c.do("POST", "/v1/chat/completions", body)
		if status != 200 || !strings.Contains(answer, `"name":"`+tool+`"`) || !strings.Contains(answer, `"finish_reason":"tool_calls"`) || h.Get(hintHeader) != "" {
			t.Errorf("%s: %d %s %q", agent, status, answer, h.Get(hintHeader))
		}
		whole := strings.NewReplacer(`"stream":true`, `"stream":false`, `{"include_usage":true}`, "null").Replace(body)
		if o := c.post("/v1/chat/completions", whole); at(o, "choices", 0, "message", "tool_calls", 0, "function", "name") != tool {
			t.Errorf("%s: %v", agent, o)
		}
	}
}

// replay returns a server whose model calls a tool, and the recorded request of an agent.
func replay(t *testing.T, agent, tool string) (*client, string) {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("testdata", "agents", agent+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return speak(t, `Ok.`+"\n<tool_call>\n"+`{"name": "`+tool+`", "arguments": {"command": "ls", "filePath": "/a"}}`+"\n</tool_call>"), string(body)
}

// TestMessagesHints: fields that ask for nothing that would change the answer are taken, and those that do are not.
func TestMessagesHints(t *testing.T) {
	c, tool := speak(t, "Yes."), `{"name":"f","input_schema":{"type":"object","properties":{}}`
	for more, ok := range map[string]bool{
		`"context_management":{"edits":[]}`: true, `"context_management":{"edits":[{"type":"clear_tool_uses_20250919"}]}`: true,
		`"output_config":{"effort":"high"}`: true, `"output_config":{"effort":"max","task_budget":{"type":"tokens","total":9}}`: true, `"output_config":{"effort":"huge"}`: false, `"output_config":{"x":1}`: false,
		`"cache_control":{"type":"ephemeral","ttl":"1h"}`: true, `"container":null`: true, `"mcp_servers":[]`: true, `"thread":{"id":"t"}`: true, `"service_tier":"auto"`: true, `"metadata":{"user_id":"u"}`: true,
		`"thinking":{"type":"adaptive","display":"summarized"}`: true, `"thinking":{"type":"enabled","budget_tokens":50,"display":"omitted"}`: true, `"thinking":{"type":"adaptive","display":"x"}`: false,
		`"tools":[` + tool + `,"eager_input_streaming":true,"defer_loading":true,"allowed_callers":["direct"],"input_examples":[{}],"strict":true,"cache_control":{"type":"ephemeral"},"type":"custom"}]`: true,
		`"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":8},` + tool + `}]`:                                                                                                         true,
		`"tools":[{"type":"text_editor_20250728","name":"str_replace_based_edit_tool"}],"tool_choice":{"type":"auto"}`:                                                                                    true,
		`"tools":[{"type":"of_tomorrow_20270101","name":"x"},{"type":"mcp_toolset","mcp_server_name":"m"},` + tool + `}]`:                                                                                 true,
		`"tools":[{"type":"web_search_20250305","name":"web_search"},` + tool + `}],"tool_choice":{"type":"tool","name":"web_search"}`:                                                                    false,
		`"tools":[{"type":"bash_20250124","name":"bash"}],"tool_choice":{"type":"any"}`:                                                                                                                   false,
		`"tools":[{"type":"functions","name":"x"}]`: false,
	} {
		for _, path := range []string{"/v1/messages", "/v1/messages/count_tokens"} {
			if status, answer, _ := c.do("POST", path, `{`+asking+`,`+more+`}`); (status == 200) != ok {
				t.Errorf("%s %s: %d %s", path, more, status, answer)
			}
		}
	}
	status, answer, _ := c.do("POST", "/v1/messages", `{`+asking+`,"thread":{"type":"continue","previous_message_id":"msg_1"}}`)
	if status != 404 || at(parseObject(t, answer), "error", "details", "error_code") != "thread_not_found" {
		t.Errorf("%d %s", status, answer)
	}
	const over = `,"thinking":{"type":"enabled","budget_tokens":2000}`
	if status, answer, _ := c.do("POST", "/v1/messages", `{`+asking+over+`}`); status != 400 {
		t.Errorf("a budget above max_tokens: %d %s", status, answer)
	}
	c.header = map[string]string{"Anthropic-Beta": "a,interleaved-thinking-2025-05-14"}
	c.post("/v1/messages", `{`+asking+over+`}`)
	plain := serve(t, demo(t), Options{})
	if _, _, h := plain.do("POST", "/v1/messages", `{`+hello+`,"max_tokens":2500,"thinking":{"type":"enabled","budget_tokens":2000}}`); h.Get(hintHeader) != "thinking.budget_tokens, thinking.type" {
		t.Errorf("a model that does not reason: %v", h)
	}
}

// TestMessagesOmitted: thinking that is to be omitted is there, and empty; it may come back so.
func TestMessagesOmitted(t *testing.T) {
	c := speak(t, said)
	const more = `,"thinking":{"type":"adaptive","display":"omitted"}`
	if o := c.post("/v1/messages", `{`+asking+more+`}`); at(o, "content", 0, "thinking") != "" || at(o, "content", 1, "type") != "text" {
		t.Errorf("%v", o)
	}
	for _, e := range c.events("/v1/messages", `{`+asking+more+`,"stream":true}`) {
		if strings.Contains(e.data, "thinking_delta") {
			t.Errorf("%s", e.data)
		}
	}
	c.post("/v1/messages", `{"model":"demo","max_tokens":5,"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":""},{"type":"redacted_thinking","data":"x"},{"type":"text","text":"A"}]},{"role":"user","content":"Q"}]}`)
}

// TestMessagesPrefill: the last words of the assistant are continued, by Anthropic's rules.
func TestMessagesPrefill(t *testing.T) {
	c := speak(t, " 42.")
	body := func(content, more string) string {
		return `{"model":"demo","max_tokens":50,"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":` + content + `}]` + more + `}`
	}
	prompt := c.post("/apply-template", body(`"The answer is"`, `,"continue_final_message":true`)[:0]+`{"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"The answer is"}],"continue_final_message":true}`)["prompt"]
	text, err := json.Marshal(map[string]any{"content": prompt})
	if err != nil {
		t.Fatal(err)
	}
	want := float64(len(c.post("/tokenize", string(text))["tokens"].([]any)))
	for _, content := range []string{`"The answer is"`, `[{"type":"text","text":"The answer is"}]`, `[{"type":"text","text":"The "},{"type":"text","text":"answer is"}]`} {
		o := c.post("/v1/messages", body(content, ""))
		if at(o, "content", 0, "text") != " 42." || at(o, "usage", "input_tokens") != want {
			t.Errorf("%s: %v, want %v tokens", content, o, want)
		}
	}
	alone := c.post("/v1/messages/count_tokens", `{"model":"demo","messages":[{"role":"user","content":"Q"}]}`)["input_tokens"]
	if n := c.post("/v1/messages/count_tokens", body(`""`, ""))["input_tokens"]; n != alone {
		t.Errorf("an empty beginning: %v tokens, want %v", n, alone)
	}
	for content, holds := range map[string]string{`"The answer is "`: "trailing whitespace", `[{"type":"text","text":"A\u00a0"}]`: "trailing whitespace"} {
		status, answer, _ := c.do("POST", "/v1/messages", body(content, ""))
		if status != 400 || !strings.Contains(answer, holds) || !strings.Contains(answer, "messages[1]") {
			t.Errorf("%s: %d %s", content, status, answer)
		}
	}
	for more, holds := range map[string]string{`,"thinking":{"type":"enabled","budget_tokens":20}`: "thinking", `,` + schema + `,"tool_choice":{"type":"any"}`: "goes on", `,"output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}}`: "goes on"} {
		if status, answer, _ := c.do("POST", "/v1/messages", body(`"The answer is"`, more)); status != 400 || !strings.Contains(answer, holds) {
			t.Errorf("%s: %d %s", more, status, answer)
		}
	}
}

// TestMessagesSystem: a message of the system stands where it is, or is a part of the user's where the template takes none there.
func TestMessagesSystem(t *testing.T) {
	const body = `{"model":"parrot","max_tokens":5,"messages":[{"role":"user","content":"one"},{"role":"system","content":[{"type":"text","text":"two","cache_control":{"type":"ephemeral"}}]},{"role":"assistant","content":"three"},{"role":"user","content":"four"}]}`
	for template, x := range map[string]struct{ prompt, ignored string }{
		"{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}":                                                                                 {"[user]one[system]two[assistant]three[user]four", ""},
		"{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('first') }}{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}":             {"[user]one\n\ntwo[assistant]three[user]four", "messages[1].role"},
		"{% for m in messages %}{% if m.role == 'user' or m.role == 'assistant' %}[{{ m.role }}]{{ m.content }}{% endif %}{% endfor %}{# leaves it out #}": {"[user]one\n\ntwo[assistant]three[user]four", "messages[1].role"},
	} {
		path := filepath.Join(t.TempDir(), "parrot.gguf")
		if err := parrot.WriteFile(path, template, "ok", parrot.Options{}); err != nil {
			t.Fatal(err)
		}
		m, err := karat.Load(t.Context(), path, karat.Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		c := serve(t, demo(t), Options{Models: []Model{{Name: "parrot", Model: m}}})
		want := len(c.post("/tokenize", fmt.Sprintf(`{"model":"parrot","content":%q}`, x.prompt))["tokens"].([]any))
		status, answer, h := c.do("POST", "/v1/messages/count_tokens", body)
		if n := at(parseObject(t, answer), "input_tokens"); status != 200 || n != float64(want) || h.Get(hintHeader) != strings.Trim("messages[1].content[0].cache_control, "+x.ignored, ", ") {
			t.Errorf("%s: %d %s %v, want %d tokens", template, status, answer, h, want)
		}
	}
}

// TestToolChanges: tools that come and go at messages, as Claude Code 2.1.332 has them, are those of a request that lists what is left.
func TestToolChanges(t *testing.T) {
	c := speak(t, "Yes.")
	tool := func(name, about string) string {
		return `{"name":"` + name + `","description":"` + about + `","input_schema":{"type":"object"}}`
	}
	count := func(tools, changes string) any {
		return c.post("/v1/messages/count_tokens", `{"model":"demo","messages":[{"role":"user","content":"a"}`+changes+`,{"role":"user","content":"b"}],"tools":[`+tools+`]}`)["input_tokens"]
	}
	change := func(kind, tool string) string {
		return `,{"role":"system","content":[{"type":"tool_` + kind + `","tool":` + tool + `}]}`
	}
	ref := func(name string) string { return `{"type":"tool_reference","name":"` + name + `"}` }
	got := count(tool("a", "A")+","+tool("b", "B"), change("removal", ref("a"))+change("removal", ref("b"))+change("addition", `{"type":"tool_definition","definition":`+tool("c", "long ago")+`}`)+
		change("addition", `{"type":"tool_definition","definition":`+tool("c", "C")+`}`)+change("addition", ref("b")))
	if want := count(tool("b", "B")+","+tool("c", "C"), ""); got != want {
		t.Errorf("%v tokens, want %v", got, want)
	}
	more := strings.Repeat(change("addition", `{"definition":`+tool("c", "C")+`}`), maxAllTools+1)
	if status, answer, _ := c.do("POST", "/v1/messages/count_tokens", `{"model":"demo","messages":[{"role":"user","content":"a"}`+more+`]}`); status != 400 || !strings.Contains(answer, "more than 1024 tools") {
		t.Errorf("%d %.200s", status, answer)
	}
}

// TestMessagesForm: an answer has the form of output_config.format.
func TestMessagesForm(t *testing.T) {
	c := serve(t, demo(t), Options{})
	const of = `{"type":"json_schema","schema":{"type":"object","additionalProperties":false,"required":["city"],"properties":{"city":{"enum":["Oslo","Cairo"]}}}}`
	for _, more := range []string{`"output_config":{"format":` + of + `}`, `"output_format":` + of} {
		text, _ := at(c.post("/v1/messages", `{`+hello+`,"max_tokens":100,`+more+`}`), "content", 0, "text").(string)
		if city := at(parseObject(t, text), "city"); city != "Oslo" && city != "Cairo" {
			t.Errorf("%s: %s", more, text)
		}
	}
	for _, format := range []string{`{"type":"json_schema"}`, `{"type":"text","schema":{}}`, `{"type":"json_schema","schema":{"type":"strin"}}`} {
		if status, answer, _ := c.do("POST", "/v1/messages", `{`+hello+`,"max_tokens":9,"output_config":{"format":`+format+`}}`); status != 400 || !strings.Contains(answer, "output_config.format") {
			t.Errorf("%s: %d %s", format, status, answer)
		}
	}
}

// TestMessagesUsage: usage has what was there already apart, streamed too; an answer that fills the context says so.
func TestMessagesUsage(t *testing.T) {
	c := serve(t, model(t, karat.Options{Context: 256}), Options{})
	body := `{"model":"demo","max_tokens":3,"temperature":0,"messages":[{"role":"user","content":"` + strings.Repeat("The sky is blue. ", 30) + `"}]}`
	first := at(c.post("/v1/messages", body), "usage").(object)
	all := first["input_tokens"].(float64)
	if first["cache_read_input_tokens"] != 0. || first["cache_creation_input_tokens"] != 0. || all != c.post("/v1/messages/count_tokens", body)["input_tokens"] {
		t.Errorf("%v", first)
	}
	second := at(c.post("/v1/messages", body), "usage").(object)
	if read := second["cache_read_input_tokens"].(float64); read == 0 || second["input_tokens"].(float64)+read != all {
		t.Errorf("%v, before %v", second, first)
	}
	events := c.events("/v1/messages", strings.Replace(body, "{", `{"stream":true,`, 1))
	start, end := at(parseObject(t, events[0].data), "message", "usage").(object), at(parseObject(t, events[len(events)-2].data), "usage").(object)
	if start["output_tokens"] = end["output_tokens"]; fmt.Sprint(start) != fmt.Sprint(end) || fmt.Sprint(end) != fmt.Sprint(second) {
		t.Errorf("%v and %v, want %v", start, end, second)
	}
	long := `{"model":"demo","max_tokens":%d,"messages":[{"role":"user","content":"` + strings.Repeat("The sky is blue. ", 30) + `"}]}`
	for limit, want := range map[int]string{32000: "model_context_window_exceeded", 2: "max_tokens"} {
		x := speak(t, strings.Repeat("a b ", 3000))
		x.s, x.url = c.s, c.url
		c.s.generate = speakUntil(t, "some words", karat.StopLength).s.generate
		if o := c.post("/v1/messages", fmt.Sprintf(long, limit)); o["stop_reason"] != want {
			t.Errorf("max_tokens %d: %v, want %s", limit, o, want)
		}
	}
}

// TestAnthropicModels: models are listed in Anthropic's form to its clients, page by page, and errors are in its form.
func TestAnthropicModels(t *testing.T) {
	c := serve(t, demo(t), Options{Models: []Model{{Name: "b", Model: demo(t)}, {Name: "c", Model: demo(t)}}}) // demo, an/alias, b, c
	c.header = map[string]string{"anthropic-version": "2023-06-01", "x-api-key": "x"}
	for query, want := range map[string]string{
		"": "[demo an/alias b c] false", "?limit=2": "[demo an/alias] true", "?limit=2&after_id=an/alias": "[b c] false", "?limit=1&after_id=demo": "[an/alias] true",
		"?limit=2&before_id=c": "[an/alias b] true", "?before_id=b": "[demo an/alias] false", "?after_id=c": "[] false",
	} {
		_, answer, _ := c.do("GET", "/v1/models"+query, "")
		o, ids := parseObject(t, answer), []string{}
		for _, m := range o["data"].([]any) {
			if at(m, "type") != "model" || at(m, "display_name") != at(m, "id") || !strings.HasSuffix(at(m, "created_at").(string), "Z") {
				t.Errorf("%v", m)
			}
			ids = append(ids, at(m, "id").(string))
		}
		if got := fmt.Sprint(ids, " ", o["has_more"]); got != want || len(ids) > 0 && (o["first_id"] != ids[0] || o["last_id"] != ids[len(ids)-1]) {
			t.Errorf("%q: %s, want %s: %s", query, got, want, answer)
		}
	}
	if _, answer, _ := c.do("GET", "/v1/models/an/alias", ""); at(parseObject(t, answer), "type") != "model" || at(parseObject(t, answer), "id") != "an/alias" {
		t.Errorf("%s", answer)
	}
	for path, want := range map[string]int{"/v1/models/none": 404, "/v1/models?limit=0": 400, "/v1/models?limit=x": 400, "/v1/models?after_id=none": 400, "/v1/models?after_id=b&before_id=c": 400} {
		if status, answer, _ := c.do("GET", path, ""); status != want || at(parseObject(t, answer), "type") != "error" {
			t.Errorf("%s: %d %s", path, status, answer)
		}
	}
	c.header = nil
	if _, answer, _ := c.do("GET", "/v1/models", ""); at(parseObject(t, answer), "object") != "list" {
		t.Errorf("%s", answer)
	}
}
