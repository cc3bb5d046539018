package server

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// slow is a body of which so many bytes come at each step of a clock, and a reader with deadlines.
type slow struct {
	now, until time.Time
	step       time.Duration
	bytes      int
}

func (s *slow) Close() error { return nil }

func (s *slow) Read(p []byte) (int, error) {
	if s.now = s.now.Add(s.step); s.now.After(s.until) {
		s.now = s.until
		return 0, os.ErrDeadlineExceeded
	}
	return min(len(p), s.bytes), nil
}

// TestSteady: a body ends that stands still, or comes too slowly; any body ends after its limit.
func TestSteady(t *testing.T) {
	for name, x := range map[string]struct {
		step  time.Duration
		bytes int
		end   time.Duration
	}{
		"a byte a second":     {time.Second, 1, bodyGrace},
		"a byte at the pause": {bodyPause, 1, bodyGrace},
		"it stands still":     {time.Hour, 1, bodyPause},
		"4 KiB a second":      {time.Second, 4 << 10, 2 * bodyGrace},
		"16 KiB a second":     {time.Second, 16 << 10, bodyLimit},
	} {
		began := time.Unix(1, 0)
		from := &slow{now: began, step: x.step, bytes: x.bytes}
		b := &steady{ReadCloser: from, began: began, limit: bodyLimit, now: func() time.Time { return from.now }, deadline: func(until time.Time) error { from.until = until; return nil }}
		if _, err := io.Copy(io.Discard, b); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%s: %v", name, err)
		}
		if took := from.now.Sub(began).Round(time.Second); took != x.end {
			t.Errorf("%s: it ends after %v, want %v", name, took, x.end)
		}
	}
}

// TestSlowBody: who sends a body too slowly gets a 408, and loses the connection; others are served meanwhile.
func TestSlowBody(t *testing.T) {
	c := serve(t, demo(t), Options{})
	const part = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"
	for range 64 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(c.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn, part)
	}
	c.post("/v1/completions", `{"model":"demo","prompt":"a","max_tokens":1}`)
	late := serve(t, demo(t), Options{})
	late.s.now = func() time.Time { return time.Unix(1, 0) } // whose pauses are over
	for _, path := range []string{"/v1/completions", "/v1/messages", "/api/chat"} {
		r, err := raw(late.url, strings.Replace(part, "/v1/completions", path, 1))
		if err != nil || r.StatusCode != http.StatusRequestTimeout || !r.Close {
			t.Errorf("%s: %v %v", path, r, err)
		}
	}
	if r, err := raw(late.url, strings.Replace(part, "completions", "none", 1)); err != nil || r.StatusCode != http.StatusNotFound {
		t.Errorf("a body that nobody reads: %v %v", r, err)
	}
}
