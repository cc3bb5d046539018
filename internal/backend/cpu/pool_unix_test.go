//go:build unix

package cpu

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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

// TestPoolIdle: workers that have nothing to do take no time of the processor.
func TestPoolIdle(t *testing.T) {
	p := newPool(2)
	defer p.close()
	p.run(64, 1, func(_, _, _ int) error { return nil })
	time.Sleep(10 * time.Millisecond) // they fall asleep
	before := processorTime(t)
	time.Sleep(200 * time.Millisecond)
	if d := processorTime(t) - before; d > 40*time.Millisecond {
		t.Errorf("%v of the processor's time in 200ms of nothing", d)
	}
}

// processorTime is what the process has used.
func processorTime(t *testing.T) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Skip(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
