package server

import (
	"fmt"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// withKey is a client that shows a secret.
func (c *client) withKey(secret string) *client {
	d := *c
	d.header = map[string]string{"Authorization": "Bearer " + secret}
	return &d
}

// TestKeyLimits: a line says what a key is limited to.
func TestKeyLimits(t *testing.T) {
	keys, err := ParseKeys("ann:"+secret+" routes=/v1/chat/*,/v1/models requests=60\nanother-secret tokens=1000 models=a,b/c:d", "keys")
	want := []Key{{Name: "ann", Secret: secret, Routes: []string{"/v1/chat/*", "/v1/models"}, Requests: 60}, {Name: "key-" + hash12("another-secret"), Secret: "another-secret", Tokens: 1000, Models: []string{"a", "b/c:d"}}}
	if err != nil || !reflect.DeepEqual(keys, want) {
		t.Errorf("%+v %v", keys, err)
	}
}

// TestKeyRoutes: a key opens its routes and no others, and its caller sees its models and no others.
func TestKeyRoutes(t *testing.T) {
	m := demo(t)
	c := serve(t, m, Options{Models: []Model{{Name: "other", Model: m}}, Keys: []Key{
		{Name: "chat", Secret: "secret-of-chat", Routes: []string{"/v1/chat/*", "/v1/models"}}, {Name: "one", Secret: "secret-of-one", Models: []string{"other"}}, {Name: "all", Secret: secret}}})
	chat := c.withKey("secret-of-chat")
	chat.post("/v1/chat/completions", `{`+hello+`,"max_tokens":1}`)
	for _, path := range []string{"/v1/completions", "/v1/chat", "/metrics", "/v1/models/demo", "/nothing"} {
		status, answer, _ := chat.do("POST", path, `{"model":"demo","prompt":"a"}`)
		if status != 403 || !strings.Contains(answer, "insufficient_permissions") {
			t.Errorf("%s: %d %s", path, status, answer)
		}
	}
	one := c.withKey("secret-of-one")
	one.refuses(404, "model", "", "POST", "/v1/completions", `{"model":"demo","prompt":"a","max_tokens":1}`)
	one.refuses(404, "model", "", "GET", "/v1/models/demo", "")
	one.refuses(404, "model", "", "POST", "/tokenize", `{"content":"a"}`)
	one.post("/v1/completions", `{"model":"other","prompt":"a","max_tokens":1}`)
	for _, path := range []string{"/v1/models", "/api/tags", "/api/ps"} {
		if _, text, _ := one.do("GET", path, ""); strings.Contains(text, "demo") || !strings.Contains(text, "other") {
			t.Errorf("%s: %s", path, text)
		}
	}
	all := c.withKey(secret)
	for _, path := range []string{"/metrics", "/v1/models/demo", "/api/ps"} {
		if status, answer, _ := all.do("GET", path, ""); status != 200 {
			t.Errorf("%s: %d %s", path, status, answer)
		}
	}
}

// TestWrongKeys: an address that guesses is refused for a while, a right key too that it has not shown before. A request without a key is no try.
func TestWrongKeys(t *testing.T) {
	c := serve(t, demo(t), Options{Keys: []Key{{Name: "known", Secret: "secret-of-known"}, {Name: "new", Secret: "secret-of-new"}}})
	var clock atomic.Int64
	c.s.now = func() time.Time { return time.Unix(1000+clock.Load(), 0) }
	is := func(secret string, want int) {
		t.Helper()
		if status, answer, h := c.withKey(secret).do("GET", "/v1/models", ""); status != want || (status == 429) != (h.Get("Retry-After") == "1") {
			t.Errorf("%q: %d %s, Retry-After %q; want %d", secret, status, answer, h.Get("Retry-After"), want)
		}
	}
	is("secret-of-known", 200)
	for range wrongKeys {
		is("", 401)
		is("secret-of-nobody", 401)
	}
	for secret, want := range map[string]int{"secret-of-nobody": 429, "secret-of-new": 429, "secret-of-known": 200, "": 401} {
		is(secret, want)
	}
	clock.Store(1)
	is("secret-of-new", 200)
	is("secret-of-nobody", 401)
	is("secret-of-nobody", 429)
	is("secret-of-new", 200)
}

// TestTries: addresses count by themselves, one of IPv6 by its first 64 bits, and are forgotten where there are too many.
func TestTries(t *testing.T) {
	ring, err := newKeyring([]Key{{Name: "a", Secret: secret}})
	if err != nil {
		t.Fatal(err)
	}
	var all tries
	from := func(remote string) int {
		r := httptest.NewRequest("GET", "/v1/models", nil)
		r.RemoteAddr = remote
		r.Header.Set("X-Api-Key", "wrong-key")
		_, p := all.judge(ring, r, time.Unix(1000, 0))
		return p.status
	}
	for range wrongKeys {
		from("192.0.2.1:80")
		from("[2001:db8::1]:80")
	}
	for remote, want := range map[string]int{"192.0.2.1:81": 429, "[::ffff:192.0.2.1]:80": 429, "192.0.2.2:80": 401, "[2001:db8::2]:80": 429, "[2001:db8:0:1::1]:80": 401, "@": 401} {
		if got := from(remote); got != want {
			t.Errorf("%s: %d, want %d", remote, got, want)
		}
	}
	for i := range maxAddresses {
		from(fmt.Sprintf("10.0.%d.%d:80", i>>8, i&255))
	}
	if n := len(all.from); n > maxAddresses {
		t.Errorf("%d addresses", n)
	}
}

// TestKeyRates: a key has so many requests and tokens a minute, that come back evenly; those of others do not count.
func TestKeyRates(t *testing.T) {
	c := serve(t, demo(t), Options{Keys: []Key{{Name: "few", Secret: "secret-of-few", Requests: 3}, {Name: "short", Secret: "secret-of-short", Tokens: 60}, {Name: "all", Secret: secret}}})
	var clock atomic.Int64
	c.s.now = func() time.Time { return time.Unix(1000+clock.Load(), 0) }
	few, short, all := c.withKey("secret-of-few"), c.withKey("secret-of-short"), c.withKey(secret)
	is := func(c *client, want int, after string) {
		t.Helper()
		status, answer, h := c.do("GET", "/v1/models", "")
		if status != want || h.Get("Retry-After") != after {
			t.Errorf("%d %s, Retry-After %q; want %d, %q", status, answer, h.Get("Retry-After"), want, after)
		}
	}
	for range 3 {
		is(few, 200, "")
	}
	is(few, 429, "20")
	is(all, 200, "")
	clock.Add(19)
	is(few, 429, "1")
	clock.Add(1)
	is(few, 200, "")
	is(few, 429, "20")
	o := short.post("/v1/completions", `{"model":"demo","prompt":"`+strings.Repeat("The sky is blue. ", 20)+`","max_tokens":1}`) // more than there are: it is not cut
	spent := at(o, "usage", "total_tokens").(float64)
	if spent < 80 {
		t.Fatalf("%v", o)
	}
	is(short, 429, fmt.Sprint(int(spent)-60+1))
	clock.Add(int64(spent) - 60)
	is(short, 429, "1")
	clock.Add(1)
	is(short, 200, "")
	clock.Add(1 << 20)
	for range 3 {
		is(few, 200, "") // no more than a minute's
	}
	is(few, 429, "20")
}

// TestLimitsOnce: of a limit that is there twice the last one held, and a key saw what the first one closed.
func TestLimitsOnce(t *testing.T) {
	for _, line := range []string{"models=a models=b", "tokens=1 tokens=2", "routes=/a requests=1 routes=/b"} {
		if _, err := ParseKeys("ann:sk-0123456789 "+line, "keys"); err == nil || !strings.Contains(err.Error(), "is there twice") || strings.Contains(err.Error(), "sk-") {
			t.Errorf("%s: %v", line, err)
		}
	}
}
