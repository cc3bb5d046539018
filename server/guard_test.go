package server

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/karat-run/karat"
)

// TestD1Hosts is incident D1: names that were made to point here, and pages of other sites, are refused.
func TestD1Hosts(t *testing.T) {
	c := serve(t, demo(t), Options{})
	port := c.url[strings.LastIndexByte(c.url, ':'):]
	for host, ok := range map[string]bool{"localhost": true, "localhost" + port: true, "LOCALHOST": true, "127.0.0.1": true, "127.1.2.3:80": true, "[::1]": true, "[::1]" + port: true,
		"evil.com": false, "localhost.evil.com": false, "127.0.0.1.nip.io": false, "0.0.0.0": false, "169.254.169.254": false, "[::1%25eth0]": false, "x localhost": false} {
		status := 0
		if r, err := raw(c.url, "GET /v1/models HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n"); err == nil {
			status = r.StatusCode
		}
		if ok != (status == 200) {
			t.Errorf("Host %s: %d", host, status)
		}
	}
	for origin, ok := range map[string]bool{c.url: true, "null": false, "http://localhost.evil.com": false, "http://evil.com": false, "http://localhost:1": true, "https://127.0.0.1": true, "http://[::1]:9": true, "app://x": true, "http://127.0.0.1.nip.io": false, "chrome-extension://x": false, "file://": false, "": false} {
		c.header = map[string]string{"Origin": origin}
		if status, answer, h := c.do("GET", "/v1/models", ""); ok != (status == 200) || (h.Get("Access-Control-Allow-Origin") != "") != (ok && origin != c.url) || h.Get("Vary") != "Origin" {
			t.Errorf("Origin %q: %d %s", origin, status, answer)
		}
	}
	c.header = map[string]string{"Content-Type": "text/plain"}
	c.refuses(415, "", "application/json", "POST", "/v1/chat/completions", `{`+hello+`}`)
	c.header = map[string]string{"Content-Encoding": "zstd"}
	c.refuses(415, "", "want gzip", "POST", "/v1/chat/completions", `{`+hello+`}`)
	c.header = map[string]string{"Content-Encoding": "gzip"}
	c.refuses(400, "", "no whole gzip", "POST", "/v1/chat/completions", `{`+hello+`}`)
	c.refuses(400, "", "no whole gzip", "POST", "/v1/chat/completions", zipped(`{` + hello + `}`)[:40])
	c.refuses(413, "", "more than", "POST", "/v1/chat/completions", zipped(strings.Repeat(" ", 33<<20)))
	if status, answer, _ := c.do("POST", "/v1/chat/completions/input_tokens", zipped(`{`+hello+`}`)); status != 200 {
		t.Errorf("gzip: %d %s", status, answer)
	}
	c.header = map[string]string{"Origin": "http://evil.com", "Access-Control-Request-Method": "POST"}
	c.refuses(403, "", "not allowed", "OPTIONS", "/v1/chat/completions", "")
	any := serve(t, demo(t), Options{Hosts: []string{"models.example"}})
	any.header = map[string]string{"Host": "models.example:443"}
	if status, _, _ := any.do("GET", "/health", ""); status != 200 {
		t.Error(status)
	}
	any.header = nil
	any.refuses(403, "", "Host", "GET", "/health", "")
}

func zipped(s string) string {
	var b strings.Builder
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(s))
	_ = z.Close()
	return b.String()
}

// TestOrigins: pages of the origins that are named may call the server and read its answers, others may not; a browser asks first, without a key.
func TestOrigins(t *testing.T) {
	for _, x := range []struct{ pattern, yes, no string }{
		{"http://localhost:3000", "http://localhost:3000", "http://localhost:3001"},
		{"http://localhost:3000/", "http://LOCALHOST:3000", "https://localhost:3000"},
		{"http://localhost:*", "http://localhost", "http://localhost.evil.com:1"},
		{"https://*.example.com", "https://a.b.example.com", "https://example.com"},
		{"https://*.example.com:*", "https://a.example.com:8443", "https://a.example.com.evil.com"},
		{"http://[::1]:*", "http://[::1]:5", "http://1:5"},
		{"vscode-webview://*", "vscode-webview://1a2b", "vscode://1a2b"},
		{"null", "null", "http://localhost"},
		{"*", "null", ""},
	} {
		c := serve(t, demo(t), Options{Origins: []string{x.pattern}, Keys: []Key{{Name: "ann", Secret: secret}}})
		c.header = map[string]string{"Origin": x.yes, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,x-stainless-os", "Access-Control-Request-Private-Network": "true",
			"Sec-Fetch-Site": "same-site"}
		named, credentials := x.yes, "true"
		if x.pattern == "*" {
			named, credentials = "*", ""
		}
		status, _, h := c.do("OPTIONS", "/v1/chat/completions", "")
		for name, want := range map[string]string{"Access-Control-Allow-Origin": named, "Access-Control-Allow-Credentials": credentials, "Access-Control-Allow-Headers": "authorization,x-stainless-os",
			"Access-Control-Allow-Private-Network": "true", "Vary": "Origin"} {
			if got := h.Get(name); got != want || status != 204 {
				t.Errorf("%s, %s: %d %s %q, want %q", x.pattern, x.yes, status, name, got, want)
			}
		}
		if !strings.Contains(h.Get("Access-Control-Allow-Methods"), "POST") {
			t.Errorf("%v", h)
		}
		c.header = map[string]string{"Origin": x.yes, "Authorization": "Bearer " + secret, "Sec-Fetch-Site": "cross-site"}
		if status, answer, h := c.do("POST", "/v1/chat/completions", `{`+hello+`,"max_tokens":1}`); status != 200 || h.Get("Access-Control-Allow-Origin") != named {
			t.Errorf("%s, %s: %d %s", x.pattern, x.yes, status, answer)
		}
		c.header = map[string]string{"Origin": x.yes}
		if status, _, h := c.do("GET", "/v1/models", ""); status != 401 || h.Get("Access-Control-Allow-Origin") != named {
			t.Errorf("%s: without a key %d", x.pattern, status)
		}
		if x.no != "" {
			for _, method := range []string{"OPTIONS", "GET"} {
				c.header = map[string]string{"Origin": x.no, "Access-Control-Request-Method": "GET"}
				if status, answer, h := c.do(method, "/health", ""); status != 403 || h.Get("Access-Control-Allow-Origin") != "" || !strings.Contains(answer, "--allow-origin") {
					t.Errorf("%s, %s: %d %s", x.pattern, x.no, status, answer)
				}
			}
		}
	}
	for _, pattern := range []string{"localhost:3000", "", "http://", "http://a/b", "http://u@a"} {
		if s, err := New(t.Context(), Options{Models: []Model{{Name: "a", Model: demo(t)}}, Origins: []string{pattern}}); err == nil {
			t.Errorf("%q is taken", pattern)
			s.Close()
		}
	}
}

// TestPlainJSON: JSON is JSON without a Content-Type, and with the one that curl gives it, except from pages of other origins.
func TestPlainJSON(t *testing.T) {
	c := serve(t, demo(t), Options{})
	for _, kind := range []string{"", "application/x-www-form-urlencoded", "application/json; charset=utf-8"} {
		c.header = map[string]string{"Content-Type": kind}
		c.post("/v1/chat/completions", `{`+hello+`,"max_tokens":1}`)
		c.header["Origin"] = "http://localhost:3000"
		c.post("/api/generate", `{"model":"demo","stream":false,"prompt":"a","options":{"num_predict":1}}`)
		c.header["Origin"] = "http://evil.com"
		if status, answer, _ := c.do("POST", "/v1/chat/completions", `{`+hello+`}`); status != 403 {
			t.Errorf("%q: %d %s", kind, status, answer)
		}
	}
}

// raw sends the bytes of a request.
func raw(url, text string) (*http.Response, error) {
	r, _, err := rawText(url, text)
	return r, err
}

// rawText is raw with the answer's text.
func rawText(url, text string) (*http.Response, string, error) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		return nil, "", err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		return nil, "", err
	}
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	return r, string(b), err
}

const secret = "sk-0123456789"

// TestD2Keys is incident D2: without the right key nothing but /health is answered, however a path or a
// method is spelled.
func TestD2Keys(t *testing.T) {
	c := serve(t, demo(t), Options{Keys: []Key{{Name: "ann", Secret: secret}, {Name: "bob", Secret: "another-secret"}}})
	var clock atomic.Int64
	c.s.now = func() time.Time { return time.Unix(clock.Add(60), 0) } // each request is the first wrong one of its minute
	for _, header := range []map[string]string{nil, {"Authorization": "Bearer " + strings.ToUpper(secret)}, {"Authorization": "Bearer"}, {"Authorization": secret}, {"Authorization": "Basic " + secret},
		{"X-Api-Key": secret + "x"}, {"Authorization": "Bearer " + secret + ", " + secret}} {
		c.header = header
		code := `"code":null`
		if header["X-Api-Key"] != "" {
			code = `"code":"invalid_api_key"`
		}
		for _, pattern := range c.s.patterns {
			method, path, _ := strings.Cut(pattern, " ")
			path = strings.ReplaceAll(path, "{id...}", "x")
			for _, spelled := range []string{path, "/" + path, strings.ToUpper(path), path + "/", path + "/.", strings.Replace(path, "/", "/%2e/", 1), path + "?key=" + secret, "/nothing"} {
				for _, m := range []string{method, "HEAD", "OPTIONS", "PUT", "get"} {
					status, answer, _ := c.do(m, spelled, "")
					open := slices.Contains([]string{"/health", "/ready"}, strings.SplitN(spelled, "?", 2)[0]) && (m == "GET" || m == "HEAD")
					if open != (status == 200) || !open && status != 401 {
						t.Fatalf("%v: %s %s: %d %s", header, m, spelled, status, answer)
					}
					if !open && m == method && !strings.Contains(answer, code) && c.s.voiceOf(spelled) == (openAI{}) && header != nil && header["X-Api-Key"] != "" {
						t.Errorf("%s", answer)
					}
				}
			}
		}
	}
	for _, header := range []map[string]string{{"Authorization": "Bearer " + secret}, {"authorization": "bearer  " + secret}, {"x-api-key": "another-secret"}} {
		c.header = header
		c.post("/v1/chat/completions", `{`+hello+`,"max_tokens":1}`)
		for _, path := range []string{"//v1/models", "/v1/../metrics", "/V1/models", "/v1/models/%2e%2e"} {
			if status, answer, _ := c.do("GET", path, ""); status != 404 {
				t.Errorf("%s: %d %s", path, status, answer)
			}
		}
	}
}

// TestD10PrefixesApart is incident D10: callers of different keys share no prefixes, those of one do.
func TestD10PrefixesApart(t *testing.T) {
	c := serve(t, model(t, karat.Options{Context: 512}), Options{Keys: []Key{{Name: "ann", Secret: secret}, {Name: "bob", Secret: "another-secret"}}})
	body := `{"model":"demo","max_tokens":1,"messages":[{"role":"user","content":"` + strings.Repeat("The sky is blue. ", 40) + `"}]}`
	cached := func(key string) float64 {
		c.header = map[string]string{"Authorization": "Bearer " + key}
		return at(c.post("/v1/chat/completions", body), "usage", "prompt_tokens_details", "cached_tokens").(float64)
	}
	if a, b, again := cached(secret), cached("another-secret"), cached(secret); a != 0 || b != 0 || again < 64 {
		t.Errorf("%v, %v and %v tokens were there", a, b, again)
	}
}

// hash12 is the part of a secret's hash that names a key without a name.
func hash12(secret string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(secret)))[:12] }

func TestParseKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte("# ours\nann: "+secret+"\n\nanother-secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := ReadKeys(file)
	if err != nil || len(keys) != 2 || !reflect.DeepEqual(keys, []Key{{Name: "ann", Secret: secret}, {Name: "key-" + hash12("another-secret"), Secret: "another-secret"}}) {
		t.Errorf("%v %v", keys, err)
	}
	for _, text := range []string{"", "# none", "ann:short", "ann:" + secret + "\nann:another-secret", "a:" + secret + "\nb:" + secret, "a b:" + secret, "a:12345678 9", "a:12345678\u00e4",
		"a:" + secret + " rooms=1", "a:" + secret + " requests=0", "a:" + secret + " tokens=x", "a:" + secret + " routes=", "a:" + secret + " routes=v1", "a:" + secret + " models"} {
		if keys, err := ParseKeys(text, "keys"); err == nil {
			t.Errorf("%q: %v", text, keys)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("the error tells a secret: %v", err)
		}
	}
	if err := os.WriteFile(file, []byte(strings.Repeat("#\n", maxKeys/2+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadKeys(file); err == nil { // those at the end would not be there
		t.Error("a file of keys was cut")
	}
}

// TestD9Limits is incident D9, of what a handler sees: large bodies, and bodies that end early.
func TestD9Limits(t *testing.T) {
	c := serve(t, demo(t), Options{MaxBody: 100000})
	large := `{"model":"demo"` + strings.Repeat(" ", firstBody) + `}`
	c.refuses(413, "", "more than 100000 bytes", "POST", "/v1/completions", `{"prompt":"`+strings.Repeat("a", 200000)+`"}`)
	c.s.rooms.bodies.take("", allBodies-10) // as if others were being read
	c.refuses(429, "", "too large together", "POST", "/v1/completions", large)
	c.refuses(400, "prompt", "", "POST", "/v1/completions", `{"model":"demo"}`) // small ones have room of their own
	c.s.rooms.bodies.give("", allBodies-10)
	c.refuses(400, "prompt", "", "POST", "/v1/completions", large)
	if c.s.rooms.bodies.left() != allBodies || c.s.rooms.small.left() != smallBodies {
		t.Errorf("%d bytes are left", c.s.rooms.bodies.left())
	}
	r, err := raw(c.url, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: 1000000000\r\n\r\n"+strings.Repeat(" ", 2000))
	if err != nil || r.StatusCode != 413 {
		t.Errorf("%v %v", r, err)
	}
	for _, text := range []string{
		"GET /health HTTP/1.1\r\n\r\n",                                                                               // no Host
		"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",                                         // two
		"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!\n", // two lengths
		"GET http://evil.com/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked, x\r\n\r\n0\r\n\r\n",
	} {
		if r, err := raw(c.url, text); err != nil || r.StatusCode < 400 || r.StatusCode >= 500 && r.StatusCode != 501 {
			t.Errorf("%q: %v %v", text, r, err)
		}
	}
}

// TestLargeBodies: a client that sends all of a body before it reads gets the refusal of a body that is too large, in the
// API's own form, whether or not the body's size was announced.
func TestLargeBodies(t *testing.T) {
	c := serve(t, demo(t), Options{MaxBody: 100000})
	body := strings.Repeat(" ", 16<<20) // more than a connection's buffers hold
	for path, want := range map[string]string{
		"/v1/chat/completions": `"invalid_request_error"`, "/v1/responses": `"invalid_request_error"`, "/api/chat": `{"error":"`,
		"/v1/messages": `"request_too_large"`, "/v1/files": `"invalid_request_error"`, "/nowhere": `"invalid_request_error"`,
	} {
		for _, sent := range []string{fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body),
			fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)} {
			r, text, err := rawText(c.url, "POST "+path+" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+sent)
			status := map[string]int{"/v1/files": 404, "/nowhere": 404}[path]
			if err != nil || r.StatusCode != cmp.Or(status, 413) || !strings.Contains(text, want) {
				t.Errorf("%s, %.20q: %v, %s, %v", path, sent, r, text, err)
			}
		}
	}
}

// drip is a body that comes slowly, and tells how many bytes of it have come.
type drip struct {
	left int
	seen func(came int)
	came int
}

func (d *drip) Read(p []byte) (int, error) {
	d.seen(d.came)
	n := min(len(p), d.left, max(1000, d.came/10))
	if n == 0 {
		return 0, io.EOF
	}
	for i := range p[:n] {
		p[i] = byte(d.came + i)
	}
	d.came, d.left = d.came+n, d.left-n
	return n, nil
}

// TestBodiesGrow: room for bodies is taken as bytes come, not for what might come of them.
func TestBodiesGrow(t *testing.T) {
	s := &Server{o: Options{MaxBody: 32 << 20}}
	for _, size := range []int{0, 10, 65536, 65537, 1 << 20, 32 << 20, 32<<20 + 1} {
		for _, said := range []int64{-1, int64(size)} {
			s.rooms.bodies, s.rooms.small = newShares(allBodies, nil), newShares(smallBodies, nil)
			d := &drip{left: size, seen: func(came int) {
				if held := allBodies - s.rooms.bodies.left() + smallBodies - s.rooms.small.left(); held > max(firstBody, 2*came)+1 || said >= 0 && held > size+1 {
					t.Fatalf("%d bytes are held when %d of %d have come", held, came, size)
				}
			}}
			r := httptest.NewRequest("POST", "/", d)
			r.Header.Set("Content-Type", "application/json")
			r.ContentLength = said
			x := &exchange{s: s, who: &caller{}, w: &writer{ResponseWriter: httptest.NewRecorder()}, r: r}
			var body []byte
			p := catch(func() { body = x.readBody() })
			if size > 32<<20 {
				if p == nil || p.status != http.StatusRequestEntityTooLarge {
					t.Errorf("%d bytes: %v", size, p)
				}
				if said >= 0 && d.left != size {
					t.Errorf("%d of %d bytes were read of a body that said its size", size-d.left, size)
				}
			} else if p != nil || len(body) != size || size > 0 && body[size-1] != byte(size-1) {
				t.Errorf("%d of %d bytes: %v", len(body), size, p)
			}
			if x.held.end(); s.rooms.bodies.left() != allBodies || s.rooms.small.left() != smallBodies {
				t.Errorf("%d bytes are left of %d, %d of %d", s.rooms.bodies.left(), allBodies, s.rooms.small.left(), smallBodies)
			}
		}
	}
}

// TestD6Knobs is incident D6: what the engine is set by is not on the wire, and no value of any field is the server's own fault.
func TestD6Knobs(t *testing.T) {
	c := serve(t, demo(t), Options{})
	for _, knob := range []string{"n_discard", "priority", "cache_salt", "threads", "kv", "lora", "guided_json", "slot_id", "id_slot", "ignore_eos", "logits_processors"} {
		c.refuses(400, knob, "Unrecognized", "POST", "/v1/chat/completions", `{`+hello+`,"`+knob+`":-1}`)
	}
	values := []string{`null`, `-1`, `0`, `1e400`, `1e308`, `1.5`, `9223372036854775808`, `"x"`, `""`, `[]`, `[null]`, `[[]]`, `{}`, `{"a":1}`, `true`, `"\u0000"`, `[1,"a"]`, `{"type":"x"}`}
	for _, name := range []string{"temperature", "top_p", "top_k", "min_p", "n", "seed", "stop", "stream_options", "logprobs", "top_logprobs", "max_tokens", "logit_bias", "presence_penalty", "tools", "tool_choice",
		"parallel_tool_calls", "response_format", "messages", "chat_template_kwargs", "reasoning_effort", "thinking_budget", "grammar", "structured_outputs", "modalities", "user", "repetition_penalty", "stream"} {
		for _, v := range values {
			body := fmt.Sprintf(`{"model":"demo","max_completion_tokens":1,%q:%s,"messages":[{"role":"user","content":"a"}]}`, name, v)
			if status, answer, _ := c.do("POST", "/v1/chat/completions", body); status != 200 && status != 400 {
				t.Errorf("%s: %d %s", body, status, answer)
			}
		}
	}
	for _, name := range []string{"prompt", "echo", "logprobs", "best_of", "suffix", "n", "max_tokens"} {
		for _, v := range values {
			body := fmt.Sprintf(`{"model":"demo",%q:%s,"prompt":"a"}`, name, v)
			if name != "max_tokens" {
				body = strings.Replace(body, `{`, `{"max_tokens":1,`, 1)
			}
			if status, answer, _ := c.do("POST", "/v1/completions", body); status != 200 && status != 400 {
				t.Errorf("%s: %d %s", body, status, answer)
			}
		}
	}
}
