package server

import (
	"context"
	"net/http"
	"time"
)

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
