package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/karat-run/karat"
)

// long is a request whose answer takes hundreds of steps.
const long = `{"model":"demo","prompt":[2,5],"max_tokens":400,"temperature":0,"stream":true,"logit_bias":{"1":-100,"106":-100}}`

// begin sends a request and returns once its answer has begun.
func (c *client) begin(ctx context.Context, path, body string) *http.Response {
	c.t.Helper()
	r, err := http.NewRequestWithContext(ctx, "POST", c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp
}

// TestD9Leavers is incident D9: who goes away in the middle of an answer leaves a place to others, and nothing behind.
func TestD9Leavers(t *testing.T) {
	m := model(t, karat.Options{Context: 512, Parallel: 1})
	c := serve(t, m, Options{})
	c.post("/v1/completions", `{"model":"demo","prompt":"a","max_tokens":1}`)
	http.DefaultClient.CloseIdleConnections()
	before := runtime.NumGoroutine()
	for range 20 {
		ctx, cancel := context.WithCancel(context.Background())
		resp := c.begin(ctx, "/v1/completions", long)
		io.ReadFull(resp.Body, make([]byte, 10))
		cancel()
		resp.Body.Close()
	}
	c.post("/v1/completions", `{"model":"demo","prompt":"a","max_tokens":1}`)
	eventually(t, func() bool { s := m.Stats(); return s.Busy == 0 && s.Running == 0 && s.KVUsed == 0 })
	http.DefaultClient.CloseIdleConnections()
	eventually(t, func() bool { return runtime.NumGoroutine() <= before+2 })
	eventually(t, func() bool { return c.s.rooms.places.left() == 256 })
}

// eventually waits for what is to come about soon. If it never does, go test says who waits.
func eventually(t testing.TB, is func() bool) {
	t.Helper()
	for !is() {
		runtime.Gosched()
	}
}

// pause has answers wait behind their first tokens, until resume is called.
func (c *client) pause() (resume func()) {
	compute, over := c.s.generate, make(chan struct{})
	c.s.generate = func(ctx context.Context, s *karat.Session, ids []int, o karat.GenerateOptions) iter.Seq2[karat.Token, error] {
		return func(yield func(karat.Token, error) bool) {
			for t, err := range compute(ctx, s, ids, o) {
				if !yield(t, err) {
					return
				}
				select {
				case <-over:
				case <-ctx.Done():
				}
			}
		}
	}
	return func() { close(over) }
}

// stuckWriter is a client that reads nothing: what is written to it waits for the deadline.
type stuckWriter struct {
	header  http.Header
	limit   chan time.Time
	writing chan struct{}
	once    sync.Once
}

func (w *stuckWriter) Header() http.Header { return w.header }
func (w *stuckWriter) WriteHeader(int)     {}
func (w *stuckWriter) SetWriteDeadline(t time.Time) error {
	w.limit <- t
	return nil
}

func (w *stuckWriter) Write(b []byte) (int, error) {
	w.once.Do(func() { close(w.writing) })
	<-w.limit
	return 0, io.ErrClosedPipe
}

// TestD9SlowReader: one who does not read holds up nobody, not even where one request runs at a time; and a
// write that fails ends the answer.
func TestD9SlowReader(t *testing.T) {
	m := model(t, karat.Options{Context: 512, Parallel: 1})
	c := serve(t, m, Options{})
	w := &stuckWriter{header: http.Header{}, limit: make(chan time.Time), writing: make(chan struct{})}
	r, err := http.NewRequest("POST", "http://localhost/v1/completions", strings.NewReader(long))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	over := make(chan struct{})
	go func() {
		c.s.ServeHTTP(w, r)
		close(over)
	}()
	first := <-w.limit // a deadline is set before each write
	if left := time.Until(first); left <= 0 || left > writeLimit {
		t.Errorf("the deadline is in %v", left)
	}
	<-w.writing
	c.post("/v1/completions", `{"model":"demo","prompt":"a","max_tokens":5}`)
	w.limit <- time.Time{} // the deadline passes
	<-over
	eventually(t, func() bool { s := m.Stats(); return s.Running == 0 && s.KVUsed == 0 })
}

// TestD15Queue is incident D15: of more requests than there may be those beyond are refused, to come again, and all others
// are answered once.
func TestD15Queue(t *testing.T) {
	c := serve(t, model(t, karat.Options{Context: 512, Parallel: 1}), Options{Requests: 4})
	var wg sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{}
	held, resume := make([]*http.Response, 4), c.pause()
	for i := range held {
		wg.Go(func() { held[i] = c.begin(context.Background(), "/v1/completions", long) })
	}
	eventually(t, func() bool { return c.s.rooms.places.left() == 0 })
	for range 5 {
		status, answer, h := c.do("POST", "/v1/completions", `{"model":"demo","prompt":"a"}`)
		if status != 429 || h.Get("Retry-After") != "1" || !strings.Contains(answer, "rate_limit_exceeded") {
			t.Errorf("%d %s", status, answer)
		}
	}
	resume()
	wg.Wait()
	for _, r := range held {
		wg.Go(func() {
			b, err := io.ReadAll(r.Body)
			r.Body.Close()
			mu.Lock()
			defer mu.Unlock()
			statuses[r.StatusCode]++
			if err != nil || strings.Count(string(b), "[DONE]") != 1 {
				t.Errorf("%v: %.100s", err, b)
			}
		})
	}
	wg.Wait()
	if statuses[200] != 4 {
		t.Errorf("%v", statuses)
	}
	c.refuses(400, "n", "at most 4", "POST", "/v1/completions", `{"model":"demo","prompt":"a","n":5}`)
	c.post("/v1/completions", `{"model":"demo","prompt":"a","n":4,"max_tokens":1}`)
}

// TestD7Hangs is incident D7 from the engine's counts to the answer: one that hangs makes /health a 503 after a minute of looks, until it goes on.
func TestD7Hangs(t *testing.T) {
	c := serve(t, demo(t), Options{})
	now := karat.Stats{Busy: 1, Steps: 7}
	s := c.s
	s.stop() // its own looks, which come with the clock
	s.stats = func(*karat.Model) karat.Stats { return now }
	for i := range stuckAfter + 2 {
		s.look()
		want := 200
		if i >= stuckAfter {
			want = 503
		}
		if status, answer, _ := c.do("GET", "/health", ""); status != want {
			t.Fatalf("after %d looks: %d %s", i+1, status, answer)
		}
	}
	now.Steps++
	s.look()
	if status, answer, _ := c.do("GET", "/health", ""); status != 200 {
		t.Errorf("it goes on: %d %s", status, answer)
	}
}

// TestD7StuckEngine is incident D7: an engine that has work and does not go on is told by /health, and the end of that, too.
func TestD7StuckEngine(t *testing.T) {
	c := serve(t, demo(t), Options{})
	health := func(want int) {
		t.Helper()
		for _, path := range []string{"/health", "/ready"} {
			if status, answer, _ := c.do("GET", path, ""); status != want {
				t.Errorf("%s: %d %s", path, status, answer)
			}
		}
	}
	w := &c.s.pool.list[0].now.watch
	health(200)
	var x watch
	for i := range 2*stuckAfter + 1 {
		x.look(karat.Stats{Busy: 1, Steps: 7})
		if got := x.stuck.Load(); got != (i >= stuckAfter) {
			t.Fatalf("after %d looks: %v", i, got)
		}
	}
	x.look(karat.Stats{Busy: 1, Steps: 8})
	if x.stuck.Load() {
		t.Error("it goes on, and is stuck")
	}
	for range 2 * stuckAfter {
		x.look(karat.Stats{Steps: 8})
	}
	if x.stuck.Load() {
		t.Error("it has no work, and is stuck")
	}
	w.stuck.Store(true)
	health(503)
	w.stuck.Store(false)
	health(200)
	c.s.Drain()
	if status, _, _ := c.do("GET", "/health", ""); status != 200 {
		t.Error("a server that drains is not healthy")
	}
	if status, _, _ := c.do("GET", "/ready", ""); status != 503 {
		t.Error("a server that drains is ready")
	}
	c.refuses(503, "", "shutting down", "POST", "/v1/completions", `{"model":"demo","prompt":"a"}`)
}

// TestClosedModel: a model that is closed meanwhile is an error of its requests, before a stream and within it.
func TestClosedModel(t *testing.T) {
	m := model(t, karat.Options{Context: 512})
	c := serve(t, m, Options{})
	resume := c.pause() // else the answer may have ended already
	resp := c.begin(context.Background(), "/v1/completions", long)
	defer resp.Body.Close()
	m.Close()
	resume()
	b, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(b), `data: {"error":{"message":"The model is being closed"`) || strings.Contains(string(b), "[DONE]") {
		t.Errorf("%v: %s", err, b[max(0, len(b)-300):])
	}
	c.refuses(503, "", "closed", "POST", "/v1/completions", `{"model":"demo","prompt":"a"}`)
}

// TestD16Log is incident D16: a line for each request, without its texts and secrets, whatever is in a name.
func TestD16Log(t *testing.T) {
	var text bytes.Buffer
	c := serve(t, demo(t), Options{Log: slog.New(slog.NewTextHandler(&text, nil)), Keys: []Key{{Name: "ann", Secret: secret}}})
	c.header = map[string]string{"Authorization": "Bearer " + secret}
	c.post("/v1/chat/completions", `{`+hello+`,"max_tokens":1}`)
	c.do("POST", "/v1/chat/completions", `{"model":"a\nlevel=ERROR msg=forged\u001b[31m","messages":[]}`)
	c.do("GET", "/nothing%0alevel=ERROR", "")
	got := text.String()
	if strings.Count(got, "\n") != 3 || strings.Contains(got, "Egypt") || strings.Contains(got, secret) || strings.Contains(got, "\x1b") || !strings.Contains(got, "key=ann") {
		t.Errorf("%s", got)
	}
}

// TestMetrics: what Kubernetes' endpoint picker reads, and counts of tokens.
func TestMetrics(t *testing.T) {
	m := model(t, karat.Options{Context: 512, KVBudget: 64 << 20})
	c := serve(t, m, Options{})
	body := `{"model":"demo","max_tokens":3,"temperature":0,"prompt":"` + strings.Repeat("The sky is blue. ", 40) + `"}`
	c.post("/v1/completions", body)
	u := c.post("/v1/completions", body)["usage"]
	kept := m.Stats().KVCached // of two pages or more
	if s := m.Stats(); s.KVUsed != 0 || kept < 2*s.KVBudget/int64(s.Pages) {
		t.Errorf("%+v", s)
	}
	_, text, h := c.do("GET", "/metrics", "")
	for counted := `karat_http_requests_total{route="POST /v1/completions",status="200"} 2`; !strings.Contains(text, counted); { // which it is behind the answer
		_, text, h = c.do("GET", "/metrics", "")
	}
	if !strings.HasPrefix(h.Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Errorf("%s", h.Get("Content-Type"))
	}
	for _, line := range []string{
		`vllm:num_requests_waiting{model_name="demo"} 0`, `vllm:num_requests_running{model_name="demo"} 0`, `vllm:kv_cache_usage_perc{model_name="demo"} 0`,
		`block_size="64"`, `vllm:lora_requests_info{`, `karat_generation_tokens_total{model_name="demo"} 6`, fmt.Sprintf(`karat_prompt_tokens_total{model_name="demo"} %v`, 2*at(u, "prompt_tokens").(float64)),
		fmt.Sprintf(`karat_prefix_cache_hit_tokens_total{model_name="demo"} %v`, at(u, "prompt_tokens_details", "cached_tokens")), `karat_http_requests_total{route="POST /v1/completions",status="200"} 2`,
		`karat_time_to_first_token_seconds_count{model_name="demo"} 2`, `karat_inter_token_latency_seconds_count{model_name="demo"} 4`, `karat_e2e_request_latency_seconds_count{model_name="demo"} 2`,
		`karat_request_queue_time_seconds_count{model_name="demo"} 2`, `karat_request_prefill_time_seconds_count{model_name="demo"} 2`, `karat_request_decode_time_seconds_count{model_name="demo"} 2`,
		fmt.Sprintf(`karat_prefix_cache_bytes{model_name="demo"} %v`, kept),
		"\ngo_goroutines ",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("no %s in\n%s", line, text)
		}
	}
}

// TestNew: options that contradict themselves are errors.
func TestNew(t *testing.T) {
	m := demo(t)
	for name, o := range map[string]Options{
		"no models":       {},
		"no model":        {Models: []Model{{Name: "a"}}},
		"no name":         {Models: []Model{{Model: m}}},
		"a name of lines": {Models: []Model{{Name: "a\nb", Model: m}}},
		"a name twice":    {Models: []Model{{Name: "a", Model: m}, {Name: "b", Aliases: []string{"a"}, Model: m}}},
		"a short key":     {Models: []Model{{Name: "a", Model: m}}, Keys: []Key{{Name: "x", Secret: "1234567"}}},
		"negative":        {Models: []Model{{Name: "a", Model: m}}, Requests: -1},
	} {
		if s, err := New(context.Background(), o); err == nil {
			t.Errorf("%s: accepted", name)
			s.Close()
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := New(ctx, Options{Models: []Model{{Name: "a", Model: m}}}); err == nil {
		t.Error("a context that has ended does not end New")
	}
}
