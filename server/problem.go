package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// problem is the reason for the failure of a request, in a form independent of the APIs.
type problem struct {
	status  int
	kind    string // as OpenAI's error.type
	code    string // "" is null
	param   string // the wrong field, "" is null
	message string
	after   int // seconds to wait before another try; 0 says nothing
}

func (p *problem) Error() string { return p.message }

// throw ends the request with p, as answered by exchange.answer. A nil p ends nothing.
func throw(p *problem) {
	if p != nil {
		panic(p)
	}
}

// catch calls f, and returns the problem thrown by f.
func catch(f func()) (p *problem) {
	defer func() {
		if v := recover(); v != nil {
			thrown, is := v.(*problem)
			if !is {
				panic(v)
			}
			p = thrown
		}
	}()
	f()
	return nil
}

const invalid = "invalid_request_error"

// refuse returns the problem of a wrong request.
func refuse(status int, code, param, format string, args ...any) *problem {
	return &problem{status: status, kind: invalid, code: code, param: param, message: fmt.Sprintf(format, args...)}
}

func bad(param, format string, args ...any) *problem {
	return refuse(http.StatusBadRequest, "", param, format, args...)
}

// refuseFeature returns the problem of a feature missing in this server.
func refuseFeature(param, what string) *problem {
	return unsupported(param, "%s is not supported by this server", what)
}

// unsupported returns the problem of a feature missing in this server, in a sentence of its own.
func unsupported(param, format string, args ...any) *problem {
	return refuse(http.StatusBadRequest, "unsupported", param, format, args...)
}

func unknownField(name string) *problem {
	return bad(name, "Unrecognized request argument supplied: %s", name)
}

const tooManyTokens = "context_length_exceeded" // a problem's code

func tooLong(param string, most, prompt, answer int) *problem {
	return refuse(http.StatusBadRequest, tooManyTokens, param, "This model's maximum context length is %d tokens. "+
		"However, you requested %d tokens (%d in the prompt, %d for the answer). Please shorten one of them.",
		most, prompt+answer, prompt, answer)
}

// tooManyProblem returns the problem of tooLong for a prompt whose tokens were not counted.
func tooManyProblem(param string, most int) *problem {
	return refuse(http.StatusBadRequest, tooManyTokens, param, "This model's maximum context length is %d tokens. "+
		"However, your prompt has more. Please shorten it.", most)
}

func noModel(name string) *problem {
	return refuse(http.StatusNotFound, "model_not_found", "model", "The model %q does not exist. GET /v1/models lists "+
		"those that do.", name)
}

func internal(format string, args ...any) *problem {
	p := refuse(http.StatusInternalServerError, "", "", format, args...)
	p.kind = "server_error"
	return p
}

func unavailable(format string, args ...any) *problem {
	p := refuse(http.StatusServiceUnavailable, "service_unavailable", "", format, args...)
	p.kind, p.after = "server_error", 1
	return p
}

func full(format string, args ...any) *problem {
	p := refuse(http.StatusTooManyRequests, "rate_limit_exceeded", "", format, args...)
	p.kind, p.after = "rate_limit_error", 1
	return p
}

// voice is how an API writes errors.
type voice interface {
	problem(p *problem) any                         // the body of an answer
	streamProblem(p *problem) (event string, v any) // inside a stream already begun
}

// openAI is the voice of the routes under /v1, and of this server's own.
type openAI struct{}

type openAIError struct {
	Error struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	} `json:"error"`
}

func (openAI) problem(p *problem) any {
	var e openAIError
	e.Error.Message, e.Error.Type, e.Error.Param, e.Error.Code = p.message, p.kind, nullable(p.param), nullable(p.code)
	return e
}

func (o openAI) streamProblem(p *problem) (string, any) { return "", o.problem(p) }

func nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// Bounds of a problem's text, partly made of names of fields and other words of a client, in bytes.
const (
	maxMessage = 2000
	maxParam   = 200
)

// clipped returns p with words of a bounded length.
func (p *problem) clipped() *problem {
	if len(p.message) <= maxMessage && len(p.param) <= maxParam {
		return p
	}
	q := *p
	q.message, q.param = clip(p.message, maxMessage), clip(p.param, maxParam)
	return &q
}

func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// write answers with p.
func (p *problem) write(w http.ResponseWriter, v voice) {
	p = p.clipped()
	if p.after > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(p.after))
	}
	if p.status == http.StatusRequestTimeout {
		w.Header().Set("Connection", "close")
	}
	writeJSON(w, p.status, v.problem(p))
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := encode(v)
	if err != nil {
		status = http.StatusInternalServerError
		body = []byte(`{"error":{"message":"the answer has no JSON","type":"server_error","param":null,"code":null}}`)
	}
	body = append(body, '\n')
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body))) // its end is known before the connection's
	// a writer without deadlines writes without a deadline
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeLimit))
	w.WriteHeader(status)
	w.Write(body) // an error is the client's, already gone
}

func encode(v any) ([]byte, error) { return json.Marshal(v) }

// The time for a client to read a piece of an answer, and the total wait of a stream for its client: a client with a
// piece every half minute would hold a place for days.
const (
	writeLimit  = 30 * time.Second
	waitedLimit = 5 * time.Minute
)

// stream is an answer sent in pieces: server-sent events, or lines of JSON. The head is sent with the first piece, so a
// failure before is a plain answer. A failed write ends the request: the client has gone, or does not read.
type stream struct {
	w      http.ResponseWriter
	lines  bool // of JSON, and no events
	begun  bool
	cancel context.CancelCauseFunc
	limit  time.Duration // of a write
	left   time.Duration // of all writes
	now    func() time.Time
	gone   error
}

// send writes a piece; an event without a name has no line for the name.
func (s *stream) send(event string, v any) {
	body, err := encode(v)
	if err != nil {
		s.fail(err)
		return
	}
	if s.lines {
		s.write(append(body, '\n'))
		return
	}
	head := "data: "
	if event != "" {
		head = "event: " + event + "\ndata: "
	}
	s.write(append(append([]byte(head), body...), '\n', '\n'))
}

// end sends the last piece of some APIs.
func (s *stream) end(text string) { s.write([]byte("data: " + text + "\n\n")) }

func (s *stream) write(piece []byte) {
	if s.gone != nil {
		return
	}
	s.begin()
	c := http.NewResponseController(s.w)
	began := s.now()
	c.SetWriteDeadline(began.Add(min(s.limit, s.left))) // a writer without deadlines writes without a deadline
	_, err := s.w.Write(piece)
	if err == nil {
		err = c.Flush()
	}
	s.left -= s.now().Sub(began)
	if err != nil {
		s.fail(err)
		return
	}
	c.SetWriteDeadline(time.Time{}) // HTTP/2 also ends a stream whose deadline passes between two pieces
}

func (s *stream) begin() {
	if s.begun {
		return
	}
	s.begun = true
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	if s.lines {
		h.Set("Content-Type", "application/x-ndjson")
	}
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // a proxy collecting pieces would undo the stream
	s.w.WriteHeader(http.StatusOK)
}

func (s *stream) fail(err error) {
	if s.gone == nil {
		s.gone = err
		s.cancel(err)
	}
}
