package server

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/golden"
)

// seer is a model that sees, with a template of all roles, and two pictures of one size.
func seer(t *testing.T) (m *karat.Model, pictures [2][]byte) {
	t.Helper()
	dir := golden.Seeded(t, golden.Shared(t, "goldens/vision/qwen3vl"))
	golden.Tokenizer(t, dir, map[int]string{512: "<|vision_start|>", 513: "<|vision_end|>", 514: "<|image_pad|>"},
		`{% for m in messages %}{{ '<t3>' + (m.name or '') }}{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}`+
			`{% if m.content is string %}{{ m.content }}{% else %}{% for x in m.content or [] %}{% if x.type == 'image' %}`+
			`<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ x.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}`)
	m, err := karat.Load(context.Background(), dir, karat.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	files, err := filepath.Glob(filepath.Join(golden.Shared(t, "goldens/vision/images"), "*.png"))
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for i := range pictures {
		if pictures[i], err = os.ReadFile(files[i]); err != nil {
			t.Fatal(err)
		}
	}
	return m, pictures
}

// TestPictures: each API shows the model the pictures of a request, as the library does, and counts their tokens.
func TestPictures(t *testing.T) {
	m, files := seer(t)
	c := serve(t, m, Options{})
	part := func(i int) karat.Image { return karat.Image{Data: files[i]} }
	plain := []karat.Message{{Role: karat.RoleUser, Parts: []karat.Part{part(0), karat.Text("ab"), part(1)}}}
	first := []karat.Message{{Role: karat.RoleUser, Parts: []karat.Part{part(0), part(1), karat.Text("ab")}}}
	called := []karat.Message{karat.TextMessage(karat.RoleUser, "a"),
		{Role: karat.RoleAssistant, Parts: []karat.Part{karat.ToolCall{ID: "x", Name: "ab"}}},
		{Role: karat.RoleTool, Parts: []karat.Part{karat.ToolResult{ID: "x", Name: "ab", Content: "b", Images: []karat.Image{part(1)}}}}}
	coded := []string{base64.StdEncoding.EncodeToString(files[0]), base64.StdEncoding.EncodeToString(files[1])}
	url := func(i int) string { return `"data:image/png;base64,` + coded[i] + `"` }
	source := func(i int) string {
		return `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + coded[i] + `"}}`
	}
	chat := `{"type":"image_url","image_url":{"url":` + url(0) + `,"detail":"auto"}},{"type":"text","text":"ab"},{"type":"image_url","image_url":{"url":` + url(1) + `,"detail":"high"}}`
	shouted := `"DATA:Image/PNG;charset=utf-8;BASE64,` + coded[0] + `"` // names without a case
	input := `{"type":"input_image","detail":"auto","image_url":` + shouted + `},{"type":"input_text","text":"ab"},{"type":"input_image","image_url":` + url(1) + `}`
	for _, x := range []struct {
		name, path, body string
		as               []karat.Message
		text, count      []any
	}{
		{"chat", "/v1/chat/completions", `"temperature":0,"max_tokens":4,"messages":[{"role":"user","content":[` + chat + `]}]`, plain,
			[]any{"choices", 0, "message", "content"}, []any{"usage", "prompt_tokens"}},
		{"chat's result", "/v1/chat/completions", `"temperature":0,"max_tokens":4,"messages":[{"role":"user","content":"a"},{"role":"assistant","tool_calls":[{"id":"x","type":"function","function":{"name":"ab","arguments":"{}"}}]},
			{"role":"tool","tool_call_id":"x","content":[{"type":"text","text":"b"},{"type":"image_url","image_url":{"url":` + url(1) + `}}]}]`, called,
			[]any{"choices", 0, "message", "content"}, []any{"usage", "prompt_tokens"}},
		{"responses", "/v1/responses", `"temperature":0,"max_output_tokens":4,"input":[{"role":"user","content":[` + input + `]}]`, plain,
			[]any{"output", 0, "content", 0, "text"}, []any{"usage", "input_tokens"}},
		{"responses' output", "/v1/responses", `"temperature":0,"max_output_tokens":4,"input":[{"role":"user","content":"a"},{"type":"function_call","call_id":"x","name":"ab","arguments":"{}"},
			{"type":"function_call_output","call_id":"x","output":[{"type":"input_text","text":"b"},{"type":"input_image","image_url":` + url(1) + `}]}]`, called,
			[]any{"output", 0, "content", 0, "text"}, []any{"usage", "input_tokens"}},
		{"messages", "/v1/messages", `"temperature":0,"max_tokens":4,"messages":[{"role":"user","content":[` + source(0) + `,{"type":"text","text":"ab"},` + source(1) + `]}]`, plain,
			[]any{"content", 0, "text"}, []any{"usage", "input_tokens"}},
		{"messages' result", "/v1/messages", `"temperature":0,"max_tokens":4,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"x","name":"ab","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"x","content":[{"type":"text","text":"b"},` + source(1) + `]}]}]`, called,
			[]any{"content", 0, "text"}, []any{"usage", "input_tokens"}},
		{"Ollama's chat", "/api/chat", `"stream":false,"options":{"temperature":0,"num_predict":4},"messages":[{"role":"user","content":"ab","images":["` + coded[0] + `","` + coded[1] + `"]}]`, first,
			[]any{"message", "content"}, []any{"prompt_eval_count"}},
		{"Ollama's prompt", "/api/generate", `"stream":false,"options":{"temperature":0,"num_predict":4},"prompt":"ab","images":["` + coded[0] + `","` + coded[1] + `"]`, first,
			[]any{"response"}, []any{"prompt_eval_count"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := &client{t: t, url: c.url, s: c.s}
			ids, err := m.TokenizeChat(t.Context(), x.as, karat.GenerateOptions{})
			if err != nil || len(ids) < 10 {
				t.Fatal(ids, err)
			}
			want := ""
			for token, err := range m.Chat(t.Context(), x.as, karat.GenerateOptions{MaxTokens: 4, Sampling: &karat.Sampling{}}) {
				if err != nil {
					t.Fatal(err)
				}
				want += token.Text
			}
			o := c.post(x.path, `{"model":"demo",`+x.body+`}`)
			text, n := at(o, x.text...), at(o, x.count...).(float64)
			if cached, ok := at(o, "usage", "cache_read_input_tokens").(float64); ok {
				n += cached
			}
			if text != want || want == "" || n != float64(len(ids)) {
				t.Errorf("%q of %v tokens, want %q of %d", text, n, want, len(ids))
			}
			if _, there := o["context"]; there {
				t.Error("ids stand for pictures")
			}
		})
	}
	say := `"model":"demo","temperature":0,"max_tokens":4,"messages":[{"role":"user","content":[` + chat + `]}],"n":2`
	whole, streamed := c.said("/v1/chat/completions", `{`+say+`}`), c.said("/v1/chat/completions", `{"stream":true,`+say+`}`)
	if whole == "" || streamed != whole {
		t.Errorf("streamed %q, whole %q", streamed, whole)
	}
	held := at(c.post("/v1/chat/completions", `{`+say+`,"grammar":"root ::= \"abab\""}`), "choices", 0, "message", "content")
	if held != "abab" {
		t.Errorf("held to a grammar: %q", held)
	}
	o := c.post("/v1/chat/completions/input_tokens", `{"model":"demo","messages":[{"role":"user","content":[`+chat+`]}]}`)
	if ids, _ := m.TokenizeChat(t.Context(), plain, karat.GenerateOptions{}); o["input_tokens"] != float64(len(ids)) {
		t.Errorf("%v, want %d", o, len(ids))
	}
	_, answer, _ := c.do("POST", "/v1/chat/completions/render", `{"model":"demo","messages":[{"role":"user","content":[`+chat+`]}]}`)
	var r rendered
	if err := json.Unmarshal([]byte(answer), &r); err != nil || r.Features == nil || len(r.Features.Places["image"]) != 2 {
		t.Fatal(err, answer)
	}
	if ids, _ := m.TokenizeChat(t.Context(), plain, karat.GenerateOptions{}); !slices.Equal(r.Tokens, ids) {
		t.Errorf("rendered %d, want %d", r.Tokens, ids)
	}
	for i, p := range r.Features.Places["image"] { // between the marks
		if h := fmt.Sprintf("%x", sha256.Sum256(files[i])); r.Features.Hashes["image"][i] != h || p.Length == 0 || r.Tokens[p.Offset-1] != 512 || r.Tokens[p.Offset+p.Length] != 513 ||
			slices.ContainsFunc(r.Tokens[p.Offset:p.Offset+p.Length], func(id int) bool { return id != 514 }) {
			t.Errorf("picture %d: %+v of %d", i, r.Features, r.Tokens)
		}
	}
	if o := c.post("/api/show", `{"model":"demo"}`); !strings.Contains(fmt.Sprint(o["capabilities"]), "vision") {
		t.Errorf("%v", o["capabilities"])
	}
	if _, text, _ := c.do("GET", "/v1/models", ""); at(parseObject(t, text), "data", 0, "modalities", "vision") != true {
		t.Error(text)
	}
	for _, path := range []string{"/props", "/props?model=demo"} {
		_, text, _ := c.do("GET", path, "")
		o := parseObject(t, text)
		if room := at(o, "default_generation_settings", "n_ctx"); at(o, "modalities", "vision") != true || at(o, "modalities", "audio") != false ||
			room.(float64) < 1 || at(o, "total_slots").(float64) < 1 || at(o, "chat_template") != m.Info().Template {
			t.Errorf("%s: %s", path, text)
		}
	}
	if status, _, _ := c.do("GET", "/props?model=none", ""); status != 404 {
		t.Errorf("no such model: status %d", status)
	}
	c.header = map[string]string{"Anthropic-Version": "2023-06-01"}
	if _, text, _ := c.do("GET", "/v1/models/demo", ""); at(parseObject(t, text), "modalities", "vision") != true {
		t.Error(text)
	}
	c.header = nil
	for _, x := range [][3]string{
		{"url", "data: URLs", "https://example.org/a.png"}, {"url", "data: URLs", "file:///etc/passwd"},
		{"url", "want data:TYPE", "data:text/plain;base64,AAAA"}, {"url", "want data:TYPE", "data:image/png,AAAA"},
		{"url", "base64", "data:image/png;base64,%%"}, {"url", "empty", "data:image/png;base64,"},
		{"", "part 1: ", "data:image/png;base64,AAAA"}, {"", "part 1: ", "data:image/png;base64," + coded[0][:80]},
	} {
		param := "messages[0]"
		if x[0] != "" {
			param += ".content[1].image_url.url"
		}
		c.refuses(400, param, x[1], "POST", "/v1/chat/completions", `{"model":"demo","messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"`+x[2]+`"}}]}]}`)
	}
	for _, role := range []string{"system", "developer", "assistant"} { // neither vendors nor publishers' templates agree on such pictures
		for _, x := range [][3]string{
			{"/v1/chat/completions", "messages[0].content[0].type", `"messages":[{"role":"` + role + `","content":[{"type":"image_url","image_url":{"url":` + url(0) + `}}]}]`},
			{"/v1/responses", "input[0].content[0].type", `"input":[{"role":"` + role + `","content":[{"type":"input_image","image_url":` + url(0) + `}]}]`},
			{"/v1/messages", "messages[0].content[0].type", `"max_tokens":1,"messages":[{"role":"` + role + `","content":[` + source(0) + `]}]`},
			{"/api/chat", "messages[0].images", `"messages":[{"role":"` + role + `","content":"a","images":["` + coded[0] + `"]}]`},
		} {
			if x[0] != "/v1/messages" || role != "developer" {
				status, text, _ := c.do("POST", x[0], `{"model":"demo",`+x[2]+`}`)
				if status != 400 || !strings.Contains(text, x[1]+": a picture stands in a message of the user") {
					t.Errorf("%s, %s: %d %s", x[0], role, status, text)
				}
			}
		}
	}
	status, text, _ := c.do("POST", "/v1/messages", `{"model":"demo","max_tokens":1,"system":[`+source(0)+`],"messages":[{"role":"user","content":"a"}]}`)
	if status != 400 || !strings.Contains(text, "system[0].type: a picture stands in") {
		t.Errorf("%d %s", status, text)
	}
	for _, more := range []string{`"prompt":[5,514,6]`, `"prompt":[514],"stream":true`} {
		c.refuses(400, "", "a token of a picture", "POST", "/v1/completions", `{"model":"demo",`+more+`}`)
	}
	c.refuses(400, "input[0].content[0].file_id", "not supported", "POST", "/v1/responses", `{"model":"demo","input":[{"role":"user","content":[{"type":"input_image","file_id":"x"}]}]}`)
}

// TestBlind: a model that sees nothing refuses pictures, with what to do.
func TestBlind(t *testing.T) {
	c := serve(t, demo(t), Options{})
	const url = `"data:image/png;base64,AAAA"`
	for _, x := range [][3]string{
		{"/v1/chat/completions", "messages[0].content[0].image_url.url", `"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":` + url + `}}]}]`},
		{"/v1/responses", "input[0].content[0].image_url", `"input":[{"role":"user","content":[{"type":"input_image","image_url":` + url + `}]}]`},
		{"/v1/messages", "messages[0].content[0].source.data", `"max_tokens":1,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]}]`},
		{"/api/chat", "messages[0].images[0]", `"messages":[{"role":"user","content":"a","images":["AAAA"]}]`},
		{"/api/generate", "images[0]", `"prompt":"a","images":["AAAA"]`},
	} {
		status, text, _ := c.do("POST", x[0], `{"model":"demo",`+x[2]+`}`)
		var o any
		if err := json.Unmarshal([]byte(text), &o); err != nil || status != 400 || !strings.Contains(text, x[1]+": "+karat.ErrBlind.Error()+": take a model that sees") {
			t.Errorf("%s: %d %s", x[0], status, text)
		}
	}
	if _, text, _ := c.do("GET", "/v1/models", ""); at(parseObject(t, text), "data", 0, "modalities", "vision") != false {
		t.Error(text)
	}
}

// TestBatchPictures: lines of a batch with pictures have the answers of requests, and a line without sight its error.
func TestBatchPictures(t *testing.T) {
	m, files := seer(t)
	c := serve(t, m, Options{Store: t.TempDir()})
	body := func(i int) string {
		return `{"model":"demo","temperature":0,"max_tokens":4,"messages":[{"role":"user","content":[{"type":"text","text":"ab"},` +
			`{"type":"image_url","image_url":{"url":"data:image/png;base64,` + base64.StdEncoding.EncodeToString(files[i]) + `"}}]}]}`
	}
	lines := ""
	for i := range files {
		lines += fmt.Sprintf(`{"custom_id":"%d","method":"POST","url":"/v1/chat/completions","body":%s}`+"\n", i, body(i))
	}
	lines += `{"custom_id":"bad","method":"POST","url":"/v1/chat/completions","body":` + strings.Replace(body(0), "base64,", "base64,AAAA", 1) + `}`
	o := c.post("/v1/batches", `{"input_file_id":"`+c.keepFile(lines)+`","endpoint":"/v1/chat/completions","completion_window":"24h"}`)
	o = c.ended(o["id"].(string))
	out, failed := c.answers(o["output_file_id"]), c.answers(o["error_file_id"])
	if len(out) != 2 || at(failed["bad"], "response", "status_code") != 400. {
		t.Fatalf("%v: %v, %v", o, out, failed)
	}
	for i := range files {
		want, got := c.post("/v1/chat/completions", body(i)), out[fmt.Sprint(i)]
		for _, path := range [][]any{{"choices", 0, "message", "content"}, {"usage", "prompt_tokens"}} {
			if a := at(want, path...); a == nil || at(got, append([]any{"response", "body"}, path...)...) != a {
				t.Errorf("%v, want %v", got, want)
			}
		}
	}
}
