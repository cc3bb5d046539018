package webgpu

import (
	"fmt"
	"slices"
	"time"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/rope"
)

// extent is the set of a step's rows computed by a node.
type extent int

const (
	every  extent = iota
	wanted        // rows with wanted logits: of nodes after Rows
	extents
)

// plan is a compiled graph and its buffers.
type plan struct {
	b        *Backend
	rows     int
	ahead    bool // rows see later ones: steps are Entire
	results  int  // maximum of rows with wanted logits
	vocab    int
	nodes    []*lowered
	last     *lowered
	entry    backend.Entry // node replaced by rows of embeddings
	kept     backend.Kept
	values   map[*graph.Node]*lowered // of the nodes of kept
	enough   int                      // nodes of the values, of all keys and of states
	adapters *adapted                 // nil in plans for steps without adapters
	chooser  *chooser                 // nil where tokens are chosen by their logits
	passes   lowered                  // of the chooser
	splits   []*split                 // of attention

	// Inputs written by the host before a step.
	counts  gpu.Buffer // Step by extent, at multiples of the alignment
	outputs gpu.Buffer // the rows with wanted logits
	turns   []*turns
	params  *arena

	recording recording
}

// recording is the list of the running step.
type recording struct {
	list  gpu.List
	steps [extents]*backend.Step // the step, by extent
	out   []float32              // results read by the list
	nans  gpu.Buffer             // where free buffers are poisoned
	timed []string               // kernels of the list, where their times are taken
	stale map[*dispatch]held
	many  bool          // the step has many rows and may take long
	pace  time.Duration // time of a dispatch of a step of many rows, from the last list
}

// lowered is a node and its dispatches.
type lowered struct {
	node       *graph.Node
	out        gpu.Buffer // its value, nil if none
	extent     extent
	late       bool // not needed for keys and values
	want       bool
	given      *given // the host's input, nil for none
	dispatches []*dispatch
	freed      []gpu.Buffer // after the node, if poisoned
}

// dispatch is one run of a kernel.
type dispatch struct {
	pipe  *pipe
	grid  grid
	from  int // minimum of rows
	below int // rows below this number, if not 0

	split *split // of attention, and whether the dispatch is for the divided form
	long  bool
	only  stepKind

	// The group of its bindings, or the bindings for making a group with the cache of a step.
	group    gpu.Group
	head     []gpu.Range
	bindings []binding
}

// stepKind is the kind of steps that a dispatch is for.
type stepKind int

const (
	anyStep stepKind = iota
	ungrouped
	grouped // rows are in groups
)

// grid returns the workgroups for so many rows, or outputs.
type grid func(rows int) (x, y, z int)

// binding is a gpu.Buffer or a late buffer.
type binding any

// late returns a buffer of a step's cache, or of adapters: both may be replaced between steps.
type late func(c *cache) (gpu.Buffer, error)

// held is the group of a dispatch made for a cache.
type held struct {
	c     *cache
	grown int // counts the replaced buffers of the cache and of adapters
	group gpu.Group
}

// turns is a table of rotary cosines and sines; the host writes the rows of a step.
type turns struct {
	extent extent
	attr   graph.RoPEAttr
	table  *rope.Table
	pairs  int
	buffer gpu.Buffer // [rows, 2, pairs]
}

// freqs identifies a slice of frequencies, for rows of an extent, and their magnitude.
type freqs struct {
	first     *float64
	n         int
	extent    extent
	magnitude float64
	sections  [3]int
	woven     bool
}

// common is the shared part of a graph's plans; one plan runs at a time.
type common struct {
	buffers []gpu.Buffer // of values
	chooser *chooser
	late    map[string]bool // by name: nodes not needed for keys and values
	adapted bool            // the plans are for steps with adapters
}

// planner lowers a graph. Buffers are handed out in execution order, and taken back after the last reader. Each is a
// buffer of its own: a shader must not read and write parts of one.
type planner struct {
	e      *plan
	b      *Backend
	f      *fusions
	common *common
	values map[*graph.Node]gpu.Buffer // shared with f
	free   []gpu.Buffer
	angles map[freqs]*turns
	tables map[weights]bool   // of embeddings on the GPU
	narrow map[*graph.KV]bool // stores with older pages in 8 bits
}

// failure is an error in the middle of lowering.
type failure struct{ err error }

// must returns x; an error ends the lowering.
func must[T any](x T, err error) T {
	check(err)
	return x
}

func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// planned calls f and returns the error raised by it.
func planned(f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			e, ok := p.(failure)
			if !ok {
				panic(p)
			}
			err = e.err
		}
	}()
	return mmap.Guard(func() error { f(); return nil })
}

// most returns how many rows n's value may have.
func (p *planner) most(n *graph.Node) int {
	if p.f.extent(n) == wanted {
		return p.e.results
	}
	return p.e.rows
}

// buffer returns room for so many numbers.
func (p *planner) buffer(name string, numbers int) gpu.Buffer {
	best := -1
	for i, f := range p.free {
		if f.Size() >= 4*numbers && (best < 0 || f.Size() < p.free[best].Size()) {
			best = i
		}
	}
	if best < 0 {
		b := must(p.b.memory.empty(name, 4*numbers))
		p.common.buffers = append(p.common.buffers, b)
		return b
	}
	b := p.free[best]
	p.free = slices.Delete(p.free, best, best+1)
	return b
}

// value returns the buffer of n's value, made if missing.
func (p *planner) value(n *graph.Node) gpu.Buffer {
	b := p.values[n]
	if b == nil {
		b = p.buffer(n.Name, p.most(n)*n.Shape.Size())
		p.values[n] = b
	}
	return b
}

// vector returns small weights, one after the other.
func (p *planner) vector(ws ...*graph.Weight) gpu.Buffer {
	var key weights
	copy(key[:], ws)
	return must(p.b.vector(key))
}

// turns returns the table of a RoPE node n, shared by nodes with equal tables.
func (p *planner) turns(n *graph.Node) *turns {
	a, x := n.Attr.(graph.RoPEAttr), p.f.extent(n)
	f := a.Freqs
	key := freqs{&f[0], len(f), x, a.Magnitude, a.Sections, a.Woven}
	if t := p.angles[key]; t != nil {
		return t
	}
	t := &turns{x, a, rope.NewTable(f, a.Magnitude), len(f), must(p.b.memory.empty("turns", 8*len(f)*p.most(n)))}
	p.angles[key], p.e.turns = t, append(p.e.turns, t)
	return t
}

// add appends a dispatch of l's rows.
func (p *planner) add(l *lowered, shader string, v any, numbers params, g grid, bindings ...binding) *dispatch {
	pipe, most := must(p.b.d.pipe(shader, v)), p.most(l.node)
	limit := p.b.d.Adapter().Limits.Groups
	if x, y, z := g(most); max(x, y, z) > limit {
		check(fmt.Errorf("kernel %s: %d x %d x %d workgroups for %d rows, this GPU has at most %d in each dimension",
			pipe.name, x, y, z, most, limit))
	}
	step := gpu.Range{Buffer: p.e.counts, At: int(p.f.extent(l.node)) * p.e.params.align, Size: 16}
	d := &dispatch{pipe: pipe, grid: g, head: []gpu.Range{must(p.e.params.place(must(pipe.pack(numbers)))), step},
		bindings: bindings}
	if !slices.ContainsFunc(bindings, func(x binding) bool { _, ok := x.(late); return ok }) {
		d.group = must(p.b.group(d, nil))
	}
	l.dispatches = append(l.dispatches, d)
	return d
}

// group makes the group of a dispatch for a cache.
func (b *Backend) group(d *dispatch, c *cache) (gpu.Group, error) {
	ranges := d.head
	for _, x := range d.bindings {
		r := gpu.Range{}
		switch x := x.(type) {
		case gpu.Buffer:
			r.Buffer = x
		case late:
			var err error
			if r.Buffer, err = x(c); err != nil {
				return nil, err
			}
		}
		ranges = append(ranges, r)
	}
	g, err := b.d.gpu.NewGroup(d.pipe.Pipeline, ranges...)
	if err == nil {
		b.memory.made = append(b.memory.made, g)
	}
	return g, err
}

// arena hands out places for kernels' Params, written once.
type arena struct {
	memory *memory
	align  int
	buffer gpu.Buffer
	used   int
}

// arenaBytes is the size of a buffer of an arena.
const arenaBytes = 64 << 10

// place writes data to a place of its own.
func (a *arena) place(data []byte) (gpu.Range, error) {
	if a.buffer == nil || a.used+len(data) > arenaBytes {
		b, err := a.memory.empty("params", arenaBytes)
		if err != nil {
			return gpu.Range{}, err
		}
		a.buffer, a.used = b, 0
	}
	r := gpu.Range{Buffer: a.buffer, At: a.used, Size: len(data)}
	a.used += (len(data) + a.align - 1) / a.align * a.align
	return r, a.memory.write(r.Buffer, r.At, data)
}

// gx is GX of prelude.wgsl.
const gx = 32768

// flat returns a grid of n workgroups.
func flat(n int) (x, y, z int) { return min(n, gx), (n + gx - 1) / gx, 1 }

// elements returns the grid of a kernel with an invocation for each element, of rows of size elements, in workgroups
// of 64.
func elements(size int) grid {
	return func(rows int) (x, y, z int) { return flat((rows*size + 63) / 64) }
}

// groups returns the grid of a kernel with a workgroup for each of size things of a row.
func groups(size int) grid {
	return func(rows int) (x, y, z int) { return flat(rows * size) }
}

// variant is a template's parameters.
type variant = map[string]any

// given is the host's input before a node runs: a head, and then numbers for each row of the node.
type given struct {
	buffer      gpu.Buffer
	head, width int                                    // numbers: before the rows, and of a row
	of          extent                                 // the rows passed to fill
	fill        func(s *backend.Step, to []byte) error // writes the numbers
}

// later returns s a number of steps later, with the same tokens.
func later(s *backend.Step, steps int) *backend.Step {
	if steps == 0 {
		return s
	}
	at := *s
	at.Pos = make([]int32, len(s.Pos))
	for i, pos := range s.Pos {
		at.Pos[i] = pos + int32(steps)
	}
	return &at
}

// parts returns the parts of s computed by nodes, by extent.
func parts(s *backend.Step) [extents]*backend.Step { return [extents]*backend.Step{s, s.Wanted()} }

// unmeasured is the assumed time of a dispatch of many rows on a software GPU before the first measurement: a first
// list of all dispatches would take half a minute or more.
const unmeasured = longest / 8

// longest is the maximum time of a list of many rows: a list cannot be stopped.
const longest = 100 * time.Millisecond
