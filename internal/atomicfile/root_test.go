package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestWriteIn: a file of a root appears whole or not at all, and nothing outside of the root does.
func TestWriteIn(t *testing.T) {
	dir := t.TempDir()
	inside := filepath.Join(dir, "inside")
	if err := os.Mkdir(inside, 0o777); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(inside)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, text := range []string{"one", "another"} {
		if err := WriteIn(root, "a", say(text)); err != nil {
			t.Fatal(err)
		}
		holds(t, inside, map[string]string{"a": text})
	}
	full := errors.New("full")
	if err := WriteIn(root, "a", func(w io.Writer) error { return errors.Join(say("half")(w), full) }); !errors.Is(err, full) {
		t.Errorf("a write that fails: %v", err)
	}
	if err := WriteIn(root, "../b", say("x")); err == nil {
		t.Error("a file outside was written")
	}
	holds(t, inside, map[string]string{"a": "another"})
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("the folder holds %v", entries)
	}
	if err := root.Mkdir("folder", 0o777); err != nil {
		t.Fatal(err)
	}
	if err := WriteIn(root, "folder", say("x")); err == nil {
		t.Error("a folder was replaced")
	}
}
