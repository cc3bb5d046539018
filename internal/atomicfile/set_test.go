package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
)

// A commit of these tests replaces a and c, and makes b, in a folder that holds x, too.
var (
	oldFiles = map[string]string{"a": "old a", "c": "old c", "x": "x"}
	newFiles = map[string]string{"a": "new a", "b": "new b", "c": "new c", "x": "x"}
	names    = []string{"a", "b", "c"}
)

// folder returns a folder with the old files.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range oldFiles {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func in(dir string) (paths []string) {
	for _, name := range names {
		paths = append(paths, filepath.Join(dir, name))
	}
	return paths
}

// begin makes what write makes of files, not committed.
func begin(t testing.TB, dir string, write func(name string) string) (files []*File) {
	t.Helper()
	for _, path := range in(dir) {
		f, err := Create(path)
		if err == nil {
			err = say(write(filepath.Base(path)))(f)
		}
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}

func replaceAll(t testing.TB, dir string) error {
	return CommitAll(begin(t, dir, func(name string) string { return "new " + name })...)
}

// texts is what a reader sees.
type texts map[string]string

func (texts) Close() error { return nil }

func see(dir string) (texts, error) {
	return Open(in(dir), func() (texts, error) {
		seen := texts{}
		for _, path := range in(dir) {
			b, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) && filepath.Base(path) != "a" {
				continue
			}
			if err != nil {
				return nil, err
			}
			seen[filepath.Base(path)] = string(b)
		}
		return seen, nil
	})
}

// either wants a reader to see all old or all new files, or an error where a kill left no first file.
func either(t *testing.T, what, dir string, killed bool) (isNew, isLost bool) {
	t.Helper()
	seen, err := see(dir)
	if killed && errors.Is(err, fs.ErrNotExist) {
		return false, true
	}
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	want := oldFiles
	if isNew = seen["a"] == newFiles["a"]; isNew {
		want = newFiles
	}
	for _, name := range names {
		if seen[name] != want[name] {
			t.Errorf("%s: %s is %q, a is %q", what, name, seen[name], seen["a"])
		}
	}
	if !killed {
		holds(t, dir, want)
	}
	return isNew, false
}

// renames counts f's renames. Rename n, from 0, fails with the error of at(n).
func renames(f func(), at func(n int) error) int {
	var n atomic.Int64
	defer func(f func(string, string) error) { rename = f }(rename)
	rename = func(from, to string) error {
		if err := at(int(n.Add(1)) - 1); err != nil {
			return err
		}
		return os.Rename(from, to)
	}
	f()
	return int(n.Load())
}

func TestCommitAll(t *testing.T) {
	dir := folder(t)
	if err := replaceAll(t, dir); err != nil {
		t.Fatal(err)
	}
	holds(t, dir, newFiles)
	if err := replaceAll(t, dir); err != nil { // with nothing that is not there yet
		t.Fatal(err)
	}
	holds(t, dir, newFiles)
	seen, err := see(dir)
	if err != nil || len(seen) != 3 {
		t.Error(seen, err)
	}
	closed := begin(t, dir, func(string) string { return "other" })
	closed[1].File.Close()
	if err := CommitAll(); err != nil {
		t.Error(err)
	}
	if err := CommitAll(closed...); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a file that cannot be synced: %v", err)
	}
	holds(t, dir, newFiles)
	if err := CommitAll(closed...); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a second commit: %v", err)
	}
	apart := append(begin(t, dir, func(string) string { return "other" }), begin(t, folder(t), func(string) string { return "" })...)
	if err := CommitAll(apart...); err == nil {
		t.Error("files of two folders are committed together")
	}
	holds(t, dir, newFiles)
	taken := begin(t, dir, func(string) string { return "other" })
	if err := errors.Join(os.Remove(filepath.Join(dir, "c")), os.Mkdir(filepath.Join(dir, "c"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := CommitAll(taken...); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a folder is replaced: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "c")); err != nil {
		t.Fatal(err)
	}
	holds(t, dir, map[string]string{"a": "new a", "b": "new b", "x": "x"})
}

// TestFails: whichever rename fails, all is old at once. Where all after it fail, also, the error says what is lost.
func TestFails(t *testing.T) {
	full := errors.New("full")
	for _, alone := range []bool{true, false} {
		for fail := range 5 {
			what := fmt.Sprintf("rename %d fails, alone %v", fail, alone)
			dir := folder(t)
			var err error
			renames(func() { err = replaceAll(t, dir) }, func(n int) error {
				if n == fail || n > fail && !alone {
					return full
				}
				return nil
			})
			if !errors.Is(err, full) {
				t.Errorf("%s: %v", what, err)
			}
			isNew, isLost := either(t, what, dir, !alone)
			if isNew || isLost != (!alone && fail > 0) || isLost != strings.Contains(err.Error(), "cannot be put back") {
				t.Errorf("%s: new %v, lost %v, %v", what, isNew, isLost, err)
			}
		}
	}
}

// TestKill kills a program at each rename of a commit.
func TestKill(t *testing.T) {
	if dir := os.Getenv("ATOMICFILE_DIR"); dir != "" {
		at, err := strconv.Atoi(os.Getenv("ATOMICFILE_AT"))
		if err != nil {
			t.Fatal(err)
		}
		renames(func() { err = replaceAll(t, dir) }, func(n int) error {
			if p, err := os.FindProcess(os.Getpid()); n == at && err == nil {
				_ = p.Kill()
				select {}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	dir := folder(t)
	if n := renames(func() { _ = replaceAll(t, dir) }, func(int) error { return nil }); n != 5 { // two away, three in place
		t.Errorf("%d renames", n)
	}
	for at := range 5 {
		dir := folder(t)
		c := exec.Command(os.Args[0], "-test.run=^TestKill$")
		c.Env = append(os.Environ(), "ATOMICFILE_DIR="+dir, "ATOMICFILE_AT="+strconv.Itoa(at))
		if out, err := c.CombinedOutput(); err == nil {
			t.Fatalf("not killed at rename %d: %s", at, out)
		} else if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
			golden.Lacking(t, err) // programs
		}
		if isNew, isLost := either(t, fmt.Sprintf("killed at rename %d", at), dir, true); isNew || isLost != (at > 0) {
			t.Errorf("killed at rename %d: new %v, lost %v", at, isNew, isLost)
		}
		if err := replaceAll(t, dir); err != nil {
			t.Errorf("killed at rename %d, and committed again: %v", at, err)
		}
		if isNew, _ := either(t, "again", dir, !locks(t)); !isNew {
			t.Errorf("killed at rename %d: the files committed afterwards are not there", at)
		}
	}
}

// locks reports whether the system has locks, without which nothing is swept away.
func locks(t *testing.T) bool {
	lock, _ := tryLock(t.TempDir())
	unlock(lock)
	return lock != nil
}

// TestWritersAndFailure: two write the same files while a rename fails, each in turn. One of them fails at most, and
// the files are those of one that did not, with nothing beside them.
func TestWritersAndFailure(t *testing.T) {
	full := errors.New("full")
	for at := range 13 {
		dir := folder(t)
		if err := replaceAll(t, dir); err != nil {
			t.Fatal(err)
		}
		var failed [2]bool
		renames(func() {
			var wg sync.WaitGroup
			for w := range failed {
				files := begin(t, dir, func(string) string { return fmt.Sprintf("of %d", w) })
				wg.Go(func() {
					err := CommitAll(files...)
					failed[w] = err != nil
					if err != nil && !errors.Is(err, full) {
						t.Errorf("rename %d fails: writer %d: %v", at, w, err)
					}
				})
			}
			wg.Wait()
		}, func(n int) error {
			if n == at {
				return full
			}
			return nil
		})
		var want []string
		for w, failed := range failed {
			if !failed {
				want = append(want, fmt.Sprintf("of %d", w))
			}
		}
		seen, err := see(dir)
		if err != nil || !slices.Contains(want, seen["a"]) {
			t.Errorf("rename %d fails: %v, %v, want one of %q", at, seen, err, want)
		}
		holds(t, dir, map[string]string{"a": seen["a"], "b": seen["a"], "c": seen["a"], "x": "x"})
	}
}

// TestTogether: several commit at once while others read, and all see one commit's files.
func TestTogether(t *testing.T) {
	dir := folder(t)
	if err := replaceAll(t, dir); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			for i := range 20 {
				if err := CommitAll(begin(t, dir, func(name string) string { return fmt.Sprintf("%d.%d", w, i) })...); err != nil {
					t.Errorf("writer %d: %v", w, err)
				}
			}
		})
		wg.Go(func() {
			for range 60 {
				seen, err := see(dir)
				if err != nil {
					t.Errorf("reader: %v", err)
				}
				if seen["a"] == "new a" {
					continue
				}
				if seen["a"] == "" || seen["b"] != seen["a"] || seen["c"] != seen["a"] {
					t.Errorf("a reader saw %v", seen)
				}
			}
		})
	}
	wg.Wait()
	seen, err := see(dir)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, dir, map[string]string{"a": seen["a"], "b": seen["a"], "c": seen["a"], "x": "x"})
}
