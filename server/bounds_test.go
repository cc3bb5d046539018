package server

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/karat-run/karat/internal/dev/golden"
)

// allocates returns the bytes that a request allocates, and its answer.
func (c *client) allocates(method, path, body string) (bytes uint64, status int, answer string) {
	c.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = "localhost"
	r.Header.Set("Content-Type", "application/json")
	for name, value := range c.header {
		r.Header.Set(name, value)
	}
	w := &counted{header: http.Header{}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c.s.ServeHTTP(w, r)
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, w.status, w.begin.String()
}

// counted is an answer of which the beginning is kept.
type counted struct {
	header http.Header
	status int
	bytes  int
	begin  strings.Builder
}

func (w *counted) Header() http.Header { return w.header }
func (w *counted) WriteHeader(status int) {
	w.status = status
}
func (w *counted) Write(p []byte) (int, error) {
	if w.bytes += len(p); w.begin.Len() < 4096 {
		w.begin.Write(p)
	}
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return len(p), nil
}

// TestMemoryOfRequests: what a request allocates is a small multiple of its bytes, whatever small things it is full of. Reading the
// body takes twice its size, and one more for texts.
func TestMemoryOfRequests(t *testing.T) {
	c := serve(t, demo(t), Options{})
	c.allocates("POST", "/v1/completions", `{"model":"demo","prompt":"a","max_tokens":1}`)
	many := func(n int, x string) string { return strings.TrimSuffix(strings.Repeat(x+",", n), ",") }
	n := 1 << 19
	if golden.Slow() {
		n = 1 << 21
	}
	chat := `{"model":"demo","max_tokens":1,"messages":[{"role":"user","content":"a"}]`
	names := func(n int) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(`,"x` + strings.Repeat("y", i%7) + string(rune('a'+i%26)) + `":1`)
		}
		return b.String()
	}
	parts := `{"role":"user","content":[` + many(1024, `{"type":"text","text":"a"}`) + `]}`
	for name, x := range map[string]struct{ path, body, want string }{
		"messages":      {"/v1/chat/completions", `{"model":"demo","messages":[` + many(n, `{}`) + `]}`, "objects and arrays"},
		"messages of 1": {"/v1/chat/completions", `{"model":"demo","messages":[` + many(n, `1`) + `]}`, strconv.Itoa(n) + " elements"},
		"parts":         {"/v1/chat/completions", `{"model":"demo","messages":[` + many(500, parts) + `]}`, "objects and arrays"},
		"input":         {"/v1/responses", `{"model":"demo","input":[` + many(n, `0`) + `]}`, strconv.Itoa(n) + " elements"},
		"anthropic":     {"/v1/messages", `{"model":"demo","max_tokens":1,"messages":[` + many(n, `[]`) + `]}`, "objects and arrays"},
		"lists":         {"/v1/completions", `{"model":"demo","prompt":[` + many(n, `[]`) + `]}`, "objects and arrays"},
		"some lists":    {"/v1/completions", `{"model":"demo","prompt":[` + many(100000, `[]`) + `]}`, "100000 texts"},
		"ids":           {"/v1/completions", `{"model":"demo","prompt":[` + many(n, `5`) + `]}`, "maximum context length"},
		"vectors":       {"/v1/embeddings", `{"model":"demo","input":[` + many(100000, `""`) + `]}`, ""},
		"documents":     {"/v1/rerank", `{"model":"demo","query":"a","documents":[` + many(100000, `""`) + `]}`, "100000 elements"},
		"stops":         {"/v1/chat/completions", chat + `,"stop":[` + many(100000, `""`) + `]}`, "100000 strings"},
		"numbers":       {"/v1/chat/completions", chat + `,"stop":[` + many(n, `1`) + `]}`, strconv.Itoa(n) + " strings"},
		"fields":        {"/v1/chat/completions", `{"model":"demo"` + names(n/4) + `}`, "objects and arrays"},
		"some fields":   {"/v1/chat/completions", `{"model":"demo"` + names(100000) + `}`, "100001 fields"},
		"biases":        {"/v1/chat/completions", chat + `,"logit_bias":{"x":0` + names(50000) + `}}`, "50001 fields"},
		"variables":     {"/v1/chat/completions", chat + `,"chat_template_kwargs":{"a":[` + many(n, `1`) + `]}}`, "chat_template_kwargs"},
		"schema":        {"/v1/chat/completions", chat + `,"tools":[{"type":"function","function":{"name":"f","parameters":{"enum":[` + many(n, `1`) + `]}}}]}`, "values"},
		"arguments":     {"/v1/chat/completions", `{"model":"demo","messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{\"a\":[` + many(n, `1`) + `]}"}}]}]}`, "values"},
		"tokenize":      {"/tokenize", `{"with_pieces":true,"content":"` + strings.Repeat("a b ", 1<<20) + `"}`, "in parts"},
		"detokenize":    {"/detokenize", `{"tokens":[` + many(1<<21, `5`) + `]}`, "in parts"},
		"context":       {"/api/generate", `{"model":"demo","prompt":"a","context":[` + many(n, `5`) + `]}`, "maximum context length"},
		"deep":          {"/v1/completions", strings.Repeat(`{"prompt":`, n), "levels deep"},
	} {
		bytes, status, answer := c.allocates("POST", x.path, x.body)
		if t.Logf("%s: %d bytes of %d, %.1f times", name, bytes, len(x.body), float64(bytes)/float64(len(x.body))); bytes > uint64(6*len(x.body)) {
			t.Errorf("%s: %d bytes of %d", name, bytes, len(x.body))
		}
		if status != 400 || !strings.Contains(answer, x.want) {
			t.Errorf("%s: %d %.300s", name, status, answer)
		}
	}
	// The greatest texts that are taken.
	for name, x := range map[string]struct {
		body  string
		times int
	}{
		"ids":    {`{"content":"` + strings.Repeat("a b ", maxTokenized/4) + `"}`, 120},
		"pieces": {`{"with_pieces":true,"content":"` + strings.Repeat("a b ", maxTokenized/4) + `"}`, 250},
	} {
		bytes, status, answer := c.allocates("POST", "/tokenize", x.body)
		if t.Logf("%s: %d bytes of %d", name, bytes, len(x.body)); status != 200 || bytes > uint64(x.times*len(x.body)) {
			t.Errorf("%s: %d %.100s, %d bytes", name, status, answer, bytes)
		}
	}
}

// TestMetadata: OpenAI's limits hold wherever metadata may be.
func TestMetadata(t *testing.T) {
	c := serve(t, demo(t), Options{Store: t.TempDir()})
	file := c.keepFile(lines(1))
	pairs := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, `"`+string(rune('a'+i))+`":"x"`)
		}
		return "{" + strings.Join(all, ",") + "}"
	}
	for path, body := range map[string]string{
		"/v1/batches":          `{"input_file_id":"` + file + `","endpoint":"/v1/completions","completion_window":"24h"`,
		"/v1/chat/completions": `{` + hello + `,"max_tokens":1`,
		"/v1/completions":      `{"model":"demo","prompt":"a","max_tokens":1`,
		"/v1/responses":        `{"model":"demo","input":"a","max_output_tokens":1`,
	} {
		for _, good := range []string{"null", "{}", pairs(16), `{"` + strings.Repeat("ä", 64) + `":"` + strings.Repeat("ö", 512) + `"}`} {
			c.post(path, body+`,"metadata":`+good+`}`)
		}
		for _, wrong := range []string{pairs(17), `{"` + strings.Repeat("a", 65) + `":"x"}`, `[]`, `"x"`} {
			c.refuses(400, "metadata", "", "POST", path, body+`,"metadata":`+wrong+`}`)
		}
		for _, wrong := range []string{`"` + strings.Repeat("x", 513) + `"`, `1`, `{}`, `null`} {
			c.refuses(400, "metadata.a", "", "POST", path, body+`,"metadata":{"a":`+wrong+`}}`)
		}
	}
}

// lazy is a client that takes long to read each piece.
type lazy struct {
	*counted
	clock    time.Time
	deadline time.Time
}

func (l *lazy) SetWriteDeadline(t time.Time) error {
	if !t.IsZero() {
		l.deadline = t
	}
	return nil
}

func (l *lazy) Flush() { l.clock = l.clock.Add(29 * time.Second) }

// TestLazyReader: a stream waits for its client so long in all, however often that reads.
func TestLazyReader(t *testing.T) {
	l := &lazy{counted: &counted{header: http.Header{}}, clock: time.Unix(1000, 0)}
	s := &stream{w: l, limit: writeLimit, left: waitedLimit, now: func() time.Time { return l.clock }}
	pieces := 0
	for ; pieces < 100; pieces++ {
		before := l.clock
		if s.send("", pieces); !l.deadline.After(before) {
			break
		}
	}
	if pieces < 8 || pieces > 12 {
		t.Errorf("the deadline was over at piece %d", pieces)
	}
}

// TestKeptTokens: log-probabilities that are collected count among the bodies of requests, and their room comes back.
func TestKeptTokens(t *testing.T) {
	c := serve(t, demo(t), Options{})
	const more = `"max_tokens":100,"temperature":0,"logit_bias":{"1":-100,"106":-100}}`
	c.s.rooms.bodies.take("", allBodies-40_000)
	c.refuses(429, "", "log-probabilities", "POST", "/v1/chat/completions", `{`+hello+`,"logprobs":true,"top_logprobs":20,"n":4,`+more)
	c.refuses(429, "", "log-probabilities", "POST", "/v1/completions", `{"model":"demo","prompt":"`+strings.Repeat("a ", 100)+`","echo":true,"logprobs":20,`+more)
	c.post("/v1/chat/completions", `{`+hello+`,"n":4,`+more)
	c.post("/v1/chat/completions", `{`+hello+`,"logprobs":true,`+more)
	events := c.begin(t.Context(), "/v1/chat/completions", `{`+hello+`,"stream":true,"logprobs":true,"top_logprobs":20,"n":4,`+more) // which keeps none
	text, err := io.ReadAll(events.Body)
	if events.Body.Close(); err != nil || !strings.Contains(string(text), "[DONE]") {
		t.Errorf("%v %s", err, text)
	}
	if c.s.rooms.bodies.left() != 40_000 || c.s.rooms.small.left() != smallBodies {
		t.Errorf("%d and %d bytes are left", c.s.rooms.bodies.left(), c.s.rooms.small.left())
	}
}

// TestLargeAnswers: an answer that is much larger than its request counts while it is read.
func TestLargeAnswers(t *testing.T) {
	c := serve(t, demo(t), Options{Store: t.TempDir()})
	text := strings.Repeat("a b ", 20_000)
	c.s.rooms.bodies.take("", allBodies-100_000)
	c.post("/detokenize", `{"tokens":[5]}`)
	c.refuses(429, "", "too large together", "POST", "/tokenize", `{"content":"`+text+`"}`)
	for range 400 {
		f := c.s.newFile(newID("file-"), strings.Repeat("x", maxFilename), "batch", "")
		c.s.store.mu.Lock()
		c.s.store.file[f.ID] = f
		c.s.store.mu.Unlock()
	}
	c.refuses(429, "", "answers that are being sent", "GET", "/v1/files", "")
	if status, _, _ := c.do("GET", "/v1/files?limit=10", ""); status != 200 {
		t.Error(status)
	}
	if c.s.rooms.bodies.left() != 100_000 || c.s.rooms.small.left() != smallBodies {
		t.Errorf("%d and %d bytes are left", c.s.rooms.bodies.left(), c.s.rooms.small.left())
	}
}
