package server

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// Bounds of the bytes of all requests at a time. Small bodies have room of their own, out of reach of large bodies.
const (
	allBodies   = 1 << 30
	smallBodies = 256 << 20
	firstBody   = 64 << 10 // of each body, in the room of small ones
	leastBody   = 4 << 10  // room before the first byte of a body; later twice the bytes so far
)

// saysJSON reports whether a body of this Content-Type may be JSON: also of none, and of the type sent by curl -d.
// Pages cannot pass by a preflight with that type, since a request with a foreign Origin comes no further than
// checkOrigin.
func saysJSON(header string) bool {
	kind, _, _ := strings.Cut(header, ";")
	switch strings.ToLower(strings.TrimSpace(kind)) {
	case "", "application/json", "application/x-www-form-urlencoded":
		return true
	}
	return false
}

// readBody returns the JSON of a request.
func (x *exchange) readBody() []byte {
	s, w, r := x.s, x.w, x.r
	if x.given != nil {
		return x.given
	}
	if !saysJSON(r.Header.Get("Content-Type")) {
		throw(refuse(http.StatusUnsupportedMediaType, "", "", "Content-Type is not application/json: add -H "+
			"'Content-Type: application/json'"))
	}
	coding := strings.ToLower(r.Header.Get("Content-Encoding"))
	if coding != "" && coding != "identity" && coding != "gzip" {
		throw(refuse(http.StatusUnsupportedMediaType, "", "", "Content-Encoding %q: want gzip or none", coding))
	}
	most := s.o.MaxBody + 1 // to notice a byte too many
	large := refuse(http.StatusRequestEntityTooLarge, "", "", "The body has more than %d bytes", s.o.MaxBody)
	if r.ContentLength > s.o.MaxBody {
		throw(large) // before anything is read
	}
	if r.ContentLength >= 0 && coding != "gzip" {
		most = min(most, r.ContentLength+1)
	}
	x.held.s, x.held.who = s, x.who.name
	from := http.MaxBytesReader(w, r.Body, s.o.MaxBody)
	if coding == "gzip" {
		z, err := gzip.NewReader(from)
		if err != nil {
			throw(bodyProblem(err, coding))
		}
		from = http.MaxBytesReader(w, z, s.o.MaxBody)
	}
	for body := []byte(nil); ; {
		if len(body) == cap(body) { // memory for bytes present, not for promises
			size := min(max(leastBody, 2*int64(cap(body))), most)
			if !x.held.grow(size) {
				throw(full("The requests that are being read are too large together"))
			}
			body = append(make([]byte, 0, size), body...)
		}
		n, err := from.Read(body[len(body):cap(body)])
		switch body = body[:len(body)+n]; {
		case err == io.EOF:
			return body
		case err == nil:
		default:
			if more := (*http.MaxBytesError)(nil); errors.As(err, &more) {
				throw(large)
			}
			throw(bodyProblem(err, coding))
		}
	}
}

// Bounds of how slowly a body may come. A byte a second, for example, ends after the half minute.
const (
	bodyPause = 10 * time.Second // between two pieces
	bodyGrace = 30 * time.Second // for a body of any speed
	bodySpeed = 8 << 10          // bytes for each second beyond
	bodyLimit = 2 * time.Minute  // for all of a body, except for uploads
	bodyRest  = 1 << 30          // read behind an answer
)

// steady is a body with a minimum speed.
type steady struct {
	io.ReadCloser
	deadline func(time.Time) error // of the next read; a reader without deadlines reads without a deadline
	now      func() time.Time
	began    time.Time
	limit    time.Duration
	bytes    int64
	over     bool
	failed   bool
}

// steadyBody gives r a body with a minimum speed.
func (s *Server) steadyBody(w http.ResponseWriter, r *http.Request) *steady {
	b := &steady{ReadCloser: r.Body, deadline: http.NewResponseController(w).SetReadDeadline, now: s.now,
		began: s.now(), limit: bodyLimit, over: r.Body == nil || r.Body == http.NoBody}
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
	b.failed = err != nil
	return n, err
}

// end sends the answer and reads the rest of a body: an end of the connection would take the answer from a client
// still sending. A client waiting to be asked for the body sends nothing.
func (b *steady) end(w http.ResponseWriter, r *http.Request) {
	if b.over {
		return
	}
	b.deadline(b.now().Add(bodyPause)) // also of what net/http reads before the header
	if !b.failed && (b.bytes > 0 || r.Header.Get("Expect") == "") {
		http.NewResponseController(w).Flush() // a writer without flushing has sent the answer
		io.CopyN(io.Discard, b, bodyRest)
	}
}

// bodyProblem returns the problem of an unreadable body.
func bodyProblem(err error, coding string) *problem {
	switch late := errors.Is(err, os.ErrDeadlineExceeded); {
	case !late && coding == "gzip":
		return bad("", "The body is no whole gzip, which Content-Encoding says it is")
	case !late:
		return bad("", "The body was not read to its end")
	}
	return refuse(http.StatusRequestTimeout, "request_timeout", "",
		"The body comes too slowly: it has stood still for ten seconds, or has had less than 8 KiB a second")
}
