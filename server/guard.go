package server

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path"
	"strings"
)

// guard refuses what must not reach a route: in one place, for all of them.
func (s *Server) guard(r *http.Request) (*caller, *problem) {
	if p := s.origin(r); p != nil {
		return nil, p
	}
	if r.URL.Path == "/health" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		return &caller{}, nil
	}
	who, p := s.keys.who(r)
	if p != nil {
		return nil, p
	}
	if r.URL.Path == "" || path.Clean(r.URL.Path) != r.URL.Path {
		return nil, noRoute(r)
	}
	return who, who.admit(r.URL.Path, s.now())
}

// origin refuses pages of other sites, and names that were made to point here.
func (s *Server) origin(r *http.Request) *problem {
	not := func(what, name string) *problem {
		return &problem{status: http.StatusForbidden, kind: invalid, code: "forbidden", message: fmt.Sprintf("%s %q is not allowed", what, name)}
	}
	if !allowed(s.o.Hosts, r.Host) {
		return not("Host", r.Host)
	}
	for _, origin := range r.Header.Values("Origin") {
		scheme, host, ok := strings.Cut(origin, "://")
		same := ok && host == r.Host && (scheme == "http" || scheme == "https")
		if !same {
			return not("Origin", origin)
		}
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		return not("Sec-Fetch-Site", site)
	}
	return nil
}

// allowed reports whether a Host header is one of hosts; without hosts, whether it names this machine.
func allowed(hosts []string, host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(strings.Trim(name, "[]"))
	for _, h := range hosts {
		if h == "*" || strings.EqualFold(h, name) || strings.EqualFold(h, host) {
			return true
		}
	}
	if len(hosts) > 0 {
		return false
	}
	addr, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && addr.Zone() == "" && addr.IsLoopback()
}

// allBodies bounds the bytes of all requests at a time.
const allBodies = 1 << 30

// firstBody is how many bytes are made room for before any has come. Then it is twice as many.
const firstBody = 64 << 10

// readBody is the JSON of a request.
func (x *exchange) readBody() ([]byte, *problem) {
	s, w, r := x.s, x.w, x.r
	if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); !strings.EqualFold(strings.TrimSpace(kind), "application/json") {
		return nil, &problem{status: http.StatusUnsupportedMediaType, kind: invalid, message: "Content-Type is not application/json"}
	}
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return nil, &problem{status: http.StatusUnsupportedMediaType, kind: invalid, message: fmt.Sprintf("Content-Encoding %q is not taken", e)}
	}
	most := s.o.MaxBody + 1 // so that one more is noticed
	large := &problem{status: http.StatusRequestEntityTooLarge, kind: invalid, message: fmt.Sprintf("The body has more than %d bytes", s.o.MaxBody)}
	if r.ContentLength > s.o.MaxBody {
		return nil, large // before anything is read
	}
	if r.ContentLength >= 0 {
		most = min(most, r.ContentLength+1)
	}
	from := http.MaxBytesReader(w, r.Body, s.o.MaxBody)
	for body := []byte(nil); ; {
		if len(body) == cap(body) { // memory for what has come, not for what somebody says will
			size := int(min(max(firstBody, 2*int64(cap(body))), most))
			if !s.bodies.take(size - cap(body)) {
				return nil, full("The requests that are being read are too large together")
			}
			x.held = size
			body = append(make([]byte, 0, size), body...)
		}
		n, err := from.Read(body[len(body):cap(body)])
		switch body = body[:len(body)+n]; {
		case err == io.EOF:
			return body, nil
		case err == nil:
		default:
			if more := (*http.MaxBytesError)(nil); asError(err, &more) {
				return nil, large
			}
			return nil, bad("", "The body was not read to its end")
		}
	}
}
