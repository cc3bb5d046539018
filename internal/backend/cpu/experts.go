package cpu

import (
	"errors"
	"fmt"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/panel"
	"github.com/karat-run/karat/internal/simd"
)

// route gives each row's k best experts and their weights, as pairs. Equal
// scores go to the lower index; a NaN counts as the lowest score.
func (e *executable) route(n *graph.Node, out, scores, scale []float32) {
	k, count := n.Shape[0], len(scale)
	ids, best := make([]int, k), make([]float32, k)
	for r := range e.count(n) {
		s := scores[r*count : (r+1)*count]
		for j := range k {
			ids[j] = -1
			for i, v := range s {
				if !taken(ids[:j], i) && (ids[j] < 0 || v > s[ids[j]] || s[ids[j]] != s[ids[j]] && v == v) {
					ids[j] = i
				}
			}
			best[j] = s[ids[j]]
		}
		simd.Softmax(best, best)
		for j, id := range ids {
			out[(r*k+j)*2], out[(r*k+j)*2+1] = float32(id), best[j]*scale[id]
		}
	}
}

func taken(ids []int, i int) bool {
	for _, id := range ids {
		if id == i {
			return true
		}
	}
	return false
}

// experts are a node's weights by expert, and its buffers.
type experts struct {
	gateUp, down []*product
	gated        []*gated // gateUp with the activation, or nil
	rows         [][]int  // by expert: the (row, choice) pairs routed to it, row*k + choice
	at           []int    // by pair: its row of y

	// Buffers, which are others' when the node does not run.
	x []float32 // [rows, d], an expert's
	h []float32 // [rows, 2·ff], an expert's
	y []float32 // [rows·k, d], expert after expert
}

// newExperts is for n, whose values have room.
func (p *planner) newExperts(n *graph.Node) (*experts, error) {
	e, count, ff := p.e, n.W[0].Shape[0], n.W[1].Shape[2]
	fuse := e.b.fuses(fuseGLU) && e.b.packed[n.W[0]] != nil && ff%panel.Rows == 0
	if fuse {
		e.fused = append(e.fused, fuseGLU+" "+n.Name)
	}
	rows, d, k := p.rows(n), n.Shape.Size(), n.In[1].Shape[0]
	x := &experts{rows: make([][]int, count), at: make([]int, rows*k)}
	var err [3]error
	x.x, err[0] = p.take(rows * d)
	x.h, err[1] = p.take(rows * 2 * ff)
	x.y, err[2] = p.take(rows * k * d)
	p.free = append(p.free, x.x, x.h, x.y)
	for i := range count {
		x.gateUp = append(x.gateUp, e.newProduct(n.W[0], i))
		x.down = append(x.down, e.newProduct(n.W[1], i))
		if fuse {
			x.gated = append(x.gated, e.newGated(x.gateUp[i], x.gateUp[i], ff/panel.Rows, n))
		}
	}
	return x, errors.Join(err[:]...)
}

// experts runs each expert over the rows that are routed to it, and then sums
// each row's choices in their order.
func (e *executable) experts(n *graph.Node, x *experts, out, in, routes []float32) error {
	rows, d, k := e.count(n), n.Shape.Size(), n.In[1].Shape[0]
	for i := range x.rows {
		x.rows[i] = x.rows[i][:0]
	}
	for i := range rows * k {
		id := int(routes[2*i])
		if id < 0 || id >= len(x.rows) {
			return fmt.Errorf("row %d is routed to expert %d of %d", i/k, id, len(x.rows))
		}
		x.rows[id] = append(x.rows[id], i)
	}
	from := 0
	for id, pairs := range x.rows {
		if len(pairs) == 0 {
			continue
		}
		for i, r := range pairs {
			x.at[r] = from + i
		}
		if err := x.expert(n, id, x.y[from*d:], in, k, d, e.expert); err != nil {
			return err
		}
		from += len(pairs)
	}
	clear(out[:rows*d])
	for i := range rows * k {
		simd.AddScaled(out[i/k*d:(i/k+1)*d], x.y[x.at[i]*d:][:d], routes[2*i+1])
	}
	return nil
}

// expert runs one gated MLP: the rows are gathered, so that each weight row is
// read once. see may be nil.
func (x *experts) expert(n *graph.Node, id int, out, in []float32, k, d int, see backend.Expert) error {
	rows, ff := len(x.rows[id]), n.W[1].Shape[2]
	for i, r := range x.rows[id] {
		copy(x.x[i*d:(i+1)*d], in[r/k*d:])
	}
	if err := x.inner(n, id, rows, ff); err != nil {
		return err
	}
	if see != nil {
		see(n, id, x.x[:rows*d], x.h[:rows*ff])
	}
	return x.down[id].run(nil, out, x.h, rows)
}

// inner makes act(gate)·up, [rows, ff], of the gathered rows.
func (x *experts) inner(n *graph.Node, id, rows, ff int) error {
	if x.gated != nil {
		return x.gated[id].run(nil, x.h, x.x, rows)
	}
	if err := x.gateUp[id].run(nil, x.h, x.x, rows); err != nil {
		return err
	}
	glu := gluKernel(n)
	for i := range rows { // [rows, 2·ff] to [rows, ff], in place
		h := x.h[i*2*ff:]
		glu(h[:ff], h[:ff], h[ff:2*ff])
		copy(x.h[i*ff:(i+1)*ff], h[:ff])
	}
	return nil
}
