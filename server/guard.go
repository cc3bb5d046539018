package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path"
	"strings"

	"github.com/karat-run/karat"
)

// Key is a secret that requests show, and whose it is.
type Key struct {
	Name   string // in logs and metrics; callers of different names have equal shares of the model
	Secret string
}

// leastSecret is the shortest secret, in bytes: shorter ones are guessed.
const leastSecret = 8

// ReadKeys reads a file of keys: on each line a name, a colon and a secret, or a secret alone. Empty lines and
// those that begin with # are left out.
func ReadKeys(file string) ([]Key, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return nil, err
	}
	return ParseKeys(string(text), file)
}

// ParseKeys is ReadKeys of a text; from names it in errors, which never hold a secret.
func ParseKeys(text, from string) (keys []Key, err error) {
	line := 0
	for s := range strings.SplitSeq(text, "\n") {
		line++
		if s = strings.TrimSpace(s); s == "" || s[0] == '#' {
			continue
		}
		k := Key{fmt.Sprintf("key%d", len(keys)+1), s}
		if name, secret, ok := strings.Cut(s, ":"); ok {
			k = Key{strings.TrimSpace(name), strings.TrimSpace(secret)}
		}
		if err := k.check(keys); err != nil {
			return nil, fmt.Errorf("server: %s: line %d: %w", from, line, err)
		}
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("server: %s: no keys, want a line NAME:SECRET for each", from)
	}
	return keys, nil
}

func (k Key) check(others []Key) error {
	switch {
	case k.Name == "" || strings.ContainsFunc(k.Name, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return fmt.Errorf("the name %q is empty, or has spaces", k.Name)
	case len(k.Secret) < leastSecret:
		return fmt.Errorf("the secret of %q has %d bytes, want %d or more", k.Name, len(k.Secret), leastSecret)
	case strings.ContainsFunc(k.Secret, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return fmt.Errorf("the secret of %q has spaces, or characters that a header cannot have", k.Name)
	}
	for _, o := range others {
		if o.Name == k.Name || o.Secret == k.Secret {
			return fmt.Errorf("%q is there twice, or its secret is", k.Name)
		}
	}
	return nil
}

// caller is who makes a request.
type caller struct{ name string } // "" where nobody needs a key

func (c *caller) caller() karat.Caller { return karat.Caller{Key: c.name, Apart: c.name != ""} }

// keyring compares secrets by their hashes, in a time that does not depend on them.
type keyring []ringKey

type ringKey struct {
	name string
	hash [sha256.Size]byte
}

func newKeyring(keys []Key) (ring keyring, err error) {
	for i, k := range keys {
		if err := k.check(keys[:i]); err != nil {
			return nil, fmt.Errorf("server: key %d: %w", i, err)
		}
		ring = append(ring, ringKey{k.Name, sha256.Sum256([]byte(k.Secret))})
	}
	return ring, nil
}

// who is whose key a request shows.
func (k keyring) who(r *http.Request) (*caller, *problem) {
	if len(k) == 0 {
		return &caller{}, nil
	}
	secret := r.Header.Get("X-Api-Key")
	if scheme, rest, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "bearer") {
		secret = strings.TrimSpace(rest)
	}
	p := &problem{status: http.StatusUnauthorized, kind: invalid, message: "You didn't provide an API key. Send it as a header: Authorization: Bearer KEY"}
	if secret == "" {
		return nil, p
	}
	given, found := sha256.Sum256([]byte(secret)), -1
	for i := range k {
		if subtle.ConstantTimeCompare(given[:], k[i].hash[:]) == 1 {
			found = i
		}
	}
	if found < 0 {
		p.code, p.message = "invalid_api_key", "Incorrect API key provided."
		return nil, p
	}
	return &caller{k[found].name}, nil
}

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
	return who, nil
}

// origin refuses pages of other sites, and names that were made to point here.
func (s *Server) origin(r *http.Request) *problem {
	forbidden := func(what, name string) *problem {
		return &problem{status: http.StatusForbidden, kind: invalid, code: "forbidden", message: fmt.Sprintf("%s %q is not allowed", what, name)}
	}
	if !allowed(s.o.Hosts, r.Host) {
		return forbidden("Host", r.Host)
	}
	for _, origin := range r.Header.Values("Origin") {
		scheme, host, ok := strings.Cut(origin, "://")
		same := ok && host == r.Host && (scheme == "http" || scheme == "https")
		if !same {
			return forbidden("Origin", origin)
		}
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		return forbidden("Sec-Fetch-Site", site)
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

// readBody is the JSON of a request.
func (x *exchange) readBody() ([]byte, *problem) {
	s, w, r := x.s, x.w, x.r
	if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); !strings.EqualFold(strings.TrimSpace(kind), "application/json") {
		return nil, &problem{status: http.StatusUnsupportedMediaType, kind: invalid, message: "Content-Type is not application/json"}
	}
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return nil, &problem{status: http.StatusUnsupportedMediaType, kind: invalid, message: fmt.Sprintf("Content-Encoding %q is not taken", e)}
	}
	size := r.ContentLength
	if size < 0 || size > s.o.MaxBody {
		size = s.o.MaxBody
	}
	if !s.bodies.take(int(size)) {
		return nil, full("The requests that are being read are too large together")
	}
	x.held = int(size)
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.o.MaxBody))
	if err != nil {
		if large := (*http.MaxBytesError)(nil); asError(err, &large) {
			return nil, &problem{status: http.StatusRequestEntityTooLarge, kind: invalid, message: fmt.Sprintf("The body has more than %d bytes", large.Limit)}
		}
		return nil, bad("", "The body was not read to its end")
	}
	return body, nil
}
