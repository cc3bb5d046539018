package otlp

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/server"
)

// collector keeps what it is sent.
type collector struct {
	mu     sync.Mutex
	paths  []string
	bodies [][]byte
	status int
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paths, c.bodies = append(c.paths, r.Method+" "+r.URL.Path+" "+r.Header.Get("Content-Type")), append(c.bodies, body)
	w.WriteHeader(c.status)
	io.WriteString(w, "{}")
}

// span is one of OTLP.
type span struct {
	TraceID           string
	SpanID            string
	ParentSpanID      string
	Name              string
	Kind              int
	StartTimeUnixNano string
	EndTimeUnixNano   string
	Attributes        []struct {
		Key   string
		Value struct{ StringValue, IntValue string }
	}
	Status struct{ Code int }
}

func (s *span) attribute(key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.StringValue + a.Value.IntValue
		}
	}
	return ""
}

func spansOf(t *testing.T, body []byte) []span {
	t.Helper()
	var m struct {
		ResourceSpans []struct {
			ScopeSpans []struct{ Spans []span }
		}
	}
	if err := json.Unmarshal(body, &m); err != nil || len(m.ResourceSpans) != 1 || len(m.ResourceSpans[0].ScopeSpans) != 1 {
		t.Fatalf("%v in %s", err, body)
	}
	return m.ResourceSpans[0].ScopeSpans[0].Spans
}

// TestTraces: a collector gets a request and its parts, in the client's trace, with counts and without texts;
// and nothing of a client that wants no trace.
func TestTraces(t *testing.T) {
	m, err := karat.Load(t.Context(), "../../cmd/karat/demo.gguf", karat.Options{Threads: 2, Context: 512})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	c := &collector{status: 200}
	at := httptest.NewServer(c)
	defer at.Close()
	e, err := New(at.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(t.Context(), server.Options{Models: []server.Model{{Name: "demo", Model: m}}, Trace: e.Add, Hosts: []string{"*"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, sampled := range []string{"01", "00"} {
		q := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(`{"model":"demo","temperature":0,"messages":[{"role":"user","content":"What is the capital of Egypt?"}]}`))
		q.Header.Set("Content-Type", "application/json")
		q.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"+sampled)
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, q); w.Code != 200 || !strings.Contains(w.Body.String(), "Cairo") {
			t.Fatal(w.Code, w.Body)
		}
	}
	s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/strange", nil))
	e.Close()
	all := slices.Concat(c.bodies...)
	if bytes.Contains(all, []byte("Egypt")) || bytes.Contains(all, []byte("Cairo")) || bytes.Contains(all, []byte("strange")) || c.paths[0] != "POST /v1/traces application/json" {
		t.Errorf("%s %s", c.paths, all)
	}
	byName := map[string]span{}
	for _, body := range c.bodies {
		for _, s := range spansOf(t, body) {
			if _, twice := byName[s.Name]; twice {
				t.Errorf("%s is there twice", s.Name)
			}
			byName[s.Name] = s
		}
	}
	whole := byName["POST /v1/chat/completions"]
	if len(byName) != 5 || whole.ParentSpanID != "b7ad6b7169203331" || whole.Kind != 2 || whole.Status.Code != 0 || byName["no route"].ParentSpanID != "" {
		t.Errorf("%+v", byName)
	}
	for key, want := range map[string]string{"http.route": "/v1/chat/completions", "http.request.method": "POST", "http.response.status_code": "200", "gen_ai.request.model": "demo", "gen_ai.usage.input_tokens": "17", "gen_ai.usage.output_tokens": "7"} {
		if got := whole.attribute(key); got != want {
			t.Errorf("%s is %s, want %s", key, got, want)
		}
	}
	last := whole.StartTimeUnixNano
	for _, name := range []string{"queue", "prefill", "decode"} {
		s := byName[name]
		if s.TraceID != whole.TraceID || s.ParentSpanID != whole.SpanID || s.StartTimeUnixNano < last || s.EndTimeUnixNano < s.StartTimeUnixNano || s.EndTimeUnixNano > whole.EndTimeUnixNano {
			t.Errorf("%+v in %+v", s, whole)
		}
		last = s.EndTimeUnixNano
	}
}

// TestCollector: what a collector refuses is lost, and told; a span is never waited for.
func TestCollector(t *testing.T) {
	c := &collector{status: 503}
	at := httptest.NewServer(c)
	defer at.Close()
	var log bytes.Buffer
	e, err := New(at.URL+"/base/", slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 * held {
		e.Add(server.Span{Name: "x", Failed: true})
	}
	e.Close()
	if got := log.String(); !strings.Contains(got, "503") || !strings.Contains(got, "traces were dropped") {
		t.Error(got)
	}
	if s := spansOf(t, c.bodies[0]); c.paths[0] != "POST /base/v1/traces application/json" || len(s) != most || s[0].Status.Code != 2 {
		t.Errorf("%s, %d spans: %+v", c.paths[0], len(s), s[0])
	}
	for _, bad := range []string{"", "127.0.0.1:4318", "file:///etc/passwd", "http://", "http://a b"} {
		if _, err := New(bad, nil); err == nil || !strings.Contains(err.Error(), "want one as http://127.0.0.1:4318") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
