package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
)

// A commit of these tests replaces a and c, and makes b, in a folder that holds x, too.
var (
	oldFiles = map[string]string{"a": "old a", "c": "old c", "x": "x"}
	newFiles = map[string]string{"a": "new a", "b": "new b", "c": "new c", "x": "x"}
	names    = []string{"a", "b", "c"}
)

// folder is a folder with the old files.
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

func replace(t testing.TB, dir string) error {
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
			if errors.Is(err, fs.ErrNotExist) {
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

// either wants a reader to see all old or all new files, and no trace of a commit after it
// but temporary files where some may be. It reports which.
func either(t *testing.T, what, dir string, temporaries bool) (isNew bool) {
	t.Helper()
	seen, err := see(dir)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	want := oldFiles
	if isNew = seen["a"] == newFiles["a"]; isNew {
		want = newFiles
	}
	for name := range newFiles {
		if name != "x" && seen[name] != want[name] {
			t.Errorf("%s: %s is %q, a is %q", what, name, seen[name], seen["a"])
		}
	}
	if !temporaries {
		holds(t, dir, want)
		return isNew
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if _, ok := want[e.Name()]; !ok && !strings.HasSuffix(e.Name(), ".tmp") {
			t.Errorf("%s: the folder holds %s", what, e.Name())
		}
	}
	return isNew
}

// operations is how many operations f has. The n-th, from 0, returns an error, or else
// what at says.
func operations(f func(), at func(n int) error) int {
	n := 0
	defer func(f func(string) error) { before = f }(before)
	before = func(string) error { n++; return at(n - 1) }
	f()
	return n
}

func TestCommitAll(t *testing.T) {
	dir := folder(t)
	if err := replace(t, dir); err != nil {
		t.Fatal(err)
	}
	holds(t, dir, newFiles)
	if err := replace(t, dir); err != nil { // with nothing that is not there yet
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

// TestFails: whichever operation fails, alone or with all after it, all is old or all is
// new. Alone, the old ones are there at once after an error.
func TestFails(t *testing.T) {
	full := errors.New("full")
	var failed, done, waiting int
	for _, alone := range []bool{true, false} {
		for fail, count := 0, 1; ; fail++ {
			what := fmt.Sprintf("operation %d fails, alone %v", fail, alone)
			dir := folder(t)
			var err error
			count = operations(func() { err = replace(t, dir) }, func(n int) error {
				if n == fail || n > fail && !alone {
					return full
				}
				return nil
			})
			if fail >= count {
				break
			}
			if err != nil && !errors.Is(err, full) {
				t.Errorf("%s: %v", what, err)
			}
			if err != nil && alone {
				holds(t, dir, oldFiles)
			}
			isNew := either(t, what, dir, false)
			switch {
			case err == nil && isNew:
				done++
			case err != nil && !isNew:
				failed++
			case err != nil && strings.Contains(err.Error(), "waits in"):
				waiting++
			default:
				t.Errorf("%s: new %v, %v", what, isNew, err)
			}
		}
	}
	if failed < 20 || done < 5 || waiting < 3 {
		t.Errorf("%d failed, %d done, %d waited", failed, done, waiting)
	}
}

// TestReadersFail: a reader that is stopped anywhere while it ends what was begun leaves it
// to the next one; of a commit that is to be taken back, too.
func TestReadersFail(t *testing.T) {
	full := errors.New("full")
	for _, back := range []bool{false, true} {
		for stop, count := 0, 1; stop <= count; stop++ {
			dir := folder(t)
			s, err := newSet(in(dir))
			if err != nil {
				t.Fatal(err)
			}
			operations(func() { err = replace(t, dir) }, func(int) error {
				if exists(filepath.Join(dir, "b")) { // two of three are in place
					return full
				}
				return nil
			})
			if id, err := s.underWay(); err != nil || id == "" {
				t.Fatalf("%q, %v", id, err)
			} else if back {
				if err := os.Rename(filepath.Join(id, "new"), filepath.Join(id, "back")); err != nil {
					t.Fatal(err)
				}
			}
			count = operations(func() { _, err = see(dir) }, func(n int) error {
				if n >= stop {
					return full
				}
				return nil
			})
			if isNew := either(t, fmt.Sprintf("back %v, stopped at %d (%v)", back, stop, err), dir, false); isNew == back {
				t.Errorf("back %v, stopped at %d: new %v", back, stop, isNew)
			}
		}
	}
}

// TestReaderMeetsBack: a reader puts new files in place while the commit is taken back. It
// leaves the old ones to that.
func TestReaderMeetsBack(t *testing.T) {
	full := errors.New("full")
	for at := range 6 {
		dir := folder(t)
		var err error
		operations(func() { err = replace(t, dir) }, func(int) error {
			if exists(filepath.Join(dir, "b")) { // two of three are in place
				return full
			}
			return nil
		})
		s, failed := newSet(in(dir))
		if err == nil || failed != nil {
			t.Fatal(err, failed)
		}
		id, err := s.underWay()
		if err != nil {
			t.Fatal(err)
		}
		operations(func() { err = s.settle() }, func(n int) error {
			if n == at {
				_ = os.Rename(filepath.Join(id, "new"), filepath.Join(id, "back"))
			}
			return nil
		})
		if err != nil {
			t.Errorf("back at operation %d: %v", at, err)
		}
		either(t, fmt.Sprintf("back at operation %d", at), dir, false)
	}
}

// TestKill kills a program at each operation of a commit.
func TestKill(t *testing.T) {
	if dir := os.Getenv("ATOMICFILE_DIR"); dir != "" {
		at, err := strconv.Atoi(os.Getenv("ATOMICFILE_AT"))
		if err != nil {
			t.Fatal(err)
		}
		operations(func() { err = replace(t, dir) }, func(n int) error {
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
	count := operations(func() { _ = replace(t, dir) }, func(int) error { return nil })
	were := [2]int{}
	for at := range count {
		if testing.Short() && at%4 > 0 {
			continue
		}
		dir := folder(t)
		c := exec.Command(os.Args[0], "-test.run=^TestKill$")
		c.Env = append(os.Environ(), "ATOMICFILE_DIR="+dir, "ATOMICFILE_AT="+strconv.Itoa(at))
		if out, err := c.CombinedOutput(); err == nil {
			t.Fatalf("not killed at operation %d: %s", at, out)
		} else if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
			golden.Lacking(t, err) // programs
		}
		if either(t, fmt.Sprintf("killed at operation %d", at), dir, true) {
			were[1]++
		} else {
			were[0]++
		}
		if err := replace(t, dir); err != nil {
			t.Errorf("killed at operation %d, and committed again: %v", at, err)
		}
		if !either(t, "again", dir, true) {
			t.Errorf("killed at operation %d: what was committed afterwards is not there", at)
		}
	}
	if were[0] < 2 || were[1] < 2 {
		t.Errorf("%d were old, %d new", were[0], were[1])
	}
}

// TestWithoutLinks: where there are none, what was there is copied.
func TestWithoutLinks(t *testing.T) {
	defer func(f func(string) error) { before = f }(before)
	for fails := range 10 {
		dir := folder(t)
		renames := 0
		before = func(operation string) error {
			if operation == "link" {
				return errors.ErrUnsupported
			}
			if operation == "rename" {
				renames++
			}
			if operation == "rename" && renames == fails {
				return errors.ErrUnsupported
			}
			return nil
		}
		err := replace(t, dir)
		if isNew := either(t, fmt.Sprintf("rename %d fails", fails), dir, false); isNew != (err == nil) {
			t.Errorf("rename %d fails: new %v, %v", fails, isNew, err)
		}
	}
}

// TestTogether: several commit at once while others read, and all see one commit's files.
func TestTogether(t *testing.T) {
	dir := folder(t)
	if err := replace(t, dir); err != nil {
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

// TestHostile: a folder of unknown origin beside the files moves none but them.
func TestHostile(t *testing.T) {
	dir := folder(t)
	id := filepath.Join(dir, "a.commit", "1")
	for path, text := range map[string]string{"new/x": "evil", "new/a": "theirs", "new/../../../y": "evil"} {
		path = filepath.Join(id, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := see(dir); err == nil {
		t.Error("no error")
	}
	if b, err := os.ReadFile(filepath.Join(dir, "x")); err != nil || string(b) != "x" {
		t.Errorf("x is %q, %v", b, err)
	}
	other := folder(t)
	if err := os.Mkdir(filepath.Join(other, "new"), 0o700); err != nil {
		t.Fatal(err)
	}
	dir = folder(t)
	if err := os.Symlink(other, filepath.Join(dir, "a.commit")); err != nil {
		golden.Lacking(t, err)
	}
	if seen, err := see(dir); err != nil || seen["a"] != "old a" {
		t.Errorf("a link: %v, %v", seen, err)
	}
}
