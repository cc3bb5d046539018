package cpu

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/rope"
	"github.com/karat-run/karat/internal/simd"
)

// planner lowers a graph to kernels. Buffers are handed out in execution
// order, and taken back behind the last node that reads them.
type planner struct {
	e      *executable
	g      *graph.Graph
	values map[*graph.Node][]float32
	live   *graph.Live
	reads  map[*graph.Node]int           // how many nodes read a value, and the result's caller
	fused  map[*graph.Node]*graph.Node   // by node that is not computed alone: the GLU node of its fusion
	beside map[*graph.Node][]*graph.Node // by product: the others computed in its loop
	made   map[*graph.Node]bool          // which these are
	free   [][]float32
	chain  *chain      // that the next node may join
	held   [][]float32 // free when the chain ends
	tables map[freqs]*rope.Table
}

// freqs identifies a slice of frequencies, and their magnitude.
type freqs struct {
	first     *float64
	n         int
	magnitude float64
}

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
		scratch: make([]scratch, b.pool.threads), expert: o.Expert, input: backend.Input(g),
		asked: askedValues{kept: kept, values: map[*graph.Node][]float32{}}}
	p := &planner{e: e, g: g, values: map[*graph.Node][]float32{}, live: g.Live(), fused: map[*graph.Node]*graph.Node{},
		beside: map[*graph.Node][]*graph.Node{}, made: map[*graph.Node]bool{}, tables: map[freqs]*rope.Table{}}
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
	b.release()
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
	want := wants(o, n)
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

// buffer is room for a value of n.
func (p *planner) buffer(n *graph.Node) ([]float32, error) { return p.take(p.rows(n) * n.Shape.Size()) }

// rows is how many n's value has at most.
func (p *planner) rows(n *graph.Node) int {
	if p.e.after[n] {
		return p.e.results
	}
	return p.e.rows
}

// take is a buffer of some size, which is free again when it is among those of free.
func (p *planner) take(size int) (b []float32, err error) {
	best := -1
	for i, f := range p.free {
		if len(f) >= size && (best < 0 || len(f) < len(p.free[best])) {
			best = i
		}
	}
	if best < 0 {
		err = reserve(&p.e.b.buffers, &b, size)
		return b, err
	}
	b = p.free[best]
	p.free = slices.Delete(p.free, best, best+1)
	return b, nil
}

// rowsOf is the rows of the running step that n's value has.
func (e *executable) rowsOf(n *graph.Node) *backend.Step {
	if e.after[n] {
		return e.wanted
	}
	return e.step
}

// count is their number.
func (e *executable) count(n *graph.Node) int { return len(e.rowsOf(n).Tokens) }

// vector is a small weight as float32.
func vector(w *graph.Weight) ([]float32, error) {
	v := make([]float32, w.Shape.Size())
	return v, quant.Dequantize(w.DType, v, w.Data)
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
		return p.link(n, e.room(n), e.storeKV(n, in[0], in[len(in)-1])), nil
	}
	out, err := p.buffer(n)
	if err != nil {
		return nil, err
	}
	p.values[n] = out
	return p.kernel(n, out, in)
}

// kernel is n's, of its inputs to out.
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
	case graph.ScalePos:
		return p.link(n, nil, e.scalePos(n, out, in[0])), nil
	case graph.Concat:
		return p.link(n, nil, concat(n, out, in[0], in[1])), nil
	case graph.Slice:
		return p.link(n, nil, slice(n, out, in[0])), nil
	case graph.Attention:
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
		r, err := newRouter(n)
		return func() error { e.route(n, out, in[0], r); return nil }, err
	case graph.Experts:
		x, err := p.newExperts(n)
		return func() error { return e.experts(n, x, out, in[0], in[1]) }, err
	}
	row, err := rowKernel(n)
	return p.link(n, nil, e.eachRow(n, out, in, row)), err
}

// turns is the table of a, shared by the nodes that have the same.
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

// kernelName is n's name without its layer, and the type of what it multiplies by:
// the same in all layers that are alike.
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
	for _, m := range p.beside[n] {
		name += "+" + m.Name[strings.LastIndexByte(m.Name, '.')+1:]
	}
	if len(n.W) > 0 && (n.Op == graph.Linear || n.Op == graph.Experts) {
		name += " " + n.W[0].DType.String()
	}
	return name
}
