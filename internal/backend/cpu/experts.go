package cpu

import (
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
	x, h, y      []float32
	all          []float32 // [rows, k, d]
}

func (e *executable) newExperts(n *graph.Node) *experts {
	count, ff := n.W[0].Shape[0], n.W[1].Shape[2]
	fuse := e.b.fuses(fuseGLU) && e.b.packed[n.W[0]] != nil && ff%panel.Rows == 0
	if fuse {
		e.fused = append(e.fused, fuseGLU+" "+n.Name)
	}
	x := &experts{rows: make([][]int, count)}
	for i := range count {
		x.gateUp = append(x.gateUp, e.newProduct(n.W[0], i))
		x.down = append(x.down, e.newProduct(n.W[1], i))
		if fuse {
			x.gated = append(x.gated, e.newGated(x.gateUp[i], x.gateUp[i], ff/panel.Rows, n))
		}
	}
	return x
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
	x.all = grow(x.all, rows*k*d)
	for id := range x.rows {
		if len(x.rows[id]) > 0 {
			if err := x.expert(n, id, in, k, d, e.expert); err != nil {
				return err
			}
		}
	}
	clear(out[:rows*d])
	for i := range rows * k {
		simd.AddScaled(out[i/k*d:(i/k+1)*d], x.all[i*d:(i+1)*d], routes[2*i+1])
	}
	return nil
}

// expert runs one gated MLP: the rows are gathered, so that each weight row is
// read once. see may be nil.
func (x *experts) expert(n *graph.Node, id int, in []float32, k, d int, see backend.Expert) error {
	rows, ff := len(x.rows[id]), n.W[1].Shape[2]
	x.x, x.h, x.y = grow(x.x, rows*d), grow(x.h, rows*2*ff), grow(x.y, rows*d)
	for i, r := range x.rows[id] {
		copy(x.x[i*d:(i+1)*d], in[r/k*d:])
	}
	if err := x.inner(n, id, rows, ff); err != nil {
		return err
	}
	if see != nil {
		see(n, id, x.x[:rows*d], x.h[:rows*ff])
	}
	if err := x.down[id].run(nil, x.y, x.h, rows); err != nil {
		return err
	}
	for i, r := range x.rows[id] {
		copy(x.all[r*d:(r+1)*d], x.y[i*d:(i+1)*d])
	}
	return nil
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
