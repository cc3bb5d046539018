package server

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// two are the keys of two callers.
var two = []Key{{Name: "ann", Secret: secret}, {Name: "bob", Secret: "another-secret"}}

// TestPlacesApart: a key that asks for all places gets its part, and another one is answered meanwhile.
func TestPlacesApart(t *testing.T) {
	c := serve(t, demo(t), Options{Requests: 8, Keys: two})
	c.holdAfter(0)
	ann, bob := c.withKey(secret), c.withKey("another-secret")
	ann.refuses(400, "n", "8 answers are asked for, at most 6", "POST", "/v1/completions", `{"model":"demo","prompt":"a","max_tokens":1,"n":8}`)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan struct{}, 3)
	for range 3 {
		r := httptest.NewRequest("POST", "/v1/completions", strings.NewReader(`{"model":"demo","prompt":["a","b"],"max_tokens":1}`)).WithContext(ctx)
		r.Host = "localhost"
		r.Header.Set("Authorization", "Bearer "+secret)
		r.Header.Set("Content-Type", "application/json")
		go func() {
			c.s.ServeHTTP(&counted{header: map[string][]string{}}, r)
			done <- struct{}{}
		}()
	}
	eventually(t, func() bool { return c.s.rooms.places.left() == 2 })
	ann.refuses(429, "", "leave places for the other keys", "POST", "/v1/completions", `{"model":"demo","prompt":"a","max_tokens":1}`)
	ann.refuses(429, "", "leave places", "POST", "/tokenize", `{"content":"a"}`)
	bob.post("/tokenize", `{"content":"a"}`)
	cancel()
	for range 3 {
		<-done
	}
	if c.s.rooms.places.left() != 8 {
		t.Errorf("%d places", c.s.rooms.places.left())
	}
}

// TestBodiesApart: a key whose bodies take all room that it can have leaves room for another's large ones, and for its own
// small ones.
func TestBodiesApart(t *testing.T) {
	c := serve(t, demo(t), Options{Keys: two})
	ann, bob := c.withKey(secret), c.withKey("another-secret")
	large := `{"content":"` + strings.Repeat("a", 1<<19) + `"}`
	for n := int64(allBodies); n > 0; {
		if !c.s.rooms.bodies.take("ann", n) {
			n /= 2
		}
	}
	ann.refuses(429, "", "too large together", "POST", "/tokenize", large)
	ann.post("/tokenize", `{"content":"a"}`)
	bob.post("/tokenize", large)
	if c.s.rooms.bodies.left() != allBodies/4 {
		t.Errorf("%d bytes are left", c.s.rooms.bodies.left())
	}
}

// TestKeepAliveApart: a key's keep_alive unloads no model that another key has used; without keys it does.
func TestKeepAliveApart(t *testing.T) {
	l := &loads{t: t}
	m := l.model("a")
	m.Keep = time.Hour
	c := serveAll(t, Options{Models: []Model{m}, Keys: two})
	ann, bob := c.withKey(secret), c.withKey("another-secret")
	say := func(c *client, keep string) any {
		t.Helper()
		return c.post("/api/generate", `{"model":"a","stream":false,"keep_alive":`+keep+`}`)["done_reason"]
	}
	gone := func() bool {
		c.s.pool.mu.Lock()
		defer c.s.pool.mu.Unlock()
		return c.s.pool.list[0].now == nil
	}
	if say(ann, "0") != "unload" { // nobody else has used it
		t.Error("the only user cannot unload it")
	}
	eventually(t, gone)
	bob.post("/v1/completions", fmt.Sprintf(brief, "a"))
	for range 3 {
		if say(ann, "0") != "load" || gone() {
			t.Error("ann unloads the model of bob")
		}
	}
	if say(bob, `"10m"`) != "load" || c.s.pool.states()[0].keep != 10*time.Minute {
		t.Errorf("%v", c.s.pool.states()[0].keep)
	}
	say(ann, "-1")
	if keep := c.s.pool.states()[0].keep; keep >= 0 {
		t.Errorf("%v", keep)
	}
	say(ann, "0")
	say(bob, "0")
	eventually(t, gone)
	if l.all.Load() != 2 {
		t.Errorf("%d loads", l.all.Load())
	}
}

// TestNamesApart: nothing that a key may ask names a model that it does not see.
func TestNamesApart(t *testing.T) {
	m := demo(t)
	const hidden = "demo" // the first, and so the default
	c := serve(t, m, Options{Store: t.TempDir(), Models: []Model{{Name: "small", Model: m}}, Keys: []Key{{Name: "ann", Secret: secret, Models: []string{"small"}}, {Name: "all", Secret: "another-secret"}}})
	ann, all := c.withKey(secret), c.withKey("another-secret")
	all.post("/v1/completions", `{"model":"demo","prompt":"a","max_tokens":1}`)
	ann.post("/v1/completions", `{"model":"small","prompt":"a","max_tokens":1}`)
	_, seen, _ := all.do("GET", "/metrics", "")
	if !strings.Contains(seen, `model_name="demo"`) || !strings.Contains(seen, `model_name="small"`) {
		t.Errorf("%s", seen)
	}
	_, text, _ := ann.do("GET", "/metrics", "")
	for _, want := range []string{`vllm:num_requests_running{model_name="small"}`, `karat_generation_tokens_total{model_name="small"}`, "process_open_fds"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in %s", want, text)
		}
	}
	for _, pattern := range c.s.patterns {
		method, path, _ := strings.Cut(pattern, " ")
		if path == "/openapi.json" {
			continue // which says what clients send in its examples
		}
		path = strings.NewReplacer("{id...}", "x", "{id}", "x", "{$}", "").Replace(path)
		for _, body := range []string{`{}`, `{"content":"a"}`, `{"tokens":[1]}`, `{"query":"a","documents":["b"]}`, `{"messages":[{"role":"user","content":"a"}]}`, `{"model":"none","name":"none"}`} {
			if status, answer, h := ann.do(method, path, map[bool]string{true: body}[method == "POST"]); strings.Contains(answer+fmt.Sprint(h), hidden) {
				t.Errorf("%s %s %s: %d %s", method, path, body, status, answer)
			}
		}
	}
}

// TestTokensUnderWay: answers under way count with the tokens that they may have, before the next one is let in.
func TestTokensUnderWay(t *testing.T) {
	c := serve(t, demo(t), Options{Keys: []Key{{Name: "few", Secret: secret, Tokens: 100}, {Name: "all", Secret: "another-secret"}}})
	at := time.Unix(1000, 0)
	c.s.now = func() time.Time { return at }
	c.holdAfter(0)
	few := c.withKey(secret)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r := httptest.NewRequest("POST", "/v1/completions", strings.NewReader(`{"model":"demo","prompt":"a","max_tokens":120}`)).WithContext(ctx)
		r.Host = "localhost"
		r.Header.Set("Authorization", "Bearer "+secret)
		r.Header.Set("Content-Type", "application/json")
		c.s.ServeHTTP(&counted{header: map[string][]string{}}, r)
	}()
	bucket := &c.s.gate.keys[0].tokens
	held := func() float64 {
		bucket.mu.Lock()
		defer bucket.mu.Unlock()
		return bucket.held
	}
	eventually(t, func() bool { return held() > 120 })
	for range 40 {
		few.refuses(429, "", "under way", "POST", "/v1/completions", `{"model":"demo","prompt":"a","max_tokens":200}`)
	}
	if status, text, _ := few.do("GET", "/v1/models", ""); status != 200 { // which takes no tokens
		t.Errorf("%d %s", status, text)
	}
	cancel()
	<-done
	if held() != 0 || bucket.left < 90 {
		t.Errorf("%v are held, %v are left", held(), bucket.left)
	}
}

// TestBatchesLeavePlaces: lines of a batch, however many answers each wants, leave a quarter of the places to requests.
func TestBatchesLeavePlaces(t *testing.T) {
	c := serve(t, demo(t), Options{Store: t.TempDir(), Requests: 8})
	c.holdAfter(0)
	id := c.startBatch(c.keepFile(strings.ReplaceAll(lines(4), `"max_tokens"`, `"n":3,"max_tokens"`)))
	eventually(t, func() bool { return c.s.rooms.places.left() == 2 }) // two lines run
	late := &caller{late: true}
	if c.s.rooms.places.takeLeaving(c.s.reservedPlaces(late), "", 1) || c.s.most(late) != 6 {
		t.Error("a batch has more than three quarters")
	}
	c.post("/tokenize", `{"content":"a"}`)
	c.post("/v1/batches/"+id+"/cancel", `{}`)
	c.ended(id)
	o := c.ended(c.startBatch(c.keepFile(strings.ReplaceAll(lines(1), `"max_tokens"`, `"n":7,"max_tokens"`))))
	if at(o, "request_counts", "failed") != 1. { // it would wait for ever
		t.Errorf("%v", o)
	}
	for _, n := range []int{2, 3, 7, 200} {
		var keys []Key
		for i := range n {
			keys = append(keys, Key{Name: fmt.Sprint("key-", i), Secret: fmt.Sprint("secret-of-", i)})
		}
		for _, all := range []int{1, 2, 4, 256} {
			ring, err := newKeyring(keys)
			if err != nil {
				t.Fatal(err)
			}
			s := &Server{rooms: rooms{places: newShares(int64(all), ring)}}
			if who := (&caller{name: "key-1", late: true}); s.most(who) < 1 || !s.rooms.places.takeLeaving(s.reservedPlaces(who), who.name, 1) {
				t.Errorf("%d places, %d keys: no line of a batch is ever answered", all, n)
			}
		}
	}
}

// TestStopSizes: stop strings are bounded in each API.
func TestStopSizes(t *testing.T) {
	c := serve(t, demo(t), Options{})
	long := `"` + strings.Repeat("x", maxStopSize+1) + `"`
	for path, body := range map[string]string{
		"/v1/completions": `{"model":"demo","prompt":"a","stop":` + long + `}`, "/v1/chat/completions": `{` + hello + `,"stop":["a",` + long + `]}`,
		"/v1/messages": `{` + hello + `,"max_tokens":1,"stop_sequences":[` + long + `]}`, "/api/generate": `{"model":"demo","prompt":"a","options":{"stop":[` + long + `]}}`,
	} {
		if status, answer, _ := c.do("POST", path, body); status != 400 || !strings.Contains(answer, "1025 bytes") {
			t.Errorf("%s: %d %s", path, status, answer)
		}
	}
}
