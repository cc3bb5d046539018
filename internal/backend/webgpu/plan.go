package webgpu

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/rope"
)

// executable is the plans of a graph, which have its weights and buffers in common. They are
// one if a tap wants to see all rows.
type executable struct {
	whole *plan // for steps all of whose rows' logits are wanted, as in decoding
	part  *plan // for other steps: what keys and values do not need is computed of some rows

	// The plans for steps with adapters, made for the first one. If that fails, what it took is held until Close,
	// so it is not tried again.
	adapted func() (*executable, error)
}

// extent is which rows of a step a node computes.
type extent int

const (
	every  extent = iota
	wanted        // those whose logits are wanted: of nodes behind Rows
	extents
)

// plan is a compiled graph and its buffers.
type plan struct {
	b        *Backend
	rows     int
	ahead    bool // rows see later ones: steps are Entire
	results  int  // most rows whose logits are wanted
	vocab    int
	nodes    []*lowered
	last     *lowered
	input    *lowered // that rows of embeddings stand in for; nil for none
	kept     backend.Kept
	values   map[*graph.Node]*lowered // of the nodes of kept
	enough   int                      // nodes that make them, and all keys, values and states
	adapters *adapted                 // nil in plans for steps without adapters
	chooser  *chooser                 // nil where tokens are chosen by their logits
	passes   lowered                  // of the chooser
	splits   []*split                 // of attention

	// What the host writes before a step.
	counts  gpu.Buffer // Step by extent, at multiples of the alignment
	outputs gpu.Buffer // the rows whose logits are wanted
	turns   []*turns
	params  *arena

	recording recording
}

// recording is the list of the step that runs.
type recording struct {
	list  gpu.List
	steps [extents]*backend.Step // the step, by what of it a node computes
	out   []float32              // what the list reads
	nans  gpu.Buffer             // where free buffers are poisoned
	timed []string               // kernels of the list, where their times are taken
	stale map[*dispatch]held
	many  bool          // the step has so many rows that it may take long
	pace  time.Duration // of a dispatch of such a step, as the last list had it
}

// lowered is a node and what computes it.
type lowered struct {
	node       *graph.Node
	out        gpu.Buffer // its value, nil if it has none
	extent     extent
	late       bool // keys and values do not need it
	want       bool
	given      *given // what the host writes for it, nil for nothing
	dispatches []*dispatch
	freed      []gpu.Buffer // after it, where they are poisoned
}

// dispatch is one run of a kernel.
type dispatch struct {
	pipe  *pipe
	grid  grid
	from  int // rows, from which on it runs
	below int // rows below which it runs, if that is not 0

	split *split // of attention, and whether this is for where it is divided
	long  bool

	// The group of its bindings, or the bindings of which it is made for the cache of a step.
	group    gpu.Group
	head     []gpu.Range
	bindings []binding
}

// grid returns the workgroups for so many rows, or outputs.
type grid func(rows int) (x, y, z int)

// binding is a gpu.Buffer, or a late one.
type binding any

// late returns a buffer of a step's cache, or of adapters, both of which may be replaced between steps.
type late func(c *cache) (gpu.Buffer, error)

// held is the group of a dispatch that was made for a cache.
type held struct {
	c     *cache
	grown int // counts the replaced buffers of the cache and of adapters
	group gpu.Group
}

// turns is a table of rotary cosines and sines, of which a step's rows are written.
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

// common is what the plans of a graph have in common, of which one runs at a time.
type common struct {
	buffers []gpu.Buffer // of values
	chooser *chooser
	late    map[string]bool // by name: nodes that keys and values do not need
	adapted bool            // they are for steps with adapters
}

// planner lowers a graph. Buffers are handed out in execution order, and taken back
// behind the last node that reads them. Each is a buffer of its own: a shader must not
// read and write parts of one.
type planner struct {
	e      *plan
	b      *Backend
	f      *fusions
	common *common
	values map[*graph.Node]gpu.Buffer // which f also sees
	free   []gpu.Buffer
	angles map[freqs]*turns
	tables map[weights]bool // of embeddings, that are on the GPU
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

// planned calls f and returns the error that ended it.
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

// Compile implements backend.Backend.
func (b *Backend) Compile(g *graph.Graph, o backend.Options) (backend.Executable, error) {
	b.busy.Lock()
	defer b.busy.Unlock()
	for _, name := range b.o.NoFuse {
		if !slices.Contains(Fusions, name) {
			return nil, fmt.Errorf("no fusion is called %q, want %s", name, strings.Join(Fusions, ", "))
		}
	}
	if o.Expert != nil {
		return nil, errors.New("what experts multiply can be seen on the CPU only")
	}
	stacks := b.stacks(g)
	hoisted := g.Hoist(func(n *graph.Node) []*graph.Node {
		if s := stacks[n]; s != nil {
			return s.nodes
		}
		return nil
	}, o.Keep)
	c := &common{late: map[string]bool{}}
	for n, after := range hoisted.Live().After {
		c.late[n.Name] = after
	}
	e, err := b.plans(g, hoisted, o, c)
	if err != nil {
		return nil, err
	}
	e.adapted = sync.OnceValues(func() (*executable, error) {
		b.busy.Lock()
		defer b.busy.Unlock()
		c.adapted, o.Progress = true, nil
		return b.plans(g, hoisted, o, c)
	})
	return e, nil
}

// plans makes those of g, and of hoisted, in which fewer rows pass what only logits need.
func (b *Backend) plans(g, hoisted *graph.Graph, o backend.Options, c *common) (*executable, error) {
	e, rows, kept := &executable{}, max(o.Rows, 1), backend.NewKept(g, o.Keep)
	results := cmp.Or(o.Outputs, rows)
	if o.Want == nil && hoisted != g { // a tap sees all rows
		part, err := b.compile(hoisted, rows, results, o, kept, c)
		if err != nil {
			return nil, err
		}
		e.part, rows = part, results
	}
	whole, err := b.compile(g, rows, results, o, kept, c)
	if err != nil {
		return nil, err
	}
	e.whole, e.part = whole, cmp.Or(e.part, whole)
	if err := b.memory.flush(); err != nil {
		return nil, err
	}
	return e, nil
}

// compile makes a plan.
func (b *Backend) compile(
	g *graph.Graph, rows, results int, o backend.Options, kept backend.Kept, c *common,
) (*plan, error) {
	e := &plan{b: b, rows: rows, ahead: g.Bidirectional(), results: results, vocab: backend.Vocab(g), kept: kept,
		values: map[*graph.Node]*lowered{}}
	e.recording.stale = map[*dispatch]held{}
	if b.o.Software {
		e.recording.pace = unmeasured
	}
	if c.adapted {
		e.adapters = &adapted{}
	}
	f := &fusions{b: b, adapted: c.adapted, live: g.Live(), values: map[*graph.Node]gpu.Buffer{}, stacks: b.stacks(g),
		users: users(g),
		want:  seen(g, o, kept), turned: map[*graph.Node]*graph.Node{}, queries: map[*graph.Node]*graph.Node{},
		stores: map[*graph.Node]*graph.Node{}, folded: map[*graph.Node]*normChain{}, hidden: map[*graph.Node]bool{}}
	p := &planner{e: e, b: b, f: f, common: c, values: f.values, free: slices.Clone(c.buffers), angles: map[freqs]*turns{}}
	for _, n := range g.Nodes {
		if kept.Named(n.Name) != nil {
			f.live.Hold(n)
		}
	}
	f.pair(g)
	p.tables = b.onGPU(g, f.stacks)
	if err := planned(func() { p.inputs(g, o.Tokens) }); err != nil {
		return nil, err
	}
	if err := b.uploads(g, f.stacks, p.tables, o.Progress); err != nil {
		return nil, err
	}
	for _, n := range g.Nodes {
		want := o.Want != nil && n.Op != graph.StoreKV && o.Want(n)
		l := &lowered{node: n, extent: f.extent(n), late: c.late[n.Name], want: want}
		if err := planned(func() { p.lower(l) }); err != nil {
			return nil, fmt.Errorf("%v: %w", n, err)
		}
		l.out = p.values[n]
		e.nodes = append(e.nodes, l)
		p.note(l, g)
		for _, n := range f.live.Freed(n) {
			if b := p.values[n]; b != nil { // else its reader has also computed it
				l.freed = append(l.freed, b)
			}
		}
		p.free = append(p.free, l.freed...)
		e.last = l
	}
	if err := planned(p.addChooser); err != nil {
		return nil, fmt.Errorf("the choice of tokens: %w", err)
	}
	return e, planned(p.poison)
}

// seen is the nodes whose values are seen: by taps, or by who asks for them.
func seen(g *graph.Graph, o backend.Options, kept backend.Kept) func(*graph.Node) bool {
	if len(kept) == 0 {
		return o.Want
	}
	asked := map[*graph.Node]bool{}
	for _, n := range g.Nodes {
		if kept.Named(n.Name) == nil {
			continue
		}
		for asked[n] = true; n.Alias(); asked[n] = true {
			n = n.In[0]
		}
	}
	return func(n *graph.Node) bool { return asked[n] || o.Want != nil && o.Want(n) }
}

// note remembers l where the input, or what a step asks for, is its value.
func (p *planner) note(l *lowered, g *graph.Graph) {
	e, n := p.e, l.node
	if n == backend.Input(g) {
		e.input = l
	}
	k := e.kept.Named(n.Name)
	if k != nil {
		e.values[k] = l
	}
	if k != nil || n.Op == graph.StoreKV || n.State != nil {
		e.enough = len(e.nodes)
	}
}

// inputs makes the buffers of what the host writes, or chosen tokens.
func (p *planner) inputs(g *graph.Graph, tokens int) {
	e, align := p.e, p.b.d.Adapter().Limits.Alignment
	if p.common.chooser == nil {
		p.common.chooser = p.newChooser(g, tokens)
	}
	e.chooser = p.common.chooser
	e.counts = must(p.b.memory.empty("step", int(wanted)*align+16))
	e.outputs = must(p.b.memory.empty("outputs", 4*e.results))
	e.params = &arena{memory: p.b.memory, align: align}
}

// lying is what of g's weights lies on the GPU, each once, and which node reads it: the weights
// of products, and tables of embeddings.
func lying(
	g *graph.Graph, stacks map[*graph.Node]*stack, tables map[weights]bool,
) (all []weights, of map[weights]*graph.Node) {
	of = map[weights]*graph.Node{}
	add := func(n *graph.Node, w weights) {
		if of[w] == nil {
			all, of[w] = append(all, w), n
		}
	}
	for _, n := range g.Nodes {
		switch {
		case n.Op == graph.Linear:
			add(n, stacks[n].key)
		case n.Op == graph.Experts:
			matrices, _ := n.ExpertWeights()
			for _, w := range matrices {
				add(n, weights{w})
			}
		}
	}
	for _, n := range g.Nodes {
		if n.Op == graph.Embed && tables[weights{n.W[0]}] {
			add(n, weights{n.W[0]})
		}
	}
	return all, of
}

// Memory implements backend.Remote.
func (b *Backend) Memory() (name string, bytes int64) {
	a := b.d.Adapter()
	return a.Name, a.Memory
}

// Weights implements backend.Remote.
func (b *Backend) Weights(g *graph.Graph) (bytes int64) {
	stacks := b.stacks(g)
	all, _ := lying(g, stacks, b.onGPU(g, stacks))
	for _, w := range all {
		bytes += w.bytes()
	}
	return bytes
}

// onGPU is the tables of embeddings that lie on the GPU: none where that is a program.
func (b *Backend) onGPU(g *graph.Graph, stacks map[*graph.Node]*stack) map[weights]bool {
	if b.o.Software {
		return nil
	}
	return b.tables(g, stacks)
}

// uploads brings to the GPU what lies there.
func (b *Backend) uploads(g *graph.Graph, stacks map[*graph.Node]*stack, tables map[weights]bool,
	progress func(done, total int64) error) error {
	todo, of := lying(g, stacks, tables)
	todo = slices.DeleteFunc(todo, func(w weights) bool { return b.weights[w] != nil })
	var done, total int64
	for _, w := range todo {
		total += w.bytes()
	}
	for _, w := range todo {
		made, err := b.upload(w.list()...)
		if err != nil {
			return fmt.Errorf("%v: %w", of[w], err)
		}
		b.weights[w] = made
		if done += w.bytes(); progress != nil {
			if err := progress(done, total); err != nil {
				return err
			}
		}
	}
	return nil
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

// value returns the buffer of n's value, which is made where it has none.
func (p *planner) value(n *graph.Node) gpu.Buffer {
	b := p.values[n]
	if b == nil {
		b = p.buffer(n.Name, p.most(n)*n.Shape.Size())
		p.values[n] = b
	}
	return b
}

// vector returns small weights, one behind the other.
func (p *planner) vector(ws ...*graph.Weight) gpu.Buffer {
	var key weights
	copy(key[:], ws)
	return must(p.b.vector(key))
}

// turns returns the table of a RoPE node n, shared by the nodes that have the same.
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

// arena hands out places for kernels' Params, which are written once.
type arena struct {
	memory *memory
	align  int
	buffer gpu.Buffer
	used   int
}

// arenaBytes is the size of one of an arena's buffers.
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
