package server

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karat-run/karat"
)

// quick is a server whose model says one word, so that a request costs what reading it does.
func quick(f *testing.F) *Server {
	m, err := withTools()
	if err != nil {
		f.Fatal(err)
	}
	s, err := New(context.Background(), Options{Models: []Model{{Name: "demo", Model: m}}, MaxBody: 1 << 16, Requests: 8})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { s.Close() })
	s.ranker = ranks{}
	s.generate = func(context.Context, *karat.Session, []int, karat.GenerateOptions) iter.Seq2[karat.Token, error] {
		return func(yield func(karat.Token, error) bool) {
			yield(karat.Token{ID: 5, Text: "a", Stop: karat.StopEnd}, nil)
		}
	}
	return s
}

// fuzzRoutes posts a text to routes: whatever it is, it is answered, or refused as the client's fault by JSON.
func fuzzRoutes(f *testing.F, seeds []string, routes ...string) {
	for _, x := range seeds {
		f.Add(x)
	}
	s := quick(f)
	f.Fuzz(func(t *testing.T, body string) {
		if strings.Contains(body, `"echo"`) {
			return // which the model computes
		}
		for _, path := range routes {
			r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
			r.Host = "localhost"
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			status, answer := w.Code, w.Body.Bytes()
			if status >= 500 || status < 200 || status >= 300 && status < 400 {
				t.Fatalf("%s %q: %d %s", path, body, status, answer)
			}
			if status >= 400 && !json.Valid(answer) {
				t.Fatalf("%s %q: %d %s", path, body, status, answer)
			}
		}
	})
}

func FuzzOpenAI(f *testing.F) {
	fuzzRoutes(f, []string{
		`{` + ask + `,` + weather + `,"stream":true,"stream_options":{"include_usage":true},"logprobs":true,"top_logprobs":2,"n":2}`,
		`{"model":"demo","messages":[{"role":"developer","content":[{"type":"text","text":"a"}]},{"role":"assistant","content":null,"reasoning_content":"r","tool_calls":[{"id":"1","type":"function","function":{"name":"weather","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"x"}],"tool_choice":"auto","logit_bias":{"5":-100},"stop":["a"],"chat_template_kwargs":{"enable_thinking":false}}`,
		`{"model":"demo","prompt":["a",""],"logprobs":3,"best_of":1,"suffix":null}`,
		`{"model":"demo","prompt":[[1,2],[3]],"stream":true,"seed":-1}`,
	}, "/v1/chat/completions", "/v1/completions", "/v1/chat/completions/input_tokens")
}

func FuzzResponses(f *testing.F) {
	fuzzRoutes(f, []string{
		`{"model":"demo","input":"a","instructions":"b",` + flat + `,"text":{"format":{"type":"text"}},"stream":true}`,
		`{"model":"demo","input":[{"role":"user","content":[{"type":"input_text","text":"Q"}]},{"type":"function_call","call_id":"c","name":"weather","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"Rain"}],"reasoning":{"effort":"low"}}`,
	}, "/v1/responses", "/v1/responses/input_tokens")
}

func FuzzMessages(f *testing.F) {
	fuzzRoutes(f, []string{
		`{` + asking + `,` + schema + `,"system":[{"type":"text","text":"s"}],"stream":true,"tool_choice":{"type":"auto","disable_parallel_tool_use":true}}`,
		`{"model":"demo","max_tokens":5,"thinking":{"type":"disabled"},"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"T","signature":""},{"type":"tool_use","id":"1","name":"weather","input":{"city":"a"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"r"}],"is_error":true}]}]}`,
	}, "/v1/messages", "/v1/messages/count_tokens")
}

func FuzzOllama(f *testing.F) {
	fuzzRoutes(f, []string{
		`{` + ask + `,` + weather + `,"options":{"temperature":0,"num_predict":3,"stop":["x"]},"think":true,"keep_alive":-1}`,
		`{"model":"demo:latest","prompt":"a","system":"s","raw":false,"stream":false,"format":""}`,
		`{"model":"demo","messages":[{"role":"assistant","content":"","tool_calls":[{"function":{"name":"weather","arguments":{"city":"a"}}}]},{"role":"tool","tool_name":"weather","content":"x"}]}`,
	}, "/api/chat", "/api/generate", "/api/show")
}

func FuzzTokens(f *testing.F) {
	fuzzRoutes(f, []string{`{"content":"a","add_special":true,"with_pieces":true}`, `{"tokens":[1,2,3]}`, `{"messages":[{"role":"user","content":"a"}]}`}, "/tokenize", "/detokenize", "/apply-template")
}

func FuzzTexts(f *testing.F) {
	fuzzRoutes(f, []string{
		`{"model":"demo","input":["a",""],"dimensions":3,"encoding_format":"base64","prompt_name":"query"}`, `{"model":"demo","input":[[1],[2,3]],"truncate":true}`,
		`{"query":"q","documents":["a",{"text":"b"}],"top_n":1,"return_documents":true}`, `{"query":"q","texts":["a"],"raw_scores":true,"return_text":true}`,
	}, "/v1/embeddings", "/api/embed", "/v1/rerank", "/v2/rerank")
}

// FuzzDataURL: a URL is a picture's bytes, or refused as the client's fault; only data: is taken.
func FuzzDataURL(f *testing.F) {
	for _, url := range []string{"data:image/png;base64,AAAA", "DATA:image/jpeg;a=b;base64,AAA=", "http://a/b", "data:,", "data:image/png;base64,%"} {
		f.Add(url)
	}
	f.Fuzz(func(t *testing.T, url string) {
		raw, err := json.Marshal(url)
		if err != nil {
			t.Fatal(err)
		}
		var x karat.Image
		p := catch(func() { x = readPictureURL(&fields{values: map[string]json.RawMessage{"url": raw}, sees: true}, "url") })
		switch {
		case p != nil && (p.status != 400 || p.param != "url"):
			t.Fatalf("%q: %+v", url, p)
		case p == nil && (len(x.Data) == 0 || !strings.EqualFold(url[:11], "data:image/")):
			t.Fatalf("%q: %q", url, x.Data)
		}
	})
}

// FuzzKeys: a file of keys is read, or refused, and no error tells a secret.
func FuzzKeys(f *testing.F) {
	f.Add("ann:0123456789\n# b\nsecret-secret")
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := ParseKeys(text, "keys")
		if err != nil {
			return
		}
		if _, err := newKeyring(keys); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
	})
}

// FuzzHost: a host is let in only if it is this machine's.
func FuzzHost(f *testing.F) {
	f.Add("localhost:80")
	f.Add("[::1]:80")
	f.Add("127.0.0.1.evil.com")
	f.Fuzz(func(t *testing.T, host string) {
		if isAllowedHost(nil, host) && !strings.Contains(strings.ToLower(host), "localhost") && !strings.Contains(host, "127.") && !strings.Contains(host, ":") {
			t.Fatalf("%q is let in", host)
		}
	})
}

// FuzzUpload: a body of parts is a file, or refused as the client's fault; what is refused leaves nothing in the store.
func FuzzUpload(f *testing.F) {
	const part = "--b\r\nContent-Disposition: form-data; name=\"%s\"%s\r\n\r\n%s\r\n"
	whole := fmt.Sprintf(part, "purpose", "", "batch") + fmt.Sprintf(part, "file", `; filename="a.jsonl"`, `{"custom_id":"1"}`) + "--b--\r\n"
	for _, body := range []string{whole, whole[:60], strings.Replace(whole, "batch", "x", 1), strings.ReplaceAll(whole, "--b", "--c"), "", fmt.Sprintf(part, "file", "", "") + whole} {
		f.Add(body, "multipart/form-data; boundary=b")
	}
	f.Add(whole, "multipart/form-data")
	m, err := withTools()
	if err != nil {
		f.Fatal(err)
	}
	dir := f.TempDir()
	s, err := New(context.Background(), Options{Models: []Model{{Name: "demo", Model: m}}, Store: dir})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { s.Close() })
	ask := func(method, path, kind, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Host = "localhost"
		r.Header.Set("Content-Type", kind)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w
	}
	f.Fuzz(func(t *testing.T, body, kind string) {
		w := ask("POST", "/v1/files", kind, body)
		if w.Code == 200 {
			var o struct{ ID string }
			if err := json.Unmarshal(w.Body.Bytes(), &o); err != nil || ask("DELETE", "/v1/files/"+o.ID, "", "").Code != 200 {
				t.Fatalf("%q: %s, %v", body, w.Body, err)
			}
		} else if w.Code < 400 || w.Code >= 500 || !json.Valid(w.Body.Bytes()) {
			t.Fatalf("%q %q: %d %s", kind, body, w.Code, w.Body)
		}
		if left, err := filepath.Glob(filepath.Join(dir, "*.data")); err != nil || len(left) > 0 {
			t.Fatalf("%q: %q is left, %v", body, left, err)
		}
	})
}
