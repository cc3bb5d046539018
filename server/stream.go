package server

import (
	"context"
	"net/http"
	"time"
)

// How long a client may take to read a piece of an answer, and how long a stream waits for its client in all: one who
// reads a piece every half minute would hold a place for days.
const (
	writeLimit  = 30 * time.Second
	waitedLimit = 5 * time.Minute
)

// stream is an answer that is sent in pieces: server-sent events, or lines of JSON. The head is sent with the first
// piece, so that what fails before is a plain answer. What fails to be written ends the request: the client has gone,
// or does not read.
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

// send writes a piece; an event without a name has no line of it.
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

// end sends the last piece, which some APIs have.
func (s *stream) end(text string) { s.write([]byte("data: " + text + "\n\n")) }

func (s *stream) write(piece []byte) {
	if s.gone != nil {
		return
	}
	s.begin()
	c := http.NewResponseController(s.w)
	began := s.now()
	c.SetWriteDeadline(began.Add(min(s.limit, s.left))) // a writer without deadlines writes without one
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
	h.Set("X-Accel-Buffering", "no") // a proxy that collects pieces would undo the stream
	s.w.WriteHeader(http.StatusOK)
}

func (s *stream) fail(err error) {
	if s.gone == nil {
		s.gone = err
		s.cancel(err)
	}
}
