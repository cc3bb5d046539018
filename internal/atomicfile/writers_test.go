package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// TestWritersAndFailure: two write the same files while a rename fails, each in turn. One of them fails
// at most, and the files are those of one that did not, with nothing beside them.
func TestWritersAndFailure(t *testing.T) {
	defer func(f func(string) error) { before = f }(before)
	full := errors.New("full")
	for at := range int64(20) {
		before = func(string) error { return nil }
		dir := folder(t)
		if err := replace(t, dir); err != nil {
			t.Fatal(err)
		}
		var renames atomic.Int64
		before = func(operation string) error {
			if operation == "rename" && renames.Add(1) == at+1 {
				return full
			}
			return nil
		}
		var wg sync.WaitGroup
		var failed [2]bool
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
		var want []string
		for w, failed := range failed {
			if !failed {
				want = append(want, fmt.Sprintf("of %d", w))
			}
		}
		isOneOf(t, fmt.Sprintf("rename %d fails", at), dir, want...)
	}
}

// isOneOf wants all files to hold one of the texts, and nothing beside them.
func isOneOf(t *testing.T, what, dir string, want ...string) {
	t.Helper()
	seen, err := see(dir)
	if err != nil || !slices.Contains(want, seen["a"]) {
		t.Errorf("%s: %v, %v, want one of %q", what, seen, err, want)
	}
	holds(t, dir, map[string]string{"a": seen["a"], "b": seen["a"], "c": seen["a"], "x": "x"})
	if left, _ := filepath.Glob(filepath.Join(dir, "*.tmp")); len(left) > 0 {
		t.Errorf("%s: %v is left", what, left)
	}
}

// commit is what CommitAll does, but for what brings files to the disk.
func commit(t *testing.T, dir, text string) error {
	t.Helper()
	s, err := newSet(in(dir))
	if err != nil {
		t.Fatal(err)
	}
	var from []string
	for _, path := range in(dir) {
		from = append(from, temporary(path))
		if err := os.WriteFile(from[len(from)-1], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err = s.commit(from)
	for _, path := range from {
		os.Remove(path)
	}
	return err
}

// TestOtherBetween: before one operation of a commit another commit runs from beginning to end, and at
// that or a later one the first fails. What the other was told to be done stays.
func TestOtherBetween(t *testing.T) {
	defer func(f func(string), g func(string) error) { syncFolder, before = f, g }(syncFolder, before)
	syncFolder = func(string) {}
	for _, links := range []bool{true, false} {
		count := otherBetween(t, links, 0, -1)
		for at := range count {
			for fail := at; fail < count+8; fail += 4 {
				otherBetween(t, links, at, fail)
			}
		}
		if count < 25 {
			t.Errorf("%d operations", count)
		}
	}
}

// otherBetween counts the operations of the first commit.
func otherBetween(t *testing.T, links bool, at, fail int) (n int) {
	full := errors.New("full")
	dir := folder(t)
	var other error
	var count func(string) error
	count = func(operation string) error {
		n++
		if n-1 == at {
			before = func(string) error { return nil }
			other = commit(t, dir, "other")
			before = count
		}
		if n-1 == fail || operation == "link" && !links {
			return full
		}
		return nil
	}
	before = count
	one := commit(t, dir, "one")
	before = func(string) error { return nil }
	what := fmt.Sprintf("links %v, other at %d, failure at %d (%v)", links, at, fail, one)
	if other != nil {
		t.Errorf("%s: %v", what, other)
	}
	if one != nil {
		isOneOf(t, what, dir, "other")
	} else {
		isOneOf(t, what, dir, "one", "other")
	}
	return n
}
