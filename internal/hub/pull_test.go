package hub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const reference = "hf:org/tiny-GGUF:Q4_K_M"

// tiny returns a repository with files of three quantizations, one of them split.
func tiny(w *world) *huggingFace {
	h := &huggingFace{repo: "org/tiny-GGUF", files: map[string]file{
		"tiny-Q4_K_M.gguf": {data: noise(4500, 1)}, "tiny-Q8_0.gguf": {data: noise(900, 2)}, "README.md": {data: noise(50, 3), small: true},
		"F16/tiny-F16-00001-of-00002.gguf": {data: noise(1500, 4)}, "F16/tiny-F16-00002-of-00002.gguf": {data: noise(1100, 5)}, "mmproj-Q4_K_M.gguf": {data: noise(60, 6)},
	}}
	return h.add(w)
}

// TestPull: the file of a quantization comes in parts, is whole, has a name, and does not come twice.
func TestPull(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h := tiny(w)
		h.page = 2
		s, o := w.store(), w.options()
		var last Progress
		o.Lines, o.Progress = 1, func(p Progress) { last = p }
		m, err := s.Pull(t.Context(), reference, o)
		if err != nil {
			t.Fatal(err)
		}
		if m.Name != "tiny:Q4_K_M" || m.Revision != commit || m.License != "apache-2.0" || m.Format != GGUF || m.Bytes() != 4500 {
			t.Errorf("%+v", m)
		}
		if want := (Progress{4500, 4500, 4500}); last != want {
			t.Errorf("the last progress is %+v", last)
		}
		if n := w.count("bytes=4000-4499"); n != 2 || w.count("cdn.example.com") != 6 { // the hub and where it leads to; a first byte and 5 parts
			t.Errorf("the files were asked for: %q", w.asked)
		}
		path, err := s.Path(m)
		if err != nil || filepath.Base(path) != "tiny-Q4_K_M.gguf" {
			t.Fatal(path, err)
		}
		has(t, path, h.files["tiny-Q4_K_M.gguf"].data)
		for _, name := range []string{"tiny:Q4_K_M", "TINY:q4_k_m", reference} {
			if f, err := findIn(s, name); err != nil || f.Path != path || f.Name != "tiny:Q4_K_M" {
				t.Errorf("%s: %+v, %v", name, f, err)
			}
		}
		before := w.count("cdn.")
		if _, err := w.pull(reference); err != nil || w.count("cdn.") != before {
			t.Errorf("a second pull: %v, %d requests", err, w.count("cdn.")-before)
		}
		for _, dir := range []string{"partial", "unfinished"} {
			if left, err := s.list(dir); err != nil || len(left) > 0 {
				t.Errorf("%s holds %v, %v", dir, left, err)
			}
		}
	})
}

// TestPullSplit: all parts of a split file come, under their names.
func TestPullSplit(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h := tiny(w)
		m, err := w.pull("hf:org/tiny-GGUF:F16")
		if err != nil {
			t.Fatal(err)
		}
		path, err := w.store().Path(m)
		if err != nil || filepath.Base(path) != "tiny-F16-00001-of-00002.gguf" {
			t.Fatal(path, err)
		}
		has(t, path, h.files["F16/tiny-F16-00001-of-00002.gguf"].data)
		has(t, strings.Replace(path, "00001-", "00002-", 1), h.files["F16/tiny-F16-00002-of-00002.gguf"].data)
		delete(h.files, "F16/tiny-F16-00002-of-00002.gguf")
		_, err = w.store().Pull(t.Context(), "hf:org/tiny-GGUF:F16", PullOptions{Name: "other", Endpoint: "https://hub.example.com", adjust: w.adjust})
		refused(t, err, "want part 1 of 1")
		for name := range h.files {
			if strings.Contains(name, "Q4_K_M") {
				delete(h.files, name)
			}
		}
		_, err = w.pull("hf:org/tiny-GGUF")
		refused(t, err, "several GGUF files; name one behind a colon: ", "Q8_0")
		_, err = w.pull("hf:org/tiny-GGUF:Q2_K")
		refused(t, err, "no GGUF file of Q2_K; there are ")
	})
}

// TestPullFolder: of a folder the files that a model needs come, no programs and no pickles; small ones are verified by
// git's hash.
func TestPullFolder(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		text := func(s string) file { return file{data: []byte(s), small: true} }
		h := &huggingFace{repo: "org/tiny", files: map[string]file{
			"config.json": text("{}"), "tokenizer.json": text("{ }"), "chat_template.jinja": text("x"), "1_Pooling/config.json": text("{  }"),
			"model.safetensors.index.json":     text(`{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}`),
			"model-00001-of-00002.safetensors": {data: noise(1200, 1)}, "model-00002-of-00002.safetensors": {data: noise(10, 2)},
			"consolidated.safetensors": {data: noise(10, 3)}, "pytorch_model.bin": {data: noise(10, 4)}, "modeling.py": text("import os"), "onnx/model.onnx": {data: noise(10, 5)},
			"onnx/config.json": text("{   }"), "README.md": text("x"), "training_args.bin": {data: noise(3, 9)},
		}}
		h.add(w)
		m, err := w.pull("hf:org/tiny@v1.0")
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, f := range m.Files {
			names = append(names, f.Path)
		}
		want := "1_Pooling/config.json chat_template.jinja config.json model-00001-of-00002.safetensors model-00002-of-00002.safetensors model.safetensors.index.json tokenizer.json"
		if got := strings.Join(names, " "); got != want || m.Format != Folder || m.Name != "tiny" {
			t.Errorf("%s: %s, %s", m.Name, m.Format, got)
		}
		path, err := w.store().Path(m)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			has(t, filepath.Join(path, filepath.FromSlash(name)), h.files[name].data)
		}
		h.file = func(name string, a http.ResponseWriter, r *http.Request) bool {
			if name == "config.json" {
				a.Write([]byte("[]"))
			}
			return name == "config.json"
		}
		_, err = w.store().Pull(t.Context(), "hf:org/tiny", PullOptions{Name: "forged", Endpoint: "https://hub.example.com", adjust: w.adjust})
		refused(t, err, "config.json: its hash in git is ", "it is removed")
		h.files = map[string]file{"pytorch_model.bin": {data: noise(10, 4)}, "config.json": text("{}")}
		_, err = w.pull("hf:org/tiny:x")
		refused(t, err, "without :x it is a folder")
		_, err = w.store().Pull(t.Context(), "hf:org/tiny", PullOptions{Name: "y", Endpoint: "https://hub.example.com", adjust: w.adjust})
		refused(t, err, "a pickle runs code")
	})
}

// TestPullResumes: a pull that ends early is gone on with: what has come does not come again.
func TestPullResumes(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h := tiny(w)
		ctx, cancel := context.WithCancel(t.Context())
		o := w.options()
		o.Lines = 1
		h.file = func(_ string, a http.ResponseWriter, r *http.Request) bool {
			if r.Header.Get("Range") == "bytes=2000-2999" {
				cancel() // as Ctrl-C does
				<-r.Context().Done()
				return true
			}
			return false
		}
		s := w.store()
		if _, err := s.Pull(ctx, reference, o); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		empty(t, s)
		if u, err := s.Unfinished(); err != nil || len(u) != 1 || u[0].Name != "tiny:Q4_K_M" {
			t.Errorf("%v, %v", u, err)
		}
		_, err := findIn(s, "tiny:Q4_K_M")
		refused(t, err, `its pull has not ended: "karat pull hf:org/tiny-GGUF:Q4_K_M" goes on`)
		h.file, w.asked = nil, nil
		var last Progress
		o.Progress = func(p Progress) { last = p }
		m, err := s.Pull(t.Context(), reference, o)
		if err != nil {
			t.Fatal(err)
		}
		if w.count("bytes=0-") != 0 || w.count("bytes=1000-") != 0 || w.count("cdn.example.com /tiny-Q4_K_M.gguf bytes=2000-2999") != 1 || last != (Progress{4500, 2500, 4500}) {
			t.Errorf("%+v, asked for %q", last, w.asked)
		}
		path, _ := s.Path(m)
		has(t, path, h.files["tiny-Q4_K_M.gguf"].data)
	})
}

// TestC8Cut: connections that break in the middle of a part are gone on with where they broke (incident C8).
func TestC8Cut(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h := tiny(w)
		var mu sync.Mutex
		cut := map[string]bool{}
		h.file = func(name string, a http.ResponseWriter, r *http.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			from := strings.TrimSuffix(r.Header.Get("Range"), "999")
			if cut[from] || !strings.HasSuffix(r.Header.Get("Range"), "999") {
				return false
			}
			cut[from] = true
			serveFile(&short{a, 300}, r, h.files[name])
			panic(http.ErrAbortHandler)
		}
		m, err := w.pull(reference)
		if err != nil {
			t.Fatal(err)
		}
		if w.count("cdn.example.com /tiny-Q4_K_M.gguf bytes=1300-1999") != 1 {
			t.Errorf("asked for %q", w.asked)
		}
		path, _ := w.store().Path(m)
		has(t, path, h.files["tiny-Q4_K_M.gguf"].data)
	})
}

// short sends n bytes and swallows the rest.
type short struct {
	http.ResponseWriter
	n int
}

func (s *short) Write(b []byte) (int, error) {
	k := min(s.n, len(b))
	s.n -= k
	_, err := s.ResponseWriter.Write(b[:k])
	s.ResponseWriter.(http.Flusher).Flush()
	return len(b), err
}

// TestPullChanged: a file that changes while it comes is got anew, and two versions never mix, also where no digest
// would tell.
func TestPullChanged(t *testing.T) {
	for _, when := range []string{"between parts", "before the next pull", "always"} {
		t.Run(when, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				versions := [][]byte{noise(3500, 1), noise(3500, 2), noise(3400, 3), noise(3000, 4), noise(3500, 5)}
				n := 0
				ctx, cancel := context.WithCancel(t.Context())
				w.hosts["www.example.com"] = http.HandlerFunc(func(a http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Range") == "bytes=2000-2999" {
						if n == 0 || when == "always" {
							n++
						}
						if when == "before the next pull" && ctx.Err() == nil {
							cancel()
							<-r.Context().Done()
							return
						}
					}
					serveFile(a, r, file{data: versions[min(n, len(versions)-1)]})
				})
				o := w.options()
				o.Lines = 1
				s := w.store()
				m, err := s.Pull(ctx, "https://www.example.com/m.gguf", o)
				if when == "before the next pull" {
					if !errors.Is(err, context.Canceled) {
						t.Fatal(err)
					}
					m, err = s.Pull(t.Context(), "https://www.example.com/m.gguf", o)
				}
				if when == "always" {
					refused(t, err, "m.gguf: the file changed at the server meanwhile")
					empty(t, s)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				path, _ := s.Path(m)
				has(t, path, versions[1])
				before := len(w.asked)
				if _, err := s.Pull(t.Context(), "https://www.example.com/m.gguf", o); err != nil || len(w.asked) != before+1 {
					t.Errorf("the same file again: %v, %q", err, w.asked[before:])
				}
			})
		})
	}
}

// TestPullStalls: a server that stops sending, or sends a byte now and then, is left, and asked again.
func TestPullStalls(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h := tiny(w)
		var stalls atomic.Int64 // connections write it
		h.file = func(name string, a http.ResponseWriter, r *http.Request) bool {
			var from int
			if n, _ := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-999", &from); n != 1 || !strings.HasSuffix(r.Header.Get("Range"), "-999") {
				return false
			}
			at := stalls.Add(1)
			a.Header().Set("Content-Range", fmt.Sprintf("bytes %d-999/4500", from))
			a.WriteHeader(http.StatusPartialContent)
			a.(http.Flusher).Flush()
			for r.Context().Err() == nil {
				if at > 1 {
					a.Write(h.files[name].data[from:][:1])
					from++
					a.(http.Flusher).Flush()
				}
				select {
				case <-r.Context().Done():
				case <-time.After(10 * time.Second):
				}
			}
			return true
		}
		o := w.options()
		o.Lines = 1
		start := time.Now()
		_, err := w.store().Pull(t.Context(), reference, o)
		refused(t, err, "the server sends nothing any more (tried 6 times)")
		if took := time.Since(start); stalls.Load() != attempts || took < attempts*patience || took > attempts*(patience+longPause) {
			t.Errorf("%d attempts in %v", stalls.Load(), took)
		}
		h.file = nil
		if _, err := w.pull(reference); err != nil {
			t.Error(err)
		}
	})
}

// TestRetry: a server that is busy is asked again when it says, one that refuses is not.
func TestRetry(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h := tiny(w)
		var mu sync.Mutex // of these, which connections read
		status, after, left := http.StatusTooManyRequests, "70", 2
		next := func(s int, a string, n int) {
			mu.Lock()
			defer mu.Unlock()
			status, after, left = s, a, n
		}
		h.file = func(_ string, a http.ResponseWriter, _ *http.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			if left--; left < 0 {
				return false
			}
			a.Header().Set("Retry-After", after)
			http.Error(a, "busy", status)
			return true
		}
		start := time.Now()
		if _, err := w.pull("hf:org/tiny-GGUF:Q8_0"); err != nil || time.Since(start) != 140*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		next(http.StatusTooManyRequests, time.Now().Add(30*time.Second).UTC().Format(http.TimeFormat), 1)
		start = time.Now()
		if _, err := w.pull(reference); err != nil || time.Since(start) != 30*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		for _, c := range []struct {
			status, left int
			after, want  string
		}{{503, 100, "", "503 Service Unavailable (tried 6 times)"}, {429, 100, "86400", "the server asks to wait 24h0m0s"}, {403, 1, "", "403 Forbidden"}, {404, 1, "", "404 Not Found"}} {
			next(c.status, c.after, c.left)
			s := w.store()
			if _, err := s.Remove(t.Context(), "tiny:Q4_K_M"); err != nil {
				t.Fatal(err)
			}
			_, err := w.pull(reference)
			refused(t, err, c.want)
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error shows a signature: %v", err)
			}
		}
	})
}

// TestLimitRate: --limit-rate holds for all connections together.
func TestLimitRate(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		tiny(w)
		o := w.options()
		o.Rate = 45
		start := time.Now()
		if _, err := w.store().Pull(t.Context(), reference, o); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start).Round(time.Second); took != 100*time.Second {
			t.Errorf("4500 bytes at 45 a second took %v", took)
		}
	})
}

// TestC8TwoPulls: two pulls of one model at once share what comes, also of two names (incident C8).
func TestC8TwoPulls(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h := tiny(w)
		var wait sync.WaitGroup
		for _, name := range []string{"", "", "other"} {
			wait.Go(func() {
				o := w.options()
				o.Name = name
				s, err := Open(filepath.Join(w.dir, "store"))
				if err != nil {
					t.Error(err)
					return
				}
				defer s.Close()
				if _, err := s.Pull(t.Context(), reference, o); err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
		if n := w.count("cdn.example.com"); n != 6 {
			t.Errorf("%d requests for one file", n)
		}
		s := w.store()
		for _, name := range []string{"tiny:Q4_K_M", "other"} {
			f, err := findIn(s, name)
			if err != nil {
				t.Fatal(err)
			}
			has(t, f.Path, h.files["tiny-Q4_K_M.gguf"].data)
		}
	})
}

// TestC8Killed: whenever a pull is killed, nothing half is to be seen, and the next one ends it. The store is copied at
// each request and each piece that comes: that is what a kill leaves.
func TestC8Killed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h := tiny(w)
		var mu sync.Mutex
		var copies []string
		store := filepath.Join(w.dir, "store")
		snapshot := func() {
			mu.Lock()
			defer mu.Unlock()
			to := filepath.Join(w.dir, "copy", time.Now().Format("1")+string(rune('a'+len(copies))))
			if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
				t.Error(err)
			}
			if err := os.CopyFS(to, os.DirFS(store)); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Error(err)
			}
			copies = append(copies, to)
		}
		h.file = func(string, http.ResponseWriter, *http.Request) bool { snapshot(); return false }
		o := w.options()
		o.Lines, o.Progress = 1, func(Progress) { snapshot() }
		if _, err := w.store().Pull(t.Context(), reference, o); err != nil {
			t.Fatal(err)
		}
		h.file = nil
		if len(copies) < 10 {
			t.Fatalf("%d copies", len(copies))
		}
		for _, dir := range copies {
			s, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			empty(t, s)
			m, err := s.Pull(t.Context(), reference, w.options())
			if err != nil {
				t.Fatalf("%s: %v", dir, err)
			}
			path, err := s.Path(m)
			if err != nil {
				t.Error(err)
			}
			has(t, path, h.files["tiny-Q4_K_M.gguf"].data)
			s.Close()
		}
	})
}

// TestC8NoRoom: a disk that is too small is told before anything comes, and what has come counts.
func TestC8NoRoom(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		tiny(w)
		o := w.options()
		o.free = func(string) int64 { return 4499 }
		_, err := w.store().Pull(t.Context(), reference, o)
		refused(t, err, "it needs 4500 bytes more, and the disk of ", " has 4499")
		if n := w.count("cdn."); n > 0 {
			t.Errorf("%d requests", n)
		}
		for _, free := range []int64{4500, 0} { // 0 is unknown
			o.free = func(string) int64 { return free }
			if _, err := w.store().Pull(t.Context(), reference, o); err != nil {
				t.Error(err)
			}
		}
	})
}
