//go:build unix

package cpu

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/mmap"
)

// TestPoolFault: a weight's file that shrinks under a worker fails the loop only.
func TestPoolFault(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := mmap.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	for _, threads := range []int{1, 3} {
		p := newPool(threads)
		sums := make([]byte, 64)
		err := p.run(64, 1, func(_, from, to int) error {
			for i := from; i < to; i++ {
				sums[i] = f.Data()[i<<14]
			}
			return nil
		})
		if err == nil || !strings.Contains(err.Error(), "the mapped file shrank") {
			t.Errorf("%d threads: %v", threads, err)
		}
		if err := p.run(64, 1, func(_, _, _ int) error { return nil }); err != nil {
			t.Errorf("%d threads: the next loop: %v", threads, err)
		}
		p.close()
	}
}
