package webgpu

import (
	"encoding/binary"
	"math"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/graph"
)

// The Params of scans, pool and headlinear.
type (
	convParams  struct{ size, inputs int }
	scanParams  struct{ heads, size, groups, n int }
	poolParams  struct{ size int }
	headsParams struct{ heads, size, k int }
)

// scan lowers a node with a state. An invocation takes a channel, or a number of a head,
// through all rows, whose slots and positions the host writes. So that a shader has no
// more than 8 buffers, the host writes a DeltaScan's weights before these, too.
func (p *planner) scan(l *lowered) error {
	n := l.node
	var params any
	var v any
	shader := map[graph.Op]string{graph.Conv: "conv", graph.SSMScan: "ssm", graph.DeltaScan: "delta"}[n.Op]
	var in []gpu.Range
	for _, x := range n.In {
		in = append(in, gpu.Range{Buffer: p.values[x]})
	}
	var head []float32
	switch n.Op {
	case graph.Conv:
		params, v = convParams{n.Shape.Size(), n.W[0].Shape[1]}, variant{"Bias": len(n.W) > 1}
	case graph.SSMScan:
		params = scanParams{n.Shape[0], n.Shape[1], n.In[2].Shape[0], n.In[2].Shape[1]}
	default:
		params = scanParams{n.Shape[0], n.Shape[1], n.In[1].Shape[0], n.In[1].Shape[1]}
		for _, w := range n.W {
			part, err := widened(w)
			if err != nil {
				return err
			}
			head = append(head, part...)
		}
	}
	if head == nil {
		w, err := p.vector(n)
		if err != nil {
			return err
		}
		in = append(in, w)
	}
	rows, err := p.slots(l, head)
	if err != nil {
		return err
	}
	d, err := p.dispatch(n, shader, v, params, func(int) (x, y, z int) { return flat((n.Shape.Size() + 63) / 64) })
	if err != nil {
		return err
	}
	out, s := gpu.Range{Buffer: p.values[n]}, n.State
	d.state, d.ranges = s, func(c *cache) []gpu.Range {
		return append(append(d.head, out, gpu.Range{Buffer: c.states[s].values}, gpu.Range{Buffer: rows}), in...)
	}
	l.dispatches = append(l.dispatches, d.dispatch)
	return nil
}

// slots makes the host write a head, and the slot and the position of each row.
func (p *planner) slots(l *lowered, head []float32) (gpu.Buffer, error) {
	b, err := p.e.b.empty("slots", 4*(len(head)+2*p.most(l.node)))
	l.given = &given{b, len(head), 2, l.extent, func(s *backend.Step, to []byte) error {
		for _, v := range head {
			binary.LittleEndian.PutUint32(to, math.Float32bits(v))
			to = to[4:]
		}
		c := s.Cache.(*cache)
		for i, seq := range s.Seqs {
			binary.LittleEndian.PutUint32(to[8*i:], uint32(seq.Slot(c.slots)))
			binary.LittleEndian.PutUint32(to[8*i+4:], uint32(s.Pos[i]))
		}
		return nil
	}}
	return b, err
}

// pool lowers a Pool: the host writes which rows are a sequence's.
func (p *planner) pool(l *lowered) error {
	n := l.node
	b, err := p.e.b.empty("spans", 8*p.most(n))
	if err != nil {
		return err
	}
	l.given = &given{b, 0, 2, every, func(s *backend.Step, to []byte) error {
		first, err := s.Pooled()
		for i, f := range first {
			binary.LittleEndian.PutUint32(to[8*i:], uint32(f))
			binary.LittleEndian.PutUint32(to[8*i+4:], uint32(s.Outputs[i]))
		}
		return err
	}}
	v := variant{"Mean": n.Attr.(graph.PoolAttr).Pooling == graph.Mean}
	return p.add(l, "pool", v, poolParams{n.Shape.Size()}, elements(n.Shape.Size()), p.values[n], gpu.Range{Buffer: p.values[n.In[0]]}, gpu.Range{Buffer: b})
}

// headLinear lowers a HeadLinear, whose weight is float32 on the GPU.
func (p *planner) headLinear(l *lowered) error {
	n := l.node
	w, err := p.e.b.vector(weights{n.W[0]})
	if err != nil {
		return err
	}
	params := headsParams{n.Shape[0], n.Shape[1], n.In[0].Shape.Last()}
	return p.add(l, "headlinear", nil, params, elements(n.Shape.Size()), p.values[n], gpu.Range{Buffer: p.values[n.In[0]]}, gpu.Range{Buffer: w})
}
