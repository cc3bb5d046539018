package server

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// guard refuses requests before any route: in one place, for all routes.
func (s *Server) guard(w http.ResponseWriter, r *http.Request) (*caller, *problem) {
	if p := s.checkOrigin(w, r); p != nil {
		return nil, p
	}
	if isOpen(s.o.Pages, r) || isPreflight(r) {
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

// isOpen reports whether a request needs no key: of the health and the readiness, whose probes have none, and of the
// page, where the reader gives the key.
func isOpen(pages map[string]http.Handler, r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	return r.URL.Path == "/health" || r.URL.Path == "/ready" || pages[r.URL.Path] != nil
}

// checkOrigin refuses pages of other sites, and names pointed here by a stranger. A page of an allowed origin may read
// answers.
func (s *Server) checkOrigin(w http.ResponseWriter, r *http.Request) *problem {
	not := func(what, name, more string) *problem {
		return refuse(http.StatusForbidden, "forbidden", "", "%s %q is not allowed%s", what, name, more)
	}
	w.Header().Add("Vary", "Origin")
	if !isAllowedHost(s.o.Hosts, r.Host) {
		return not("Host", r.Host, "")
	}
	origins := r.Header.Values("Origin")
	for _, origin := range origins {
		scheme, host, ok := strings.Cut(origin, "://")
		if ok && host == r.Host && (scheme == "http" || scheme == "https") {
			continue
		}
		if len(origins) > 1 || !s.gate.origins.allow(origin) {
			return not("Origin", origin,
				": karat serve --allow-origin names the origins whose pages may call this server")
		}
		s.gate.origins.welcome(w.Header(), origin)
	}
	if site := r.Header.Get("Sec-Fetch-Site"); len(origins) == 0 && (site == "cross-site" || site == "same-site") {
		return not("Sec-Fetch-Site", site, "")
	}
	return nil
}

// isAllowedHost reports whether a Host header is among hosts; without hosts, whether it names this machine.
func isAllowedHost(hosts []string, host string) bool {
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

// origins are patterns of the origins of pages allowed to call the server, with * for any text: http://localhost:*. A
// pattern * is all origins.
type origins []string

// localOrigins are the default of Options.Origins: pages served or shown by a program of this machine. No page of the
// web has such an origin, for its address would have to be this machine's.
var localOrigins = origins{"http://localhost:*", "https://localhost:*", "http://127.0.0.1:*", "https://127.0.0.1:*",
	"http://[::1]:*", "https://[::1]:*",
	"app://*", "tauri://*", "vscode-webview://*"}

// newOrigins reads patterns without paths; nil stands for localOrigins.
func newOrigins(patterns []string) (all origins, err error) {
	if patterns == nil {
		return localOrigins, nil
	}
	for _, p := range patterns {
		p = strings.ToLower(strings.TrimSuffix(p, "/"))
		if _, host, ok := strings.Cut(p, "://"); p != "*" && p != "null" &&
			(!ok || host == "" || strings.ContainsAny(host, "/?#@ ")) {
			return nil, fmt.Errorf("the origin %q: want one as http://localhost:3000 or https://*.example.com, or * "+
				"for any", p)
		}
		all = append(all, p)
	}
	return all, nil
}

// allow reports whether pages of an origin may call the server.
func (o origins) allow(origin string) bool {
	origin = strings.ToLower(origin)
	return slices.ContainsFunc(o, func(p string) bool {
		whole, portless := strings.CutSuffix(p, ":*") // also an origin of its scheme's own port
		return p == "*" || matches(p, origin) || portless && matches(whole, origin)
	})
}

// matches reports whether a text fits a pattern, with * for any text without slashes.
func matches(pattern, text string) bool {
	scheme, host, _ := strings.Cut(pattern, "://")
	of, rest, ok := strings.Cut(text, "://")
	if !ok {
		return pattern == text // null
	}
	fits, err := path.Match(strings.NewReplacer("[", `\[`, "]", `\]`).Replace(host), rest)
	return scheme == of && fits && err == nil
}

// welcome lets a browser's pages of an origin read the answer. Origins given by name may also send credentials; * does
// not allow them.
func (o origins) welcome(h http.Header, origin string) {
	if slices.Contains(o, "*") {
		origin = "*"
	} else {
		h.Set("Access-Control-Allow-Credentials", "true")
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "X-Request-Id, Retry-After, "+receiptHeader+", "+hintHeader)
}

// isPreflight reports whether a browser asks for a page's permissions, always without a key.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" &&
		r.Header.Get("Access-Control-Request-Method") != ""
}

// preflight answers a browser's question about permissions, and reports whether the request was such a question.
func preflight(h http.Header, r *http.Request) bool {
	if !isPreflight(r) {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE")
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		h.Set("Access-Control-Allow-Headers", asked) // every client's package has its own, among them Authorization
	}
	if r.Header.Get("Access-Control-Request-Private-Network") == "true" {
		h.Set("Access-Control-Allow-Private-Network", "true")
	}
	h.Set("Access-Control-Max-Age", "600")
	return true
}

// Bounds of wrong keys.
const (
	wrongKeys    = 60   // an address may show in a minute
	maxAddresses = 4096 // are remembered
)

// tries counts the wrong keys of addresses. Without a bound a key could be guessed as fast as the server reads. A key
// once right keeps working from its address: if many clients share an address, such as a proxy's, none of them shuts
// the others out.
type tries struct {
	mu   sync.Mutex
	from map[netip.Prefix]*address
}

// address is where wrong keys came from.
type address struct {
	left  bucket
	right map[*keyUse]bool
}

// network returns the network of a request: for IPv6 a /64, which a single machine may own. A socket's is zero.
func network(r *http.Request) netip.Prefix {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	ip, bits := from.Addr().Unmap().WithZone(""), 32
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits) // fits
	return p
}

// judge returns k's verdict on a request's key, or a refusal if the request's network has no try left.
func (t *tries) judge(k keyring, r *http.Request, now time.Time) (*caller, *problem) {
	who, p := k.caller(r)
	if len(k) == 0 || p != nil && p.code == "" { // no key is no try
		return who, p
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	net := network(r)
	a := t.from[net]
	if a == nil {
		if len(t.from) >= maxAddresses || t.from == nil {
			t.from = map[netip.Prefix]*address{}
		}
		a = &address{left: newBucket(wrongKeys), right: map[*keyUse]bool{}}
		t.from[net] = a
	}
	if p == nil && a.right[who.key] {
		return who, nil
	}
	if wait := a.left.take(0, now); wait > 0 {
		return nil, tooMany(wait, "This address has shown %d wrong keys within a minute", wrongKeys)
	}
	if p != nil {
		a.left.spend(1, now)
		return nil, p
	}
	a.right[who.key] = true
	return who, nil
}
