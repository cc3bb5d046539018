package pull_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/karat-run/karat"
	_ "github.com/karat-run/karat/pull"
)

// TestPull: a model that was pulled is loaded by its name and by its reference; what came before an end of the context is kept.
func TestPull(t *testing.T) {
	file, err := os.ReadFile("../cmd/karat/demo.gguf")
	if err != nil {
		t.Fatal(err)
	}
	var came atomic.Int64
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/small.gguf") {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Etag", `"1"`)
		http.ServeContent(counted{w, &came}, r, "", testTime, strings.NewReader(string(file)))
	}))
	defer h.Close()
	t.Setenv("KARAT_MODELS", filepath.Join(t.TempDir(), "models"))
	address := strings.Replace(h.URL, "127.0.0.1", "localhost", 1) + "/small.gguf"

	_, err = karat.Load(t.Context(), "small", karat.Options{})
	if !errors.Is(err, karat.ErrNoModel) || !strings.Contains(err.Error(), "karat pull hf:ORG/NAME") {
		t.Errorf("%v", err)
	}
	_, err = karat.Load(t.Context(), "Qwen/Qwen3-0.6B", karat.Options{})
	if !errors.Is(err, karat.ErrNoModel) || !strings.Contains(err.Error(), `"karat pull hf:Qwen/Qwen3-0.6B" gets it`) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := karat.Pull(ctx, address, karat.PullOptions{Connections: 1, Progress: func(done, all int64) {
		if done > all/2 {
			cancel()
		}
	}}); !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled: %v", err)
	}
	last := int64(0)
	m, err := karat.Pull(t.Context(), address, karat.PullOptions{Connections: 1, Progress: func(done, all int64) { last = done }})
	if err != nil || m.Name != "small" || m.Bytes != int64(len(file)) || last != m.Bytes || m.Source != address {
		t.Fatalf("%+v, %d, %v", m, last, err)
	}
	if n := came.Load(); n > int64(len(file))*3/2 {
		t.Errorf("%d bytes of %d came", n, len(file))
	}
	for _, name := range []string{"small", "SMALL", address, m.Path} {
		m, err := karat.Load(t.Context(), name, karat.Options{Context: 64})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		m.Close()
	}
	for want, x := range map[string]karat.PullOptions{"RateLimit is -1": {RateLimit: -1}, "Connections is 99": {Connections: 99}} {
		if _, err := karat.Pull(t.Context(), address, x); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := karat.Pull(t.Context(), "small", karat.PullOptions{}); err == nil || !strings.Contains(err.Error(), "hf:ORG/NAME") {
		t.Errorf("%v", err)
	}
}

var testTime = time.Unix(1, 0)

// counted counts the bytes of bodies.
type counted struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (c counted) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.n.Add(int64(n))
	return n, err
}
