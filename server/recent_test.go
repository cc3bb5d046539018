package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

const thought = "<think>\nHm, Oslo.\n</think>\n\nLet me see."

// TestItemReference: answers stay for a while, so that a request names items or a whole answer instead of sending them again, by any key alone.
func TestItemReference(t *testing.T) {
	c := speak(t, said)
	first := c.post("/v1/responses", `{"model":"demo","input":"Q",`+flat+`}`)
	id := func(i int) string { return at(first, "output", i, "id").(string) }
	result := fmt.Sprintf(`{"type":"function_call_output","call_id":"%s","output":"Rain"},{"type":"function_call_output","call_id":"%s","output":"Sun"}`, at(first, "output", 2, "call_id"), at(first, "output", 3, "call_id"))
	own, err := json.Marshal(first["output"])
	if err != nil {
		t.Fatal(err)
	}
	tokens := func(body string) any {
		return c.post("/v1/responses/input_tokens", `{"model":"demo",`+flat+`,`+body+`}`)["input_tokens"]
	}
	whole := tokens(`"input":[{"role":"user","content":"Q"},` + strings.Trim(string(own), "[]") + `,` + result + `]`)
	var refs strings.Builder
	for i := range 4 {
		fmt.Fprintf(&refs, `{"type":"item_reference","id":"%s"},`, id(i))
	}
	for _, body := range []string{`"input":[{"role":"user","content":"Q"},` + refs.String() + result + `]`, `"input":[{"role":"user","content":"Q"},` + strings.ReplaceAll(refs.String(), `"type":"item_reference",`, "") + result + `]`,
		`"previous_response_id":"` + first["id"].(string) + `","input":[` + result + `]`} {
		if got := tokens(body); got != whole {
			t.Errorf("%s: %v tokens, want %v", body, got, whole)
		}
	}
	second := c.post("/v1/responses", `{"model":"demo","previous_response_id":"`+first["id"].(string)+`","input":[`+result+`],`+flat+`}`)
	if second["previous_response_id"] != first["id"] || second["store"] != true {
		t.Errorf("%v", second)
	}
	third := tokens(`"previous_response_id":"` + second["id"].(string) + `","input":"And now?"`)
	if third.(float64) <= whole.(float64)+20 { // all of three turns
		t.Errorf("%v tokens after %v", third, whole)
	}
	if status, answer, _ := c.do("GET", "/v1/responses/"+first["id"].(string), ""); status != 200 || at(parseObject(t, answer), "output", 1, "content", 0, "text") != "Let me see." {
		t.Errorf("%d %s", status, answer)
	}
	if status, answer, _ := c.do("DELETE", "/v1/responses/"+first["id"].(string), ""); status != 200 || at(parseObject(t, answer), "deleted") != true {
		t.Errorf("%d %s", status, answer)
	}
	c.refuses(400, "previous_response_id", "store: false", "POST", "/v1/responses", `{"model":"demo","previous_response_id":"`+second["id"].(string)+`","input":"a"}`) // whose beginning is gone
	c.refuses(400, "input[0].id", "store: false", "POST", "/v1/responses", `{"model":"demo","input":[{"type":"item_reference","id":"`+id(1)+`"}]}`)
	c.refuses(404, "", "kept in memory", "GET", "/v1/responses/"+first["id"].(string), "")
	unkept := c.post("/v1/responses", `{"model":"demo","input":"Q","store":false}`)
	if unkept["store"] != false {
		t.Errorf("%v", unkept["store"])
	}
	c.refuses(400, "previous_response_id", "store: false", "POST", "/v1/responses", `{"model":"demo","previous_response_id":"`+unkept["id"].(string)+`","input":"a"}`)
	streamed := c.events("/v1/responses", `{"model":"demo","input":"Q","stream":true}`)
	last := parseObject(t, streamed[len(streamed)-1].data)
	c.post("/v1/responses", `{"model":"demo","previous_response_id":"`+at(last, "response", "id").(string)+`","input":"a"}`)
}

// TestRecentBounds: kept answers are each key's own, and bounded in bytes, number and time; named items count as bytes of the request.
func TestRecentBounds(t *testing.T) {
	now := time.Unix(1e9, 0)
	k := recent{now: func() time.Time { return now }, of: map[string]*keptResponses{}}
	put := func(who string, n, bytes int) {
		k.put(who, &keptResponse{id: fmt.Sprint("r", n), ids: []string{fmt.Sprint("i", n)}, output: []json.RawMessage{json.RawMessage(strings.Repeat("x", bytes))}})
	}
	put("other", 0, 10)
	for n := range 100 {
		put("me", n, recentBytes/40)
		k.get("me", "r0") // which is in use, and stays
	}
	if of := k.of["me"]; of.bytes > recentBytes || len(of.list) < 30 || len(of.byID) != len(of.list) || len(of.items) != len(of.list) || of.byID["r0"] == nil || of.byID["r1"] != nil || of.byID["r99"] == nil {
		t.Errorf("%d bytes, %d responses, %d items", of.bytes, len(of.list), len(of.items))
	}
	for n := range 2 * recentMost {
		put("many", n, 1)
	}
	if of := k.of["many"]; len(of.list) != recentMost || len(of.items) != recentMost {
		t.Errorf("%d responses", len(of.list))
	}
	put("big", 1, recentBytes+1)
	if k.get("big", "r1") != nil || k.get("me", "nothing") != nil || k.get("nobody", "r0") != nil || k.item("other", "i0") == nil || k.item("other", "i99") != nil {
		t.Error("what is not kept is there")
	}
	now = now.Add(recentTime + time.Second)
	if k.get("me", "r99") != nil || k.item("other", "i0") != nil || len(k.of["me"].list) != 0 || k.of["me"].bytes != 0 {
		t.Error("what is old is there")
	}
	put("me", 1, 1)
	if k.expire(); len(k.of) != 1 || k.get("me", "r1") == nil {
		t.Errorf("%d keys have responses, want the one that was just kept", len(k.of))
	}

	c := speak(t, strings.Repeat("word ", 2000))
	c.s.o.MaxBody = 100 << 10
	id := at(c.post("/v1/responses", `{"model":"demo","input":"Q"}`), "output", 0, "id").(string)
	c.refuses(400, "input[10]", "bytes", "POST", "/v1/responses", `{"model":"demo","input":[`+strings.Repeat(`{"type":"item_reference","id":"`+id+`"},`, 30)+`{"role":"user","content":"a"}]}`)
}

// TestReasoningForms: reasoning has a summary and an opaque form where a request asks for them, and is read back from each.
func TestReasoningForms(t *testing.T) {
	c := speak(t, thought)
	const body = `{"model":"demo","input":"Q","reasoning":{"summary":"auto"},"include":["reasoning.encrypted_content","web_search_call.action.sources"]`
	o := c.post("/v1/responses", body+`}`)
	sealed, _ := at(o, "output", 0, "encrypted_content").(string)
	if at(o, "output", 0, "summary", 0, "text") != "Hm, Oslo." || at(o, "output", 0, "summary", 0, "type") != "summary_text" || at(o, "output", 0, "content", 0, "text") != "Hm, Oslo." || sealed == "" || strings.Contains(sealed, "Oslo") {
		t.Errorf("%v", o["output"])
	}
	var names []string
	text := ""
	for _, e := range c.events("/v1/responses", body+`,"stream":true}`) {
		if v := parseObject(t, e.data); strings.HasPrefix(e.name, "response.reasoning_summary") {
			if n := len(names); n == 0 || names[n-1] != e.name {
				names = append(names, e.name)
			}
			if v["summary_index"] != 0. || v["output_index"] != 0. || v["item_id"] == nil {
				t.Errorf("%v", v)
			}
			delta, _ := v["delta"].(string)
			text += delta
		} else if e.name == "response.output_item.done" && v["output_index"] == 0. && (at(v, "item", "encrypted_content") != sealed || at(v, "item", "summary", 0, "text") != "Hm, Oslo.") {
			t.Errorf("%v", v)
		}
	}
	if want := "part.added text.delta text.done part.done"; strings.ReplaceAll(strings.Join(names, " "), "response.reasoning_summary_", "") != want || text != "Hm, Oslo." {
		t.Errorf("%v %q", names, text)
	}
	plain := c.post("/v1/responses", `{"model":"demo","input":"Q"}`)
	if _, there := at(plain, "output", 0).(object)["encrypted_content"]; there || len(at(plain, "output", 0, "summary").([]any)) != 0 {
		t.Errorf("%v", plain["output"])
	}
	tokens := func(item string) any {
		return c.post("/v1/responses/input_tokens", `{"model":"demo","input":[{"role":"user","content":"Q"},`+item+`,{"type":"function_call","call_id":"c","name":"weather","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"x"}],`+flat+`}`)["input_tokens"]
	}
	want := tokens(`{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"Hm, Oslo."}]}`)
	if got := tokens(`{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"` + sealed + `"}`); got != want {
		t.Errorf("%v tokens, want %v", got, want)
	}
	for _, wrong := range []string{"gAAAA", "karat1.!", "karat1./w==", "Karat1." + sealed[7:]} { // of another server, no base64, no UTF-8
		c.ignores("input[1].encrypted_content", "/v1/responses", `{"model":"demo","input":[{"role":"user","content":"Q"},{"type":"reasoning","summary":[],"encrypted_content":"`+wrong+`"}]}`)
	}
}

// TestNamespaces: the functions of namespaces are offered, a call has its namespace, and calls of earlier turns are read with it.
func TestNamespaces(t *testing.T) {
	function := func(name string) string {
		return `{"type":"function","name":"` + name + `","defer_loading":true,"parameters":{"type":"object","properties":{"x":{"type":"string"}}}}`
	}
	space := func(name string, tools ...string) string {
		return `{"type":"namespace","name":"` + name + `","description":"d","tools":[` + strings.Join(tools, ",") + `]}`
	}
	call := func(name string) string {
		return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": {\"x\": \"1\"}}\n</tool_call>"
	}
	two := `"tools":[` + space("a", function("f"), function("g")) + `,` + space("b", function("f")) + `,` + function("h") + `,` + space("c") + `]`
	for _, x := range []struct{ says, tools, space, name string }{
		{"f", `"tools":[` + space("a", function("f")) + `]`, "a", "f"},
		{"a__f", `"tools":[` + space("a", function("f")) + `]`, "a", "f"},
		{"a.f", `"tools":[` + space("a", function("f")) + `]`, "a", "f"},
		{"a__f", two, "a", "f"}, {"b__f", two, "b", "f"}, {"b.f", two, "b", "f"}, {"g", two, "a", "g"}, {"h", two, "", "h"},
		{"a__f", `"tools":[` + space("a", function("f")) + `,` + function("f") + `,` + function("a__f") + `]`, "", "a__f"},
		{"a__f_", `"tools":[` + space("a", function("f")) + `,` + function("f") + `,` + function("a__f") + `]`, "a", "f"},
		{"f", `"tools":[` + space("a", function("f")) + `,` + function("f") + `]`, "", "f"},
	} {
		c := speak(t, call(x.says))
		check := func(item any, when string) {
			space, _ := at(item, "namespace").(string)
			if _, there := item.(object)["namespace"]; at(item, "type") != "function_call" || at(item, "name") != x.name || space != x.space || there != (x.space != "") {
				t.Errorf("%s of %s, %s: %v", x.says, x.tools, when, item)
			}
		}
		o := c.post("/v1/responses", `{"model":"demo","input":"Q",`+x.tools+`}`)
		check(at(o, "output", 0), "whole")
		for _, e := range c.events("/v1/responses", `{"model":"demo","input":"Q","stream":true,`+x.tools+`}`) {
			if strings.HasPrefix(e.name, "response.output_item") {
				check(at(parseObject(t, e.data), "item"), e.name)
			}
		}
		item, err := json.Marshal(at(o, "output", 0))
		if err != nil {
			t.Fatal(err)
		}
		choice := fmt.Sprintf(`{"type":"function","name":"%s","namespace":"%s"}`, x.name, x.space)
		c.post("/v1/responses", fmt.Sprintf(`{"model":"demo","tool_choice":%s,"input":[{"role":"user","content":"Q"},%s,{"type":"function_call_output","call_id":"%s","output":"x"}],%s}`, choice, item, at(o, "output", 0, "call_id"), x.tools))
	}
	c := speak(t, "Yes.")
	c.ignores("tools[0].tools[0].defer_loading, tools[0].description, tools[1], input[1], input[2].phase", "/v1/responses", `{"model":"demo","input":[{"role":"user","content":"Q"},{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"x"}},{"role":"assistant","content":"A","phase":"final_answer"},{"role":"user","content":"Q"}],"tools":[`+space("a", function("f"))+`,{"type":"tool_search"}]}`)
	c.refuses(400, "tools[0].tools[0].type", "not supported", "POST", "/v1/responses", `{"model":"demo","input":"Q","tools":[`+space("a", space("b"))+`]}`)
	c.refuses(400, "tools[0].name", "empty", "POST", "/v1/responses", `{"model":"demo","input":"Q","tools":[`+space("")+`]}`)
	c.refuses(400, "tool_choice", "no tool", "POST", "/v1/responses", `{"model":"demo","input":"Q","tool_choice":{"type":"function","name":"f","namespace":"b"},"tools":[`+space("a", function("f"))+`]}`)
}
