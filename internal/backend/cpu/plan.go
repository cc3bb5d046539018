package cpu

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
	"github.com/karat-run/karat/internal/simd"
)

// Compile implements backend.Backend.
func (b *Backend) Compile(g *graph.Graph, o backend.Options) (backend.Executable, error) {
	if err := simd.Err(); err != nil {
		return nil, err
	}
	if err := checkFusions(b.o.NoFuse); err != nil {
		return nil, err
	}
	b.busy.Lock()
	defer b.busy.Unlock()
	kept := backend.NewKept(g, o.Keep)
	if o.Want == nil && o.Expert == nil { // a tap sees all rows
		g = g.Hoist(nil, o.Keep)
	}
	e := &executable{b: b, rows: max(o.Rows, 1), results: cmp.Or(o.Outputs, max(o.Rows, 1)), vocab: backend.Vocab(g),
		scratch: make([]scratch, max(b.pool.threads, b.pool.lanes)), expert: o.Expert, entry: backend.EntryOf(g),
		asked: askedValues{kept: kept, values: map[*graph.Node][]float32{}}}
	p := &planner{e: e, g: g, values: map[*graph.Node][]float32{}, live: g.Live(), fused: map[*graph.Node]*graph.Node{},
		siblings: map[*graph.Node][]*graph.Node{}, made: map[*graph.Node]bool{}, tables: map[freqs]*rope.Table{}}
	e.after, e.ahead = p.live.After, g.Bidirectional()
	for _, n := range g.Nodes {
		if kept.Named(n.Name) != nil {
			p.live.Hold(n)
		}
	}
	if b.o.Precision == Fast {
		if err := guard(func() error { return b.ready(g, o.Progress) }); err != nil {
			return nil, err
		}
	}
	p.fuse(g, o)
	if err := e.x.start(p); err != nil {
		return nil, err
	}
	for _, n := range g.Nodes {
		if err := p.add(n, o); err != nil {
			return nil, err
		}
	}
	e.last, e.result = g.Result(), p.values[g.Result()]
	for w, m := range b.packed { // the system may have mapped pages again together with their neighbours
		if m.memory != nil {
			drop(w)
		}
	}
	return e, nil
}

// add appends the kernel of n.
func (p *planner) add(n *graph.Node, o backend.Options) error {
	e := p.e
	if !chains(n) && !n.Alias() && !p.made[n] {
		p.unchain()
	}
	var run func() error
	err := guard(func() (err error) {
		run, err = p.lower(n)
		return err
	})
	if err != nil {
		return fmt.Errorf("%v: %w", n, err)
	}
	want := o.Want != nil && n.Op != graph.StoreKV && o.Want(n)
	if run != nil || want {
		e.kernels = append(e.kernels, kernel{node: n, name: p.kernelName(n), run: run, out: p.values[n], want: want})
	}
	if k := e.asked.kept.Named(n.Name); k != nil {
		e.asked.values[k], e.asked.enough = p.values[n], len(e.kernels)
	}
	if n.Op == graph.StoreKV || n.State != nil {
		e.asked.enough = len(e.kernels)
	}
	for _, f := range p.live.Freed(n) {
		p.held = append(p.held, p.values[f])
	}
	if p.chain == nil || want {
		p.unchain()
	}
	return nil
}

// lower chooses n's kernel and its output's buffer. The kernel is nil where there
// is nothing left to do.
func (p *planner) lower(n *graph.Node) (func() error, error) {
	e := p.e
	in := make([][]float32, len(n.In))
	for i, x := range n.In {
		in[i] = p.values[x]
	}
	if n.Alias() {
		p.values[n] = in[0]
		return nil, nil
	}
	if n.Op == graph.Linear {
		return p.linear(n)
	}
	if p.fused[n] != nil {
		return nil, nil
	}
	if n.Op == graph.StoreKV {
		run := p.link(n, e.makePages(n), e.storeKV(n, in[0], in[len(in)-1]))
		if e.b.Narrow() {
			p.chain.after = append(p.chain.after, e.narrow(n))
		}
		return run, nil
	}
	out, err := p.buffer(n)
	if err != nil {
		return nil, err
	}
	p.values[n] = out
	return p.kernel(n, out, in)
}

// kernel returns the kernel of n, from its inputs to out.
func (p *planner) kernel(n *graph.Node, out []float32, in [][]float32) (func() error, error) {
	e := p.e
	switch n.Op {
	case graph.Embed:
		return p.link(n, nil, p.embed(n, out)), nil
	case graph.RoPE:
		return p.link(n, nil, e.rope(n, out, in[0], p.turns(n.Attr.(graph.RoPEAttr)))), nil
	case graph.Conv, graph.SSMScan, graph.DeltaScan:
		return p.scan(n, out, in)
	case graph.HeadLinear:
		return e.headLinear(n, out, in[0])
	case graph.Pool:
		return func() error { return poolRows(e, n, out, in[0]) }, nil
	case graph.EmbedPos:
		return p.link(n, nil, e.embedPos(n, out)), nil
	case graph.Patches:
		return p.link(n, nil, patches(e, n, out)), nil
	case graph.Deepstack:
		return p.link(n, nil, e.deepstack(n, out)), nil
	case graph.Interpolate:
		before, body := interpolate(e, n, out)
		return p.link(n, before, body), nil
	case graph.ScalePos:
		return p.link(n, nil, e.scalePos(n, out, in[0])), nil
	case graph.Mix, graph.Match:
		return p.link(n, nil, streams(n, out, in[0], in[1])), nil
	case graph.Concat:
		return p.link(n, nil, concat(n, out, in[0], in[1])), nil
	case graph.Slice:
		return p.link(n, nil, slice(n, out, in[0])), nil
	case graph.Choose:
		return e.choose(n, out, in[0], in[1]), nil
	case graph.Attention:
		if n.Chosen() != nil {
			return e.attendChosen(n, out, in[0], in[1]), nil
		}
		var sinks []float32
		var err error
		if len(n.W) > 0 {
			sinks, err = vector(n.W[0])
		}
		return e.attention(n, out, in[0], sinks), err
	case graph.Rows:
		return func() error { copyOutputs(e, n, out, in[0]); return nil }, nil
	case graph.View:
		return func() error { copyView(e, n, out, in[0]); return nil }, nil
	case graph.Route:
		all := make([]*router, e.b.pool.threads)
		for i := range all {
			var err error
			if all[i], err = newRouter(n); err != nil {
				return nil, err
			}
		}
		return e.route(n, out, in[0], all), nil
	case graph.Experts:
		x, err := p.newExperts(n)
		return e.experts(n, x, out, in[0], in[1]), err
	}
	row, err := rowKernel(n)
	return p.link(n, nil, e.eachRow(n, out, in, row)), err
}

// turns returns the table of a, shared by nodes with equal tables.
func (p *planner) turns(a graph.RoPEAttr) func(pos int) (cos, sin []float32) {
	f := a.Freqs
	if len(f) == 0 {
		return func(int) (cos, sin []float32) { return nil, nil }
	}
	key := freqs{&f[0], len(f), a.Magnitude}
	t, ok := p.tables[key]
	if !ok {
		t = rope.NewTable(f, a.Magnitude)
		p.tables[key] = t
	}
	return t.Row
}

// kernelName returns n's name without its layer, and the type of its weight: equal in all similar layers.
func (p *planner) kernelName(n *graph.Node) string {
	var parts []string
	for _, part := range strings.Split(n.Name, ".") {
		if _, err := strconv.Atoi(part); err != nil && part != "blk" {
			parts = append(parts, part)
		}
	}
	name := strings.Join(parts, ".")
	if glu := p.fused[n]; glu != nil {
		name = fuseGLU
	}
	for _, m := range p.siblings[n] {
		name += "+" + m.Name[strings.LastIndexByte(m.Name, '.')+1:]
	}
	if len(n.W) > 0 && (n.Op == graph.Linear || n.Op == graph.Experts) {
		name += " " + n.W[0].DType.String()
	}
	return name
}
