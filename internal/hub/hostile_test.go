package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// one returns a server of one file, in a way of its own.
func one(w *world, serve http.HandlerFunc) (*Manifest, error) {
	w.hosts["www.example.com"] = serve
	o := w.options()
	o.Lines = 1
	return w.store().Pull(w.t.Context(), "https://www.example.com/m.gguf", o)
}

// TestLies: a server that sends other bytes, more or fewer than it promised is refused, and nothing of it is kept.
func TestLies(t *testing.T) {
	data := noise(2500, 1)
	ranged := func(a http.ResponseWriter, r *http.Request, header string, body []byte) {
		if r.Header.Get("Range") == "bytes=0-0" {
			serveFile(a, r, file{data: data})
			return
		}
		a.Header().Set("Content-Range", header)
		a.WriteHeader(http.StatusPartialContent)
		a.Write(body)
	}
	for name, c := range map[string]struct {
		serve http.HandlerFunc
		want  string
	}{
		"another part":   {func(a http.ResponseWriter, r *http.Request) { ranged(a, r, "bytes 1-1000/2500", data[:1000]) }, `Content-Range "bytes 1-1000/2500", and bytes`},
		"no range":       {func(a http.ResponseWriter, r *http.Request) { ranged(a, r, "bytes */2500", data[:1000]) }, "Content-Range"},
		"more of a part": {func(a http.ResponseWriter, r *http.Request) { first(a, r, data, ranged) }, "more bytes come than the "},
		"another size":   {func(a http.ResponseWriter, r *http.Request) { ranged(a, r, "bytes 0-999/2600", data[:1000]) }, "the file changed at the server"},
		"huge": {func(a http.ResponseWriter, _ *http.Request) {
			a.Header().Set("Content-Range", "bytes 0-0/9000000000000000000")
			a.WriteHeader(http.StatusPartialContent)
			a.Write(data[:1])
		}, "9000000000000000000 bytes"},
		"endless": {func(a http.ResponseWriter, _ *http.Request) { endless(a, "x") }, "more bytes come than the 1048576 that are allowed"},
		"packed": {func(a http.ResponseWriter, _ *http.Request) {
			a.Header().Set("Content-Encoding", "gzip")
			a.Write(data)
		}, `packed (Content-Encoding "gzip")`},
		"no header": {func(a http.ResponseWriter, r *http.Request) { a.WriteHeader(http.StatusPartialContent) }, "Content-Range"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				_, err := one(w, c.serve)
				refused(t, err, c.want)
				empty(t, w.store())
				if n := len(w.asked); n > 60 {
					t.Errorf("%d requests", n)
				}
			})
		})
	}
}

// first sends more than the part that was asked for, without saying how much it is.
func first(a http.ResponseWriter, r *http.Request, data []byte, ranged func(http.ResponseWriter, *http.Request, string, []byte)) {
	var from, to int
	fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to)
	if to > 0 {
		a.Header().Set("Transfer-Encoding", "chunked")
	}
	ranged(a, r, fmt.Sprintf("bytes %d-%d/2500", from, to), append(data[from:to+1:to+1], "more"...))
}

// TestOtherBytes: bytes that are not those of the digest are removed, whatever gave it: the listing, the address, a
// registry.
func TestOtherBytes(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h := tiny(w)
		h.file = func(name string, a http.ResponseWriter, r *http.Request) bool {
			serveFile(a, r, file{data: noise(len(h.files[name].data), 77)})
			return true
		}
		_, err := w.pull(reference)
		refused(t, err, "its SHA-256 is "+shaHex(noise(4500, 77)), "was promised: it is removed")
		s := w.store()
		empty(t, s)
		if left, _ := s.list("partial"); len(left) > 1 { // the lock
			t.Errorf("partial holds %v", left)
		}
		h.file = func(_ string, a http.ResponseWriter, r *http.Request) bool {
			serveFile(a, r, file{data: noise(4600, 1)})
			return true
		}
		_, err = w.pull(reference)
		refused(t, err, "4600 bytes, and 4500 were promised")
		data := noise(700, 1)
		w.hosts["www.example.com"] = http.HandlerFunc(func(a http.ResponseWriter, r *http.Request) { serveFile(a, r, file{data: data}) })
		_, err = w.pull("https://www.example.com/m.gguf#sha256=" + shaHex(noise(700, 2)))
		refused(t, err, "was promised: it is removed")
		if _, err = w.pull("https://www.example.com/m.gguf#sha256=" + shaHex(data)); err != nil {
			t.Error(err)
		}
	})
}

// TestBrokenPartial: what is left of a pull and was changed on the disk does not end in a model, and does not stop the
// next pull.
func TestBrokenPartial(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h := tiny(w)
		ctx, cancel := context.WithCancel(t.Context())
		h.file = func(_ string, a http.ResponseWriter, r *http.Request) bool {
			if r.Header.Get("Range") == "bytes=3000-3999" {
				cancel()
				<-r.Context().Done()
			}
			return false
		}
		o := w.options()
		o.Lines = 1
		s := w.store()
		if _, err := s.Pull(ctx, reference, o); err == nil {
			t.Fatal("the pull ended")
		}
		h.file = nil
		key := shaHex(h.files["tiny-Q4_K_M.gguf"].data)
		path := filepath.Join(s.Dir(), "partial", key)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[5] ^= 1
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := s.Pull(t.Context(), reference, o)
		if err != nil {
			t.Fatal(err)
		}
		p, _ := s.Path(m)
		has(t, p, h.files["tiny-Q4_K_M.gguf"].data)
	})
}

// TestC8NoLength: a file whose server does not say its size, and sends no parts, comes all the same (incident C8).
func TestC8NoLength(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		data, cut := noise(3000, 1), true
		w.hosts["www.example.com"] = http.HandlerFunc(func(a http.ResponseWriter, r *http.Request) {
			a.(http.Flusher).Flush() // and so no Content-Length
			if r.Header.Get("Range") == "" && cut {
				cut = false
				a.Write(data[:100])
				a.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}
			a.Write(data)
		})
		o := w.options()
		var last Progress
		o.Progress = func(p Progress) { last = p }
		m, err := w.store().Pull(t.Context(), "https://www.example.com/m.gguf", o)
		if err != nil || last.All != -1 || last.Done != 3000 {
			t.Fatalf("%+v, %v", last, err)
		}
		p, _ := w.store().Path(m)
		has(t, p, data)
	})
}

// TestC4Redirects: only https is followed, a few times, and not to what only this machine reaches (incident C4).
func TestC4Redirects(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		to := ""
		for _, host := range []string{"www.example.com", "private.example.com"} {
			w.hosts[host] = http.HandlerFunc(func(a http.ResponseWriter, r *http.Request) {
				a.Header()["Location"] = []string{to}
				a.WriteHeader(http.StatusFound)
			})
		}
		for location, want := range map[string]string{
			"file:///etc/passwd": "leads to file:///etc/passwd: only https is followed", "http://www.example.com/m": "only https is followed", "": "leads nowhere", "ftp://x/y": "only https is followed",
			"https://user:password@www.example.com/": "only https is followed", "/again": "more than 10 redirects", "https:": "only https is followed",
			"https://169.254.169.254/latest": "leads to 169.254.169.254, which is no public address", "https://[::1]/": "no public address",
		} {
			to = location
			_, err := w.pull("https://www.example.com/m.gguf")
			refused(t, err, want)
			if strings.Contains(err.Error(), "password@") {
				t.Errorf("the error shows a password: %v", err)
			}
			empty(t, w.store())
		}
	})
}

// TestC4Private: a host that the user named is asked wherever it is. One that a server leads to is not, if its address
// is no public one: asked of the address that is connected to, so a name that means another one by then does not help.
func TestC4Private(t *testing.T) {
	for address, want := range map[string]bool{
		"1.1.1.1": true, "2606:4700::1111": true, "127.0.0.1": false, "127.1.2.3": false, "10.0.0.1": false, "172.16.5.5": false, "192.168.1.1": false, "169.254.169.254": false,
		"0.0.0.0": false, "100.64.0.1": false, "224.0.0.1": false, "255.255.255.255": false, "::1": false, "::": false, "fe80::1": false, "fc00::1": false, "::ffff:127.0.0.1": false,
		"::ffff:10.0.0.1": false, "64:ff9b::7f00:1": false, "198.18.0.1": false,
	} {
		if got := isPublic(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s is public: %v", address, got)
		}
	}
	asked := 0
	inner := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer inner.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(inner.URL, "http://"), ":")
	for _, host := range []string{"127.0.0.2", "[::ffff:127.0.0.1]", "ip6-localhost", "localhost"} {
		outer := httptest.NewServer(http.RedirectHandler("http://"+host+":"+port+"/m", http.StatusFound))
		u, err := url.Parse(outer.URL)
		if err != nil {
			t.Fatal(err)
		}
		c := newClient(u, nil)
		_, err = c.get(t.Context(), outer.URL, nil)
		if host != "ip6-localhost" { // which not every machine knows
			refused(t, err, "no public address")
		}
		if err == nil || asked > 0 {
			t.Errorf("%s was asked: %v", host, err)
		}
		c.close()
		outer.Close()
	}
}

// TestC4Token: the token is sent to the endpoint, and to no other host (incident C4: CVE-2025-51471).
func TestC4Token(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		tiny(w)
		t.Setenv("HF_TOKEN", "hf_secret")
		for host, next := range w.hosts {
			w.hosts[host] = http.HandlerFunc(func(a http.ResponseWriter, r *http.Request) {
				switch got := r.Header.Get("Authorization"); {
				case host == "hub.example.com" && got != "Bearer hf_secret":
					t.Errorf("%s has %q", r.URL.Path, got)
				case host != "hub.example.com" && got != "":
					t.Errorf("%s saw the token", host)
				}
				next.ServeHTTP(a, r)
			})
		}
		if _, err := w.pull(reference); err != nil {
			t.Error(err)
		}
		for _, bad := range []string{"two words", "line\nbreak", strings.Repeat("x", maxToken+1)} {
			t.Setenv("HF_TOKEN", bad)
			_, err := w.pull(reference)
			refused(t, err, "HF_TOKEN: no token")
			if strings.Contains(err.Error(), bad) {
				t.Error("the error shows the token")
			}
		}
		t.Setenv("HF_TOKEN", "")
		path := filepath.Join(w.dir, "token")
		if err := os.WriteFile(path, []byte("hf_secret\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("HF_TOKEN_PATH", path)
		if _, err := w.pull("hf:org/tiny-GGUF:Q8_0"); err != nil {
			t.Error(err)
		}
	})
}

// TestC4TokenPlain: over http the token is not sent, but to this machine.
func TestC4TokenPlain(t *testing.T) {
	t.Setenv("HF_TOKEN", "hf_secret")
	for endpoint, want := range map[string]string{"http://mirror.example.com": "", "http://127.0.0.1:8000": "Bearer hf_secret", "https://mirror.example.com/hf": "Bearer hf_secret"} {
		p := &puller{o: PullOptions{Endpoint: endpoint}}
		if err := p.connect(&Reference{Kind: HuggingFace}); err != nil || p.client.secret != want {
			t.Errorf("%s: %q, %v", endpoint, p.client.secret, err)
		}
	}
	for _, endpoint := range []string{"file:///x", "mirror", "https://", "https://a:b@c"} {
		if err := (&puller{o: PullOptions{Endpoint: endpoint}}).connect(&Reference{Kind: HuggingFace}); err == nil {
			t.Errorf("%s is an endpoint", endpoint)
		}
	}
}

// hostileNames are names of files that no store may follow (incidents C1, C2).
var hostileNames = []string{"../x.gguf", "a/../../x.gguf", "/etc/x.gguf", "..", ".", "", "a//x.gguf", `..\x.gguf`, `C:\x.gguf`, "c:x.gguf", "x\x00.gguf", "x\n.gguf", "a/./x.gguf", "x.gguf/",
	"\x1b[2J.gguf", strings.Repeat("a", 300) + ".gguf", strings.Repeat("a/", 400) + "x.gguf", "x.gguf. ", "a./x.gguf", "x?.gguf", "\xff.gguf"}

// TestC2Names: a listing with such a name is refused, and so is a layer of that name.
func TestC2Names(t *testing.T) {
	for _, name := range hostileNames {
		if checkPath(name) == nil {
			t.Errorf("%q is a name", name)
		}
		page, err := json.Marshal([]map[string]any{{"type": "file", "path": name, "size": 1, "oid": commit}})
		if err != nil {
			t.Fatal(err)
		}
		if name != "\xff.gguf" { // which JSON cannot say
			if _, err := parseListing(page); err == nil {
				t.Errorf("%q is listed", name)
			}
		}
		m := &ociManifest{Layers: []ociLayer{{MediaType: "application/x", Annotations: map[string]string{filePath: name}}}}
		if _, err := m.plan("https://x/"); err == nil {
			t.Errorf("%q is a layer", name)
		}
	}
	for _, files := range [][]File{{{Path: "a"}, {Path: "A"}}, {{Path: "a"}, {Path: "a/b"}}, {{Path: "a", Size: maxFile + 1}}, {{Path: "a", Size: -2}}} {
		if checkFiles(files) == nil {
			t.Errorf("%v lie in one folder", files)
		}
	}
}

// TestC3HugeAnswers: answers that should be small are bounded, whatever they hold (incident C3).
func TestC3HugeAnswers(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h := tiny(w)
		hub := w.hosts["hub.example.com"]
		part, answer := "", func(http.ResponseWriter) {}
		w.hosts["hub.example.com"] = http.HandlerFunc(func(a http.ResponseWriter, r *http.Request) {
			if part != "" && strings.Contains(r.URL.Path, part) {
				answer(a)
				return
			}
			hub.ServeHTTP(a, r)
		})
		for _, c := range []struct {
			part, want string
			answer     func(a http.ResponseWriter)
		}{
			{"/revision/", "more than 8388608 bytes", func(a http.ResponseWriter) { endless(a, strings.Repeat(" ", 1000)) }},
			{"/tree/", "more than 16777216 bytes", func(a http.ResponseWriter) { endless(a, strings.Repeat("[", 1000)) }},
			{"/tree/", "more than 20 pages", func(a http.ResponseWriter) {
				a.Header().Set("Link", `</api/models/org/tiny-GGUF/tree/x>; rel="next"`)
				io.WriteString(a, "[]")
			}},
			{"/tree/", "goes on at \"https://evil.example.com/\", another server", func(a http.ResponseWriter) {
				a.Header().Set("Link", `<https://evil.example.com/>; rel="next"`)
				io.WriteString(a, "[]")
			}},
			{"/tree/", "its listing", func(a http.ResponseWriter) { io.WriteString(a, strings.Repeat("[", 100_000)) }},
			{"/tree/", "bytes, want 0 to", func(a http.ResponseWriter) {
				io.WriteString(a, `[{"type": "file", "path": "x", "size": -1}]`)
			}},
			{"/tree/", "neither a GGUF file nor", func(a http.ResponseWriter) { io.WriteString(a, "[]") }},
			{"/tree/", `digest "sha256:../../x"`, func(a http.ResponseWriter) {
				io.WriteString(a, `[{"type": "file", "path": "x-Q4_K_M.gguf", "lfs": {"oid": "../../x", "size": 1}}]`)
			}},
			{"/revision/", `commit "main", want 40`, func(a http.ResponseWriter) { io.WriteString(a, `{"sha": "main"}`) }},
			{"/revision/", "packed", func(a http.ResponseWriter) { a.Header().Set("Content-Encoding", "gzip"); io.WriteString(a, "x") }},
			{"/revision/", "a token in HF_TOKEN may open it", func(a http.ResponseWriter) { a.WriteHeader(http.StatusUnauthorized) }},
		} {
			part, answer = c.part, c.answer
			_, err := w.pull(reference)
			refused(t, err, c.want)
			empty(t, w.store())
		}
		part = ""
		h.files = map[string]file{"config.json": {data: []byte("{}"), small: true}, weightsIndex: {data: []byte(`{"weight_map": {"a": "../x.safetensors"}}`), small: true}}
		_, err := w.pull("hf:org/tiny-GGUF")
		refused(t, err, `weights in "../x.safetensors"`)
	})
}
