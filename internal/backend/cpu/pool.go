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
// A token is some hundred short loops, so a loop begins and ends without a lock, and
// no thread writes what many others write: it begins when loop changes, each worker
// finds its share by itself, and it is over when the workers' own counts say so.
type pool struct {
	threads int
	waiters []waiter // by worker; 0 is the caller of run
	shares  []share  // likewise
	done    []tally  // likewise
	once    sync.Once
	meter   *meter // nil: nothing is measured. Set between loops.

	// The loop that runs: written by run before loop, read by those who have
	// taken blocks.
	n, grain int
	f        func(worker, from, to int) error

	_        [128]byte     // what spins reads nothing that is written for other reasons
	loop     atomic.Uint64 // the last one for several workers
	stepping atomic.Bool   // loops follow each other: waits are short
	closed   atomic.Bool
	_        [128]byte

	mu  sync.Mutex
	err error // the loop's first
}

// newPool starts threads-1 goroutines.
func newPool(threads int) *pool {
	p := &pool{threads: threads, waiters: make([]waiter, threads), shares: make([]share, threads),
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
			default: // somebody wakes it
			}
		}
	})
}

// run calls f over [0, n) in pieces that begin at multiples of grain, each call
// on one of the pool's workers, numbered from 0. It returns the first error;
// what nobody has begun by then is left out. One block is the caller's, and nobody
// else hears of it.
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
	if l.number()%renewal == 0 { // the loop before is over: who still looks at it finds nothing
		for i := range p.shares {
			p.shares[i].blocks.Store(uint64(l.before()))
			p.done[i].loop.Store(uint64(l.before()))
		}
	}
	p.loop.Store(uint64(l))
	p.rouse(l, 0)
	p.work(l, 0)
	p.waiters[0].wait(func() bool { return p.over(l) })
	return p.err
}

// part tells the meter which part of a kernel runs next; "" is the main one.
func (p *pool) part(name string) {
	if p.meter != nil {
		p.meter.part(name)
	}
}

// rouse wakes two workers of l, who wake two each: to wake a thread takes longer than to be
// woken.
func (p *pool) rouse(l loop, worker int) {
	for i := 2*worker + 1; i <= 2*worker+2 && i < l.workers(p.threads); i++ {
		p.waiters[i].rouse()
	}
}

// over reports whether all blocks of l are done.
func (p *pool) over(l loop) bool {
	left := l.blocks()
	for i := range p.done {
		if d := loop(p.done[i].loop.Load()); d.number() == l.number() {
			left -= d.blocks()
		}
	}
	return left == 0
}

// work does pieces of l until there are none left: first the worker's share, and then
// the rest of the others' shares, since something may hold these workers up.
func (p *pool) work(l loop, worker int) {
	taken := 0
	err := guard(func() error {
		for apart := range p.threads {
			if err := p.share(l, worker, (worker+apart)%p.threads, &taken); err != nil {
				return err
			}
			p.report(l, worker, taken) // before it looks further: others wait for it
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

// report says that a worker has done some blocks of l in all.
func (p *pool) report(l loop, worker, blocks int) {
	d := &p.done[worker].loop
	if now := uint64(l.of(blocks)); blocks > 0 && d.Load() != now {
		d.Store(now)
		if p.waiters[0].asleep.Load() && p.over(l) && p.waiters[0].rouse() {
			runtime.Gosched() // here and now: else run waits for another thread to fetch it
		}
	}
}

// A worker takes an eighth of the rest of its share at a time, and a quarter of another's.
// Nobody can take over a piece that has begun, so a slow thread's piece is what the others wait
// for: with halves sixteen threads waited for a quarter of a loop.
const (
	ownPart   = 8
	otherPart = 4
)

// take takes n blocks that nobody has of a share of l: a part of the rest, or all.
// Its worker takes the first ones, others the last.
func (p *pool) take(l loop, whose int, own, all bool) (from, n int) {
	if whose >= l.workers(p.threads) {
		return 0, 0
	}
	s := &p.shares[whose].blocks
	for {
		old := s.Load()
		from, to := l.left(old, whose, p.threads)
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

// waiter is a thread that waits for others: awake for a while, since most
// waits are shorter than a sleep, and then asleep.
type waiter struct {
	patience time.Duration // how long it stays awake; 0 if there are more threads than processors
	asleep   atomic.Bool   // until somebody sets it to false, who must send to wake
	pool     *pool
	wake     chan struct{}
	_        [96]byte // so that no two are in a cache line, or in the next, which is fetched with it
}

// maxPatience is more than what one thread does alone between two steps that follow each
// other. Where waits are longer, because other programs want the processors, a waiter
// would keep them from those it waits for: patience falls to an eighth.
//
// Within a step a thread stays awake for longer: to sleep and to be woken takes 5 to 60 µs, and
// what ends a wait, mostly less.
const (
	maxPatience  = 50 * time.Microsecond
	stepPatience = 20 // times as long
)

// wait returns when a condition holds; it returns false if the pool was closed
// before. Who makes the condition true calls rouse after that.
func (w *waiter) wait(holds func() bool) bool {
	for !w.look(holds) {
		w.asleep.Store(true)
		if !holds() || !w.asleep.CompareAndSwap(true, false) {
			// What comes may be late, from a loop that is over: look again.
			if <-w.wake; w.pool.closed.Load() {
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

// loop is a loop for several workers in one word: its number, and how many blocks it
// has.
type loop uint64

const (
	blockBits = 20
	maxBlocks = 1<<blockBits - 1
	numbers   = 1 << (64 - 2*blockBits) // that loops have before they begin again
	renewal   = numbers / 16            // loops after which no share is older
)

func (l loop) number() uint64 { return uint64(l) >> (2 * blockBits) }

func (l loop) blocks() int { return int(l & maxBlocks) }

// of is as many blocks of l.
func (l loop) of(blocks int) loop { return l&^maxBlocks | loop(blocks) }

// next is the loop that follows l.
func (l loop) next(blocks int) loop { return loop((l.number()+1)<<(2*blockBits)) | loop(blocks) }

// before is the loop before l, of which nothing is left.
func (l loop) before() loop { return loop((l.number() - 1) << (2 * blockBits)) }

// workers is how many of a pool's workers have a share of l.
func (l loop) workers(threads int) int { return min(threads, l.blocks()) }

// share is the word for the blocks [from, to) of l.
func (l loop) share(from, to int) uint64 {
	return l.number()<<(2*blockBits) | uint64(to)<<blockBits | uint64(from)
}

// left is what a share's word says is left of a worker's share of l. The word of an
// earlier loop says that nobody has taken any: so a loop begins without writing to
// shares, each of which is in the cache of its worker. A later one's says that l is over.
func (l loop) left(word uint64, worker, threads int) (from, to int) {
	switch age := (l.number() - loop(word).number()) % numbers; {
	case age == 0:
		return int(word & maxBlocks), int(word >> blockBits & maxBlocks)
	case age > numbers/2:
		return 0, 0
	}
	n := l.workers(threads)
	return worker * l.blocks() / n, (worker + 1) * l.blocks() / n
}

// share is the blocks [from, to) of a loop that a worker begins with. It goes through
// them in order, so that what a kernel fetches behind a piece belongs to the next one.
type share struct {
	blocks atomic.Uint64 // see loop.share
	_      [120]byte     // so that no two are in a cache line, or in the next, which is fetched with it
}

// tally is how many blocks of a loop its worker has done; nobody else writes it.
type tally struct {
	loop atomic.Uint64 // see loop.of
	_    [120]byte
}
