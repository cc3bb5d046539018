package hub

// The tests whose names begin with C and a number are rows of the list of incidents of other stores.

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// bubble runs a test where time passes at once, when all wait: no clock decides what it finds.
func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	for _, v := range []string{"HF_TOKEN", "HF_TOKEN_PATH", "HF_ENDPOINT", "HTTPS_PROXY", "HTTP_PROXY"} {
		t.Setenv(v, "")
	}
	t.Setenv("HF_HOME", t.TempDir())
	sample := httptest.NewUnstartedServer(nil)
	sample.StartTLS() // for its certificate, which is example.com's
	certificate, roots := sample.TLS.Certificates, sample.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	sample.Close()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, dir: dir, hosts: map[string]http.Handler{}, certificate: certificate}
		w.adjust = func(x *http.Transport) {
			x.DialContext, x.TLSClientConfig, x.ForceAttemptHTTP2 = w.dial, &tls.Config{RootCAs: roots}, false
		}
		defer w.close()
		f(t, w)
	})
}

// world is the servers of a test, by host. Their connections are pipes.
type world struct {
	t           *testing.T
	dir         string
	hosts       map[string]http.Handler
	certificate []tls.Certificate
	adjust      func(*http.Transport)

	mu      sync.Mutex
	servers []*http.Server
	asked   []string // "HOST METHOD PATH RANGE", in order
}

// pipes is a listener of one connection.
type pipes struct {
	c    chan net.Conn
	done chan struct{}
	once sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.c:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (w *world) dial(_ context.Context, _, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	h := w.hosts[host]
	if h == nil {
		return nil, fmt.Errorf("there is no host %s", host)
	}
	ours, theirs := net.Pipe()
	if port == "443" {
		theirs = tls.Server(theirs, &tls.Config{Certificates: w.certificate})
	}
	l := &pipes{c: make(chan net.Conn, 1), done: make(chan struct{})}
	l.c <- theirs
	s := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(a http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.asked = append(w.asked, strings.TrimSpace(host+" "+r.URL.Path+" "+r.Header.Get("Range")))
		w.mu.Unlock()
		h.ServeHTTP(a, r)
	})}
	w.mu.Lock()
	w.servers = append(w.servers, s)
	w.mu.Unlock()
	go s.Serve(l)
	return ours, nil
}

func (w *world) close() {
	for _, s := range w.servers {
		s.Close()
	}
}

// count returns how many requests held a text.
func (w *world) count(text string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.asked {
		if strings.Contains(a, text) {
			n++
		}
	}
	return n
}

// store opens the test's store.
func (w *world) store() *Store {
	w.t.Helper()
	s, err := Open(filepath.Join(w.dir, "store"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { s.Close() })
	return s
}

// options returns those of pulls in the test: parts of 1000 bytes, Hugging Face at hub.example.com.
func (w *world) options() PullOptions {
	return PullOptions{Endpoint: "https://hub.example.com", adjust: w.adjust, part: 1000, unknown: 1 << 20}
}

// pull pulls into the test's store.
func (w *world) pull(reference string) (*Manifest, error) {
	return w.store().Pull(w.t.Context(), reference, w.options())
}

// noise returns n bytes that do not repeat.
func noise(n int, seed uint64) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(b)
	return b
}

// file is a file at a server.
type file struct {
	data  []byte
	small bool // in git itself, not in LFS
	etag  string
}

func shaHex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func gitHex(b []byte) string {
	sum := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(b)), b...))
	return hex.EncodeToString(sum[:])
}

const commit = "0123456789abcdef0123456789abcdef01234567"

// huggingFace serves a repository as Hugging Face does: large files by a redirect to cdn.example.com.
type huggingFace struct {
	repo  string
	files map[string]file
	file  func(name string, a http.ResponseWriter, r *http.Request) bool // serves a file in its own way, if it returns true
	page  int                                                            // entries of a page of the listing; 0 is all
}

// add makes w serve the repository.
func (h *huggingFace) add(w *world) *huggingFace {
	w.hosts["hub.example.com"] = http.HandlerFunc(h.hub)
	w.hosts["cdn.example.com"] = http.HandlerFunc(h.cdn)
	return h
}

func (h *huggingFace) listing() (all []map[string]any) {
	var names []string
	for name := range h.files {
		names = append(names, name)
	}
	for _, name := range sorted(names) {
		f := h.files[name]
		e := map[string]any{"type": "file", "path": name, "size": len(f.data), "oid": gitHex(f.data)}
		if !f.small {
			e["lfs"] = map[string]any{"oid": shaHex(f.data), "size": len(f.data), "pointerSize": 130}
		}
		all = append(all, e)
	}
	return append(all, map[string]any{"type": "directory", "path": "folder", "oid": commit})
}

func (h *huggingFace) hub(a http.ResponseWriter, r *http.Request) {
	api := "/api/models/" + h.repo
	name, isFile := strings.CutPrefix(r.URL.Path, "/"+h.repo+"/resolve/"+commit+"/")
	switch {
	case strings.HasPrefix(r.URL.Path, api+"/revision/"):
		json.NewEncoder(a).Encode(map[string]any{"id": h.repo, "sha": commit, "tags": []string{"gguf", "license:apache-2.0"}, "siblings": []any{}})
	case r.URL.Path == api+"/tree/"+commit:
		all := h.listing()
		if h.page > 0 {
			at := 0
			fmt.Sscan(r.URL.Query().Get("cursor"), &at)
			end := min(at+h.page, len(all))
			if end < len(all) {
				a.Header().Set("Link", fmt.Sprintf(`<https://hub.example.com%s?recursive=true&cursor=%d>; rel="next"`, r.URL.Path, end))
			}
			all = all[at:end]
		}
		json.NewEncoder(a).Encode(all)
	case !isFile || h.files[name].data == nil:
		http.NotFound(a, r)
	case h.files[name].small:
		h.serve(name, a, r)
	default:
		a.Header().Set("X-Linked-ETag", `"`+shaHex(h.files[name].data)+`"`)
		http.Redirect(a, r, "https://cdn.example.com/"+name+"?signature=secret", http.StatusFound)
	}
}

func (h *huggingFace) cdn(a http.ResponseWriter, r *http.Request) {
	h.serve(strings.TrimPrefix(r.URL.Path, "/"), a, r)
}

func (h *huggingFace) serve(name string, a http.ResponseWriter, r *http.Request) {
	if h.file != nil && h.file(name, a, r) {
		return
	}
	serveFile(a, r, h.files[name])
}

// serveFile serves a file by Range and If-Range.
func serveFile(a http.ResponseWriter, r *http.Request, f file) {
	if f.etag == "" {
		f.etag = `"` + shaHex(f.data)[:16] + `"`
	}
	a.Header().Set("ETag", f.etag)
	http.ServeContent(a, r, "", time.Time{}, bytes.NewReader(f.data))
}

func sorted(s []string) []string {
	for i := range s {
		for j := i; j > 0 && s[j] < s[j-1]; j-- {
			s[j], s[j-1] = s[j-1], s[j]
		}
	}
	return s
}

// has checks what is at a path.
func has(t *testing.T, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %d bytes, %v; want %d others", path, len(got), err, len(want))
	}
}

// empty checks that nothing of a pull can be seen, but for what the next one goes on with.
func empty(t *testing.T, s *Store) {
	t.Helper()
	if all, err := s.List(); len(all) > 0 || err != nil {
		t.Errorf("there are %d models, %v", len(all), err)
	}
	for _, dir := range []string{"files", "names"} {
		if names, _ := s.list(dir); len(names) > 0 {
			t.Errorf("%s holds %v", dir, names)
		}
	}
}

// refused checks an error.
func refused(t *testing.T, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %q", err, text)
		}
	}
}

// endless writes for as long as somebody reads.
func endless(a io.Writer, piece string) {
	for {
		if _, err := io.WriteString(a, piece); err != nil {
			return
		}
	}
}
