package server

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestCodex: the second request of Codex 0.171.0, recorded and with its texts cut short, has an answer with a call within a namespace.
// It has the result of a call, reasoning in its opaque form, a namespace, and a tool of the service.
func TestCodex(t *testing.T) {
	b, err := os.ReadFile("testdata/agents/codex.json")
	if err != nil {
		t.Fatal(err)
	}
	c := speak(t, "<think>\nHm.\n</think>\n\nI wait.\n<tool_call>\n{\"name\": \"wait_agent\", \"arguments\": {\"targets\": [\"a\"]}}\n</tool_call>")
	status, _, header := c.do("POST", "/v1/responses", string(b))
	if got := header.Get(hintHeader); status != 200 || !strings.HasPrefix(got, "client_metadata, prompt_cache_key, ") || !strings.HasSuffix(got, "tools[8]") {
		t.Errorf("%d, ignored %q", status, got)
	}
	kinds := map[string]bool{}
	var call object
	for _, e := range c.events("/v1/responses", string(b)) {
		kinds[e.name] = true
		if item, _ := at(parseObject(t, e.data), "item").(object); e.name == "response.output_item.done" && item["type"] == "function_call" {
			call = item
		}
	}
	if call["namespace"] != "multi_agent_v1" || call["name"] != "wait_agent" || call["arguments"] != `{"targets":["a"]}` || !kinds["response.reasoning_summary_text.delta"] || !kinds["response.completed"] {
		t.Errorf("%v %v", call, kinds)
	}
}

// TestAdditionalTools: tools among the items of the input, as Codex has them for models that it knows, are tools of the request, each once.
func TestAdditionalTools(t *testing.T) {
	c := speak(t, "<tool_call>\n{\"name\": \"exec\", \"arguments\": {\"input\": \"a\"}}\n</tool_call>")
	const more = `{"type":"additional_tools","role":"developer","tools":[{"type":"namespace","name":"functions","tools":[{"type":"custom","name":"exec"},{"type":"function","name":"f","parameters":{"type":"object"}}]}]}`
	status, answer, _ := c.do("POST", "/v1/responses", `{"model":"demo","tools":[{"type":"function","name":"g"}],"tool_choice":"auto","input":[`+more+`,{"role":"user","content":"Q"},`+more+`]}`)
	if status != 200 || !strings.Contains(answer, `"type":"custom_tool_call"`) || !strings.Contains(answer, `"namespace":"functions"`) {
		t.Errorf("%d %s", status, answer)
	}
	c.refuses(400, "tool_choice", "none of the tools", "POST", "/v1/responses", `{"model":"demo","tool_choice":"required","input":[{"type":"additional_tools","role":"developer","tools":[{"type":"web_search"}]},{"role":"user","content":"Q"}]}`)
	lists := func(names ...string) string { // items with 256 tools of each namespace
		var items []any
		for _, name := range names {
			for i := range 2 {
				tools := make([]any, maxTools)
				for k := range tools {
					tools[k] = object{"type": "function", "name": fmt.Sprint("f", i, "_", k)}
				}
				items = append(items, object{"type": "additional_tools", "tools": []any{object{"type": "namespace", "name": name, "tools": tools}}})
			}
		}
		b, err := json.Marshal(object{"model": "demo", "max_output_tokens": 1, "input": append(items, object{"role": "user", "content": "Q"})})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	c.refuses(400, "tools", "more than 1024 tools", "POST", "/v1/responses", lists("a", "b", "c", "d", "e"))
	if status, answer, _ = c.do("POST", "/v1/responses", lists("a", "a", "a", "a", "a")); strings.Contains(answer, "1024 tools") {
		t.Errorf("the same tools again: %d %s", status, answer)
	}
}
