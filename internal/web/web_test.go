package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/dev/webbuild"
	"github.com/karat-run/karat/js"
)

// standInProgram is the script of a program that stands in for Karat's.
func standInProgram(t *testing.T) []byte {
	t.Helper()
	js, err := os.ReadFile("testdata/program.js")
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// standInModule is a WebAssembly module with a memory, and nothing else.
const standInModule = "\x00asm\x01\x00\x00\x00\x05\x03\x01\x00\x01\x07\x07\x01\x03mem\x02\x00"

// standIn is a site whose program stands in for Karat's.
func standIn(t *testing.T) *Site {
	t.Helper()
	js := standInProgram(t)
	demo := append([]byte("GGUF"), bytes.Repeat([]byte{7}, 300_000)...)
	var packed bytes.Buffer
	module, w := []byte(standInModule), brotli.NewWriter(&packed)
	if _, err := w.Write(module); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := New("v0.0.0-test", false, Program{Wasm: module, Brotli: packed.Bytes(), Exec: js},
		File{Name: "demo.gguf", Data: demo}, File{Name: "demo.golden.json", Data: []byte("[]")}, File{Name: "demo.golden.safetensors"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestServe(t *testing.T) {
	s := httptest.NewServer(standIn(t).Handler())
	defer s.Close()
	ask := func(method, path, host, span string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		if span != "" {
			r.Header.Set("Range", span)
		}
		a, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { a.Body.Close() })
		return a
	}
	for _, c := range []struct {
		method, path, host string
		status             int
	}{
		{"GET", "/", "localhost:1", 200}, {"GET", "/", "127.0.0.1", 200}, {"GET", "/", "[::1]:80", 200}, {"GET", "/", "LOCALHOST", 421},
		{"GET", "/", "evil.com", 421}, {"GET", "/", "localhost.evil.com", 421}, {"GET", "/", "127.0.0.1.evil.com", 421}, {"GET", "/karat.wasm", "evil.com:80", 421},
		{"GET", "/index.html", "localhost", 404}, {"GET", "/..%2fkarat.js", "localhost", 404}, {"GET", "/x", "localhost", 404},
		{"POST", "/", "localhost", 405}, {"DELETE", "/demo.gguf", "localhost", 405}, {"HEAD", "/karat.js", "localhost", 200},
	} {
		if got := ask(c.method, c.path, c.host, "").StatusCode; got != c.status {
			t.Errorf("%s %s from %s is %d, want %d", c.method, c.path, c.host, got, c.status)
		}
	}
	a := ask("GET", "/karat.wasm", "localhost", "")
	if got := a.Header.Get("Content-Type"); got != "application/wasm" {
		t.Errorf("the module's type is %q", got)
	}
	a = ask("GET", "/demo.gguf", "localhost", "bytes=0-3")
	if b, err := io.ReadAll(a.Body); err != nil || a.StatusCode != 206 || string(b) != "GGUF" {
		t.Errorf("a range is %d, %q, %v", a.StatusCode, b, err)
	}
	for _, name := range []string{"Content-Security-Policy", "Cross-Origin-Opener-Policy", "X-Content-Type-Options", "ETag"} {
		if a.Header.Get(name) == "" {
			t.Errorf("no %s", name)
		}
	}
}

// TestPacked: what the browser takes compressed comes so, once for all askers, and is the
// same file; ranges are of the file as it is.
func TestPacked(t *testing.T) {
	site := standIn(t)
	s := httptest.NewServer(site.Handler())
	defer s.Close()
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	ask := func(path, accept, have string) (*http.Response, []byte) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept-Encoding", accept)
		if have != "" {
			r.Header.Set("If-None-Match", have)
		}
		a, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		b, err := io.ReadAll(a.Body)
		if err != nil {
			t.Fatal(err)
		}
		return a, b
	}
	tags := map[string]bool{}
	for _, c := range []struct{ path, accept, coding string }{
		{"/karat.js", "gzip, deflate, br, zstd", "gzip"}, {"/karat.js", "", ""}, {"/karat.js", "br;q=1.0, gzip;q=0", ""}, {"/karat.js", "GZIP;q=0.5", "gzip"},
		{"/", "gzip", "gzip"}, {"/karat.wasm", "gzip, br", "br"}, {"/karat.wasm", "gzip", "gzip"}, {"/karat.wasm", "identity", ""}, {"/demo.gguf", "gzip, br", ""},
	} {
		a, b := ask(c.path, c.accept, "")
		var plain []byte
		for _, f := range site.Files() {
			if "/"+f.Name == c.path || c.path+"index.html" == "/"+f.Name {
				plain = f.Data
			}
		}
		got := io.Reader(bytes.NewReader(b))
		switch a.Header.Get("Content-Encoding") {
		case "br":
			got = brotli.NewReader(got)
		case "gzip":
			z, err := gzip.NewReader(got)
			if err != nil {
				t.Fatal(err)
			}
			got = z
		}
		text, err := io.ReadAll(got)
		if coding := a.Header.Get("Content-Encoding"); coding != c.coding || err != nil || !bytes.Equal(text, plain) {
			t.Errorf("%s for %q is coded by %q, want %q: %d bytes of %d, %v", c.path, c.accept, coding, c.coding, len(text), len(plain), err)
		}
		if c.path == "/karat.js" && c.coding != "" && len(b)*2 > len(plain) {
			t.Errorf("%s: %d bytes, compressed %d", c.path, len(plain), len(b))
		}
		tag := a.Header.Get("ETag")
		tags[tag] = true
		if again, _ := ask(c.path, c.accept, tag); again.StatusCode != http.StatusNotModified {
			t.Errorf("%s again: %s", c.path, again.Status)
		}
	}
	if len(tags) != 7 {
		t.Errorf("%d tags of 7 files and codings", len(tags))
	}
}

// TestEmbedded: the program inside is whole, and fits the page.
func TestEmbedded(t *testing.T) {
	p, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("program/about.json")
	if err != nil {
		t.Fatal(err)
	}
	var about build.About
	if err := json.Unmarshal(text, &about); err != nil {
		t.Fatal(err)
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256(p.Wasm)); sum != about.SHA256 || len(p.Wasm) != about.Bytes || !bytes.HasPrefix(p.Wasm, []byte("\x00asm")) || !bytes.Contains(p.Exec, []byte("globalThis.Go = class")) {
		t.Errorf("the program has %d bytes, SHA-256 %s, and should be %+v", len(p.Wasm), sum, about)
	}
	if len(p.Brotli) > 31<<20/10+110_000 {
		t.Errorf("%d bytes compressed: more than 3.1 MiB and 110 kB", len(p.Brotli))
	}
	calls, err := build.Calls(golden.Root(t))
	if err != nil {
		t.Fatal(err)
	}
	if calls != about.Calls {
		t.Errorf("what the page calls has changed, and the program inside knows nothing of it: run %s", build.Command)
	}
}

// TestPolicy: the page itself says the policy, for servers that do not, and it allows no
// text to become code.
func TestPolicy(t *testing.T) {
	s := standIn(t)
	html := string(s.Files()[0].Data)
	if !strings.Contains(html, `content="`+s.policy+`"`) {
		t.Error("the page does not say the policy")
	}
	for _, bad := range []string{"unsafe-inline", "'unsafe-eval'", "data: ", "blob:", " *"} {
		if strings.Contains(s.policy, bad) {
			t.Errorf("the policy allows %s: %s", bad, s.policy)
		}
	}
	if regexp.MustCompile(`\son\w+=|style=|<script>|https?://`).MatchString(strings.ReplaceAll(html, s.policy, "")) {
		t.Error("the page has code or styles that the policy forbids, or names other sites")
	}
	for _, f := range slices.Concat(common, scripts) {
		text, err := page.ReadFile("page/" + f)
		if slices.Contains(common, f) {
			text, err = js.Files.ReadFile(f)
		}
		if err != nil {
			t.Fatal(err)
		}
		if m := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function`).Find(text); m != nil {
			t.Errorf("%s makes code or elements of text: %s", f, m)
		}
	}
}

// TestWords: each language has the words that the page asks for, and the same places for values.
func TestWords(t *testing.T) {
	text, err := page.ReadFile("page/words.js")
	if err != nil {
		t.Fatal(err)
	}
	english, arabic, ok := strings.Cut(string(text), "\n\tar: {")
	if !ok {
		t.Fatal("no Arabic")
	}
	keys := func(part string) map[string]string {
		m := map[string]string{}
		for _, x := range regexp.MustCompile(`(?:'([\w-]+)'|\b(\w+)): '((?:[^'\\]|\\.)*)'`).FindAllStringSubmatch(part, -1) {
			m[x[1]+x[2]] = x[3]
		}
		return m
	}
	en, ar := keys(english), keys(arabic)
	values := regexp.MustCompile(`\{\w+\}`)
	for k, v := range en {
		if ar[k] == "" {
			t.Errorf("%q has no Arabic", k)
		}
		for _, x := range values.FindAllString(v, -1) {
			if !strings.Contains(ar[k], x) {
				t.Errorf("%q: the Arabic lacks %s", k, x)
			}
		}
	}
	for k := range ar {
		if en[k] == "" {
			t.Errorf("%q has no English", k)
		}
	}
	asked := regexp.MustCompile(`data-t(?:-label)?="(\w+)"|\bt(?:Label)?: \[?'(\w+)'|field\('(\w+)'|\bt\('(\w+)'|table\('(\w+)'|\$\('[\w-]+'\), '(\w+)'|note\('\w+', '([\w-]+)'|fact\('(\w+)'|\['(\w+)', \(\) =>`)
	seen := 0
	for _, f := range append([]string{"index.html"}, scripts...) {
		text, err := page.ReadFile("page/" + f)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range asked.FindAllStringSubmatch(string(text), -1) {
			k := strings.Join(x[1:], "")
			if seen++; en[k] == "" && !strings.HasSuffix(k, "_") { // the kind of an error, or of an end, comes behind it
				t.Errorf("%s asks for %q, which is no word", f, k)
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d uses were found", seen)
	}
}

func TestWrite(t *testing.T) {
	s, dir := standIn(t), filepath.Join(t.TempDir(), "site")
	if err := s.Write(dir); err != nil {
		t.Fatal(err)
	}
	for _, f := range s.Files() {
		b, err := os.ReadFile(filepath.Join(dir, f.Name))
		if err != nil || !bytes.Equal(b, f.Data) {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
	if err := s.Write(dir); err == nil {
		t.Error("a folder that is not empty is replaced")
	}
}
