package cpu

import (
	"fmt"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/panel"
)

// The fusions, by their names in Options.NoFuse. None changes a bit.
const (
	fuseGLU = "glu" // gate, up and the activation in one loop, which keeps act(gate)·up alone
	fuseQKV = "qkv" // products of the same rows in one loop over all their weights
)

// checkFusions is an error for a name that no fusion has.
func checkFusions(names []string) error {
	known := []string{fuseGLU, fuseQKV}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("no fusion is called %q, there are %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}

// fusion is some Linear nodes that one loop computes, at the first one's place,
// where it makes the values of all.
type fusion struct {
	linears []*graph.Node
	glu     *graph.Node // of the two linears, whose own values nobody sees; or nil
}

// String names the values: "glu blk.0.glu", "qkv blk.0.attn_q blk.0.attn_k".
func (f *fusion) String() string {
	if f.glu != nil {
		return fuseGLU + " " + f.glu.Name
	}
	s := fuseQKV
	for _, n := range f.linears {
		s += " " + n.Name
	}
	return s
}

// Fused lists what runs together: the names of the fusions and of their nodes.
func (e *executable) Fused() []string { return e.fused }

// fuse finds the nodes that are computed together.
func (p *planner) fuse(g *graph.Graph, o backend.Options) {
	readers := map[*graph.Node]int{g.Result(): 1}
	for _, n := range g.Nodes {
		for _, in := range n.In {
			readers[in]++
		}
	}
	hidden := func(n *graph.Node) bool { return readers[n] == 1 && (o.Want == nil || !o.Want(n)) }
	if p.e.b.fuses(fuseGLU) {
		for _, n := range g.Nodes {
			if n.Op == graph.GLU && hidden(n.In[0]) && hidden(n.In[1]) {
				p.fuseGLU(n)
			}
		}
	}
	if p.e.b.fuses(fuseQKV) {
		p.fuseQKV(g)
	}
}

func (b *Backend) fuses(name string) bool { return !slices.Contains(b.o.NoFuse, name) }

// fuseGLU fuses n with the products that it reads, if it can.
func (p *planner) fuseGLU(n *graph.Node) {
	gate, up := n.In[0], n.In[1]
	if gate.Op != graph.Linear || up.Op != graph.Linear || gate.In[0] != up.In[0] || p.e.b.packed[gate.W[0]] == nil || !p.alike(gate, up) {
		return
	}
	f := &fusion{linears: []*graph.Node{gate, up}, glu: n}
	if gate.ID > up.ID {
		f.linears = []*graph.Node{up, gate}
	}
	p.fused[gate], p.fused[up], p.fused[n] = f, f, f
	delete(p.last, gate) // neither has a buffer
	delete(p.last, up)
}

// fuseQKV fuses the products that read the same rows.
func (p *planner) fuseQKV(g *graph.Graph) {
	first := map[*graph.Node]*graph.Node{} // by what they read
	for _, n := range g.Nodes {
		if n.Op != graph.Linear || p.fused[n] != nil {
			continue
		}
		m := first[n.In[0]]
		if m == nil {
			first[n.In[0]] = n
			continue
		}
		f := p.fused[m]
		if f == nil {
			f = &fusion{linears: []*graph.Node{m}}
		}
		if !slices.ContainsFunc(f.linears, func(m *graph.Node) bool { return !p.alike(m, n) }) {
			f.linears = append(f.linears, n)
			p.fused[m], p.fused[n] = f, f
		}
	}
}

// alike reports whether products m and n can be in one loop: with weights both in
// panels or both not, and of panels those that can use the same activations, which
// have sums, and beginnings for codes with an offset, of one kind at a time.
func (p *planner) alike(m, n *graph.Node) bool {
	v, w := p.e.b.packed[m.W[0]], p.e.b.packed[n.W[0]]
	if v == nil || w == nil {
		return v == w
	}
	a, b := v.matrices[0], w.matrices[0]
	sums := !a.HasMin() || !b.HasMin() || a.Group() == b.Group()
	inits := a.Offset() == 0 || b.Offset() == 0 || a.Offset() == b.Offset() && a.Group() == b.Group()
	return sums && inits
}

// linear lowers a product, or all of its fusion if it is the first one of it.
func (p *planner) linear(n *graph.Node) func() error {
	e, f := p.e, p.fused[n]
	if f == nil {
		f = &fusion{linears: []*graph.Node{n}}
	} else if n != f.linears[0] {
		return nil
	}
	if len(f.linears) > 1 {
		e.fused = append(e.fused, f.String())
	}
	in := n.In[0]
	x := p.values[in]
	if f.glu != nil {
		out := p.buffer(f.glu)
		p.values[f.glu] = out
		g := e.newGated(e.newProduct(f.glu.In[0].W[0], 0), e.newProduct(f.glu.In[1].W[0], 0), 0, f.glu)
		return func() error { return g.run(in, out, x, e.count(n)) }
	}
	var outs [][]float32
	var products []*product
	for _, m := range f.linears {
		p.values[m] = p.buffer(m)
		outs, products = append(outs, p.values[m]), append(products, e.newProduct(m.W[0], 0))
	}
	if len(products) == 1 {
		return func() error { return products[0].run(in, outs[0], x, e.count(n)) }
	}
	t := e.newTogether(products)
	return func() error { return t.run(in, outs, x, e.count(n)) }
}

// together multiplies the same rows by several weights, in one loop.
type together struct {
	products []*product
	pieces   int // of all weights, one after another
	body     func(worker, from, to int) error
}

func (e *executable) newTogether(products []*product) *together {
	t := &together{products: products}
	for _, p := range products {
		n, _ := p.pieces()
		t.pieces += n
	}
	t.body = func(worker, from, to int) error {
		for _, p := range t.products {
			n, _ := p.pieces()
			if from < n && to > 0 {
				if err := p.body(worker, max(from, 0), min(to, n)); err != nil {
					return err
				}
			}
			from, to = from-n, to-n
		}
		return nil
	}
	return t
}

// run is product.run for all of them.
func (t *together) run(in *graph.Node, outs [][]float32, x []float32, rows int) error {
	if rows == 0 {
		return nil
	}
	for i, p := range t.products {
		if err := p.begin(in, outs[i], x, rows); err != nil {
			return err
		}
	}
	p := t.products[0]
	_, grain := p.pieces()
	return p.e.b.pool.run(t.pieces, grain, t.body)
}

// gated multiplies rows by the panels of a gate and of as many columns that it
// gates. Who has the sums of a panel and of its partner makes act(gate)·up of
// them; the two products themselves are never in memory.
type gated struct {
	gate, up *product
	first    int     // of up's panels
	n        int     // columns of a row of out
	act      rowFunc //
	out      []float32
	body     func(worker, from, to int) error
}

// newGated is for a GLU or Experts node n. gate and up may be one weight, of
// which up begins at a panel.
func (e *executable) newGated(gate, up *product, first int, n *graph.Node) *gated {
	g := &gated{gate: gate, up: up, first: first, n: gate.panels.N, act: gluKernel(n)}
	if gate == up {
		g.n = first * panel.Rows
	}
	g.body = func(worker, from, to int) error {
		s, n := &e.scratch[worker], gate.batch()
		if gate.rows <= fewRows { // memory is read fastest along one weight
			n = to - from
		}
		for ; from < to; from += n {
			end := min(from+n, to)
			size := (end - from) * gate.rows * panel.Rows
			s.acc = grow(s.acc, 2*size)
			a, b := s.acc[:size], s.acc[size:]
			gate.add(s, a, from, end)
			up.add(s, b, first+from, first+end)
			g.act(a, a, b)
			keep(g.out, g.n, a, from, end)
		}
		return nil
	}
	return g
}

// run is product.run for both.
func (g *gated) run(in *graph.Node, out, x []float32, rows int) error {
	if rows == 0 {
		return nil
	}
	g.out = out
	if err := g.gate.begin(in, nil, x, rows); err != nil {
		return err
	}
	if g.up != g.gate {
		if err := g.up.begin(in, nil, x, rows); err != nil {
			return err
		}
	}
	return g.gate.e.b.pool.run((g.n+panel.Rows-1)/panel.Rows, 1, g.body)
}
