package main

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/karat-run/karat/internal/hub"
	"github.com/karat-run/karat/internal/hub/local"
	"github.com/rogpeppe/go-internal/testscript"
)

// hubCommit is the commit of all repositories of the scripts' server.
const hubCommit = "0123456789abcdef0123456789abcdef01234567"

// models is a server as Hugging Face, a registry and a site of files are.
type models struct {
	repos map[string]map[string][]byte // files by their paths
	held  chan struct{}                // told of each request for /held.gguf, which is not answered
}

// serveHub is a script's command: hub starts a server and names it in HF_ENDPOINT, REGISTRY and SITE. It has the demo, a folder, and a
// repository of pickles.
func serveHub(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: hub")
	}
	_, s := newHub(ts)
	ts.Setenv("HF_ENDPOINT", s.URL)
	ts.Setenv("SITE", s.URL)
	ts.Setenv("REGISTRY", strings.TrimPrefix(s.URL, "http://"))
	ts.Setenv(local.Variable, ts.MkAbs("models"))
}

func newHub(ts *testscript.TestScript) (*models, *httptest.Server) {
	folder := map[string][]byte{"modeling_llama.py": []byte("import os")}
	dir := filepath.Join(ts.Getenv("TESTDATA"), "models", "tiny-llama")
	entries, err := os.ReadDir(dir)
	ts.Check(err)
	for _, e := range entries {
		if e.Type().IsRegular() {
			folder[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name()))
			ts.Check(err)
		}
	}
	m := &models{held: make(chan struct{}, 1), repos: map[string]map[string][]byte{"org/demo-GGUF": {"demo-Q4_K_M.gguf": demo, "demo-Q8_0.gguf": demo[:1000]}, "org/folder": folder, "org/old": {"pytorch_model.bin": []byte("x")}}}
	s := httptest.NewServer(m)
	ts.Defer(s.Close)
	return m, s
}

func (m *models) ServeHTTP(a http.ResponseWriter, r *http.Request) {
	for repo, files := range m.repos {
		api, at := "/api/models/"+repo, "/"+repo+"/resolve/"+hubCommit+"/"
		switch {
		case strings.HasPrefix(r.URL.Path, api+"/revision/"):
			fmt.Fprintf(a, `{"sha": %q, "tags": ["license:apache-2.0"]}`, hubCommit)
		case strings.HasPrefix(r.URL.Path, api+"/tree/"):
			json.NewEncoder(a).Encode(listing(files))
		case strings.HasPrefix(r.URL.Path, at):
			serveBytes(a, r, files[strings.TrimPrefix(r.URL.Path, at)])
		default:
			continue
		}
		return
	}
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(demo))
	switch r.URL.Path {
	case "/v2/library/demo/manifests/latest":
		fmt.Fprintf(a, `{"schemaVersion": 2, "layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": %q, "size": %d}]}`, digest, len(demo))
	case "/v2/library/demo/blobs/" + digest, "/files/demo.gguf":
		serveBytes(a, r, demo)
	case "/held.gguf":
		if r.Header.Get("Range") != "bytes=0-0" {
			m.held <- struct{}{}
			<-r.Context().Done()
		}
		serveBytes(a, r, demo)
	case "/api/ps":
		fmt.Fprint(a, `{"models": [{"name": "qwen\u001b[2J", "size": 5, "details": {"format": "gguf", "family": "qwen3"}}]}`)
	default:
		http.NotFound(a, r)
	}
}

func serveBytes(a http.ResponseWriter, r *http.Request, data []byte) {
	a.Header().Set("ETag", fmt.Sprintf(`"%x"`, sha256.Sum256(data)))
	http.ServeContent(a, r, "", time.Time{}, bytes.NewReader(data))
}

// listing is a repository as the tree API lists it: GGUF files and weights in LFS, the others in git.
func listing(files map[string][]byte) (all []map[string]any) {
	for path, data := range files {
		e := map[string]any{"type": "file", "path": path, "size": len(data), "oid": fmt.Sprintf("%x", sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(data)), data...)))}
		if ext := filepath.Ext(path); ext == ".gguf" || ext == ".safetensors" {
			e["lfs"] = map[string]any{"oid": fmt.Sprintf("%x", sha256.Sum256(data)), "size": len(data)}
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(x, y map[string]any) int { return strings.Compare(x["path"].(string), y["path"].(string)) })
	return all
}

// pullStopped is a script's command: pullstopped runs karat pull, interrupts it while it waits for the server, and checks that it
// ends as interrupted, with nothing to be seen.
func pullStopped(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: pullstopped")
	}
	m, s := newHub(ts)
	program := ""
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if p, err := exec.LookPath(filepath.Join(dir, "karat")); err == nil {
			program = p
			break
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c := exec.CommandContext(ctx, program, "pull", s.URL+"/held.gguf")
	c.Env = append(os.Environ(), local.Variable+"="+ts.MkAbs("stopped"), "HOME="+ts.MkAbs("."))
	var stderr bytes.Buffer
	c.Stderr = &stderr
	ts.Check(c.Start())
	<-m.held
	ts.Check(c.Process.Signal(syscall.SIGTERM))
	err := c.Wait()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 128+int(syscall.SIGTERM) || !strings.Contains(stderr.String(), "the same command goes on with it") {
		ts.Fatalf("%v: %s", err, &stderr)
	}
	store, err := hub.Open(ts.MkAbs("stopped"))
	ts.Check(err)
	defer store.Close()
	all, err := store.List()
	ts.Check(err)
	if pulls, err := store.Unfinished(); err != nil || len(pulls) != 1 || len(all) > 0 {
		ts.Fatalf("%d models, %d pulls, %v", len(all), len(pulls), err)
	}
}

// TestPullProgress: lines tell what is known, whatever a server says.
func TestPullProgress(t *testing.T) {
	for _, c := range []struct {
		at   hub.Progress
		want string
	}{
		{hub.Progress{Done: 293 << 20, Came: 293 << 20, All: 763 << 20}, "karat: m.gguf  38 %  293 of 763 MiB  85 kB/s  1 h 36 min left\n"},
		{hub.Progress{Done: 5, Came: 5, All: -1}, "karat: m.gguf  5 B  0 kB/s\n"}, {hub.Progress{Done: 7, Came: 5, All: 5}, "m.gguf  7 B"},
		{hub.Progress{}, "m.gguf  0 B"}, {hub.Progress{Done: 5, Came: 0, All: 5}, "verifying"},
	} {
		var b bytes.Buffer
		p := progress{w: &b, name: "m.gguf", start: time.Now().Add(-time.Hour)}
		p.download(c.at)
		if !strings.Contains(b.String(), c.want) {
			t.Errorf("%+v: %q, want %q", c.at, &b, c.want)
		}
	}
}
