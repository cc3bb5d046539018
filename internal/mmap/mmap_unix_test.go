//go:build unix

package mmap

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/karat-run/karat/internal/dev/golden"
)

// TestShrink is incident A11: the file shrinks while it is mapped.
func TestShrink(t *testing.T) {
	path := write(t, make([]byte, 1<<20))
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Truncate(path, 10); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second read shows that a caught fault leaves nothing behind
		err = Guard(func() error {
			sink = f.Data()[1<<19]
			return nil
		})
		if err == nil || err.Error() != "the mapped file shrank or cannot be read" { // and no address
			t.Fatalf("read beyond the end: %v", err)
		}
	}
	if err := Guard(func() error { sink = f.Data()[9]; return nil }); err != nil {
		t.Errorf("read of what is left: %v", err)
	}
}

var sink byte

func TestOpenPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		golden.Lacking(t, err) // named pipes
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "not a regular file") { // and does not wait for a writer
		t.Errorf("pipe: %v", err)
	}
}

// A write to the mapping must not reach the file.
func TestReadOnly(t *testing.T) {
	path := write(t, []byte("contents"))
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := Guard(func() error { f.Data()[0] = 'x'; return nil }); err == nil {
		t.Error("a write to Data succeeded")
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "contents" {
		t.Errorf("file = %q, %v", got, err)
	}
}
