package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"
)

// types are the media types of a site's files.
var types = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".wasm": "application/wasm", // browsers compile the module during its arrival only under this type
	".json": "application/json",
	".svg":  "image/svg+xml",
}

// Pages returns the handlers of the site's paths, including /, for a server with its own check of hosts.
func (s *Site) Pages() map[string]http.Handler {
	all := map[string]http.Handler{}
	for _, f := range s.files {
		path := "/" + f.Name
		if f.Name == "index.html" {
			path = "/"
		}
		all[path] = s.serve(f)
	}
	return all
}

// Handler serves the site to browsers on this machine: a page elsewhere whose name was made to point here is refused,
// by its Host.
func (s *Site) Handler() http.Handler {
	mux := http.NewServeMux()
	for path, page := range s.Pages() {
		if path == "/" {
			path = "/{$}"
		}
		mux.Handle("GET "+path, page)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !local(r.Host) {
			http.Error(w, "karat web serves 127.0.0.1 and localhost alone", http.StatusMisdirectedRequest)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// local reports whether a Host header names this machine.
func local(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return host == "localhost" || host == "127.0.0.1" || host == "[::1]" || host == "::1"
}

func (s *Site) serve(f File) http.Handler {
	typ := types[path.Ext(f.Name)]
	if typ == "" {
		typ = "application/octet-stream"
	}
	tag := fmt.Sprintf("%x", sha256.Sum256(f.Data))
	packed := map[string]func() []byte{}
	if types[path.Ext(f.Name)] != "" {
		packed["gzip"] = sync.OnceValue(func() []byte { return pack(f.Data) })
	}
	if f.Brotli != nil {
		packed["br"] = func() []byte { return f.Brotli }
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		for name, value := range s.headers() {
			h.Set(name, value)
		}
		h.Set("Content-Type", typ)
		data, tag := f.Data, tag
		if len(packed) > 0 {
			h.Set("Vary", "Accept-Encoding")
		}
		for _, coding := range []string{"br", "gzip"} {
			if packed[coding] != nil && accepts(r.Header.Values("Accept-Encoding"), coding) {
				h.Set("Content-Encoding", coding)
				data, tag = packed[coding](), tag+"-"+coding
				break
			}
		}
		h.Set("ETag", `"`+tag+`"`)
		http.ServeContent(w, r, f.Name, time.Time{}, bytes.NewReader(data))
	})
}

// accepts reports whether a browser takes a content coding.
func accepts(accept []string, coding string) bool {
	for x := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		name, rest, _ := strings.Cut(strings.TrimSpace(x), ";")
		q, given := strings.CutPrefix(strings.TrimSpace(rest), "q=")
		if strings.EqualFold(strings.TrimSpace(name), coding) && (!given || strings.Trim(q, "0.") != "") {
			return true
		}
	}
	return false
}

// pack compresses with gzip.
func pack(data []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write(data) // a Buffer takes all
	z.Close()
	return b.Bytes()
}

// headers returns the headers of every answer. The two about origins give the page finer clocks and its memory's size.
func (s *Site) headers() map[string]string {
	return map[string]string{
		"Content-Security-Policy":      s.policy + "; frame-ancestors 'none'",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Embedder-Policy": "require-corp",
		"Cross-Origin-Resource-Policy": "same-origin",
		"Referrer-Policy":              "no-referrer",
		"X-Content-Type-Options":       "nosniff",
		"Cache-Control":                "no-cache",
		"Permissions-Policy":           "camera=(), microphone=(), geolocation=()",
	}
}
