package bench

import (
	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/tensor"
)

// cost is the least reads and operations of a model.
type cost struct {
	weights     int64      // bytes read by a row
	all         int64      // bytes of all weights, read by many rows
	experts     bool       // parts of all, chosen by row
	row, output operations // of each row, and of each row of logits besides
	stores      []store
	element     int64 // bytes, of the stores
}

// store is keys and values read by an attention; older is the bytes of a position in 8 bits, 0 if all are alike.
type store struct {
	*graph.KV
	older int64
}

// operations counts two for each weight and row, by the instructions of the precision. Attention is left out.
type operations struct{ ints, floats float64 }

func costOf(g *graph.Graph, n numerics.Numerics) (c cost) {
	c.element = n.KVBytes()
	into := &c.row
	for _, node := range g.Nodes {
		share := 1.0
		switch node.Op {
		case graph.Embed, graph.EmbedPos:
			continue // a row of a table
		case graph.Rows, graph.Pool:
			into = &c.output
		case graph.Attention:
			s := store{KV: node.Attr.(graph.AttentionAttr).KV}
			if n.KV == "q8_0" && backend.IsNarrow(g, s.KV) {
				s.older = backend.NarrowBytes(s.KV)
			}
			c.stores = append(c.stores, s)
		case graph.Experts:
			c.experts = true
			share = float64(node.In[1].Shape[0]) / float64(node.W[0].Shape[0])
		}
		for _, w := range node.W {
			c.weights += int64(share * float64(len(w.Data)))
			c.all += int64(len(w.Data))
			if len(w.Shape) > 1 {
				into.add(&w.Tensor, share, n)
			}
		}
	}
	return c
}

func (o *operations) add(t *tensor.Tensor, share float64, n numerics.Numerics) {
	all := 2 * share * float64(t.Shape.Size())
	if t.DType.BlockSize() == 1 || n.Precision != "fast" {
		o.floats += all
	} else {
		o.ints += all
	}
}

// seconds returns the least time of a test, for its memory and for its products, at so many bytes and
// operations a second. Both are 0 where rows share an unknown number of experts.
func (c *cost) seconds(t *Result, read, ints, floats float64) (memory, compute float64) {
	of := func(o operations) float64 { return o.ints/ints + o.floats/floats }
	sequences := float64(t.Parallel)
	if t.Prompt > 0 {
		return float64(c.weights) / read, sequences * (float64(t.Prompt)*of(c.row) + of(c.output))
	}
	if c.experts && t.Parallel > 1 {
		return 0, 0
	}
	bytes := float64(t.Tokens) * float64(c.weights)
	for i := range t.Tokens {
		bytes += sequences * float64(c.stored(t.Depth+i+1))
	}
	return bytes / read, sequences * float64(t.Tokens) * (of(c.row) + of(c.output))
}

// stored returns the bytes of keys and values seen by the last of so many positions.
func (c *cost) stored(positions int) (bytes int64) {
	for _, s := range c.stores {
		n := positions
		if s.Window > 0 {
			n = min(n, s.Window)
		}
		older := 0
		if s.older > 0 {
			first := max(positions-n, kv.PageSize) // behind the window, and behind the first page
			older = max(0, backend.RecentPage(positions-1)*kv.PageSize-first)
		}
		bytes += int64(older)*s.older + int64(n-older)*backend.PositionBytes(s.KV, c.element)
	}
	return bytes
}
