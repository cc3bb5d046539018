package cpu

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/simd"
)

// pool is a fixed set of goroutines that share loops. One loop runs at a time.
//
// A token is some hundred short loops, so a loop begins and ends without a
// lock: it is there when loops has changed, and over when undone is 0.
type pool struct {
	threads int
	waiters []waiter  // by worker; 0 is the caller of run
	shares  []share   // likewise
	once    sync.Once // of close

	// The loop that runs: written by run before shares, read by those who have
	// taken blocks.
	n, grain int
	f        func(worker, from, to int) error

	loops  atomic.Int64 // that have begun and have blocks for others
	undone atomic.Int64 // blocks that are not done

	mu  sync.Mutex
	err error // the loop's first
}

// newPool starts threads-1 goroutines.
func newPool(threads int) *pool {
	p := &pool{threads: threads, waiters: make([]waiter, threads), shares: make([]share, threads)}
	spin := threads <= min(runtime.GOMAXPROCS(0), runtime.NumCPU())
	for i := range p.waiters {
		w := &p.waiters[i]
		w.wake = make(chan struct{}, 1)
		if spin {
			w.patience = maxPatience
		}
		if i > 0 {
			go func() {
				seen := int64(0)
				for w.wait(func() bool { return p.loops.Load() != seen }) {
					seen = p.loops.Load()
					p.work(i)
				}
			}()
		}
	}
	return p
}

func (p *pool) close() {
	p.once.Do(func() {
		for i := range p.waiters {
			close(p.waiters[i].wake)
		}
	})
}

// run calls f over [0, n) in pieces that begin at multiples of grain, each call
// on one of the pool's workers, numbered from 0. It returns the first error;
// what nobody has begun by then is left out.
func (p *pool) run(n, grain int, f func(worker, from, to int) error) error {
	p.n, p.grain, p.f, p.err = n, grain, f, nil
	blocks := (n + grain - 1) / grain
	workers := min(p.threads, blocks)
	p.undone.Store(int64(blocks)) // before shares, from which they are taken at once
	for i := range workers {      // the others' are empty since the loop before
		p.shares[i].set(i*blocks/workers, (i+1)*blocks/workers)
	}
	if workers > 1 {
		p.loops.Add(1)
	}
	for i := 1; i < workers; i++ {
		p.waiters[i].rouse()
	}
	p.work(0)
	p.waiters[0].wait(p.over)
	return p.err
}

func (p *pool) over() bool { return p.undone.Load() == 0 }

// work does pieces of the loop until there are none left.
func (p *pool) work(worker int) {
	taken := 0
	err := guard(func() error {
		for {
			from, n := p.take(worker)
			if n == 0 {
				return nil
			}
			taken += n
			if err := p.f(worker, from*p.grain, min((from+n)*p.grain, p.n)); err != nil {
				return err
			}
		}
	})
	if err != nil {
		for i := range p.shares {
			_, n := p.shares[i].take(false, false)
			taken += n
		}
		p.mu.Lock()
		if p.err == nil {
			p.err = err
		}
		p.mu.Unlock()
	}
	if taken > 0 && p.undone.Add(-int64(taken)) == 0 && p.waiters[0].rouse() {
		runtime.Gosched() // here and now: else run waits for another thread to fetch it
	}
}

// take takes n blocks that nobody has: half of those left in the worker's share, or else
// in another's, since something may hold that worker up.
func (p *pool) take(worker int) (from, n int) {
	for i := range p.threads {
		if from, n = p.shares[(worker+i)%p.threads].take(i == 0, p.threads > 1); n > 0 {
			return from, n
		}
	}
	return 0, 0
}

// share is the blocks [from, to) of a loop that a worker begins with. It goes through
// them in order, so that what a kernel fetches behind a piece belongs to the next one.
type share struct {
	blocks atomic.Uint64 // from, and to in the upper half
	_      [56]byte      // so that no two are in a cache line
}

func (s *share) set(from, to int) { s.blocks.Store(uint64(to)<<32 | uint64(from)) }

// take takes n blocks, all or the greater half: its worker the first ones, others the last.
func (s *share) take(own, half bool) (from, n int) {
	for {
		old := s.blocks.Load()
		from, to := int(uint32(old)), int(old>>32)
		if n = to - from; n == 0 {
			return 0, 0
		}
		if half {
			n = (n + 1) / 2
		}
		first, last := from+n, to
		if !own {
			first, last = from, to-n
			from = last
		}
		if s.blocks.CompareAndSwap(old, uint64(last)<<32|uint64(first)) {
			return from, n
		}
	}
}

// waiter is a thread that waits for others: awake for a while, since most
// waits are shorter than a sleep, and then asleep.
type waiter struct {
	patience time.Duration // how long it stays awake; 0 if there are more threads than processors
	asleep   atomic.Bool   // until somebody sets it to false, who must send to wake
	wake     chan struct{} // closed when the pool is
}

// maxPatience is more than what one thread does alone between two loops of a
// token. Where waits are longer, because other programs want the processors, a
// waiter would keep them from those it waits for: patience falls to an eighth.
const maxPatience = 50 * time.Microsecond

// wait returns when a condition holds; it returns false if the pool was closed
// before. Who makes the condition true calls rouse after that.
func (w *waiter) wait(holds func() bool) bool {
	for !w.look(holds) {
		w.asleep.Store(true)
		if !holds() || !w.asleep.CompareAndSwap(true, false) {
			// What comes may be late, from a loop that is over: look again.
			if _, open := <-w.wake; !open {
				return false
			}
		}
	}
	return true
}

// look waits awake. It returns whether the condition holds.
func (w *waiter) look(holds func() bool) bool {
	if holds() || w.patience == 0 {
		return holds()
	}
	for start := time.Now(); time.Since(start) < w.patience; {
		for range 16 {
			if holds() {
				w.patience = min(2*w.patience, maxPatience)
				return true
			}
			simd.Pause()
		}
	}
	w.patience = max(w.patience/2, maxPatience/8)
	return false
}

// rouse wakes w if it sleeps, and reports whether it did.
func (w *waiter) rouse() bool {
	if !w.asleep.Load() || !w.asleep.CompareAndSwap(true, false) {
		return false
	}
	w.wake <- struct{}{}
	return true
}

// guard calls f. A panic in it, and a fault of mapped memory, becomes an
// error, so that one request fails and not the process.
func guard(f func() error) error {
	return mmap.Guard(func() (err error) {
		defer func() {
			r := recover()
			if _, fault := r.(interface{ Addr() uintptr }); fault {
				panic(r) // mmap.Guard's
			}
			if r != nil {
				err = fmt.Errorf("internal error: %v", r)
			}
		}()
		return f()
	})
}
