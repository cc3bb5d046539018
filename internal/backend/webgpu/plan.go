package webgpu

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/graph"
)

// executable is the plans of a graph, sharing its weights and buffers. Both plans are the same if a tap wants to see
// all rows.
type executable struct {
	whole *plan // for steps with logits of all rows wanted, as in decoding
	part  *plan // for other steps: nodes not needed for keys and values are computed for some rows

	// The plans for steps with adapters, made at the first such step. After a failure memory is held until Close, so
	// there is no second try.
	adapted func() (*executable, error)
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

// plans makes the plans of g, and of hoisted, with fewer rows in nodes needed for logits alone.
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
	e := &plan{b: b, rows: rows, ahead: g.Bidirectional(), entry: backend.EntryOf(g), results: results,
		vocab: backend.Vocab(g), kept: kept, values: map[*graph.Node]*lowered{}}
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
	p := &planner{e: e, b: b, f: f, common: c, values: f.values, narrow: b.narrowOf(g),
		free:   slices.Clone(c.buffers),
		angles: map[freqs]*turns{}}
	for _, n := range g.Nodes {
		if kept.Named(n.Name) != nil {
			f.live.Hold(n)
		}
	}
	f.findPairs(g)
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
		p.note(l)
		for _, n := range f.live.Freed(n) {
			if b := p.values[n]; b != nil { // otherwise its reader has computed the value
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

// seen reports the nodes whose values are seen: by taps, or by requests.
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

// note remembers l as a node of requested values.
func (p *planner) note(l *lowered) {
	e, n := p.e, l.node
	k := e.kept.Named(n.Name)
	if k != nil {
		e.values[k] = l
	}
	if k != nil || n.Op == graph.StoreKV || n.State != nil {
		e.enough = len(e.nodes)
	}
}

// inputs makes the buffers of the host's inputs, or of chosen tokens.
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

// weightsOnGPU returns g's weights for the GPU, each once, and its reader: the weights of products, and tables of
// embeddings.
func weightsOnGPU(
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
	all, _ := weightsOnGPU(g, stacks, b.onGPU(g, stacks))
	for _, w := range all {
		bytes += w.bytes()
	}
	return bytes
}

// onGPU returns the tables of embeddings for the GPU: none on a software GPU.
func (b *Backend) onGPU(g *graph.Graph, stacks map[*graph.Node]*stack) map[weights]bool {
	if b.o.Software {
		return nil
	}
	return b.tables(g, stacks)
}

// uploads brings weights to the GPU.
func (b *Backend) uploads(g *graph.Graph, stacks map[*graph.Node]*stack, tables map[weights]bool,
	progress func(done, total int64) error) error {
	todo, of := weightsOnGPU(g, stacks, tables)
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

// poison makes the plan fill free memory with NaNs, for a test.
func (p *planner) poison() {
	if !p.b.poison {
		return
	}
	most := 0
	for _, l := range p.e.nodes {
		if l.out != nil {
			most = max(most, l.out.Size())
		}
	}
	p.e.recording.nans = must(p.b.memory.buffer("poison", bytes.Repeat([]byte{0xff}, most)))
}
