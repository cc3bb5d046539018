package bench

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/simd"
)

// limits measures a Limit. The memory read resembles the memory of weights: outside the heap, in large pages
// where the system has any, and as much, so that a cache holds as large a part as of the weights.
type limits struct {
	memory *mmap.Anon
	next   int // first byte to read: bytes read long ago are in no cache
}

const (
	readPass    = 256 << 20 // bytes of a pass
	readPasses  = 2         // in each form
	peakSeconds = 0.008
	peakPasses  = 3
)

// newLimits takes memory of the given size, at most a quarter of the free memory (0 if unknown).
func newLimits(ctx context.Context, size, free int64) (*limits, error) {
	if free > 0 {
		size = min(size, free/4)
	}
	m, err := mmap.Anonymous(int(max(size, 1<<20)))
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(m.Data()); i += 4096 {
		if i%(1<<26) == 0 && ctx.Err() != nil {
			return nil, cmp.Or(m.Close(), ctx.Err())
		}
		m.Data()[i] = 1 // pages never written are a single page
	}
	return &limits{memory: m}, nil
}

// bytes returns the size of l's memory.
func (l *limits) bytes() int64 {
	if l == nil {
		return 0
	}
	return int64(len(l.memory.Data()))
}

// measure adds a measurement to m.
func (l *limits) measure(m *Limit) {
	best := 0.0
	for range readPasses {
		for form := range simd.LimitForms {
			best = max(best, l.read(m.Threads, form))
		}
	}
	m.Read = append(m.Read, best/1e9)
	m.Ints = append(m.Ints, peak(m.Threads, simd.LimitInts)/1e9)
	m.Floats = append(m.Floats, peak(m.Threads, simd.LimitFloats)/1e9)
	m.Names[0], m.Names[1] = simd.LimitNames()
}

// read returns the bytes a second of a pass.
func (l *limits) read(threads, form int) float64 {
	b := l.memory.Data()
	n := min(readPass, len(b))
	rounds := readPass / n
	if l.next+n > len(b) {
		l.next = 0
	}
	b = b[l.next : l.next+n]
	l.next += n
	start := time.Now()
	fork(threads, func(i int) {
		for range rounds {
			simd.LimitRead(b[n/threads*i:n/threads*(i+1)], form)
		}
	})
	return float64(rounds) * float64(n) / time.Since(start).Seconds()
}

// peak returns the operations a second of all threads, the best of some passes.
func peak(threads int, loop func(rounds int) float64) (best float64) {
	for range peakPasses {
		done := make([]float64, threads)
		start := time.Now()
		fork(threads, func(i int) {
			for time.Since(start).Seconds() < peakSeconds {
				done[i] += loop(2000)
			}
		})
		took, all := time.Since(start).Seconds(), 0.0
		for _, n := range done {
			all += n
		}
		best = max(best, all/took)
	}
	return best
}

// fork runs f with each number below threads at once.
func fork(threads int, f func(i int)) {
	var all sync.WaitGroup
	for i := range threads {
		all.Go(func() { f(i) })
	}
	all.Wait()
}
