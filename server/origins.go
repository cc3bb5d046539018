package server

import (
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
)

// origins are patterns of the origins whose pages may call the server, in which * stands for any text:
// http://localhost:*. A pattern * is all origins.
type origins []string

// localOrigins are the origins that Options.Origins has by default: pages that a program of this machine serves or
// shows. No page of the web has such an origin, for its address would have to be this machine's.
var localOrigins = origins{"http://localhost:*", "https://localhost:*", "http://127.0.0.1:*", "https://127.0.0.1:*",
	"http://[::1]:*", "https://[::1]:*",
	"app://*", "tauri://*", "vscode-webview://*"}

// newOrigins reads patterns, which have no path; nil are localOrigins.
func newOrigins(patterns []string) (all origins, err error) {
	if patterns == nil {
		return localOrigins, nil
	}
	for _, p := range patterns {
		p = strings.ToLower(strings.TrimSuffix(p, "/"))
		if _, host, ok := strings.Cut(p, "://"); p != "*" && p != "null" && (!ok || host == "" || strings.ContainsAny(host,
			"/?#@ ")) {
			return nil, fmt.Errorf("the origin %q: want one as http://localhost:3000 or https://*.example.com, or * for any", p)
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

// matches reports whether a text is as a pattern, in which * is any text without slashes.
func matches(pattern, text string) bool {
	scheme, host, _ := strings.Cut(pattern, "://")
	of, rest, ok := strings.Cut(text, "://")
	if !ok {
		return pattern == text // null
	}
	fits, err := path.Match(strings.NewReplacer("[", `\[`, "]", `\]`).Replace(host), rest)
	return scheme == of && fits && err == nil
}

// welcome tells a browser that pages of an origin may read the answer. Names of origins also let them send credentials;
// * does not.
func (o origins) welcome(h http.Header, origin string) {
	if slices.Contains(o, "*") {
		origin = "*"
	} else {
		h.Set("Access-Control-Allow-Credentials", "true")
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "X-Request-Id, Retry-After, "+hintHeader)
}

// isPreflight reports whether a browser asks what a page may send, which it does without a key.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" &&
		r.Header.Get("Access-Control-Request-Method") != ""
}

// preflight answers a browser that asks what a page may send, and reports whether that was the request.
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

// saysJSON reports whether a body of this Content-Type may be JSON: also of none, and of the one that curl -d sends.
// Pages cannot use that to pass by a preflight, since a request with an Origin that is not allowed comes no further
// than origin.
func saysJSON(header string) bool {
	kind, _, _ := strings.Cut(header, ";")
	switch strings.ToLower(strings.TrimSpace(kind)) {
	case "", "application/json", "application/x-www-form-urlencoded":
		return true
	}
	return false
}
