package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Span is a part of the time of a request, for traces, without prompts and answers.
type Span struct {
	Trace      [16]byte // the client's, if sent (the header traceparent)
	ID, Parent [8]byte  // Parent is zero for the outermost span
	Name       string
	Request    bool // a whole request, not a part
	Failed     bool // by a fault of the server
	Start, End time.Time
	Attributes []slog.Attr // texts and whole numbers, with OpenTelemetry's names
}

// trace is a traced request.
type trace struct {
	tell  func(Span)
	whole Span

	mu    sync.Mutex
	usage usage
}

type traceKey struct{}

// traceOf returns the trace of a request, or nil.
func traceOf(ctx context.Context) *trace {
	t, _ := ctx.Value(traceKey{}).(*trace)
	return t
}

// newTrace begins the trace of a request, nil if unwanted, perhaps by the client, in traceparent.
func (s *Server) newTrace(r *http.Request, began time.Time) *trace {
	if s.o.Trace == nil {
		return nil
	}
	t := &trace{tell: s.o.Trace, whole: Span{ID: spanID(), Request: true, Start: began}}
	given, parent, sampled, ok := traceParent(r.Header.Get("Traceparent"))
	switch {
	case !ok:
		rand.Read(t.whole.Trace[:]) // never fails
	case !sampled:
		return nil
	default:
		t.whole.Trace, t.whole.Parent = given, parent
	}
	return t
}

func spanID() (id [8]byte) {
	rand.Read(id[:]) // never fails
	return id
}

// traceParent reads a header of W3C's Trace Context: "00-TRACE-PARENT-FLAGS" in small hexadecimal digits. Later
// versions may have more behind.
func traceParent(header string) (trace [16]byte, parent [8]byte, sampled, ok bool) {
	parts := strings.Split(header, "-")
	if len(parts) < 4 || parts[0] == "ff" || parts[0] == "00" && len(parts) > 4 {
		return trace, parent, false, false
	}
	var version, flags [1]byte
	for i, to := range [][]byte{version[:], trace[:], parent[:], flags[:]} {
		if n, err := hex.Decode(to, []byte(parts[i][:min(len(parts[i]), 2*len(to))])); err != nil || n != len(to) ||
			len(parts[i]) != 2*n || strings.ToLower(parts[i]) != parts[i] {
			return [16]byte{}, [8]byte{}, false, false
		}
	}
	return trace, parent, flags[0]&1 != 0, trace != [16]byte{} && parent != [8]byte{}
}

// add adds the tokens of answers.
func (t *trace) add(u usage) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.usage.prompt += u.prompt
	t.usage.completion += u.completion
	t.usage.cached += u.cached
}

// part reports a part of the request; a part without a beginning or an end is left out.
func (t *trace) part(name string, from, to time.Time) {
	if from.IsZero() || to.IsZero() {
		return
	}
	t.tell(Span{Trace: t.whole.Trace, ID: spanID(), Parent: t.whole.ID, Name: name, Start: from, End: to})
}

// answer reports the parts of an answer.
func (t *trace) answer(c *choice) {
	if t == nil {
		return
	}
	t.part("queue", c.began, c.started)
	t.part("prefill", c.started, c.answered)
	t.part("decode", c.answered, c.last)
}

// end reports the request. A request without a route has no name of its own: strangers make no names.
func (t *trace) end(x *exchange, route string) {
	if t == nil {
		return
	}
	s := &t.whole
	s.End, s.Failed, s.Name = time.Now(), x.w.status >= 500 || x.failed, cmp.Or(route, "no route")
	s.Attributes = []slog.Attr{slog.Int("http.response.status_code", x.w.status)}
	if method, path, ok := strings.Cut(route, " "); ok {
		s.Attributes = append(s.Attributes, slog.String("http.request.method", method), slog.String("http.route", path))
	}
	if x.model != "" {
		s.Attributes = append(s.Attributes, slog.String("gen_ai.request.model", x.model))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if u := t.usage; u.prompt > 0 {
		s.Attributes = append(s.Attributes, slog.Int("gen_ai.usage.input_tokens", u.prompt),
			slog.Int("gen_ai.usage.output_tokens", u.completion), slog.Int("gen_ai.usage.cache_read.input_tokens",
				u.cached))
	}
	t.tell(*s)
}
