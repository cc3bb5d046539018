package cpu

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/karat-run/karat/internal/backend"
)

// meter measures a pool's loops.
type meter struct {
	start   time.Time
	last    time.Duration // end of the time given to kernels so far
	loop    *kernelMeter  // kernel of the running loop
	shared  bool          // whether several workers do
	kernels map[string]*kernelMeter
	kernel  string
	workers []workerMeter
	steps   int
	inLoops time.Duration // shared ones
	total   time.Duration
}

type kernelMeter struct {
	loops int
	time  time.Duration
	alone time.Duration
	busy  []time.Duration // by worker, its only writer
}

// workerMeter is a worker's record during a piece.
type workerMeter struct {
	m     *meter
	index int
	from  time.Duration
	busy  time.Duration
	_     [88]byte // keeps two apart in cache lines
}

func newMeter(threads int) *meter {
	m := &meter{start: time.Now(), kernels: map[string]*kernelMeter{}, workers: make([]workerMeter, threads)}
	for i := range m.workers {
		m.workers[i].m, m.workers[i].index = m, i
	}
	return m
}

func (m *meter) now() time.Duration { return time.Since(m.start) }

// step begins a step.
func (m *meter) step() { m.last, m.steps = m.now(), m.steps+1 }

// at names the kernel of the next loops; the time since the last loop belongs to the kernel before.
func (m *meter) at(kernel string) {
	m.spend(m.now(), false)
	m.kernel = kernel
}

// part names the part of the kernel's next loops; "" is the main part.
func (m *meter) part(name string) {
	m.spend(m.now(), false)
	m.kernel, _, _ = strings.Cut(m.kernel, "/")
	if name != "" {
		m.kernel += "/" + name
	}
}

// spend gives the time since the last call to the kernel.
func (m *meter) spend(now time.Duration, shared bool) *kernelMeter {
	k := m.kernels[m.kernel]
	if k == nil {
		k = &kernelMeter{busy: make([]time.Duration, len(m.workers))}
		m.kernels[m.kernel] = k
	}
	d := now - m.last
	m.last = now
	k.time, m.total = k.time+d, m.total+d
	if shared {
		m.inLoops += d
	} else {
		k.alone += d
	}
	return k
}

// begin begins a loop.
func (m *meter) begin(workers int) {
	m.loop, m.shared = m.spend(m.now(), false), workers > 1
	if m.shared {
		m.loop.loops++
	}
}

// end ends the loop.
func (m *meter) end() { m.spend(m.now(), m.shared) }

// start begins a piece.
func (w *workerMeter) start() { w.from = w.m.now() }

// stop ends the piece.
func (w *workerMeter) stop(k *kernelMeter) {
	d := w.m.now() - w.from
	w.busy += d
	k.busy[w.index] += d
}

// profile returns the measurement.
func (m *meter) profile() *backend.Profile {
	p := &backend.Profile{Steps: m.steps, Time: m.total}
	for _, name := range slices.Sorted(maps.Keys(m.kernels)) {
		k := m.kernels[name]
		x := backend.KernelProfile{Name: name, Loops: k.loops, Time: k.time, Alone: k.alone}
		for _, d := range k.busy {
			x.Busy += d
		}
		p.Kernels = append(p.Kernels, x)
	}
	slices.SortStableFunc(p.Kernels, func(a, b backend.KernelProfile) int { return cmp.Compare(b.Time, a.Time) })
	for i, w := range m.workers {
		t := backend.ThreadProfile{Busy: w.busy, Waiting: m.inLoops - w.busy, Between: m.total - m.inLoops}
		if i == 0 {
			t.Busy, t.Between = t.Busy+t.Between, 0
		}
		p.Threads = append(p.Threads, t)
	}
	return p
}

// Measure implements backend.Profiled. Measuring costs some looks at the clock for each loop, and nothing when off.
func (b *Backend) Measure(on bool) *backend.Profile {
	b.busy.Lock()
	defer b.busy.Unlock()
	var p *backend.Profile
	if m := b.pool.meter; m != nil {
		p = m.profile()
	}
	b.pool.meter = nil
	if on {
		b.pool.meter = newMeter(b.pool.threads)
	}
	return p
}
