package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/karat-run/karat"
)

// loads counts the models of a test that are loaded.
type loads struct {
	t     testing.TB
	all   atomic.Int64
	mu    sync.Mutex
	fail  error
	order []string
}

func (l *loads) model(name string) Model {
	return Model{Name: name, Keep: -1, Bytes: 7, Load: func(ctx context.Context, memory int64) (*karat.Model, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.fail != nil {
			return nil, l.fail
		}
		l.order = append(l.order, name)
		l.all.Add(1)
		return karat.Load(ctx, demoFile, karat.Options{Threads: 1, Context: 128, Memory: memory})
	}}
}

// serveAll is a client of a server of models, without another one.
func serveAll(t testing.TB, o Options) *client {
	t.Helper()
	s, err := New(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, s: s}
	h := serverOf(t, s)
	c.url = h
	return c
}

const brief = `{"model":"%s","prompt":"The sky","max_tokens":3,"temperature":0}`

// listed is which models are loaded, as every list of them says.
func (c *client) listed() string {
	c.t.Helper()
	var openai, ps []string
	_, text, _ := c.do("GET", "/v1/models", "")
	for _, m := range parseObject(c.t, text)["data"].([]any) {
		if at(m, "loaded") == true {
			openai = append(openai, at(m, "id").(string))
		}
	}
	_, text, _ = c.do("GET", "/api/ps", "")
	for _, m := range parseObject(c.t, text)["models"].([]any) {
		ps = append(ps, at(m, "name").(string))
	}
	if a, b := strings.Join(openai, " "), strings.Join(ps, " "); a != b {
		c.t.Errorf("/v1/models says %q, /api/ps %q", a, b)
	}
	return strings.Join(openai, " ")
}

// TestModelsOnDemand: a model is loaded when it is asked for, once however many ask; the one used least recently goes.
func TestModelsOnDemand(t *testing.T) {
	l := &loads{t: t}
	c := serveAll(t, Options{Models: []Model{l.model("a"), l.model("b"), l.model("c")}, Loaded: 2})
	if got := c.listed(); got != "" {
		t.Errorf("loaded: %q", got)
	}
	if _, text, _ := c.do("GET", "/api/tags", ""); strings.Count(text, `"size":7`) != 3 {
		t.Errorf("%s", text)
	}
	want := at(c.post("/v1/completions", fmt.Sprintf(brief, "a")), "choices", 0, "text")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got := at(c.post("/v1/completions", fmt.Sprintf(brief, "b")), "choices", 0, "text"); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
	wg.Wait()
	if got := c.listed(); got != "a b" || l.all.Load() != 2 {
		t.Errorf("loaded: %q, after %d loads", got, l.all.Load())
	}
	c.post("/v1/completions", fmt.Sprintf(brief, "a"))
	c.post("/v1/completions", fmt.Sprintf(brief, "c"))
	if got := c.listed(); got != "a c" {
		t.Errorf("loaded: %q, b was used least recently", got)
	}
	if got := at(c.post("/tokenize", `{"content":"a"}`), "tokens"); got == nil || c.listed() != "a c" {
		t.Errorf("the first model is the default: %v, %q", got, c.listed())
	}
	c.refuses(404, "model", "", "POST", "/v1/completions", fmt.Sprintf(brief, "d"))
}

// TestModelInUse: a model in use is not closed for another one, who is told to come again.
func TestModelInUse(t *testing.T) {
	l := &loads{t: t}
	c := serveAll(t, Options{Models: []Model{l.model("a"), l.model("b")}, Loaded: 1})
	resp := c.begin(context.Background(), "/v1/completions", `{"model":"a","prompt":[2,5],"max_tokens":100,"temperature":0,"stream":true,"logit_bias":{"1":-100,"106":-100}}`)
	c.s.pool.mu.Lock()
	uses := c.s.pool.list[0].uses
	c.s.pool.mu.Unlock()
	if uses > 0 { // else the answer has ended already
		e := c.s.pool.list[0]
		c.s.pool.mu.Lock()
		e.uses++ // so that it cannot end before the next request
		c.s.pool.mu.Unlock()
		status, answer, h := c.do("POST", "/v1/completions", fmt.Sprintf(brief, "b"))
		if status != 503 || h.Get("Retry-After") == "" || !strings.Contains(answer, "in use") {
			t.Errorf("%d %s", status, answer)
		}
		c.s.pool.give(e)
	}
	b, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || !strings.Contains(string(b), "[DONE]") {
		t.Errorf("%v %s", err, b)
	}
	eventually(t, func() bool { c.s.pool.mu.Lock(); defer c.s.pool.mu.Unlock(); return c.s.pool.list[0].uses == 0 })
	c.post("/v1/completions", fmt.Sprintf(brief, "b"))
	if got := c.listed(); got != "b" {
		t.Errorf("loaded: %q", got)
	}
}

// TestMemory: what models take together is counted before one is loaded; one that does not fit at all is an error.
func TestMemory(t *testing.T) {
	l := &loads{t: t}
	m := demo(t)
	one := m.Info().Bytes * 3
	c := serveAll(t, Options{Models: []Model{l.model("a"), l.model("b")}, Memory: one})
	c.post("/v1/completions", fmt.Sprintf(brief, "a"))
	took := c.s.pool.list[0].now.info.Memory
	if took <= m.Info().Bytes || took > one {
		t.Errorf("the model takes %d of %d bytes", took, one)
	}
	c.s.pool.memory = took + 1
	c.post("/v1/completions", fmt.Sprintf(brief, "b"))
	if got := c.listed(); got != "b" {
		t.Errorf("loaded: %q", got)
	}
	c.s.pool.memory = 1
	c.refuses(500, "", "does not fit", "POST", "/v1/completions", fmt.Sprintf(brief, "a"))
	l.fail = errors.New("/secret/path: broken")
	c.s.pool.memory = 0
	c.refuses(500, "", "log says why", "POST", "/v1/completions", fmt.Sprintf(brief, "a"))
}

// TestKeepAlive: a model that nobody asks for goes when its time is over, as a request of Ollama's API says.
func TestKeepAlive(t *testing.T) {
	l := &loads{t: t}
	a := l.model("a")
	a.Keep = time.Minute
	c := serveAll(t, Options{Models: []Model{a}})
	var clock atomic.Int64
	c.s.pool.now = func() time.Time { return time.Unix(clock.Load(), 0) }
	c.s.stop() // its own sweeps, which come with the clock
	held := 0  // uses that the test has
	ask := func(keep, reason string) {
		t.Helper()
		if o := c.post("/api/generate", `{"model":"a","keep_alive":`+keep+`}`); o["done_reason"] != reason || o["done"] != true {
			t.Errorf("%v", o)
		}
	}
	after := func(seconds int64, want string) {
		t.Helper()
		eventually(t, func() bool { // the use of a request ends behind its answer
			c.s.pool.mu.Lock()
			defer c.s.pool.mu.Unlock()
			return c.s.pool.list[0].uses == held
		})
		clock.Add(seconds)
		c.s.pool.sweep()
		if got := c.listed(); got != want {
			t.Errorf("loaded: %q, want %q", got, want)
		}
	}
	ask("null", "load")
	after(59, "a")
	if _, text, _ := c.do("GET", "/api/ps", ""); !strings.Contains(text, `"expires_at":"1970-01-01T00:01:00Z"`) {
		t.Errorf("%s", text)
	}
	after(1, "")
	ask(`"10s"`, "load")
	after(9, "a")
	after(1, "")
	ask("-1", "load")
	after(1<<30, "a")
	c.s.pool.mu.Lock()
	e := c.s.pool.list[0]
	e.uses++
	held = 1
	c.s.pool.mu.Unlock()
	ask("0", "unload")
	after(1, "a") // in use
	c.s.pool.give(e)
	eventually(t, func() bool { return c.listed() == "" })
	if o := c.post("/api/chat", `{"model":"a","messages":[]}`); o["done_reason"] != "load" {
		t.Errorf("%v", o)
	}
	if status, answer, _ := c.do("POST", "/api/generate", `{"model":"a","keep_alive":"soon"}`); status != 400 || !strings.Contains(answer, "keep_alive") {
		t.Errorf("%d %s", status, answer)
	}
}

// TestD13Pool is incident D13: requests, models that go, and ends of their time, all at once; no request finds a closed model.
func TestD13Pool(t *testing.T) {
	l := &loads{t: t}
	c := serveAll(t, Options{Models: []Model{l.model("a"), l.model("b"), l.model("c")}, Loaded: 2})
	var wg sync.WaitGroup
	want := at(c.post("/v1/completions", fmt.Sprintf(brief, "a")), "choices", 0, "text")
	for i := range 6 {
		wg.Go(func() {
			for k := range 8 {
				name := string("abc"[(i+k)%3])
				status, answer, _ := c.do("POST", "/v1/completions", fmt.Sprintf(brief, name))
				if status == 503 && strings.Contains(answer, "in use") {
					continue
				}
				if status != http.StatusOK || at(parseObject(t, answer), "choices", 0, "text") != want {
					t.Errorf("%d %s", status, answer)
				}
				switch k % 4 {
				case 1:
					c.s.pool.stay(c.s.pool.find(name), "", 0)
					c.s.pool.sweep()
				case 2:
					c.do("GET", "/metrics", "")
				}
			}
		})
	}
	wg.Wait()
	for _, e := range c.s.pool.list {
		if e.uses != 0 {
			t.Errorf("%s: %d uses are left", e.Name, e.uses)
		}
	}
	c.s.Close()
	if got := c.listed(); got != "" {
		t.Errorf("loaded: %q", got)
	}
}

// TestLeaverWhileLoading: who leaves while a model is loaded ends no load that others wait for.
func TestLeaverWhileLoading(t *testing.T) {
	gate := make(chan struct{})
	m := Model{Name: "a", Keep: -1, Load: func(ctx context.Context, _ int64) (*karat.Model, error) {
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return karat.Load(ctx, demoFile, karat.Options{Threads: 1, Context: 128})
	}}
	s, err := New(context.Background(), Options{Models: []Model{m}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(context.Background())
	gone := make(chan error)
	go func() { _, err := s.pool.take(ctx, s.pool.list[0], ""); gone <- err }()
	there := make(chan error)
	go func() { _, err := s.pool.take(context.Background(), s.pool.list[0], ""); there <- err }()
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(gate)
	if err := <-there; err != nil {
		t.Error(err)
	}
	s.pool.give(s.pool.list[0])
	if n := s.pool.list[0].uses; n != 0 {
		t.Errorf("%d uses", n)
	}
}

// TestModelNames: one model needs no name in any route; of several, the request says which. A caller that sees one alone needs none either.
func TestModelNames(t *testing.T) {
	m := demo(t)
	for path, body := range map[string]string{"/v1/chat/completions": `"max_tokens":1,"messages":[{"role":"user","content":"a"}]`, "/v1/completions": `"prompt":"a","max_tokens":1`, "/v1/responses": `"input":"a","max_output_tokens":1`,
		"/v1/messages": `"max_tokens":1,"messages":[{"role":"user","content":"a"}]`, "/api/chat": `"stream":false,"messages":[{"role":"user","content":"a"}]`, "/api/generate": `"stream":false,"prompt":"a"`, "/api/show": `"verbose":false`} {
		one, two := serve(t, m, Options{}), serve(t, m, Options{Models: []Model{{Name: "other", Model: m}}})
		for _, name := range []string{"", `"model":"",`, `"model":null,`} {
			one.post(path, `{`+name+body+`}`)
			if status, answer, _ := two.do("POST", path, `{`+name+body+`}`); status != 400 || !strings.Contains(answer, "GET /v1/models lists the 2 models") {
				t.Errorf("%s %s: %d %s", path, name, status, answer)
			}
		}
		keyed := serve(t, m, Options{Models: []Model{{Name: "other", Model: m}}, Keys: []Key{{Name: "one", Secret: "secret-of-one", Models: []string{"other"}}}})
		keyed.header = map[string]string{"Authorization": "Bearer secret-of-one"}
		keyed.post(path, `{`+body+`}`)
	}
}

// TestLoadsTakeTurns: a key that asks for many models waits for itself; one that asks for another model, or for one of them,
// comes next.
func TestLoadsTakeTurns(t *testing.T) {
	l := &loads{t: t}
	begun, goOn := make(chan string), make(chan struct{})
	var models []Model
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		m := l.model(name)
		load := m.Load
		m.Load = func(ctx context.Context, memory int64) (*karat.Model, error) {
			begun <- name
			<-goOn
			return load(ctx, memory)
		}
		models = append(models, m)
	}
	c := serveAll(t, Options{Models: models, Keys: two})
	var work sync.WaitGroup
	ask := func(key, model string) {
		work.Go(func() { c.withKey(key).do("POST", "/v1/completions", fmt.Sprintf(brief, model)) })
		e := c.s.pool.find(model)
		eventually(t, func() bool {
			c.s.pool.mu.Lock()
			defer c.s.pool.mu.Unlock()
			return e.loading != nil && e.loading.by[map[string]string{secret: "ann", "another-secret": "bob"}[key]]
		})
	}
	ask(secret, "a")
	order := <-begun
	for _, model := range []string{"b", "c", "d"} {
		ask(secret, model)
	}
	ask("another-secret", "e")
	eventually(t, func() bool { // bob waits for the one turn of all
		c.s.pool.mu.Lock()
		defer c.s.pool.mu.Unlock()
		return len(c.s.pool.turns["bob"]) == 1
	})
	for range 4 {
		goOn <- struct{}{}
		order += <-begun
	}
	goOn <- struct{}{}
	work.Wait()
	if i := strings.IndexByte(order, 'e'); i != 1 {
		t.Errorf("the order of loads: %s", order)
	}
}
