package cpu

import (
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/panel"
)

// beside are products of the same rows, such as queries, keys and values, which share a
// loop where they can: with many threads a small product is little but the wait at its end.
type beside struct {
	e     *executable
	all   []*product
	outs  [][]float32
	parts []*product // of the loop that runs
	ends  []int      // of their numbers
	body  func(worker, from, to int) error
}

// fuseBeside finds the products that follow a product of the same rows.
func (p *planner) fuseBeside(g *graph.Graph) {
	first := map[*graph.Node]*graph.Node{} // by input
	for _, n := range g.Nodes {
		if n.Op != graph.Linear || p.fused[n] != nil || p.e.b.packed[n.W[0]] == nil {
			continue
		}
		if f := first[n.In[0]]; f != nil {
			p.beside[f] = append(p.beside[f], n)
			p.made[n] = true
			continue
		}
		first[n.In[0]] = n
	}
}

// newBeside is for n and the products beside it. out is n's.
func (p *planner) newBeside(n *graph.Node, out []float32) (*beside, error) {
	e := p.e
	b := &beside{e: e, all: []*product{e.newProduct(n.W[0], 0)}, outs: [][]float32{out}}
	name := fuseBeside + " " + n.Name
	for _, m := range p.beside[n] {
		out, err := p.buffer(m)
		if err != nil {
			return nil, err
		}
		p.values[m] = out
		b.all, b.outs = append(b.all, e.newProduct(m.W[0], 0)), append(b.outs, out)
		name += " " + m.Name
	}
	e.fused = append(e.fused, name)
	b.ends = make([]int, len(b.all))
	b.body = func(worker, from, to int) error {
		start := 0
		for i, p := range b.parts {
			if f, t := max(from, start), min(to, b.ends[i]); f < t {
				if err := p.body(worker, f-start, t-start); err != nil {
					return err
				}
			}
			start = b.ends[i]
		}
		return nil
	}
	return b, nil
}

// run is product.run for all, each loop with as many products as can share one.
func (b *beside) run(in *graph.Node, x []float32, rows int) error {
	if rows == 0 {
		return nil
	}
	for i := 0; i < len(b.all); {
		j := i + 1
		for j < len(b.all) && together(b.all[i:j], b.all[j], rows) {
			j++
		}
		if err := b.loop(i, j, in, x, rows); err != nil {
			return err
		}
		i = j
	}
	return nil
}

func (b *beside) loop(i, j int, in *graph.Node, x []float32, rows int) error {
	b.parts = b.all[i:j]
	end, panels := 0, 0
	for k, p := range b.parts {
		if err := p.begin(in, b.outs[i+k], x, rows); err != nil {
			return err
		}
		panels += p.panels.Panels()
	}
	grain := b.all[i].divide(panels)
	for k, p := range b.parts {
		p.block = b.all[i].block
		end += p.place(p.panels.Panels(), grain)
		b.ends[k] = end
	}
	return b.e.b.pool.run(end, grain, b.body)
}

// together reports whether p can be in a loop with others: what they need of the
// activations is there at a time. For one row, which is multiplied by whole panels as they
// are stored, that is what either one needs alone, too.
func together(others []*product, p *product, rows int) bool {
	for _, o := range others {
		v, w := o.panels, p.panels
		whole := rows == 1 && v.K%panel.Chunk == 0 && v.Stored().HasRow() && w.Stored().HasRow() &&
			(v.Offset() == 0 || w.Offset() == 0 || v.Offset() == w.Offset() && v.Group() == w.Group()) &&
			(!v.HasMin() || !w.HasMin() || v.Group() == w.Group())
		if !whole && !alike(v, w) {
			return false
		}
	}
	return true
}
