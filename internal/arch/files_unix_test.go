//go:build unix

package arch_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/karat-run/karat/internal/checkpoint"
)

// TestIncidentPipes is row C6 for a model's folder: a pipe or a device in
// place of a file is an error, which nobody waits for.
func TestIncidentPipes(t *testing.T) {
	for _, name := range []string{"config.json", "model.safetensors", "generation_config.json", "chat_template.jinja", "tokenizer_config.json"} {
		t.Run(name, func(t *testing.T) {
			dir := synthetic("llama").write(t)
			path := filepath.Join(dir, name)
			os.Remove(path)
			if err := unix.Mkfifo(path, 0o644); err != nil {
				t.Fatal(err)
			}
			fails(t, dir, name+": not a regular file")
			os.Remove(path)
			if err := os.Symlink("/dev/zero", path); err != nil {
				t.Fatal(err)
			}
			fails(t, dir, name+": a link out of the folder, to /dev/zero")
		})
	}
	pipe := filepath.Join(t.TempDir(), "model.gguf")
	if err := unix.Mkfifo(pipe, 0o644); err != nil {
		t.Fatal(err)
	}
	fails(t, pipe, "not a regular file")

	dir := synthetic("llama").write(t)
	if err := unix.Mkfifo(filepath.Join(dir, "tokenizer.json"), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Tokenizer(); err == nil || !strings.Contains(err.Error(), "tokenizer.json: not a regular file") {
		t.Errorf("got %v", err)
	}
}

// TestLinks follows symbolic links as Hugging Face's cache is made of them, and no others.
func TestLinks(t *testing.T) {
	dir := synthetic("qwen3").write(t)
	want := printed(t, dir)
	repo, links := filepath.Join(t.TempDir(), "models--karat--tiny"), t.TempDir()
	snapshot := filepath.Join(repo, "snapshots", "main")
	if err := os.MkdirAll(snapshot, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, filepath.Join(repo, "blobs")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"config.json", "model.safetensors"} {
		if err := os.Symlink("../../blobs/"+name, filepath.Join(snapshot, name)); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(repo, "blobs", name), filepath.Join(links, name)); err != nil {
			t.Fatal(err)
		}
	}
	if got := printed(t, snapshot); got != want {
		t.Error(difference(got, want))
	}
	fails(t, links, "a link out of the folder")
}
