package cpu

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// TestPool: each index of a loop is visited once, in pieces that begin at
// multiples of the grain, by workers with numbers of their own.
func TestPool(t *testing.T) {
	for _, threads := range []int{1, 2, 8} {
		p := newPool(threads)
		for _, n := range []int{0, 1, 2, 7, 64, 1000} {
			for _, grain := range []int{1, 16} {
				visits, busy := make([]atomic.Int32, n), make([]atomic.Bool, threads)
				err := p.run(n, grain, func(worker, from, to int) error {
					if busy[worker].Swap(true) {
						t.Errorf("worker %d is at two pieces at once", worker)
					}
					if from%grain != 0 || from >= to || to%grain != 0 && to != n {
						t.Errorf("%d by %d: a piece from %d to %d", n, grain, from, to)
					}
					for i := from; i < to; i++ {
						visits[i].Add(1)
					}
					busy[worker].Store(false)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				for i := range visits {
					if v := visits[i].Load(); v != 1 {
						t.Errorf("%d threads, %d by %d: index %d was visited %d times", threads, n, grain, i, v)
					}
				}
			}
		}
		p.close()
	}
}

// TestPoolErrors: an error or a panic in a piece is the loop's error, and the
// pool works on.
func TestPoolErrors(t *testing.T) {
	cause := errors.New("cause")
	for _, threads := range []int{1, 3} {
		p := newPool(threads)
		fail := func(f func(i int) error) error {
			return p.run(10, 1, func(_, _, to int) error { return f(to - 1) })
		}
		if err := fail(func(i int) error {
			if i >= 4 {
				return cause
			}
			return nil
		}); err != cause {
			t.Errorf("%d threads: %v, want the cause", threads, err)
		}
		var none []int
		if err := fail(func(i int) error { none[i] = 1; return nil }); err == nil {
			t.Errorf("%d threads: no error for a panic", threads)
		}
		if err := fail(func(int) error { return nil }); err != nil {
			t.Errorf("%d threads: after a panic: %v", threads, err)
		}
		p.close()
	}
}

// TestPoolSleepers runs loops so far apart that all workers are asleep between
// some of them, and with more threads than processors.
func TestPoolSleepers(t *testing.T) {
	for _, threads := range []int{2, 3, 16} {
		p := newPool(threads)
		var sum atomic.Int64
		for i := range 300 {
			sum.Store(0)
			p.run(i, 2, func(_, from, to int) error {
				sum.Add(int64(to - from))
				return nil
			})
			if sum.Load() != int64(i) {
				t.Fatalf("%d threads: loop %d ended after %d", threads, i, sum.Load())
			}
			for w := 1; i%5 == 4 && w < threads; w++ {
				for !p.waiters[w].asleep.Load() {
					runtime.Gosched()
				}
			}
		}
		p.close()
	}
}

// TestPoolFewBlocks: a loop's blocks begin in the shares of as many workers, the caller
// first, and one block is nobody else's affair.
func TestPoolFewBlocks(t *testing.T) {
	p := newPool(8)
	defer p.close()
	for range 100 {
		p.run(3, 4, func(worker, from, to int) error {
			if worker != 0 || from != 0 || to != 3 {
				t.Errorf("[%d, %d) went to worker %d", from, to, worker)
			}
			return nil
		})
	}
	if n := loop(p.loop.Load()).number(); n != 0 {
		t.Errorf("others were told of %d loops", n)
	}
	var begun sync.WaitGroup
	begun.Add(2)
	p.run(2, 1, func(_, _, _ int) error { // both would wait for ever, were they one piece
		begun.Done()
		begun.Wait()
		return nil
	})
	if n := loop(p.loop.Load()).number(); n != 1 {
		t.Errorf("others were told of %d loops, want 1", n)
	}
}

func TestPoolAllocs(t *testing.T) {
	p := newPool(2)
	defer p.close()
	f := func(_, _, _ int) error { return nil }
	if n := testing.AllocsPerRun(100, func() { p.run(64, 1, f) }); n != 0 {
		t.Errorf("%v allocations for a loop", n)
	}
}

// TestPoolIdle: workers that have nothing to do fall asleep, and stay so until a loop needs
// them.
func TestPoolIdle(t *testing.T) {
	p := newPool(3)
	defer p.close()
	for range 3 {
		p.run(64, 1, func(_, _, _ int) error { return nil })
		for i := 1; i < 3; i++ {
			for !p.waiters[i].asleep.Load() { // if this never ends, a worker stays awake
				runtime.Gosched()
			}
		}
		p.run(1, 1, func(_, _, _ int) error { return nil }) // the caller's alone
		if !p.waiters[1].asleep.Load() || !p.waiters[2].asleep.Load() {
			t.Error("a worker woke for nothing")
		}
	}
}

// TestClose: a closed backend has left no goroutine.
func TestClose(t *testing.T) {
	before := runtime.NumGoroutine() // those of other tests may end meanwhile
	b := New(Options{Threads: 8})
	if n := runtime.NumGoroutine(); n > before+7 {
		t.Errorf("%d goroutines for 8 threads", n-before)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	for runtime.NumGoroutine() > before { // if it never ends, go test prints those that are left
		runtime.Gosched()
	}
}

// BenchmarkPool is what a loop that does nothing costs.
func BenchmarkPool(b *testing.B) {
	p := newPool(2)
	defer p.close()
	f := func(_, _, _ int) error { return nil }
	for b.Loop() {
		p.run(128, 1, f)
	}
}

// BenchmarkPoolWide is the same with as many threads as there are processors, and a
// block or eight for each.
func BenchmarkPoolWide(b *testing.B) {
	threads := runtime.NumCPU()
	p := newPool(threads)
	defer p.close()
	f := func(_, _, _ int) error { return nil }
	for _, blocks := range []int{1, 8} {
		b.Run(fmt.Sprint(blocks), func(b *testing.B) {
			for b.Loop() {
				p.run(threads*blocks, 1, f)
			}
		})
	}
}

// TestPoolNumbers: loops are told apart when their numbers begin again, and when shares are
// renewed.
func TestPoolNumbers(t *testing.T) {
	for _, at := range []uint64{renewal - 3, numbers - 3} {
		p := newPool(4)
		p.loop.Store(at << (2 * blockBits))
		for i := range p.shares {
			p.shares[i].blocks.Store(at << (2 * blockBits))
		}
		for i := range 8 {
			var sum atomic.Int64
			p.run(100+i, 1, func(_, from, to int) error { sum.Add(int64(to - from)); return nil })
			if sum.Load() != int64(100+i) {
				t.Fatalf("loop %d behind %d: %d of %d", i, at, sum.Load(), 100+i)
			}
		}
		p.close()
	}
}
