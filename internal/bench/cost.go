package bench

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/simd"
	"github.com/karat-run/karat/internal/tensor"
)

// cost is the least reads and operations of a model.
type cost struct {
	weights     int64      // bytes read by a row
	all         int64      // bytes of all weights, read by many rows
	experts     bool       // parts of all, chosen by row
	row, output operations // of each row, and of each row of logits besides
	stores      []store
	element     int64 // bytes, of the stores
}

// store is keys and values read by an attention; older is the bytes of a position in 8 bits, 0 if all are alike.
type store struct {
	*graph.KV
	older int64
}

// operations counts two for each weight and row, by the instructions of the precision. Attention is left out.
type operations struct{ ints, floats float64 }

func costOf(g *graph.Graph, n numerics.Numerics) (c cost) {
	c.element = n.KVBytes()
	into := &c.row
	for _, node := range g.Nodes {
		share := 1.0
		switch node.Op {
		case graph.Embed, graph.EmbedPos:
			continue // a row of a table
		case graph.Rows, graph.Pool:
			into = &c.output
		case graph.Attention:
			s := store{KV: node.Attr.(graph.AttentionAttr).KV}
			if n.KV == "q8_0" && backend.IsNarrow(g, s.KV) {
				s.older = backend.NarrowBytes(s.KV)
			}
			c.stores = append(c.stores, s)
		case graph.Experts:
			c.experts = true
			share = float64(node.In[1].Shape[0]) / float64(node.W[0].Shape[0])
		}
		for _, w := range node.W {
			c.weights += int64(share * float64(len(w.Data)))
			c.all += int64(len(w.Data))
			if len(w.Shape) > 1 {
				into.add(&w.Tensor, share, n)
			}
		}
	}
	return c
}

func (o *operations) add(t *tensor.Tensor, share float64, n numerics.Numerics) {
	all := 2 * share * float64(t.Shape.Size())
	if t.DType.BlockSize() == 1 || n.Precision != "fast" {
		o.floats += all
	} else {
		o.ints += all
	}
}

// seconds returns the least time of a test, for its memory and for its products, at so many bytes and
// operations a second. Both are 0 where rows share an unknown number of experts.
func (c *cost) seconds(t *Result, read, ints, floats float64) (memory, compute float64) {
	of := func(o operations) float64 { return o.ints/ints + o.floats/floats }
	sequences := float64(t.Parallel)
	if t.Prompt > 0 {
		return float64(c.weights) / read, sequences * (float64(t.Prompt)*of(c.row) + of(c.output))
	}
	if c.experts && t.Parallel > 1 {
		return 0, 0
	}
	bytes := float64(t.Tokens) * float64(c.weights)
	for i := range t.Tokens {
		bytes += sequences * float64(c.stored(t.Depth+i+1))
	}
	return bytes / read, sequences * float64(t.Tokens) * (of(c.row) + of(c.output))
}

// stored returns the bytes of keys and values seen by the last of so many positions.
func (c *cost) stored(positions int) (bytes int64) {
	for _, s := range c.stores {
		n := positions
		if s.Window > 0 {
			n = min(n, s.Window)
		}
		older := 0
		if s.older > 0 {
			first := max(positions-n, kv.PageSize) // behind the window, and behind the first page
			older = max(0, backend.RecentPage(positions-1)*kv.PageSize-first)
		}
		bytes += int64(older)*s.older + int64(n-older)*backend.PositionBytes(s.KV, c.element)
	}
	return bytes
}

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

// nameOf returns the kernel's name; the time of a step before its first kernel has none.
func nameOf(k backend.KernelProfile) string { return cmp.Or(k.Name, "(before the first)") }

// profileText is where the time of t's steps went, of each step in µs: by kernel, and by thread.
func profileText(t *Result) string {
	var b strings.Builder
	p := t.Profile
	us := func(d time.Duration) float64 { return float64(d) / 1e3 / float64(max(p.Steps, 1)) }
	fmt.Fprintf(&b, "%s: %d steps of %.1f µs\n\n", t.name(), p.Steps, us(p.Time))
	if len(p.Threads) == 1 { // without shared loops and waits
		fmt.Fprintf(&b, "| kernel | µs | share |\n| --- | ---: | ---: |\n")
		for _, k := range p.Kernels {
			fmt.Fprintf(&b, "| %s | %.1f | %.1f %% |\n", nameOf(k), us(k.Time),
				100*float64(k.Time)/float64(max(p.Time, 1)))
		}
		return b.String() + "\n"
	}
	fmt.Fprintf(&b, "| kernel | loops | µs | one thread alone | threads busy |\n| --- | ---: | ---: | ---: | ---: |\n")
	for _, k := range p.Kernels {
		busy := ""
		if d := k.Time - k.Alone; d > 0 && k.Loops > 0 {
			busy = fmt.Sprintf("%.0f %%", 100*float64(k.Busy)/float64(d)/float64(len(p.Threads)))
		}
		fmt.Fprintf(&b, "| %s | %.1f | %.1f | %.1f | %s |\n", nameOf(k), float64(k.Loops)/float64(max(p.Steps, 1)),
			us(k.Time), us(k.Alone), busy)
	}
	fmt.Fprintf(&b, "\n| thread | busy, µs | waiting | between loops |\n| ---: | ---: | ---: | ---: |\n")
	for i, w := range p.Threads {
		fmt.Fprintf(&b, "| %d | %.1f | %.1f | %.1f |\n", i, us(w.Busy), us(w.Waiting), us(w.Between))
	}
	return b.String() + "\n"
}
