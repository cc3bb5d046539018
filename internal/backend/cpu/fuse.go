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
	fuseGLU    = "glu"    // gate, up and the activation in one loop, keeping act(gate)·up alone
	fuseBeside = "beside" // products of the same rows in one loop
)

// checkFusions returns an error for an unknown name of a fusion.
func checkFusions(names []string) error {
	known := []string{fuseGLU, fuseBeside}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("no fusion is called %q, there are %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}

// Fused lists the names of the fusions and of their nodes.
func (e *executable) Fused() []string { return e.fused }

// fuse finds the nodes computed together: GLU nodes with their products, if the products' values have no other reader.
func (p *planner) fuse(g *graph.Graph, o backend.Options) {
	p.reads = map[*graph.Node]int{g.Result(): 1}
	for _, n := range g.Nodes {
		for _, in := range n.In {
			p.reads[in]++
		}
		if p.e.asked.kept.Named(n.Name) != nil {
			p.reads[n]++ // by request
		}
	}
	hidden := func(n *graph.Node) bool { return p.reads[n] == 1 && (o.Want == nil || !o.Want(n)) }
	for _, n := range g.Nodes {
		if p.e.b.fuses(fuseGLU) && n.Op == graph.GLU && hidden(n.In[0]) && hidden(n.In[1]) {
			p.fuseGLU(n)
		}
	}
	if p.e.b.fuses(fuseBeside) {
		p.findSiblings(g)
	}
}

func (b *Backend) fuses(name string) bool { return !slices.Contains(b.o.NoFuse, name) }

// spent reports whether n's value is free after its only reader, a product.
func (p *planner) spent(n *graph.Node) bool { return p.reads[n] == 1 && !n.Alias() }

// fuseGLU fuses n with its products, if possible.
func (p *planner) fuseGLU(n *graph.Node) {
	gate, up := n.In[0], n.In[1]
	if gate.Op != graph.Linear || up.Op != graph.Linear || gate.In[0] != up.In[0] || !p.canShare(gate, up) {
		return
	}
	p.fused[gate], p.fused[up], p.fused[n] = n, n, n
	p.live.Skip(gate)
	p.live.Skip(up)
}

// canShare reports whether products m and n can be in one loop: both with weights in panels and equal forms of
// activations.
func (p *planner) canShare(m, n *graph.Node) bool {
	v, w := p.e.b.packed[m.W[0]], p.e.b.packed[n.W[0]]
	return v != nil && w != nil && sharesForms(v.matrices[0], w.matrices[0])
}

// linear lowers a product, or all of its fusion at the fusion's first product.
func (p *planner) linear(n *graph.Node) (func() error, error) {
	e, in, glu := p.e, n.In[0], p.fused[n]
	x := p.values[in]
	if p.made[n] {
		return nil, nil
	}
	if glu == nil {
		out, err := p.buffer(n)
		p.values[n] = out
		if err != nil {
			return nil, err
		}
		if len(p.siblings[n]) > 0 {
			all, err := p.newSiblings(n, out)
			if err != nil {
				return nil, err
			}
			return e.adapt(x, append([]*graph.Node{n}, p.siblings[n]...), all.outs,
				func() error { return all.run(in, x, e.count(n)) }), nil
		}
		w := newProduct(e, n.W[0], 0)
		w.spent = p.spent(in)
		run := func() error { return w.run(in, out, x, e.count(n)) }
		return e.adapt(x, []*graph.Node{n}, [][]float32{out}, run), nil
	}
	gate, up := glu.In[0], glu.In[1]
	if n.ID > min(gate.ID, up.ID) {
		return nil, nil
	}
	e.fused = append(e.fused, fuseGLU+" "+glu.Name)
	out, err := p.buffer(glu)
	p.values[glu] = out
	both := newGated(e, newProduct(e, gate.W[0], 0), newProduct(e, up.W[0], 0), 0, glu)
	return e.newAdaptedGLU(glu, x, out, both).run, err
}

// gated multiplies rows by the panels of a gate and by as many gated columns. The worker with the sums of a panel and
// of its partner makes act(gate)·up at once; the two products are never in memory.
type gated struct {
	gate, up *product
	of       *graph.Node
	first    int     // of up's panels
	n        int     // columns of a row of out
	act      rowFunc //
	records  bool    // act is a kernel
	out      []float32
	body     func(worker, from, to int) error
}

// newGated returns the products of a GLU or Experts node n. gate and up may be one weight; up then begins at panel
// first.
func newGated(e *executable, gate, up *product, first int, n *graph.Node) *gated {
	g := &gated{gate: gate, up: up, of: new(graph.Node), first: first, n: gate.panels.N, act: gluKernel(n)}
	a, _ := n.Activates()
	g.records = a == graph.ActAttr{Act: graph.SiLU} || a == graph.ActAttr{Act: graph.GELUTanh}
	if gate == up {
		g.n = first * panel.Rows
	}
	g.body = func(worker, from, to int) error {
		s, n := &e.scratch[worker], gate.batch()
		if gate.rows <= fewRows { // memory is read fastest along a single weight
			n = to - from
		}
		var part span
		for from < to {
			if part, from = gate.firstSpan(from, to, n); part.places == 0 {
				continue
			}
			size := part.panels() * part.rows * panel.Rows
			acc := s.sums(2 * size)
			a, b := acc[:size], acc[size:]
			gate.add(s, a, part)
			beside := part
			beside.from, beside.to = first+part.from, first+part.to
			up.add(s, b, beside)
			g.act(a, a, b)
			gate.keep(g.out, g.n, a, part)
		}
		return nil
	}
	return g
}

// run computes both products as product.run does.
func (g *gated) run(in *graph.Node, out, x []float32, rows int) error {
	if rows == 0 {
		return nil
	}
	if err := g.begin(in, out, x, rows); err != nil {
		return err
	}
	return g.gate.loop(g.panels(g.gate), g.body)
}

// panels returns the number of the gate's panels.
func (g *gated) panels(*product) int { return (g.n + panel.Rows - 1) / panel.Rows }

// begin readies body for a run.
func (g *gated) begin(in *graph.Node, out, x []float32, rows int) error {
	g.out = out
	if in == nil { // a value of none, rounded once for both
		in, g.gate.e.x.node = g.of, nil
	}
	if err := g.gate.begin(in, nil, x, rows); err != nil {
		return err
	}
	if g.up != g.gate {
		if err := g.up.begin(in, nil, x, rows); err != nil {
			return err
		}
	}
	g.gate.records = g.records && g.gate.records && g.up.records
	return nil
}

// siblings are products of the same rows, as queries, keys and values, sharing a loop where possible: with many threads
// a small product is little more than the wait at its end.
type siblings struct {
	e    *executable
	all  []*product
	outs [][]float32
	together
}

// together is a loop over the numbers of several loops, one loop's after another's.
type together struct {
	parts []*product // of the running loop
	ends  []int      // of their numbers
	body  func(worker, from, to int) error
}

// start makes the body, once. each gives the bodies of the parts.
func (l *together) start(most int, each func(i int) func(worker, from, to int) error) {
	l.ends = make([]int, most)
	l.body = func(worker, from, to int) error {
		start := 0
		for i := range l.parts {
			if f, t := max(from, start), min(to, l.ends[i]); f < t {
				if err := each(i)(worker, f-start, t-start); err != nil {
					return err
				}
			}
			start = l.ends[i]
		}
		return nil
	}
}

// run runs the loop over so many panels of each part. The parts are ready.
func (l *together) run(e *executable, panels func(p *product) int) error {
	end, all, records := 0, 0, true
	for _, p := range l.parts {
		records = records && p.records
		all += panels(p)
	}
	first := l.parts[0]
	grain := first.divide(all)
	for i, p := range l.parts {
		p.block = first.block
		end += p.place(panels(p), grain)
		l.ends[i] = end
	}
	return e.loop(records, end, grain, l.body)
}

// findSiblings finds the products of rows with an earlier product.
func (p *planner) findSiblings(g *graph.Graph) {
	first := map[*graph.Node]*graph.Node{} // by input
	for _, n := range g.Nodes {
		if n.Op != graph.Linear || p.fused[n] != nil || p.e.b.packed[n.W[0]] == nil {
			continue
		}
		if f := first[n.In[0]]; f != nil {
			p.siblings[f] = append(p.siblings[f], n)
			p.made[n] = true
			continue
		}
		first[n.In[0]] = n
	}
}

// newSiblings returns n's product and its siblings. out is n's.
func (p *planner) newSiblings(n *graph.Node, out []float32) (*siblings, error) {
	e := p.e
	b := &siblings{e: e, all: []*product{newProduct(e, n.W[0], 0)}, outs: [][]float32{out}}
	name := fuseBeside + " " + n.Name
	for _, m := range p.siblings[n] {
		out, err := p.buffer(m)
		if err != nil {
			return nil, err
		}
		p.values[m] = out
		b.all, b.outs = append(b.all, newProduct(e, m.W[0], 0)), append(b.outs, out)
		name += " " + m.Name
	}
	e.fused = append(e.fused, name)
	b.start(len(b.all), func(i int) func(worker, from, to int) error { return b.parts[i].body })
	return b, nil
}

// run computes all products as product.run does, each loop with as many products as can share one.
func (b *siblings) run(in *graph.Node, x []float32, rows int) error {
	if rows == 0 {
		return nil
	}
	for i := 0; i < len(b.all); {
		j := i + 1
		for j < len(b.all) && canJoin(b.all[i:j], b.all[j], rows) {
			j++
		}
		if err := b.loop(i, j, in, x, rows); err != nil {
			return err
		}
		i = j
	}
	return nil
}

func (b *siblings) loop(i, j int, in *graph.Node, x []float32, rows int) error {
	b.parts = b.all[i:j]
	for k, p := range b.parts {
		if err := p.begin(in, b.outs[i+k], x, rows); err != nil {
			return err
		}
	}
	return b.together.run(b.e, allPanels)
}

// allPanels returns the number of p's panels.
func allPanels(p *product) int { return p.panels.Panels() }

// canJoin reports whether p can be in a loop with others: all needed forms of the activations exist at a time. A single
// row is multiplied by whole panels as stored, so its forms need only not conflict.
func canJoin(others []*product, p *product, rows int) bool {
	for _, o := range others {
		v, w := o.panels, p.panels
		whole := rows == 1 && v.K%panel.Chunk == 0 && v.Stored().HasRow() && w.Stored().HasRow() &&
			(v.Offset() == 0 || w.Offset() == 0 || v.Offset() == w.Offset() && v.Group() == w.Group()) &&
			(!v.HasMin() || !w.HasMin() || v.Group() == w.Group()) && slices.Equal(v.Columns, w.Columns)
		if !whole && !sharesForms(v, w) {
			return false
		}
	}
	return true
}
