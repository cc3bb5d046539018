package checkpoint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/checkpoint/hf"
	"github.com/karat-run/karat/internal/dev/golden"
)

// TestLinks: no file is read through a link out of the folder, but in Hugging Face's cache
// through one into the same repository.
func TestLinks(t *testing.T) {
	top := t.TempDir()
	link := func(to, path string) {
		t.Helper()
		path = filepath.Join(top, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.FromSlash(to), path); err != nil {
			golden.Lacking(t, err)
		}
	}
	for _, path := range []string{"secret", "hub/models--a--b/blobs/1", "hub/models--a--c/blobs/2", "inside/real"} {
		path = filepath.Join(top, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(smallConfig), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	link("../../blobs/1", "hub/models--a--b/snapshots/r/config.json")
	link("../../blobs/none", "hub/models--a--b/snapshots/r/tokenizer.json")
	link("../../../models--a--c/blobs/2", "hub/models--a--b/snapshots/s/config.json")
	link("hub/models--a--b/snapshots/r", "latest")
	link("real", "inside/config.json")
	link("../secret", "inside/README.md")
	link("../secret", "out/config.json")
	link(filepath.Join(top, "secret"), "absolute/chat_template.jinja")
	link("out/config.json", "chain/config.json")
	link("../out/config.json", "twice/config.json")
	link("../../secret", "models--x/blobs/1")
	link("../../blobs/1", "models--x/snapshots/r/config.json")
	for dir, ok := range map[string]bool{"hub/models--a--b/snapshots/r": true, "latest": true, "inside": true, "chain": true,
		"hub/models--a--b/snapshots/s": false, "out": false, "absolute": false, "twice": false, "models--x/snapshots/r": false} {
		dir = filepath.Join(top, filepath.FromSlash(dir))
		const refused = "a link out of the folder"
		if err := hf.CheckLinks(dir); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), refused) {
			t.Errorf("%s: %v", dir, err)
		}
		if _, err := Open(dir); err == nil || strings.Contains(err.Error(), refused) == ok { // there are no tensors
			t.Errorf("%s: open: %v", dir, err)
		}
	}
}
