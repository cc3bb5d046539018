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
// A token is some hundred short loops, so a loop begins and ends without a lock, and no two threads write the same
// word: a loop begins when loop changes, each worker finds its share alone, and the loop is over when the workers' own
// counts say so.
type pool struct {
	threads int
	lanes   int      // of loops for simd.Record; 0 for none
	waiters []waiter // by worker; 0 is the caller of run
	shares  []share  // likewise
	done    []tally  // likewise
	once    sync.Once
	meter   *meter // nil: nothing is measured. Set between loops.

	// The running loop: written by run before loop, read by workers with blocks.
	n, grain int
	f        func(worker, from, to int) error

	_        [128]byte     // keeps words written for other reasons away from the words read by spinning
	loop     atomic.Uint64 // the last loop of several workers
	stepping atomic.Bool   // loops follow each other: waits are short
	closed   atomic.Bool
	_        [128]byte

	mu  sync.Mutex
	err error // the loop's first
}

// newPool starts threads-1 goroutines.
func newPool(threads int) *pool {
	p := &pool{threads: threads, lanes: simd.Lanes(), waiters: make([]waiter, threads), shares: make([]share, threads),
		done: make([]tally, threads)}
	spin := threads <= min(runtime.GOMAXPROCS(0), runtime.NumCPU())
	for i := range p.waiters {
		w := &p.waiters[i]
		w.wake, w.pool = make(chan struct{}, 1), p
		if spin {
			w.patience = maxPatience
		}
		if i > 0 {
			go func() {
				seen := uint64(0)
				for w.wait(func() bool { return p.loop.Load() != seen }) {
					seen = p.loop.Load()
					if l := loop(seen); i < l.workers(threads) {
						p.rouse(l, i)
						p.work(l, i)
					}
				}
			}()
		}
	}
	return p
}

func (p *pool) close() {
	p.once.Do(func() {
		p.closed.Store(true)
		for i := range p.waiters {
			select {
			case p.waiters[i].wake <- struct{}{}:
			default: // another wakes the waiter
			}
		}
	})
}

// run calls f over [0, n) in pieces that begin at multiples of grain, each call on one of the pool's workers, numbered
// from 0. It returns the first error; pieces not begun by then are left out. A single block is the caller's alone.
func (p *pool) run(n, grain int, f func(worker, from, to int) error) error {
	for n > grain*maxBlocks {
		grain *= 2
	}
	blocks := (n + grain - 1) / grain
	if m := p.meter; m != nil {
		m.begin(min(p.threads, blocks))
		defer m.end()
	}
	if blocks == 0 {
		return nil
	}
	if blocks == 1 || p.threads == 1 {
		return guard(func() error { return f(0, 0, n) })
	}
	p.n, p.grain, p.f, p.err = n, grain, f, nil
	l := loop(p.loop.Load()).next(blocks)
	if l.number()%renewal == 0 { // the loop before is over: late readers find nothing
		for i := range p.shares {
			p.shares[i].blocks.Store(uint64(l.previous()))
			p.done[i].loop.Store(uint64(l.previous()))
		}
	}
	p.loop.Store(uint64(l))
	p.rouse(l, 0)
	p.work(l, 0)
	p.waiters[0].wait(func() bool { return p.isOver(l) })
	return p.err
}

// record does run's work for pieces of kernels alone, with a lane for a worker: see simd.Record.
func (p *pool) record(n, grain int, f func(worker, from, to int) error) error {
	if blocks := (n + grain - 1) / grain; p.lanes > 0 && blocks > 1 {
		lanes := min(p.lanes, blocks)
		return guard(func() error {
			return simd.Record(lanes, func(i int) error {
				return f(i, i*blocks/lanes*grain, min((i+1)*blocks/lanes*grain, n))
			})
		})
	}
	return p.run(n, grain, f)
}

// part names the next part of a kernel to the meter; "" is the main part.
func (p *pool) part(name string) {
	if p.meter != nil {
		p.meter.part(name)
	}
}

// rouse wakes two workers of l, which wake two each: waking a thread takes longer than being woken.
func (p *pool) rouse(l loop, worker int) {
	for i := 2*worker + 1; i <= 2*worker+2 && i < l.workers(p.threads); i++ {
		p.waiters[i].rouse()
	}
}

// isOver reports whether all blocks of l are done.
func (p *pool) isOver(l loop) bool {
	left := l.blocks()
	for i := range p.done {
		if d := loop(p.done[i].loop.Load()); d.number() == l.number() {
			left -= d.blocks()
		}
	}
	return left == 0
}

// work does pieces of l until there are none left: first the worker's share, and then the rest of the others' shares,
// since a worker may be held up.
func (p *pool) work(l loop, worker int) {
	taken := 0
	err := guard(func() error {
		for apart := range p.threads {
			if err := p.share(l, worker, (worker+apart)%p.threads, &taken); err != nil {
				return err
			}
			p.report(l, worker, taken) // before looking further: others wait for the report
		}
		return nil
	})
	if err != nil {
		for i := range p.threads {
			_, n := p.take(l, i, false, true)
			taken += n
		}
		p.mu.Lock()
		if p.err == nil {
			p.err = err
		}
		p.mu.Unlock()
		p.report(l, worker, taken)
	}
}

// share does the rest of a worker's share, and counts the blocks in taken.
func (p *pool) share(l loop, worker, whose int, taken *int) error {
	for {
		from, n := p.take(l, whose, worker == whose, false)
		if n == 0 {
			return nil
		}
		*taken += n
		m := p.meter
		if m != nil {
			m.workers[worker].start()
		}
		err := p.f(worker, from*p.grain, min((from+n)*p.grain, p.n))
		if m != nil {
			m.workers[worker].stop(m.loop)
		}
		if err != nil {
			return err
		}
	}
}

// report stores the number of blocks of l done by a worker in all.
func (p *pool) report(l loop, worker, blocks int) {
	d := &p.done[worker].loop
	if now := uint64(l&^maxBlocks | loop(blocks)); blocks > 0 && d.Load() != now {
		d.Store(now)
		if p.waiters[0].asleep.Load() && p.isOver(l) && p.waiters[0].rouse() {
			runtime.Gosched() // here and now: otherwise run waits for another thread to fetch the goroutine
		}
	}
}

// A worker takes an eighth of the rest of its share at a time, and a quarter of another's. A begun piece cannot be
// taken over, so others wait for a slow thread's piece: with halves sixteen threads waited for a quarter of a loop.
const (
	ownPart   = 8
	otherPart = 4
)

// take takes n free blocks of a share of l: a part of the rest, or all. Its worker takes the first ones, others the
// last.
func (p *pool) take(l loop, whose int, own, all bool) (from, n int) {
	if whose >= l.workers(p.threads) {
		return 0, 0
	}
	s := &p.shares[whose].blocks
	for {
		old := s.Load()
		from, to := l.remaining(old, whose, p.threads)
		if n = to - from; n <= 0 {
			return 0, 0
		}
		switch {
		case all:
		case own:
			n = (n + ownPart - 1) / ownPart
		default:
			n = (n + otherPart - 1) / otherPart
		}
		first, last := from+n, to
		if !own {
			first, last = from, to-n
			from = last
		}
		if s.CompareAndSwap(old, l.share(first, last)) {
			return from, n
		}
	}
}

// waiter is a thread waiting for others: awake for a while, since most waits are shorter than a sleep, and then asleep.
type waiter struct {
	patience time.Duration // time awake; 0 if there are more threads than processors
	asleep   atomic.Bool   // until another thread sets false, and must then send to wake
	pool     *pool
	wake     chan struct{}
	_        [96]byte // keeps two apart in cache lines, and in pairs of lines, fetched together
}

// maxPatience is longer than the work of one thread between two steps. Where waits are longer, because other programs
// want the processors, an awake waiter would take a processor from the awaited thread: patience falls to an eighth.
//
// Within a step a thread stays awake for longer: sleeping and waking takes 5 to 60 µs, mostly more than the wait.
const (
	maxPatience  = 50 * time.Microsecond
	stepPatience = 20 // times as long
)

// wait returns true when a condition holds, or false if the pool was closed before. The thread making the condition
// true calls rouse afterwards.
func (w *waiter) wait(holds func() bool) bool {
	for !w.look(holds) {
		w.asleep.Store(true)
		if !holds() || !w.asleep.CompareAndSwap(true, false) {
			// The message may be late, from a loop already over: look again.
			if <-w.wake; w.pool.closed.Load() {
				return false
			}
		}
	}
	return true
}

// look waits awake, and reports whether the condition holds.
func (w *waiter) look(holds func() bool) bool {
	if holds() || w.patience == 0 {
		return holds()
	}
	for start := time.Now(); ; {
		for range 16 {
			if holds() {
				if w.patience < maxPatience {
					w.patience = min(2*w.patience, maxPatience)
				}
				return true
			}
			simd.Pause()
		}
		if d := time.Since(start); d > w.patience && (d > stepPatience*w.patience || !w.pool.stepping.Load()) {
			w.patience = max(w.patience/2, maxPatience/8)
			return false
		}
	}
}

// rouse wakes w if asleep, and reports whether w was.
func (w *waiter) rouse() bool {
	if !w.asleep.Load() || !w.asleep.CompareAndSwap(true, false) {
		return false
	}
	w.wake <- struct{}{}
	return true
}

// guard calls f. A panic in it, and a fault of mapped memory, becomes an error, so that a request fails and not the
// process.
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

// loop is a loop for several workers in one word: its number, and its number of blocks.
type loop uint64

const (
	blockBits = 20
	maxBlocks = 1<<blockBits - 1
	numbers   = 1 << (64 - 2*blockBits) // number of loops before numbers begin again
	renewal   = numbers / 16            // loops after which no share is older
)

func (l loop) number() uint64 { return uint64(l) >> (2 * blockBits) }

func (l loop) blocks() int { return int(l & maxBlocks) }

// next returns the loop after l.
func (l loop) next(blocks int) loop { return loop((l.number()+1)<<(2*blockBits)) | loop(blocks) }

// previous returns the loop before l, with nothing left to do.
func (l loop) previous() loop { return loop((l.number() - 1) << (2 * blockBits)) }

// workers returns the number of a pool's workers with a share of l.
func (l loop) workers(threads int) int { return min(threads, l.blocks()) }

// share returns the word for the blocks [from, to) of l.
func (l loop) share(from, to int) uint64 {
	return l.number()<<(2*blockBits) | uint64(to)<<blockBits | uint64(from)
}

// remaining returns the blocks of a worker's share of l not taken yet, by the share's word. The word of an earlier loop
// means the whole share: so a loop begins without writing to shares, each in its worker's cache. The word of a later
// loop means that l is over.
func (l loop) remaining(word uint64, worker, threads int) (from, to int) {
	switch age := (l.number() - loop(word).number()) % numbers; {
	case age == 0:
		return int(word & maxBlocks), int(word >> blockBits & maxBlocks)
	case age > numbers/2:
		return 0, 0
	}
	n := l.workers(threads)
	return worker * l.blocks() / n, (worker + 1) * l.blocks() / n
}

// share is the blocks [from, to) of a worker in a loop, taken in order, so that a kernel's fetches after a piece belong
// to the next piece.
type share struct {
	blocks atomic.Uint64 // see loop.share
	_      [120]byte     // keeps two apart in cache lines, and in pairs of lines, fetched together
}

// tally is the number of blocks of a loop done by a worker, its only writer.
type tally struct {
	loop atomic.Uint64 // see loop.withBlocks
	_    [120]byte
}
