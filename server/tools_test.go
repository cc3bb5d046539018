package server

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/golden"
)

// copyModel copies a model of the repository, whose weights are packed.
func copyModel(dir, name string) error {
	from := filepath.Join("../testdata/models", name)
	b, err := golden.Unpack(filepath.Join(from, "model.safetensors"))
	if err == nil {
		err = os.CopyFS(dir, os.DirFS(from))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "model.safetensors"), b, 0o666)
	}
	return err
}

// withTools is a model whose template takes tools and reasoning.
var withTools = sync.OnceValues(func() (*karat.Model, error) {
	template, err := os.ReadFile("../internal/chat/testdata/templates/Qwen-Qwen3-0.6B.jinja")
	if err != nil {
		return nil, err
	}
	return withTemplate("tiny-llama", string(template))
})

// withTemplate is a model of the repository with a chat template.
func withTemplate(name, template string) (*karat.Model, error) {
	dir, err := os.MkdirTemp("", "karat")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := copyModel(dir, name); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte(template), 0o666); err != nil {
		return nil, err
	}
	return karat.Load(context.Background(), dir, karat.Options{Threads: 2, Context: 2048})
}

const said = "<think>\nHm, Oslo.\n</think>\n\nLet me see.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {}}\n</tool_call>"

// speak serves a model that says a text, whatever it is asked.
func speak(t *testing.T, text string) *client { return speakUntil(t, text, karat.StopEnd) }

func speakUntil(t *testing.T, text string, end karat.StopReason) *client {
	t.Helper()
	m, err := withTools()
	if err != nil {
		t.Fatal(err)
	}
	c := serve(t, m, Options{})
	c.s.generate = func(context.Context, *karat.Session, []int, karat.GenerateOptions) iter.Seq2[karat.Token, error] {
		return func(yield func(karat.Token, error) bool) {
			for i := 0; i < len(text); i += 3 {
				if !yield(karat.Token{ID: 5, Text: text[i:min(i+3, len(text))]}, nil) {
					return
				}
			}
			yield(karat.Token{ID: 1, Stop: end}, nil)
		}
	}
	return c
}

const (
	ask      = `"model":"demo","messages":[{"role":"user","content":"How is the weather in Oslo?"}]`
	weather  = `"tools":[{"type":"function","function":{"name":"weather","description":"d","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}]`
	flat     = `"tools":[{"type":"function","name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}},"strict":false}]`
	schema   = `"tools":[{"name":"weather","description":"d","input_schema":{"type":"object","properties":{"city":{"type":"string"}}}}]`
	asking   = `"model":"demo","max_tokens":100,"messages":[{"role":"user","content":"How is the weather in Oslo?"}]`
	wantCall = `{"city":"Oslo"}`
)

func TestToolCalls(t *testing.T) {
	c := speak(t, said)
	o := c.post("/v1/chat/completions", `{`+ask+`,`+weather+`}`)
	m := at(o, "choices", 0, "message")
	if at(m, "content") != "Let me see." || at(m, "reasoning_content") != "Hm, Oslo." || at(o, "choices", 0, "finish_reason") != "tool_calls" || len(at(m, "tool_calls").([]any)) != 2 ||
		at(m, "tool_calls", 0, "function", "name") != "weather" || at(m, "tool_calls", 0, "function", "arguments") != wantCall || at(m, "tool_calls", 1, "function", "arguments") != "{}" ||
		!strings.HasPrefix(at(m, "tool_calls", 0, "id").(string), "call_") || at(m, "tool_calls", 0, "type") != "function" || at(o, "usage", "completion_tokens_details", "reasoning_tokens").(float64) < 3 {
		t.Errorf("%v", o)
	}
	if o := c.post("/v1/chat/completions", `{`+ask+`,`+weather+`,"parallel_tool_calls":false}`); len(at(o, "choices", 0, "message", "tool_calls").([]any)) != 1 || at(o, "choices", 0, "finish_reason") != "tool_calls" {
		t.Errorf("%v", o)
	}
	for _, more := range []string{"", `,` + weather + `,"tool_choice":"none"`} {
		o := c.post("/v1/chat/completions", `{`+ask+more+`}`)
		if text := at(o, "choices", 0, "message", "content").(string); !strings.Contains(text, "</tool_call>") || at(o, "choices", 0, "finish_reason") != "stop" {
			t.Errorf("%v", o)
		}
	}
	var content, reasoning, name, arguments string
	finish := any(nil)
	for _, e := range c.events("/v1/chat/completions", `{`+ask+`,`+weather+`,"stream":true,"parallel_tool_calls":false}`) {
		if e.data == "[DONE]" {
			break
		}
		x := at(parseObject(t, e.data), "choices", 0)
		add := func(to *string, path ...any) {
			s, _ := at(x, append([]any{"delta"}, path...)...).(string)
			*to += s
		}
		add(&content, "content")
		add(&reasoning, "reasoning_content")
		add(&name, "tool_calls", 0, "function", "name")
		add(&arguments, "tool_calls", 0, "function", "arguments")
		if f := at(x, "finish_reason"); f != nil {
			finish = f
		}
	}
	if content != "Let me see." || reasoning != "Hm, Oslo." || name != "weather" || arguments != wantCall || finish != "tool_calls" {
		t.Errorf("%q %q %q %q %v", content, reasoning, name, arguments, finish)
	}
}

// TestCutCalls: an answer that is cut says so, whatever calls it has.
func TestCutCalls(t *testing.T) {
	c := speakUntil(t, said+"\n<tool_call>{", karat.StopLength)
	o := c.post("/v1/chat/completions", `{`+ask+`,`+weather+`}`)
	if at(o, "choices", 0, "finish_reason") != "length" || len(at(o, "choices", 0, "message", "tool_calls").([]any)) != 2 || at(o, "choices", 0, "message", "content") != "Let me see." {
		t.Errorf("%v", o)
	}
	if o := c.post("/v1/messages", `{`+asking+`,`+schema+`}`); o["stop_reason"] != "max_tokens" {
		t.Errorf("%v", o)
	}
	if o := c.post("/v1/responses", `{"model":"demo","input":"Q",`+flat+`}`); o["status"] != "incomplete" || at(o, "incomplete_details", "reason") != "max_output_tokens" {
		t.Errorf("%v", o)
	}
}

// TestCallsInPieces: the arguments of a call that a model is held to are streamed as they come, and are together the ones of an answer that
// is not streamed, also where it is cut.
func TestCallsInPieces(t *testing.T) {
	m, err := withTools()
	if err != nil {
		t.Fatal(err)
	}
	c := serve(t, m, Options{})
	for _, limit := range []int{300, 40} {
		for seed := range 3 {
			hot := fmt.Sprintf(`"temperature":1.2,"seed":%d,"max_tokens":%d,"parallel_tool_calls":false,"tool_choice":"required","thinking_budget":0`, seed, limit)
			body := `{` + ask + `,` + hot + `,"tools":[{"type":"function","function":{"name":"fact","parameters":` + fact + `}}]`
			o := c.post("/v1/chat/completions", body+`}`)
			want, _ := at(o, "choices", 0, "message", "tool_calls", 0, "function", "arguments").(string)
			if finish := at(o, "choices", 0, "finish_reason"); finish != map[bool]string{true: "tool_calls", false: "length"}[json.Valid([]byte(want))] || limit == 40 && finish != "length" {
				t.Errorf("limit %d, seed %d: finish %v, arguments %s", limit, seed, finish, want)
			}
			got, pieces := "", 0
			for _, e := range c.events("/v1/chat/completions", body+`,"stream":true}`) {
				if e.data == "[DONE]" {
					break
				}
				if piece, ok := at(parseObject(t, e.data), "choices", 0, "delta", "tool_calls", 0, "function", "arguments").(string); ok {
					got, pieces = got+piece, pieces+1
				}
			}
			if got != want || pieces < 4 {
				t.Errorf("limit %d, seed %d: %d pieces, %s, want %s", limit, seed, pieces, got, want)
			}
		}
	}
	const input = `{"model":"demo","input":"Q","temperature":0,"max_output_tokens":%d,"tool_choice":"required","parallel_tool_calls":false,"reasoning":{"effort":"none"},"tools":[{"type":"function","name":"fact","strict":true,"parameters":` + fact + `}]`
	for limit, status := range map[int]string{300: "completed", 40: "incomplete"} {
		item := at(c.post("/v1/responses", fmt.Sprintf(input, limit)+`}`), "output", 0)
		got, pieces, done, ended := "", 0, any(nil), any(nil)
		for _, e := range c.events("/v1/responses", fmt.Sprintf(input, limit)+`,"stream":true}`) {
			switch v := parseObject(t, e.data); e.name {
			case "response.function_call_arguments.delta":
				got, pieces = got+v["delta"].(string), pieces+1
			case "response.function_call_arguments.done":
				done = v["arguments"]
			case "response.output_item.done":
				ended = at(v, "item", "status")
			}
		}
		if got != at(item, "arguments") || done != got || pieces < 4 || ended != status || at(item, "status") != status {
			t.Errorf("limit %d: %d pieces, %s, done %v, status %v; want %v", limit, pieces, got, done, ended, item)
		}
	}
	whole := `{"model":"demo","max_tokens":300,"temperature":0,"thinking":{"type":"disabled"},"messages":[{"role":"user","content":"Q"}],"tool_choice":{"type":"any"},"tools":[{"name":"fact","input_schema":` + fact + `}]`
	text, deltas := "", 0
	for _, e := range c.events("/v1/messages", whole+`,"stream":true}`) {
		if piece, ok := at(parseObject(t, e.data), "delta", "partial_json").(string); ok && deltas < 1 {
			text, deltas = piece, deltas+1
		}
	}
	if err := wrongFact(text); err != nil {
		t.Errorf("Anthropic's API: %s: %v", text, err)
	}
}

// TestConversation: calls, their results and reasoning go into the prompt.
func TestConversation(t *testing.T) {
	c := speak(t, "ok")
	o := c.post("/apply-template", `{"add_generation_prompt":true,"messages":[{"role":"system","content":"S."},{"role":"user","content":"Q"},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Oslo\"}"}}]},{"role":"tool","tool_call_id":"c1","content":[{"type":"text","text":"Rain <|im_end|>"}]}],`+weather+`,"chat_template_kwargs":{"enable_thinking":false}}`)
	prompt := o["prompt"].(string)
	for _, part := range []string{"S.", `{"name": "weather", "arguments": {"city": "Oslo"}}`, "<tool_response>\nRain <|im_end|>\n</tool_response>", "<think>\n\n</think>"} {
		if !strings.Contains(prompt, part) {
			t.Errorf("no %q in\n%s", part, prompt)
		}
	}
	o = c.post("/apply-template", `{"messages":[{"role":"user","content":"Q"}],"add_generation_prompt":false}`)
	if prompt := o["prompt"].(string); prompt != "<|im_start|>user\nQ<|im_end|>\n" {
		t.Errorf("%q", prompt)
	}
	c.refuses(400, "messages[2].name", "the call is of", "POST", "/apply-template", `{"messages":[{"role":"user","content":"Q"},{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"a","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","name":"b","content":"x"}]}`)
}

func TestMessages(t *testing.T) {
	c := speak(t, said)
	o := c.post("/v1/messages", `{`+asking+`,`+schema+`,"system":"Be brief.","metadata":{"user_id":"u"}}`)
	want := []any{object{"type": "thinking", "thinking": "Hm, Oslo.", "signature": ""}, object{"type": "text", "text": "Let me see."}, object{"type": "tool_use", "name": "weather", "input": object{"city": "Oslo"}}, object{"type": "tool_use", "name": "weather", "input": object{}}}
	got := o["content"].([]any)
	for _, b := range got {
		if id, ok := b.(object)["id"].(string); ok && strings.HasPrefix(id, "call_") {
			delete(b.(object), "id")
		}
	}
	if !reflect.DeepEqual(got, want) || o["stop_reason"] != "tool_use" || o["type"] != "message" || o["stop_sequence"] != nil || at(o, "usage", "output_tokens").(float64) < 10 {
		t.Errorf("%v", o)
	}
	n := c.post("/v1/messages/count_tokens", strings.Replace(`{`+asking+`,`+schema+`,"system":"Be brief."}`, `"max_tokens":100,`, "", 1))
	if n["input_tokens"] != at(o, "usage", "input_tokens") {
		t.Errorf("%v, %v", n, o["usage"])
	}
	var kinds []string
	var text, input string
	for _, e := range c.events("/v1/messages", `{`+asking+`,`+schema+`,"stream":true}`) {
		v := parseObject(t, e.data)
		if v["type"] != e.name {
			t.Errorf("event %s: %v", e.name, v)
		}
		if n := len(kinds); n == 0 || kinds[n-1] != e.name {
			kinds = append(kinds, e.name)
		}
		s, _ := at(v, "delta", "text").(string)
		text += s
		s, _ = at(v, "delta", "partial_json").(string)
		input += s
	}
	one := " content_block_start content_block_delta content_block_stop"
	if got := strings.Join(kinds, " "); got != "message_start"+strings.Repeat(one, 4)+" message_delta message_stop" || text != "Let me see." || input != wantCall+"{}" {
		t.Errorf("%s, %q, %q", got, text, input)
	}
	for _, x := range []struct{ holds, body string }{
		{"max_tokens", `{"model":"demo","messages":[]}`}, {"x", `{` + asking + `,"x":1}`}, {"thinking", `{` + asking + `,"thinking":{"type":"enabled","budget_tokens":2000}}`},
		{"temperature", `{` + asking + `,"temperature":1.5}`}, {"role", `{"model":"demo","max_tokens":1,"messages":[{"role":"tool","content":"a"}]}`},
		{"type", `{"model":"demo","max_tokens":1,"messages":[{"role":"user","content":[{"type":"image","source":{}}]}]}`}, {"tool_use_id", `{"model":"demo","max_tokens":1,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"x"}]}]}`},
	} {
		status, answer, _ := c.do("POST", "/v1/messages", x.body)
		if status != 400 || at(parseObject(t, answer), "type") != "error" || at(parseObject(t, answer), "error", "type") != "invalid_request_error" || !strings.Contains(answer, x.holds) {
			t.Errorf("%s: %d %s", x.body, status, answer)
		}
	}
	c.post("/v1/messages", `{"model":"demo","max_tokens":5,"thinking":{"type":"disabled"},"stop_sequences":["END"],"messages":[{"role":"user","content":[{"type":"text","text":"Q","cache_control":{"type":"ephemeral"}}]},{"role":"assistant","content":[{"type":"thinking","thinking":"T","signature":""},{"type":"tool_use","id":"1","name":"weather","input":{"city":"a"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"r"}],"is_error":true},{"type":"text","text":"and?"}]}],`+schema+`}`)
}

func TestResponses(t *testing.T) {
	c := speak(t, said)
	o := c.post("/v1/responses", `{"model":"demo","input":"How is the weather?","instructions":"Be brief.","store":false,`+flat+`}`)
	var kinds []any
	for _, item := range o["output"].([]any) {
		kinds = append(kinds, at(item, "type"))
	}
	if fmt.Sprint(kinds) != "[reasoning message function_call function_call]" || at(o, "output", 1, "content", 0, "text") != "Let me see." || at(o, "output", 2, "arguments") != wantCall || o["status"] != "completed" {
		t.Errorf("%v", o)
	}
	for _, name := range []string{"id", "object", "created_at", "error", "incomplete_details", "instructions", "model", "tools", "output", "parallel_tool_calls", "metadata", "tool_choice", "temperature", "top_p"} {
		if _, ok := o[name]; !ok {
			t.Errorf("no %s", name)
		}
	}
	all := c.events("/v1/responses", `{"model":"demo","stream":true,"input":[{"role":"user","content":[{"type":"input_text","text":"Q"}]},{"type":"function_call","call_id":"c","name":"weather","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"Rain"}],`+flat+`}`)
	text := ""
	for i, e := range all {
		v := parseObject(t, e.data)
		if v["type"] != e.name || v["sequence_number"] != float64(i) {
			t.Errorf("event %d, %s: %v", i, e.name, v)
		}
		if e.name == "response.output_text.delta" {
			text += v["delta"].(string)
		}
	}
	last := parseObject(t, all[len(all)-1].data)
	if all[0].name != "response.created" || all[1].name != "response.in_progress" || all[len(all)-1].name != "response.completed" || text != "Let me see." || at(last, "response", "output", 2, "name") != "weather" {
		t.Errorf("%v", all)
	}
	for param, more := range map[string]string{"prompt": `{"id":"p"}`, "background": `true`, "conversation": `{"id":"conv_1"}`} {
		body := `{"model":"demo","input":"a","` + param + `":` + more + `}`
		c.refuses(400, param, "not supported", "POST", "/v1/responses", body)
	}
	c.refuses(400, "input[0].call_id", "no item", "POST", "/v1/responses", `{"model":"demo","input":[{"type":"function_call_output","call_id":"c","output":"Rain"}]}`)
}

func TestOllama(t *testing.T) {
	c := speak(t, said)
	chat := strings.Replace(`{`+ask+`,`+weather+`}`, `"demo"`, `"demo:latest"`, 1)
	status, answer, h := c.do("POST", "/api/chat", chat)
	lines := strings.Split(strings.TrimSpace(answer), "\n")
	if status != 200 || h.Get("Content-Type") != "application/x-ndjson" || len(lines) < 5 {
		t.Fatalf("%d %s", status, answer)
	}
	text, calls := "", 0
	for i, line := range lines {
		o := parseObject(t, line)
		if o["done"] != (i == len(lines)-1) {
			t.Errorf("line %d: %s", i, line)
		}
		text += at(o, "message", "content").(string)
		if at(o, "message", "tool_calls", 0, "function", "name") == "weather" {
			calls++
		}
	}
	if last := parseObject(t, lines[len(lines)-1]); text != "Let me see." || calls != 2 || last["done_reason"] != "stop" || last["eval_count"].(float64) < 10 {
		t.Errorf("%s", answer)
	}
	o := c.post("/api/chat", strings.Replace(chat, `{`, `{"stream":false,"keep_alive":"5m","options":{"temperature":0,"num_predict":50,"seed":1},`, 1))
	if at(o, "message", "thinking") != "Hm, Oslo." || at(o, "message", "tool_calls", 0, "function", "arguments", "city") != "Oslo" || o["done"] != true {
		t.Errorf("%v", o)
	}
	if o := c.post("/api/generate", `{"model":"demo","prompt":"Q","raw":true,"stream":false}`); o["response"] != said {
		t.Errorf("%v", o)
	}
	for _, path := range []string{"/api/tags", "/api/ps"} {
		_, answer, _ := c.do("GET", path, "")
		x := at(parseObject(t, answer), "models", 0)
		if at(x, "name") != "demo" || len(at(x, "digest").(string)) != 64 || at(x, "details", "parameter_size") != "3M" || at(x, "details", "quantization_level") != "BF16" {
			t.Errorf("%s", answer)
		}
		if size := at(x, "size").(float64); size < 5e6 || size > 2e7 { // the weights, and what there is of keys and values: not all that there may be
			t.Errorf("%s: %v bytes", path, size)
		}
	}
	if o := c.post("/api/show", `{"model":"demo"}`); fmt.Sprint(o["capabilities"]) != "[completion tools thinking]" {
		t.Errorf("%v", o)
	}
	c.post("/api/generate", `{"model":"demo","prompt":"Q","raw":true,"stream":false,"options":{"num_keep":5,"typical_p":1.0,"tfs_z":1,"mirostat":0,"mirostat_tau":5,"penalize_newline":true,"numa":false,"num_batch":2,"num_gpu":1,"main_gpu":0,"use_mmap":true,"num_thread":8}}`)
	for name, value := range map[string]string{"mirostat": "2", "typical_p": "0.7", "temprature": "1"} {
		status, answer, _ := c.do("POST", "/api/generate", `{"model":"demo","prompt":"Q","options":{"`+name+`":`+value+`}}`)
		if status != 400 || !strings.Contains(answer, name) {
			t.Errorf("%s: %d %s", name, status, answer)
		}
	}
	if _, answer, _ := c.do("POST", "/api/chat", "[]"); !strings.Contains(answer, "The body: it is an array, want a JSON object") {
		t.Errorf("[]: %s", answer)
	}
	for body, want := range map[string]int{`{"model":"x","messages":[]}`: 404, `{"model":"demo","messages":[{}]}`: 400, `{"model":"demo","format":"xml","messages":[]}`: 400, `{"model":"demo","options":{"x":1},"messages":[]}`: 400} {
		status, answer, _ := c.do("POST", "/api/chat", body)
		var e map[string]string
		if err := json.Unmarshal([]byte(answer), &e); err != nil || status != want || e["error"] == "" {
			t.Errorf("%s: %d %s", body, status, answer)
		}
	}
}

// TestSpecialMarks: marks that are special tokens are seen, in a folder and in a GGUF file, which calls some of them text.
func TestSpecialMarks(t *testing.T) {
	ctx, dir := context.Background(), filepath.Join(t.TempDir(), "model")
	if err := copyModel(dir, "tiny-gemma4"); err != nil {
		t.Fatal(err)
	}
	template, err := os.ReadFile("../internal/chat/testdata/templates/google-gemma-4-31B-it.jinja")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "chat_template.jinja"), template, 0o666); err != nil {
		t.Fatal(err)
	}
	file := dir + ".gguf"
	if _, err := karat.Convert(ctx, dir, file, karat.ConvertOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, file} {
		m, err := karat.Load(ctx, path, karat.Options{Threads: 2, Context: 512})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		c := serve(t, m, Options{})
		if got := c.s.pool.list[0].now.special; len(got) != 5 {
			t.Errorf("%s: special marks %q", path, got)
		}
		for id, want := range map[int]string{12: "", 7: "", 5: ""} { // calls that never begin, the beginning of reasoning, and no mark of an answer
			o := c.post("/v1/chat/completions", fmt.Sprintf(`{%s,%s,"max_tokens":2,"logit_bias":{"%d":100}}`, ask, weather, id))
			text, _ := at(o, "choices", 0, "message", "content").(string)
			if id == 7 && strings.HasPrefix(text, "<|channel>") {
				text = ""
			}
			if text != want {
				t.Errorf("%s: token %d: %v", path, id, o)
			}
		}
	}
}
