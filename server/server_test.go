package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	pathpkg "path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/karat-run/karat"
)

const demoFile = "../cmd/karat/demo.gguf"

// model is the demo.
func model(t testing.TB, o karat.Options) *karat.Model {
	t.Helper()
	o.Threads = 2
	m, err := karat.Load(context.Background(), demoFile, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// shared is one demo for the tests that need no other.
var shared = sync.OnceValues(func() (*karat.Model, error) {
	return karat.Load(context.Background(), demoFile, karat.Options{Threads: 2, Context: 512})
})

func demo(t testing.TB) *karat.Model {
	t.Helper()
	m, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// client talks to a server of a test.
type client struct {
	t      testing.TB
	url    string
	s      *Server
	header map[string]string
}

func serve(t testing.TB, m *karat.Model, o Options) *client {
	t.Helper()
	o.Models = append([]Model{{Name: "demo", Aliases: []string{"an/alias"}, Model: m}}, o.Models...)
	s, err := New(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return &client{t: t, url: serverOf(t, s), s: s}
}

// serverOf is the address of s.
func serverOf(t testing.TB, s *Server) string {
	h := httptest.NewServer(s)
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
		s.Close()
	})
	return h.URL
}

func (c *client) do(method, path, body string) (status int, answer string, header http.Header) {
	c.t.Helper()
	r, err := http.NewRequest(method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, value := range c.header {
		if r.Header.Set(name, value); name == "Host" {
			r.Host = value
		}
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	if open := statuses(method, r.URL.Path); open != nil && !slices.Contains(open, strconv.Itoa(resp.StatusCode)) {
		c.t.Errorf("%s %s: the status %d is not in openapi.json, which has %s: %.200s", method, path, resp.StatusCode, open, b)
	}
	return resp.StatusCode, string(b), resp.Header
}

// document is openapi.json: of each path the methods and their statuses.
var document = sync.OnceValue(func() (doc struct {
	Paths map[string]map[string]struct{ Responses map[string]any }
}) {
	if err := json.Unmarshal(openAPIDocument, &doc); err != nil {
		panic(err)
	}
	return doc
})

// statuses returns the statuses that openapi.json lists for a route, nil if there is no such route.
func statuses(method, path string) (found []string) {
	for p, methods := range document().Paths {
		o, there := methods[strings.ToLower(method)]
		if is, _ := pathpkg.Match(names.ReplaceAllString(p, "*"), path); there && is && method == strings.ToUpper(method) && (found == nil || p == path) {
			found = slices.Sorted(maps.Keys(o.Responses))
		}
	}
	return found
}

var names = regexp.MustCompile(`\{.*?\}`)

// object is a JSON object of an answer.
type object = map[string]any

// post returns the answer of a route, which is to be 200.
func (c *client) post(path, body string) object {
	c.t.Helper()
	status, answer, _ := c.do("POST", path, body)
	if status != 200 {
		c.t.Fatalf("POST %s %.200s: %d %s", path, body, status, answer)
	}
	return parseObject(c.t, answer)
}

func parseObject(t testing.TB, text string) (o object) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return o
}

// at is a value within an answer, by a path of names and indexes.
func at(v any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			o, _ := v.(object)
			v = o[p]
		case int:
			l, _ := v.([]any)
			if p >= len(l) {
				return nil
			}
			v = l[p]
		}
	}
	return v
}

// event is one of a stream: its name, and its JSON.
type sent struct {
	name string
	data string
}

// events are those of a stream, which is to be 200.
func (c *client) events(path, body string) (all []sent) {
	c.t.Helper()
	status, answer, header := c.do("POST", path, body)
	if status != 200 || header.Get("Content-Type") != "text/event-stream" {
		c.t.Fatalf("POST %s %s: %d %s %s", path, body, status, header.Get("Content-Type"), answer)
	}
	for block := range strings.SplitSeq(strings.TrimSuffix(answer, "\n\n"), "\n\n") {
		var e sent
		for line := range strings.SplitSeq(block, "\n") {
			if name, ok := strings.CutPrefix(line, "event: "); ok {
				e.name = name
			} else if data, ok := strings.CutPrefix(line, "data: "); ok {
				e.data = data
			} else {
				c.t.Fatalf("line %q", line)
			}
		}
		all = append(all, e)
	}
	return all
}

// said is what the choices of an answer say, streamed or not: text, reasoning, log-probabilities and how they end.
func (c *client) said(path, body string) string {
	c.t.Helper()
	if !strings.Contains(body, `"stream":true`) {
		o := c.post(path, body)
		var b strings.Builder
		for i := range o["choices"].([]any) {
			x := at(o, "choices", i)
			text, _ := at(x, "text").(string)
			content, _ := at(x, "message", "content").(string)
			lp, _ := json.Marshal(at(x, "logprobs", "content"))
			old, _ := json.Marshal(at(x, "logprobs", "token_logprobs"))
			fmt.Fprintf(&b, "%d %s%s %s %s %v\n", i, text, content, lp, old, at(x, "finish_reason"))
		}
		return b.String()
	}
	texts, tokens, old, finish := map[int]string{}, map[int][]any{}, map[int][]any{}, map[int]any{}
	all := c.events(path, body)
	if all[len(all)-1].data != "[DONE]" {
		c.t.Fatalf("the stream ends with %v", all[len(all)-1])
	}
	id := any(nil)
	for _, e := range all[:len(all)-1] {
		o := parseObject(c.t, e.data)
		if id != nil && id != o["id"] {
			c.t.Fatalf("ids %v and %v", id, o["id"])
		}
		id = o["id"]
		if len(o["choices"].([]any)) == 0 {
			continue
		}
		x := at(o, "choices", 0)
		i := int(at(x, "index").(float64))
		text, _ := at(x, "text").(string)
		content, _ := at(x, "delta", "content").(string)
		texts[i] += text + content
		l, _ := at(x, "logprobs", "content").([]any)
		tokens[i] = append(tokens[i], l...)
		l, _ = at(x, "logprobs", "token_logprobs").([]any)
		old[i] = append(old[i], l...)
		if f := at(x, "finish_reason"); f != nil {
			finish[i] = f
		}
	}
	var b strings.Builder
	for i := range len(finish) {
		lp, _ := json.Marshal(orNil(tokens[i]))
		values, _ := json.Marshal(orNil(old[i]))
		fmt.Fprintf(&b, "%d %s %s %s %v\n", i, texts[i], lp, values, finish[i])
	}
	return b.String()
}

func orNil(l []any) any {
	if l == nil {
		return nil
	}
	return l
}

// refuses expects a status, and an error of the form of OpenAI's API that names a field and holds a text.
func (c *client) refuses(status int, param, holds, method, path, body string) {
	c.t.Helper()
	got, answer, _ := c.do(method, path, body)
	var e openAIError
	d := json.NewDecoder(bytes.NewReader([]byte(answer)))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil {
		c.t.Fatalf("%s %.300s: %d %.300s: %v", path, body, got, answer, err)
	}
	for _, key := range []string{"message", "type", "param", "code"} {
		if !strings.Contains(answer, `"`+key+`":`) {
			c.t.Errorf("%s: no %s in %s", path, key, answer)
		}
	}
	named := ""
	if e.Error.Param != nil {
		named = *e.Error.Param
	}
	if got != status || named != param || !strings.Contains(e.Error.Message, holds) {
		c.t.Errorf("%s %s %.300s: %d, param %q, %q; want %d, %q, %q", method, path, body, got, named, e.Error.Message, status, param, holds)
	}
}
