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
	b       *Backend
	rows    int
	ahead   bool // rows see later ones: steps are Entire
	results int  // most of them whose logits are wanted
	vocab   int
	nodes   []*lowered
	last    *lowered
	input   *lowered // that rows of embeddings stand in for; nil for none
	kept    backend.Kept
	values  map[*graph.Node]*lowered // of the nodes of kept
	enough  int                      // nodes that make them, and all keys, values and states
	beside  *beside                  // nil in plans for steps without adapters
	chooser *chooser                 // nil where tokens are chosen by their logits
	passes  lowered                  // of the chooser

	steps [extents]*backend.Step // the one that runs, by what of it a node computes

	// What the host writes before a step.
	counts  gpu.Buffer // Step by extent, at multiples of the alignment
	outputs gpu.Buffer // the rows whose logits are wanted
	turns   []*turns
	params  *arena

	list  gpu.List
	out   []float32  // what the list reads
	nans  gpu.Buffer // where free buffers are poisoned
	timed []string   // kernels of the list, where their times are taken
	stale map[*dispatch]held
	many  bool          // the step has so many rows that it may take long
	pace  time.Duration // of a dispatch of such a step, as the last list had it

	splits []*split // of attention
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
	group gpu.Group
	grid  func(rows int) (x, y, z int) // for so many rows, or outputs
	from  int                          // rows, from which on it runs
	below int                          // and below which, if that is not 0

	split *split // of attention, and whether this is for where it is divided
	long  bool

	kv     *graph.KV                  // with the keys and values of a step's cache, which come with the step
	state  *graph.State               // or with a state of it
	ranges func(c *cache) []gpu.Range // or with those of adapters
}

// held is the group of a dispatch that was made for a cache.
type held struct {
	c     *cache
	grown int // what had grown of it and of adapters
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
	e *plan
	*common
	values  map[*graph.Node]gpu.Buffer
	live    *graph.Live
	free    []gpu.Buffer
	angles  map[freqs]*turns
	stacks  map[*graph.Node]*stack
	users   map[*graph.Node][]*graph.Node
	want    func(*graph.Node) bool
	tables  map[weights]bool            // of embeddings, that are on the GPU
	turned  map[*graph.Node]*graph.Node // RoPE nodes, and norms, that a StoreKV does
	queries map[*graph.Node]*graph.Node // norms of heads of queries that an Attention computes, in steps of one row
	stores  map[*graph.Node]*graph.Node // by an Attention and by itself: a StoreKV that the Attention does, in steps of one row
	folded  map[*graph.Node]*normChain  // rows that products compute
	hidden  map[*graph.Node]bool        // that what reads them looks through
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
	if err := b.flush(); err != nil {
		return nil, err
	}
	return e, nil
}

// compile makes a plan.
func (b *Backend) compile(g *graph.Graph, rows, results int, o backend.Options, kept backend.Kept, c *common) (*plan, error) {
	e := &plan{b: b, rows: rows, ahead: g.Bidirectional(), results: results, vocab: backend.Vocab(g), stale: map[*dispatch]held{}, kept: kept, values: map[*graph.Node]*lowered{}}
	if b.o.Software {
		e.pace = unmeasured
	}
	if c.adapted {
		e.beside = &beside{}
	}
	p := &planner{e: e, common: c, values: map[*graph.Node]gpu.Buffer{}, live: g.Live(), free: slices.Clone(c.buffers), angles: map[freqs]*turns{},
		stacks: b.stacks(g), users: users(g), want: seen(g, o, kept), turned: map[*graph.Node]*graph.Node{},
		queries: map[*graph.Node]*graph.Node{}, stores: map[*graph.Node]*graph.Node{}, folded: map[*graph.Node]*normChain{}, hidden: map[*graph.Node]bool{}}
	for _, n := range g.Nodes {
		if kept.Named(n.Name) != nil {
			p.live.Hold(n)
		}
	}
	p.pair(g)
	p.tables = b.onGPU(g, p.stacks)
	if err := p.inputs(g, o.Tokens); err != nil {
		return nil, err
	}
	if err := b.uploads(g, p.stacks, p.tables, o.Progress); err != nil {
		return nil, err
	}
	for _, n := range g.Nodes {
		l := &lowered{node: n, extent: p.extent(n), late: p.late[n.Name], want: o.Want != nil && n.Op != graph.StoreKV && o.Want(n)}
		if err := mmap.Guard(func() error { return p.lower(l) }); err != nil {
			return nil, fmt.Errorf("%v: %w", n, err)
		}
		l.out = p.values[n]
		e.nodes = append(e.nodes, l)
		p.note(l, g)
		for _, f := range p.live.Freed(n) {
			if b := p.values[f]; b != nil { // else what reads it has computed it, too
				l.freed = append(l.freed, b)
			}
		}
		p.free = append(p.free, l.freed...)
		e.last = l
	}
	if err := p.addChooser(); err != nil {
		return nil, fmt.Errorf("the choice of tokens: %w", err)
	}
	if err := p.poison(); err != nil {
		return nil, err
	}
	return e, nil
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
func (p *planner) inputs(g *graph.Graph, tokens int) (err error) {
	e := p.e
	if p.chooser == nil {
		if p.chooser, err = p.newChooser(g, tokens); err != nil {
			return err
		}
	}
	e.chooser = p.chooser
	align := e.b.d.Adapter().Limits.Alignment
	if e.counts, err = e.b.empty("step", int(wanted)*align+16); err != nil {
		return err
	}
	if e.outputs, err = e.b.empty("outputs", 4*e.results); err != nil {
		return err
	}
	e.params = &arena{b: e.b, align: align}
	return nil
}

// lying is what of g's weights lies on the GPU, each once, and which node reads it: the weights
// of products, and tables of embeddings.
func lying(g *graph.Graph, stacks map[*graph.Node]*stack, tables map[weights]bool) (all []weights, of map[weights]*graph.Node) {
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
func (b *Backend) uploads(g *graph.Graph, stacks map[*graph.Node]*stack, tables map[weights]bool, progress func(done, total int64) error) error {
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

// extent is which rows n's value has.
func (p *planner) extent(n *graph.Node) extent {
	if p.live.After[n] {
		return wanted
	}
	return every
}

// most is how many these may be.
func (p *planner) most(n *graph.Node) int {
	if p.extent(n) == wanted {
		return p.e.results
	}
	return p.e.rows
}

// buffer is room for so many numbers.
func (p *planner) buffer(name string, numbers int) (gpu.Buffer, error) {
	best := -1
	for i, f := range p.free {
		if f.Size() >= 4*numbers && (best < 0 || f.Size() < p.free[best].Size()) {
			best = i
		}
	}
	if best < 0 {
		b, err := p.e.b.empty(name, 4*numbers)
		p.buffers = append(p.buffers, b)
		return b, err
	}
	b := p.free[best]
	p.free = slices.Delete(p.free, best, best+1)
	return b, nil
}

// turns is the table of a RoPE node n, shared by the nodes that have the same.
func (p *planner) turns(n *graph.Node) (*turns, error) {
	a, x := n.Attr.(graph.RoPEAttr), p.extent(n)
	f := a.Freqs
	key := freqs{&f[0], len(f), x, a.Magnitude, a.Sections, a.Woven}
	if t := p.angles[key]; t != nil {
		return t, nil
	}
	b, err := p.e.b.empty("turns", 8*len(f)*p.most(n))
	if err != nil {
		return nil, err
	}
	t := &turns{x, a, rope.NewTable(f, a.Magnitude), len(f), b}
	p.angles[key], p.e.turns = t, append(p.e.turns, t)
	return t, nil
}

// arena hands out places for kernels' Params, which are written once.
type arena struct {
	b      *Backend
	align  int
	buffer gpu.Buffer
	used   int
}

// arenaBytes is the size of one of an arena's buffers.
const arenaBytes = 64 << 10

// place writes data to a place of its own.
func (a *arena) place(data []byte) (gpu.Range, error) {
	if a.buffer == nil || a.used+len(data) > arenaBytes {
		b, err := a.b.empty("params", arenaBytes)
		if err != nil {
			return gpu.Range{}, err
		}
		a.buffer, a.used = b, 0
	}
	r := gpu.Range{Buffer: a.buffer, At: a.used, Size: len(data)}
	a.used += (len(data) + a.align - 1) / a.align * a.align
	return r, a.b.write(r.Buffer, r.At, data)
}
