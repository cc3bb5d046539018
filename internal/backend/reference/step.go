package reference

import (
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
)

// node computes a node of a step: operations over the step first, then the rest.
func (x *executable) node(n *graph.Node, in [][]float64, s *backend.Step) ([]float64, error) {
	spec, c := x.e.Spec(n), s.Cache.(*cache)
	switch n.Op {
	case graph.Linear:
		y, err := spec.linear(x.e, in[0])
		if err == nil && len(s.Adapters) > 0 {
			x.adapt(n, y, in[0], s)
		}
		return y, err
	case graph.Embed:
		y, err := spec.embed(x.e, s.Tokens)
		if err == nil && n == backend.Input(x.g) {
			x.replace(y, s.Embeddings)
		}
		return y, err
	case graph.EmbedPos:
		return spec.positions(x.e, x.positions)
	case graph.Patches:
		y := make([]float64, len(s.Tokens)*n.Shape.Size())
		x.replace(y, s.Embeddings)
		return y, nil
	case graph.Deepstack:
		y := make([]float64, len(s.Tokens)*n.Shape.Size())
		for i := range s.Tokens {
			widen(y[i*n.Shape.Size():][:n.Shape.Size()], s.Deepstack(n, i))
		}
		x.e.num.store(y)
		return y, nil
	case graph.Interpolate:
		return x.interpolate(n, s)
	case graph.StoreKV:
		return nil, x.store(n.Attr.(*graph.KV), in, s)
	case graph.Attention:
		return x.attention(n, in, s)
	case graph.Choose:
		return x.choose(n, in, s)
	case graph.Rows:
		d := n.Shape.Size()
		y := make([]float64, 0, len(s.Outputs)*d)
		for _, r := range s.Outputs {
			y = append(y, in[0][int(r)*d:][:d]...)
		}
		return y, nil
	case graph.Pool:
		return x.pool(n, in[0], s)
	case graph.Conv, graph.SSMScan, graph.DeltaScan:
		y := make([]float64, 0, len(s.Seqs)*n.Shape.Size())
		for _, p := range pieces(s) {
			part, err := x.recur(n, parted(n, in, p.Row, p.Rows), &p, c)
			if err != nil {
				return nil, err
			}
			y = append(y, part...)
		}
		x.e.num.store(y)
		return y, nil
	case graph.RoPE:
		in = [][]float64{slices.Clone(in[0])}
	case graph.Experts:
		for i := 0; i < len(in[1]); i += 2 {
			if id := int(in[1][i]); id < 0 || id >= n.W[0].Shape[0] {
				return nil, fmt.Errorf("row %d is routed to expert %d of %d", i/n.In[1].Shape.Size(), id,
					n.W[0].Shape[0])
			}
		}
	}
	return spec.rowwise(x.e, in, x.positions)
}

// pieces returns the pieces of s in order of their rows.
func pieces(s *backend.Step) []backend.Piece {
	all := s.Pieces(nil)
	slices.SortFunc(all, func(a, b backend.Piece) int { return a.Row - b.Row })
	return all
}

// parted returns n rows of a node's inputs.
func parted(node *graph.Node, in [][]float64, first, n int) (part [][]float64) {
	for i, x := range in {
		size := node.In[i].Shape.Size()
		part = append(part, x[first*size:(first+n)*size])
	}
	return part
}

// recur computes a piece of a node with a state, row after row, from the state before: kept after the last row
// computed, or made again of the page's inputs.
func (x *executable) recur(n *graph.Node, in [][]float64, p *backend.Piece, c *cache) ([]float64, error) {
	s := c.states[n.State]
	start, page := s.slot(p.Seq.Page(c.class, 0)), s.page(p.Seq.Page(c.class+1, 0))
	run := func(in [][]float64) ([]float64, error) {
		return x.e.recur(n, in, x.e.num, &x.e.Spec(n).Sequence, func(int) []float64 { return page.state })
	}
	before := p.At
	if p.Ends {
		before = kv.PageSize
	}
	if before == 0 || page.at != p.Pos {
		clear(page.state)
		if p.HasState(p.Ends) {
			copy(page.state, start)
		}
		rows := make([][]float64, len(in))
		for i := range before {
			row := page.rows[i*s.width : (i+1)*s.width]
			for j, v := range n.In {
				rows[j], row = append(rows[j], row[:v.Shape.Size()]...), row[v.Shape.Size():]
			}
		}
		if _, err := run(rows); err != nil {
			return nil, err
		}
	}
	if p.Ends {
		copy(start, page.state)
	}
	for i := range p.Rows {
		row := page.rows[(p.At+i)*s.width:]
		for _, v := range parted(n, in, i, 1) {
			row = row[copy(row, v):]
		}
	}
	page.at = p.Pos + p.Rows
	return run(in)
}

// replace puts embeddings other than nil in place of rows of y.
func (x *executable) replace(y []float64, rows [][]float32) {
	for i, row := range rows {
		if row != nil {
			d := len(y) / len(rows)
			part := y[i*d:][:d]
			widen(part, row[:d])
			x.e.num.store(part)
		}
	}
}

// store keeps the keys and values of the step's rows, in being both, or keys with values as a part.
func (x *executable) store(k *graph.KV, in [][]float64, s *backend.Step) error {
	to, err := s.Cache.(*cache).find(k)
	if err != nil {
		return err
	}
	val := in[len(in)-1]
	if k.Latent {
		val = parts(in[0], k.Dim, 0, k.Values())
	}
	key, val := x.e.num.keep(in[0], k.Dim, false), x.e.num.keep(val, k.Values(), true)
	for t, p := range s.Pos {
		to.put(to.slot(s.Seqs[t], int(p)), key[t*to.width:(t+1)*to.width], val[t*to.wide:(t+1)*to.wide])
	}
	return nil
}

// attention computes the rows, sequence by sequence.
func (x *executable) attention(n *graph.Node, in [][]float64, s *backend.Step) ([]float64, error) {
	q := in[0]
	attr, spec := n.Attr.(graph.AttentionAttr), x.e.Spec(n)
	kv := attr.KV
	from, err := s.Cache.(*cache).find(kv)
	if err != nil {
		return nil, err
	}
	sinks, err := spec.Attention.sinks(x.e, n.In[0].Shape[0])
	if err != nil {
		return nil, err
	}
	y := make([]float64, 0, len(s.Pos)*n.Shape.Size())
	for t := 0; t < len(s.Pos); {
		seq, end := s.Seqs[t], t
		first, last := int(s.Pos[t]), 0
		for ; end < len(s.Pos) && s.Seqs[end] == seq; end++ {
			oldest, newest := s.Range(attr, end)
			if !seq.Holds(from.class, oldest) {
				return nil, fmt.Errorf("position %d, which row %d at position %d sees, is no longer held", oldest, end,
					s.Pos[end])
			}
			first, last = min(first, oldest), max(last, newest)
		}
		older := hasOlder(x.e.num, kv)
		if older {
			first = pageOf(first)
		}
		var k, v []float64
		for i := first; i <= last; i++ {
			at := from.slot(seq, i)
			k, v = append(k, from.k[at*from.width:][:from.width]...), append(v, from.v[at*from.wide:][:from.wide]...)
		}
		a := attending{s: spec, e: x.e, keys: x.e.num.keys(k, from.width, kv.Dim), v: v, stride: from.wide,
			first: first, sinks: sinks}
		width, recent := n.In[0].Shape.Size(), -1
		for ; t < end; t++ {
			p := int(s.Pos[t])
			if now := backend.RecentPage(p); older && now != recent {
				keys, values := x.e.num.older(kv, k, v, first, p)
				recent, a.keys, a.v = now, x.e.num.keys(keys, from.width, kv.Dim), values
			}
			oldest, newest := s.Range(attr, t)
			a.chosen = chosenOf(n, in, t)
			y = append(y, a.row(q[t*width:(t+1)*width], p, oldest, newest)...)
		}
	}
	x.e.num.store(y)
	return y, nil
}

// choose computes the rows of a step.
func (x *executable) choose(n *graph.Node, in [][]float64, s *backend.Step) ([]float64, error) {
	index, q, w := n.Attr.(graph.ChooseAttr).Index, n.In[0].Shape.Size(), n.In[1].Shape.Size()
	from, err := s.Cache.(*cache).find(index)
	if err != nil {
		return nil, err
	}
	var y, keys []float64
	for t, p := range s.Pos {
		if !s.Seqs[t].Holds(from.class, 0) {
			return nil, fmt.Errorf("position 0, which row %d at position %d sees, is no longer held", t, p)
		}
		if t == 0 || s.Seqs[t] != s.Seqs[t-1] {
			keys = keys[:0]
		}
		for i := len(keys) / index.Dim; i <= int(p); i++ {
			keys = append(keys, from.k[from.slot(s.Seqs[t], i)*from.width:][:from.width]...)
		}
		y = x.e.Spec(n).Attention.Index.best(y, n.Shape[0], in[0][t*q:][:q], in[1][t*w:][:w], keys,
			min(index.Skip, int(p)), int(p)+1)
	}
	return y, nil
}

// interpolate adds shares of rows of a table by the rows' places.
func (x *executable) interpolate(n *graph.Node, s *backend.Step) ([]float64, error) {
	a := n.Attr.(graph.PlaceAttr)
	grids, err := s.Grids(a)
	if err != nil {
		return nil, err
	}
	y := make([]float64, 0, len(grids)*n.Shape.Size())
	for t, g := range grids {
		if y, err = place(x.e, x.e.Spec(n), y, a.Shares, s.Parts[t], g); err != nil {
			return nil, err
		}
	}
	x.e.num.store(y)
	return y, nil
}

// pool makes a row of each wanted sequence, or of each run of rows.
func (x *executable) pool(n *graph.Node, in []float64, s *backend.Step) ([]float64, error) {
	a, d := n.Attr.(graph.PoolAttr), n.In[0].Shape.Size()
	first, err := s.Pooled(a)
	if err != nil {
		return nil, err
	}
	y := make([]float64, 0, len(first)*n.Shape.Size())
	for i, f := range first {
		last := s.Outputs[i]
		if a.Pooling == graph.First {
			last = f
		}
		y = append(y, pooled(x.e.num, a.Pooling, slices.Clone(in[int(f)*d:int(last+1)*d]), d)...)
	}
	x.e.num.store(y)
	return y, nil
}

// adapt adds to y, the value of Linear n of in, Scale·B(A in) of each adapter of the rows.
func (x *executable) adapt(n *graph.Node, y, in []float64, s *backend.Step) {
	if x.after[n] {
		s = s.Wanted()
	}
	k, out := n.W[0].Shape.Last(), n.Shape.Size()
	for r, b := range s.Adapters {
		if b == nil {
			continue
		}
		for _, part := range b.Parts {
			p := part.Pairs[n.W[0]]
			if p == nil {
				continue
			}
			row := y[r*out:][:out]
			for i, v := range x.times(p.B, x.times(p.A, in[r*k:][:k])) {
				row[i] += x.e.num.round(part.By * p.Scale * v)
			}
			x.e.num.store(row)
		}
	}
}

// times returns w [n, len(v)] times v.
func (x *executable) times(w []float32, v []float64) []float64 {
	k := len(v)
	y, row := make([]float64, len(w)/k), make([]float64, k)
	for i := range y {
		widen(row, w[i*k:][:k])
		y[i] = x.e.num.dot(row, v)
	}
	x.e.num.store(y)
	return y
}
