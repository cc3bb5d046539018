package cpu

import (
	"errors"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/simd"
)

// scan lowers a node with a state. Threads divide channels or heads, each through all rows in order: a step's cuts do
// not show.
func (p *planner) scan(n *graph.Node, out []float32, in [][]float32) (func() error, error) {
	var w [3][]float32
	for i := range n.W {
		var err error
		if w[i], err = vector(n.W[i]); err != nil {
			return nil, err
		}
	}
	var body func(worker, from, to int) error
	units, grain := n.Shape[0], 1
	switch e := p.e; n.Op {
	case graph.Conv:
		units, grain = n.Shape.Size(), 64
		body = e.conv(n, out, in[0], transpose(w[0], units), w[1])
	case graph.SSMScan:
		body = e.ssm(n, out, in, w)
	default:
		body = e.delta(n, out, in, w)
	}
	return func() error { return p.e.b.pool.run(units, grain, body) }, nil
}

// transpose returns w [channels, kernel] as [kernel, channels].
func transpose(w []float32, channels int) []float32 {
	t, kernel := make([]float32, len(w)), len(w)/channels
	for i, v := range w {
		t[i%kernel*channels+i/kernel] = v
	}
	return t
}

// state returns the state of a row's sequence for n.
func (e *executable) state(n *graph.Node, row int) []float32 {
	return e.step.Cache.(*cache).state(n.State, e.step.Seqs[row])
}

func (e *executable) conv(n *graph.Node, out, x, w, bias []float32) func(worker, from, to int) error {
	d := n.Shape.Size()
	return func(worker, from, to int) error {
		s := &e.scratch[worker]
		s.f32 = grow(s.f32, to-from)
		part := bias
		if bias != nil {
			part = bias[from:to]
		}
		for t := range e.step.Seqs {
			simd.Conv(out[t*d+from:t*d+to], e.state(n, t)[from:], x[t*d+from:t*d+to], w[from:], part, s.f32, d)
		}
		return nil
	}
}

func (e *executable) ssm(
	n *graph.Node, out []float32, in [][]float32, w [3][]float32,
) func(worker, from, to int) error {
	heads, dim, groups, size := n.Shape[0], n.Shape[1], n.In[2].Shape[0], n.In[2].Shape[1]
	return func(_, from, to int) error {
		for t := range e.step.Seqs {
			state := e.state(n, t)
			for h := from; h < to; h++ {
				step, decay := simd.Decay(w[0][h], in[1][t*heads+h], w[1][h])
				at, g := (t*heads+h)*dim, (t*groups+h*groups/heads)*size
				simd.SSM(out[at:at+dim], state[h*dim*size:(h+1)*dim*size], in[0][at:at+dim],
					in[2][g:g+size], in[3][g:g+size], step, decay, w[2][h])
			}
		}
		return nil
	}
}

func (e *executable) delta(
	n *graph.Node, out []float32, in [][]float32, w [3][]float32,
) func(worker, from, to int) error {
	heads, dim, groups, size := n.Shape[0], n.Shape[1], n.In[1].Shape[0], n.In[1].Shape[1]
	return func(worker, from, to int) error {
		s := &e.scratch[worker]
		s.f32 = grow(s.f32, dim+1)
		tmp, beta := s.f32[:dim], s.f32[dim:]
		for t := range e.step.Seqs {
			state := e.state(n, t)
			for h := from; h < to; h++ {
				_, decay := simd.Decay(w[0][h], in[3][t*heads+h], w[1][h])
				simd.Sigmoid(beta, in[4][t*heads+h:][:1])
				at, g := (t*heads+h)*dim, (t*groups+h*groups/heads)*size
				simd.Delta(out[at:at+dim], state[h*size*dim:(h+1)*size*dim], in[0][g:g+size],
					in[1][g:g+size], in[2][at:at+dim], tmp, decay, beta[0])
			}
		}
		return nil
	}
}

// poolRows makes a row for each wanted sequence.
func poolRows(e *executable, n *graph.Node, out, x []float32) error {
	first, err := e.step.Pooled()
	if err != nil {
		return err
	}
	d := n.Shape.Size()
	for i, f := range first {
		y := out[i*d : (i+1)*d]
		copy(y, x[int(f)*d:])
		if n.Attr.(graph.PoolAttr).Pooling != graph.Mean {
			continue
		}
		last := int(e.step.Outputs[i])
		for r := int(f) + 1; r <= last; r++ {
			simd.Add(y, y, x[r*d:(r+1)*d])
		}
		for j := range y {
			y[j] /= float32(last + 1 - int(f))
		}
	}
	return nil
}

// headLinear multiplies each head by its own matrix. Threads divide the heads.
func (e *executable) headLinear(n *graph.Node, out, x []float32) (func() error, error) {
	heads, k, d := n.Shape[0], n.In[0].Shape.Last(), n.Shape.Last()
	if n.W[0].Order != nil {
		return nil, errors.New("the weight's rows are in another order")
	}
	matrices := make([]*graph.Weight, heads)
	for h := range matrices {
		matrices[h] = n.W[0].Matrix(h)
	}
	body := func(worker, from, to int) error {
		s, rows := &e.scratch[worker], e.count(n)
		s.acc = grow(s.acc, rows*k)
		for h := from; h < to; h++ {
			for t := range rows {
				copy(s.acc[t*k:(t+1)*k], x[(t*heads+h)*k:])
			}
			m := matrices[h]
			for i := 0; i < d; i += floatRows {
				w := m.Span(i, min(i+floatRows, d), &s.rows)
				if err := s.product(out[h*d+i:], heads*d, m.DType, w, s.acc[:rows*k], k); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return func() error {
		if e.count(n) == 0 {
			return nil
		}
		return e.b.pool.run(heads, 1, body)
	}, nil
}
