package server

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path"
	"strings"
)

// guard refuses what must not reach a route: in one place, for all of them.
func (s *Server) guard(w http.ResponseWriter, r *http.Request) (*caller, *problem) {
	if p := s.origin(w, r); p != nil {
		return nil, p
	}
	if r.URL.Path == "/health" && (r.Method == http.MethodGet || r.Method == http.MethodHead) || isPreflight(r) {
		return &caller{}, nil
	}
	who, p := s.gate.tries.judge(s.gate.keys, r, s.now())
	if p != nil {
		return nil, p
	}
	if r.URL.Path == "" || path.Clean(r.URL.Path) != r.URL.Path {
		return nil, noRoute(r)
	}
	return who, who.admit(r.URL.Path, s.now())
}

// origin refuses pages of other sites, and names that were made to point here. A page whose origin is allowed may read
// answers.
func (s *Server) origin(w http.ResponseWriter, r *http.Request) *problem {
	not := func(what, name, more string) *problem {
		return refuse(http.StatusForbidden, "forbidden", "", "%s %q is not allowed%s", what, name, more)
	}
	w.Header().Add("Vary", "Origin")
	if !allowed(s.o.Hosts, r.Host) {
		return not("Host", r.Host, "")
	}
	origins := r.Header.Values("Origin")
	for _, origin := range origins {
		scheme, host, ok := strings.Cut(origin, "://")
		if ok && host == r.Host && (scheme == "http" || scheme == "https") {
			continue
		}
		if len(origins) > 1 || !s.gate.origins.allow(origin) {
			return not("Origin", origin, ": karat serve --allow-origin names the origins whose pages may call this server")
		}
		s.gate.origins.welcome(w.Header(), origin)
	}
	if site := r.Header.Get("Sec-Fetch-Site"); len(origins) == 0 && (site == "cross-site" || site == "same-site") {
		return not("Sec-Fetch-Site", site, "")
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

// Bounds of the bytes of all requests at a time. Small bodies have room of their own, so that large ones take none of
// it.
const (
	allBodies   = 1 << 30
	smallBodies = 256 << 20
	firstBody   = 64 << 10 // of each body, in the room of small ones
	leastBody   = 4 << 10  // that are made room for before any has come; then it is twice as many
)

// held are the bytes that a request has in the room of bodies.
type held struct {
	s    *Server
	who  string
	size int64
}

// grow takes room for size bytes in all, or else changes nothing.
func (h *held) grow(size int64) bool {
	small, large := h.parts()
	h.size, size = size, h.size
	moreSmall, moreLarge := h.parts()
	if h.s.rooms.small.take(h.who, moreSmall-small) {
		if h.s.rooms.bodies.take(h.who, moreLarge-large) {
			return true
		}
		h.s.rooms.small.give(h.who, moreSmall-small)
	}
	h.size = size
	return false
}

// parts returns the bytes in the room of small bodies, and the others.
func (h *held) parts() (small, large int64) {
	return min(h.size, firstBody), max(0, h.size-firstBody)
}

// end gives all back.
func (h *held) end() {
	if small, large := h.parts(); h.size > 0 {
		h.s.rooms.small.give(h.who, small)
		h.s.rooms.bodies.give(h.who, large)
		h.size = 0
	}
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
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		throw(refuse(http.StatusUnsupportedMediaType, "", "", "Content-Encoding %q is not taken", e))
	}
	most := s.o.MaxBody + 1 // so that one more is noticed
	large := refuse(http.StatusRequestEntityTooLarge, "", "", "The body has more than %d bytes", s.o.MaxBody)
	if r.ContentLength > s.o.MaxBody {
		throw(large) // before anything is read
	}
	if r.ContentLength >= 0 {
		most = min(most, r.ContentLength+1)
	}
	x.held.s, x.held.who = s, x.who.name
	from := http.MaxBytesReader(w, r.Body, s.o.MaxBody)
	for body := []byte(nil); ; {
		if len(body) == cap(body) { // memory for what has come, not for what somebody says will
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
			throw(unread(err))
		}
	}
}
