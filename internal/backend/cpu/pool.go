package cpu

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/karat-run/karat/internal/mmap"
)

// pool is a fixed set of goroutines that share loops. One loop runs at a time.
type pool struct {
	threads int
	jobs    chan *job // one for each waiting worker of the loop
	once    sync.Once // of close
	job     job       // of the loop that runs
}

// job is one loop over n pieces.
type job struct {
	n, pieces int
	f         func(worker, from, to int) error
	next      atomic.Int64
	wg        sync.WaitGroup
	mu        sync.Mutex
	err       error
}

// newPool starts threads-1 goroutines: the caller of run is the last one.
func newPool(threads int) *pool {
	p := &pool{threads: threads, jobs: make(chan *job)}
	for w := 1; w < threads; w++ {
		go func() {
			for j := range p.jobs {
				j.work(w)
				j.wg.Done()
			}
		}()
	}
	return p
}

func (p *pool) close() { p.once.Do(func() { close(p.jobs) }) }

// piecesPerThread makes up for threads that run at different speeds.
const piecesPerThread = 4

// run calls f over [0, n) in pieces of at least grain, each call on one of the
// pool's workers, numbered 0 to threads-1. It returns the first error.
func (p *pool) run(n, grain int, f func(worker, from, to int) error) error {
	j := &p.job
	j.n, j.pieces, j.f, j.err = n, min((n+grain-1)/grain, p.threads*piecesPerThread), f, nil
	j.next.Store(0)
	helpers := min(p.threads, j.pieces) - 1
	for range helpers {
		j.wg.Add(1)
		p.jobs <- j
	}
	j.work(0)
	j.wg.Wait()
	return j.err
}

// work does pieces until there are none left.
func (j *job) work(worker int) {
	err := guard(func() error {
		for {
			i := int(j.next.Add(1)) - 1
			if i >= j.pieces {
				return nil
			}
			if err := j.f(worker, j.n*i/j.pieces, j.n*(i+1)/j.pieces); err != nil {
				return err
			}
		}
	})
	if err != nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.err == nil {
			j.err = err
		}
	}
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
