package cpu

import (
	"errors"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/simd"
)

// A chunk of a scan is a page.
var _ [simd.ChunkRows]struct{} = [kv.PageSize]struct{}{}

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
	if n.Op == graph.Conv {
		units := n.Shape.Size()
		body := p.e.conv(n, out, in[0], transpose(w[0], units), w[1])
		return func() error { return p.e.b.pool.run(units, 64, body) }, nil
	}
	x := &scanning{e: p.e, n: n, out: out, in: in, w: w, heads: n.Shape[0], dim: n.Shape[1], each: n.EachDecays()}
	x.keys, x.queries = in[2], in[3]
	x.groups, x.size, x.body = n.In[2].Shape[0], n.In[2].Shape[1], x.ssm
	if n.Op == graph.DeltaScan {
		x.groups, x.size, x.body = n.In[1].Shape[0], n.In[1].Shape[1], x.delta
		x.keys, x.queries = in[1], in[0]
	} else if x.each {
		w[0] = transpose(w[0], x.heads)
		x.w = w
		return x.runEach, nil
	}
	x.end, x.keep, x.keepAll = x.advance, x.keepKeys, x.keepRows
	return x.run, nil
}

// transpose returns w [channels, kernel] as [kernel, channels].
func transpose(w []float32, channels int) []float32 {
	t, kernel := make([]float32, len(w)), len(w)/channels
	for i, v := range w {
		t[i%kernel*channels+i/kernel] = v
	}
	return t
}

// state returns the state and the rows of a piece's sequence for n.
func (e *executable) state(n *graph.Node, p *backend.Piece) (state, rows []float32) {
	return e.step.Cache.(*cache).state(n.State, p.Seq)
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
		for i := range e.pieces {
			p := &e.pieces[i]
			before, rows := e.state(n, p)
			for at := 0; at < len(before); at += d {
				switch {
				case !p.HasState(false):
					clear(before[at+from : at+to])
				case p.Ends:
					copy(before[at+from:at+to], rows[len(rows)-len(before)+at+from:])
				}
			}
			for t := p.Row; t < p.Row+p.Rows; t++ {
				i := p.At + t - p.Row
				copy(rows[i*d+from:i*d+to], x[t*d+from:])
				simd.Conv(out[t*d+from:t*d+to], before[from:], rows[from:], i, w[from:], part, s.f32, d)
			}
		}
		return nil
	}
}

// scanning computes a scan's node.
type scanning struct {
	e                        *executable
	n                        *graph.Node
	out                      []float32
	in                       [][]float32
	w                        [3][]float32
	keys, queries            []float32 // inputs of groups
	heads, dim, groups, size int
	parts                    int             // of a head's rows, for threads to share
	each                     bool            // decays are of elements of keys
	turn                     []backend.Piece // the pieces at work
	body, end, keep, keepAll func(worker, from, to int) error
}

// run computes the first pieces of all sequences, then the second, and so on. Heads share the keys of their group, so
// the keys of a piece come when all heads have taken the page before, and before all heads' rows.
func (x *scanning) run() error {
	for all := x.e.pieces; len(all) > 0; all = all[len(x.turn):] {
		n, rows, ends := 0, 0, false
		for ; n < len(all) && all[n].Turn == all[0].Turn; n++ {
			rows, ends = rows+all[n].Rows, ends || all[n].Ends
		}
		grain := 1
		if rows < fewRows { // the calling thread is done before another begins
			grain = x.groups
		}
		x.turn = all[:n]
		if ends {
			if err := x.e.b.pool.run(x.heads, 1, x.end); err != nil {
				return err
			}
		}
		keep := x.keep
		keeps := x.groups
		if x.parts = 1; x.n.Op == graph.SSMScan && rows >= partRows {
			x.parts, keep, keeps = 2, x.keepAll, x.heads
		}
		if err := x.e.b.pool.run(keeps, grain, keep); err != nil {
			return err
		}
		if err := x.e.b.pool.run(x.heads*x.parts, 1, x.body); err != nil {
			return err
		}
	}
	return nil
}

// partRows is the least number of rows whose heads are divided: a row of Mamba 2 follows from the kept parts of the
// rows before, so that all rows are kept first.
const partRows = 32

// part returns the rows of part i of a piece: later rows of a page take longer.
func (x *scanning) part(p *backend.Piece, i int) backend.Piece {
	q, cut := *p, p.Rows*5/8&^(simd.Quad-1)
	switch {
	case x.parts == 1:
	case i == 0:
		q.Rows = cut
	default:
		q.At, q.Row, q.Rows = p.At+cut, p.Row+cut, p.Rows-cut
	}
	return q
}

// keepRows keeps the keys of some heads' groups, and the heads' values and decays.
func (x *scanning) keepRows(worker, from, to int) error {
	for h := from; h < to; h++ {
		if g := h * x.groups / x.heads; h == 0 || g != (h-1)*x.groups/x.heads {
			if err := x.keepKeys(worker, g, g+1); err != nil {
				return err
			}
		}
		for i := range x.turn {
			p := &x.turn[i]
			c, _ := x.chunk(p, h, false)
			x.keepValues(p, &c, h)
		}
	}
	return nil
}

// keepValues keeps a head's values, each times the length of its step, and decays.
func (x *scanning) keepValues(p *backend.Piece, c *simd.Chunk, h int) {
	at := (p.Row*x.heads + h) * x.dim
	for t := range p.Rows {
		step := x.decay(p, c, h, t, x.in[1])
		simd.Scale(c.Kept[(p.At+t)*x.dim:(p.At+t+1)*x.dim], x.in[0][at+t*x.heads*x.dim:][:x.dim], step)
	}
}

// chunk returns a head's part of a piece's page, or with ends of the page before.
func (x *scanning) chunk(p *backend.Piece, h int, ends bool) (c simd.Chunk, state []float32) {
	all, rows := x.e.state(x.n, p)
	g, part, size := h*x.groups/x.heads, simd.ChunkRows*x.size, simd.ChunkRows*x.dim
	c.Keys, rows = rows[g*part:(g+1)*part], rows[x.groups*part:]
	c.Kept, rows = rows[h*size:(h+1)*size], rows[x.heads*size:]
	logs := simd.ChunkRows
	if c.Each = x.each; x.each {
		logs *= x.size
	}
	c.Logs, rows = rows[h*logs:(h+1)*logs], rows[x.heads*logs:]
	c.Rests = rows[h*logs : (h+1)*logs]
	state = all[h*x.size*x.dim : (h+1)*x.size*x.dim]
	if p.HasState(ends) {
		c.State = state
	}
	return c, state
}

// scan returns a worker's memory for scans.
func (x *scanning) scan(worker int) *simd.Scan {
	s := &x.e.scratch[worker]
	if s.scan == nil {
		s.scan = new(simd.Scan)
	}
	return s.scan
}

// advance takes the rows of pages that end into the states of some heads.
func (x *scanning) advance(worker, from, to int) error {
	s := x.scan(worker)
	for i := range x.turn {
		p := &x.turn[i]
		for h := from; h < to && p.Ends; h++ {
			c, state := x.chunk(p, h, true)
			if !x.each && (h == from || h*x.groups/x.heads != (h-1)*x.groups/x.heads) {
				s.Turn(c.Keys, x.size)
			}
			s.Advance(&c, state)
		}
	}
	return nil
}

// keepKeys keeps the keys of some groups.
func (x *scanning) keepKeys(_, from, to int) error {
	for i := range x.turn {
		p := &x.turn[i]
		_, rows := x.e.state(x.n, p)
		for t := range p.Rows {
			for g := from; g < to; g++ {
				key := x.keys[((p.Row+t)*x.groups+g)*x.size:][:x.size]
				if !x.each {
					copy(rows[(g*simd.ChunkRows+p.At+t)*x.size:], key)
					continue
				}
				for j, v := range key {
					rows[(g*x.size+j)*simd.ChunkRows+p.At+t] = v
				}
			}
		}
	}
	return nil
}

// meet prepares s for the rows of p, of head h of a worker's heads from first on, and fills asks, unless the group is
// that of the head before. per is 2 where a row's key follows its query.
func (x *scanning) meet(s *simd.Scan, p *backend.Piece, c *simd.Chunk, asks []float32, per, h, first int) {
	g, n := h*x.groups/x.heads, x.size
	if h > first && !x.each && g == (h-1)*x.groups/x.heads {
		return
	}
	for t := range p.Rows {
		at := ((p.Row+t)*x.groups + g) * n
		copy(asks[t*per*n:], x.queries[at:at+n])
		if per > 1 {
			copy(asks[(t*per+1)*n:], x.keys[at:at+n])
		}
	}
	if x.each {
		s.MeetEach(c, asks, n, per, p.At, p.At+p.Rows)
		return
	}
	s.Meet(c.Keys, asks, n, per, p.At, p.At+p.Rows)
}

// ssm computes the rows of some heads of Mamba 2's scan.
func (x *scanning) ssm(worker, from, to int) error {
	s, m := x.scan(worker), &x.e.scratch[worker]
	m.f32 = grow(m.f32, simd.ChunkRows*x.size)
	for i := range x.turn {
		for u := from; u < to; u++ {
			p, h := x.part(&x.turn[i], u/x.heads), u%x.heads
			c, _ := x.chunk(&p, h, false)
			if x.parts == 1 {
				x.keepValues(&p, &c, h)
			}
			x.meet(s, &p, &c, m.f32, 1, h, max(from-u/x.heads*x.heads, 0))
			at := (p.Row*x.heads + h) * x.dim
			s.SSM(&c, x.out[at:], x.in[0][at:], x.heads*x.dim, m.f32, x.size, x.w[2][h], p.At, p.At+p.Rows)
		}
	}
	return nil
}

// decay keeps the decays up to a piece's t-th row, and returns the length of its step.
func (x *scanning) decay(p *backend.Piece, c *simd.Chunk, h, t int, in []float32) float32 {
	step, log := simd.Decay(x.w[0][h], in[(p.Row+t)*x.heads+h], x.w[1][h])
	c.Follow(p.At+t, log)
	return step
}

// decayEach keeps the decays up to a piece's t-th row, of each element of a head's keys.
func (x *scanning) decayEach(p *backend.Piece, c *simd.Chunk, h, t int, in []float32) {
	at := h * x.size
	for j, v := range in[(p.Row+t)*x.heads*x.size+at:][:x.size] {
		_, log := simd.Decay(x.w[0][h], v, x.w[1][at+j])
		c.FollowEach(j, p.At+t, log)
	}
}

// delta computes the rows of some heads of the gated delta rule.
func (x *scanning) delta(worker, from, to int) error {
	s, m := x.scan(worker), &x.e.scratch[worker]
	m.f32 = grow(m.f32, simd.ChunkRows*(2*x.size+1))
	asks, beta := m.f32[simd.ChunkRows:], m.f32[:simd.ChunkRows]
	for i := range x.turn {
		p := &x.turn[i]
		for h := from; h < to; h++ {
			c, _ := x.chunk(p, h, false)
			for t := range p.Rows {
				if x.each {
					x.decayEach(p, &c, h, t, x.in[3])
				} else {
					x.decay(p, &c, h, t, x.in[3])
				}
				beta[t] = x.in[4][(p.Row+t)*x.heads+h]
			}
			x.meet(s, p, &c, asks, 2, h, from)
			simd.Sigmoid(beta[:p.Rows], beta[:p.Rows])
			simd.Scale(beta[:p.Rows], beta[:p.Rows], float32(x.n.MostShare()))
			at := (p.Row*x.heads + h) * x.dim
			s.Delta(&c, x.out[at:], x.in[2][at:], x.heads*x.dim, asks, x.size, beta, p.At, p.At+p.Rows)
		}
	}
	return nil
}

// runEach computes Mamba 1's scan. A step goes on from the state behind the row before, kept with the page's rows, or
// goes through the page again where rows were dropped: by the same sums.
func (x *scanning) runEach() error {
	if err := x.e.b.pool.run(x.heads, 64, x.ssmEach); err != nil {
		return err
	}
	for i := range x.e.pieces { // the keys, which all heads share, when all have read the page's
		p := &x.e.pieces[i]
		_, rows := x.e.state(x.n, p)
		copy(rows[p.At*x.size:(p.At+p.Rows)*x.size], x.keys[p.Row*x.size:])
	}
	return nil
}

// ssmEach computes the rows of some heads of Mamba 1's scan.
func (x *scanning) ssmEach(worker, from, to int) error {
	m, d, size, n := &x.e.scratch[worker], x.heads, x.size, to-from
	m.f32 = grow(m.f32, 2*n)
	tmp, unused := m.f32[:n], m.f32[n:2*n]
	for i := range x.e.pieces {
		p := &x.e.pieces[i]
		start, rows := x.e.state(x.n, p)
		keys, rows := rows[:simd.ChunkRows*size], rows[simd.ChunkRows*size:]
		in, rows := rows[:simd.ChunkRows*d], rows[simd.ChunkRows*d:]
		steps, state, mark := rows[:simd.ChunkRows*d], rows[simd.ChunkRows*d:], rows[(simd.ChunkRows+size)*d:]
		before := p.At
		if p.Ends {
			before = simd.ChunkRows
		}
		move := func(to, from []float32) { // nil for zeros
			for j := range size {
				if clear(to[j*d:][:n]); from != nil {
					copy(to[j*d:][:n], from[j*d:])
				}
			}
		}
		row := func(y, x0 []float32, r int, key, query []float32) {
			simd.SSMEach(y, state[from:], x.w[0][from:], d, x0, steps[r*d+from:][:n], in[r*d+from:][:n],
				x.w[2][from:to], key, query, tmp)
		}
		if before == 0 || mark[from] != float32(before) {
			if p.HasState(p.Ends) {
				move(state[from:], start[from:])
			} else {
				move(state[from:], nil)
			}
			for r := range before {
				row(unused, unused, r, keys[r*size:][:size], keys[r*size:][:size])
			}
		}
		if p.Ends {
			move(start[from:], state[from:])
		}
		for t := range p.Rows {
			r, at := p.At+t, (p.Row+t)*d
			for c := from; c < to; c++ {
				step, _ := simd.Decay(0, x.in[1][at+c], x.w[1][c])
				steps[r*d+c], in[r*d+c] = step, step*x.in[0][at+c]
			}
			key := (p.Row + t) * size
			row(x.out[at+from:at+to], x.in[0][at+from:at+to], r, x.keys[key:key+size], x.queries[key:key+size])
		}
		for c := from; c < to; c++ {
			mark[c] = float32(p.At + p.Rows)
		}
	}
	return nil
}

// poolRows makes a row of several rows.
func poolRows(e *executable, n *graph.Node, out, x []float32) error {
	a := n.Attr.(graph.PoolAttr)
	first, err := e.step.Pooled(a)
	if err != nil {
		return err
	}
	d, size := n.In[0].Shape.Size(), n.Shape.Size()
	for i, f := range first {
		y, rows := out[i*size:(i+1)*size], x[int(f)*d:(int(e.step.Outputs[i])+1)*d]
		copy(y, rows)
		switch a.Pooling {
		case graph.Mean:
			for r := d; r < len(rows); r += d {
				simd.Add(y, y, rows[r:r+d])
			}
			for j := range y {
				y[j] /= float32(len(rows) / d)
			}
		case graph.Woven:
			for j, v := range rows {
				y[j%d*a.Count+j/d] = v
			}
		}
	}
	return nil
}

// headLinear multiplies each head by its own matrix. Threads divide the heads, and of few rows their columns.
func (e *executable) headLinear(n *graph.Node, out, x []float32) (func() error, error) {
	heads, k, d := n.Shape[0], n.In[0].Shape.Last(), n.Shape.Last()
	if n.W[0].Order != nil {
		return nil, errors.New("the weight's rows are in another order")
	}
	matrices, floats := make([]*graph.Weight, heads), e.b.floats[n.W[0]]
	for h := range matrices {
		matrices[h] = n.W[0].Matrix(h)
	}
	pieces := (d + floatRows - 1) / floatRows // of a head
	body := func(worker, from, to int) error {
		s, rows := &e.scratch[worker], e.count(n)
		s.acc = grow(s.acc, rows*k)
		for last := -1; from < to; from++ {
			h, i := from/pieces, from%pieces*floatRows
			for t := 0; t < rows && h != last; t++ {
				copy(s.acc[t*k:(t+1)*k], x[(t*heads+h)*k:])
			}
			m, end := matrices[h], min(i+floatRows, d)
			if last = h; floats != nil {
				simd.DotsF32(out[h*d+i:], heads*d, floats[(h*d+i)*k:(h*d+end)*k], s.acc[:rows*k], k)
				continue
			}
			w := m.Span(i, end, &s.rows)
			if err := s.product(out[h*d+i:], heads*d, m.DType, w, s.acc[:rows*k], k); err != nil {
				return err
			}
		}
		return nil
	}
	return func() error {
		switch rows := e.count(n); {
		case rows == 0:
			return nil
		case rows > fewRows:
			return e.b.pool.run(heads*pieces, pieces, body)
		}
		return e.b.pool.run(heads*pieces, 1, body)
	}, nil
}
