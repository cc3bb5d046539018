package atomicfile

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// TestWritersAndFailure: two write the same files while a rename fails, each in turn. One of them fails
// at most, and the files are those of one commit, with nothing beside them. They may be those from
// before both: see the package's comment on what a commit that is taken back puts there.
func TestWritersAndFailure(t *testing.T) {
	defer func(f func(string) error) { before = f }(before)
	full := errors.New("full")
	for at := range int64(16) {
		before = func(string) error { return nil }
		dir := folder(t)
		if err := replace(t, dir); err != nil {
			t.Fatal(err)
		}
		var renames, failed atomic.Int64
		before = func(operation string) error {
			if operation == "rename" && renames.Add(1) == at+1 {
				return full
			}
			return nil
		}
		var wg sync.WaitGroup
		for w := range 2 {
			files := begin(t, dir, func(string) string { return fmt.Sprintf("of %d", w) })
			wg.Go(func() {
				if err := CommitAll(files...); errors.Is(err, full) {
					failed.Add(1)
				} else if err != nil {
					t.Errorf("rename %d fails: writer %d: %v", at, w, err)
				}
			})
		}
		wg.Wait()
		seen, err := see(dir)
		if err != nil || failed.Load() > 1 || !slices.Contains([]string{"of 0 of 0 of 0", "of 1 of 1 of 1", "new a new b new c"}, seen["a"]+" "+seen["b"]+" "+seen["c"]) {
			t.Errorf("rename %d fails: %v, %v, %d failed", at, seen, err, failed.Load())
		}
		holds(t, dir, map[string]string{"a": seen["a"], "b": seen["b"], "c": seen["c"], "x": "x"})
		if left, _ := filepath.Glob(filepath.Join(dir, "*.tmp")); len(left) > 0 {
			t.Errorf("rename %d fails: %v is left", at, left)
		}
	}
}
