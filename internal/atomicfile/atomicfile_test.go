package atomicfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
)

func say(text string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}
}

// holds checks a folder's files, by name and contents.
func holds(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != len(want) {
		t.Errorf("the folder holds %v", entries)
	}
	for name, text := range want {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != text {
			t.Errorf("%s: %q, %v; want %q", name, b, err, text)
		}
	}
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	for _, text := range []string{"one", "another"} {
		if err := Write(path, say(text)); err != nil {
			t.Fatal(err)
		}
		holds(t, dir, map[string]string{"a": text})
	}
	full := errors.New("full")
	if err := Write(path, func(w io.Writer) error { return errors.Join(say("half")(w), full) }); !errors.Is(err, full) {
		t.Errorf("a write that fails: %v", err)
	}
	holds(t, dir, map[string]string{"a": "another"})
	if err := Check(filepath.Join(dir, "none", "a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder, before the work: %v", err)
	}
	if err := Write(filepath.Join(dir, "none", "a"), say("")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}

// TestMode: a private file stays private when another takes its place.
func TestMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	for _, mode := range []fs.FileMode{0o600, 0o660, 0o644} {
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		before, err := os.Stat(path) // Windows keeps less of a mode
		if err := errors.Join(err, Write(path, say("new"))); err != nil {
			t.Fatal(err)
		}
		if after, err := os.Stat(path); err != nil || after.Mode() != before.Mode() {
			t.Errorf("a file of mode %v was replaced by one of %v, %v", before.Mode(), after.Mode(), err)
		}
	}
}

// TestCheck: a refusal before the work leaves nothing behind.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	for _, err := range []error{Check(filepath.Join(dir, "a")), CheckFolder(filepath.Join(dir, "b"))} {
		if err != nil {
			t.Error(err)
		}
	}
	holds(t, dir, nil)
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	unprivileged(t)
	if f, err := os.Create(filepath.Join(dir, "x")); err == nil { // on Windows, or by root elsewhere than on Linux
		f.Close()
		golden.Lacking(t, "this user may write everywhere")
	}
	for _, err := range []error{Check(filepath.Join(dir, "a")), CheckFolder(filepath.Join(dir, "b"))} {
		if path := (*fs.PathError)(nil); !errors.Is(err, fs.ErrPermission) || !errors.As(err, &path) || strings.HasSuffix(path.Path, "tmp") {
			t.Errorf("a folder that is not writable: %v", err)
		}
	}
}

func TestClose(t *testing.T) {
	dir := t.TempDir()
	f, err := Create(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := f.Commit(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a commit after Close: %v", err)
	}
	holds(t, dir, nil)
}

// TestSweep: the next write of a path removes a killed writer's files, but not a file that is being written.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	f, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.lock == nil {
		golden.Lacking(t, "no locks here")
	}
	for _, name := range []string{"a.0123abcd.tmp", "a.tmp", "a.0123abcd.tmp.gguf", "b.0123abcd.tmp"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "model.0123abcd.tmp"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := WriteFolder(filepath.Join(dir, "model"), func(dir string) error { return CheckFolder(strings.TrimSuffix(dir, filepath.Ext(dir))) }); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "model")); err != nil {
		t.Error(err)
	}
	if err := Write(path, say("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("mine")); err != nil {
		t.Error(err)
	}
	holds(t, dir, map[string]string{"a": "x", filepath.Base(f.Name()): "mine", "a.tmp": "a.tmp", "a.0123abcd.tmp.gguf": "a.0123abcd.tmp.gguf", "b.0123abcd.tmp": "b.0123abcd.tmp"})
	if err := f.Commit(); err != nil {
		t.Error(err)
	}
}

// TestSweptAway: a writer takes another temporary file where a sweep locks or removes the first one before the writer
// has locked it.
func TestSweptAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	var made []string
	name, lock, err := makeTemporary(path, false, func(name string) error {
		made = append(made, name)
		if err := os.WriteFile(name, nil, 0o666); err != nil {
			return err
		}
		switch len(made) {
		case 1:
			return os.Remove(name)
		case 2:
			if sweeps, _ := tryLock(name); sweeps != nil {
				t.Cleanup(func() { sweeps.Close() })
				return nil
			}
			return os.Remove(name) // no locks here
		}
		return nil
	})
	if err != nil || len(made) != 3 || name != made[2] {
		t.Fatalf("%q of %q, %v", name, made, err)
	}
	unlock(lock)
}

// TestTakenPlace checks that only a regular file is replaced, also one that is no longer one at the end.
func TestTakenPlace(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	if err := os.WriteFile(target, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	places := []string{dir, os.DevNull}
	for name, to := range map[string]string{"link": target, "dangling": "none"} {
		link := filepath.Join(t.TempDir(), name)
		if err := os.Symlink(to, link); err != nil {
			golden.Lacking(t, err)
		}
		places = append(places, link)
	}
	for _, path := range places {
		if err := Write(path, say("x")); err == nil {
			t.Errorf("%s was replaced", path)
		}
	}
	holds(t, dir, map[string]string{"target": "precious"})

	path := filepath.Join(t.TempDir(), "a")
	f, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := f.Commit(); err == nil {
		t.Error("a folder was replaced")
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("the folder holds %v", entries)
	}
}

func TestWriteFolder(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "model")
	file := func(text string) func(string) error {
		return func(dir string) error { return Write(filepath.Join(dir, "a"), say(text)) }
	}
	full := errors.New("full")
	if err := WriteFolder(path, func(dir string) error { return errors.Join(file("half")(dir), full) }); !errors.Is(err, full) {
		t.Errorf("a write that fails: %v", err)
	}
	holds(t, dir, nil)
	if err := os.Mkdir(path, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := WriteFolder(path+"/", file("one")); err != nil {
		t.Fatalf("an empty folder: %v", err)
	}
	holds(t, path, map[string]string{"a": "one"})
	if err := WriteFolder(path, file("two")); err == nil {
		t.Error("a folder with files is replaced")
	}
	holds(t, path, map[string]string{"a": "one"})
	if err := WriteFolder(filepath.Join(path, "a"), file("two")); err == nil {
		t.Error("a file is replaced by a folder")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("the folder holds %v", entries)
	}
	if err := CheckFolder(""); err == nil {
		t.Error("a folder without a name")
	}
	link, empty := filepath.Join(dir, "link"), t.TempDir()
	if err := os.Symlink(empty, link); err != nil {
		golden.Lacking(t, err)
	}
	for _, path := range []string{link, link + "/"} {
		if err := WriteFolder(path, file("three")); err == nil {
			t.Errorf("%s, a link to an empty folder, is replaced", path)
		}
	}
	holds(t, empty, nil)
}
