package server

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"
)

// Bounds of how slowly a body may come. A byte a second, for example, ends after the half minute.
const (
	bodyPause = 10 * time.Second // between two pieces
	bodyGrace = 30 * time.Second // that a body of any speed has
	bodySpeed = 8 << 10          // bytes for each second beyond
	bodyLimit = 2 * time.Minute  // for all of a body, except for uploads
)

// steady is a body that has to come on.
type steady struct {
	io.ReadCloser
	deadline func(time.Time) error // of the next read; a reader without deadlines reads without one
	now      func() time.Time
	began    time.Time
	limit    time.Duration
	bytes    int64
	over     bool
}

// steadyBody gives r a body that has to come on.
func (s *Server) steadyBody(w http.ResponseWriter, r *http.Request) *steady {
	b := &steady{ReadCloser: r.Body, deadline: http.NewResponseController(w).SetReadDeadline, now: s.now, began: s.now(),
		limit: bodyLimit, over: r.Body == nil || r.Body == http.NoBody}
	if !b.over {
		r.Body = b
	}
	return b
}

func (b *steady) Read(p []byte) (int, error) {
	until := b.began.Add(min(b.limit, bodyGrace+time.Duration(float64(b.bytes)/bodySpeed*float64(time.Second))))
	if next := b.now().Add(bodyPause); next.Before(until) {
		until = next
	}
	b.deadline(until)
	n, err := b.ReadCloser.Read(p)
	if b.bytes += int64(n); err == io.EOF {
		b.over = true
		b.deadline(time.Time{})
	}
	return n, err
}

// end bounds how long the rest of a body is waited for that nobody reads.
func (b *steady) end() {
	if !b.over {
		b.deadline(b.now().Add(bodyPause))
	}
}

// unread returns the problem of a body that could not be read.
func unread(err error) *problem {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return bad("", "The body was not read to its end")
	}
	return refuse(http.StatusRequestTimeout, "request_timeout", "", "The body comes too slowly: it has stood still for "+
		"ten seconds, or has had less than 8 KiB a second")
}
