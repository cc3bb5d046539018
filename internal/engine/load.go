package engine

import "github.com/karat-run/karat/internal/graph"

// A step in which sequences decode is the gap between two of their tokens. Rows far behind the
// beginning of a prompt attend to more positions, and take longer: at position 4,096 of a model of a
// billion weights in Q4_0, twice as long. So such a step is bounded in work, too.
const (
	// dear is how many products of quantized integers take as long as one of attention, or of weights
	// in floats. (Measured with AMX, one layer of 2048 by 8192 in Q4_0: 4.2. In BF16 it is 0.9.)
	dear = 4

	// most is how much longer than a step of a prompt's first rows one may take.
	most = 1.5

	// least is what share of Options.Chunk a prompt gets nevertheless: an eighth.
	least = 8
)

// load is what a row costs. One at position 0 costs 1.
type load []reach

// reach is what attention to positions adds.
type reach struct {
	window int // 0 for all
	each   float64
}

// loadOf is the load of g's rows, by the products that they take. Logits are left out: of a prompt
// few are wanted.
func loadOf(g *graph.Graph) (l load) {
	weights := 0.0
	for _, n := range g.Nodes {
		share := 1.0
		switch n.Op {
		case graph.Embed, graph.EmbedPos:
			continue // one row of a table
		case graph.Rows, graph.Pool:
			return l.over(weights)
		case graph.Attention:
			l = l.with(n.Attr.(graph.AttentionAttr).KV.Window, dear*float64(n.In[0].Shape.Size()+n.Shape.Size()))
		case graph.Experts:
			share = float64(n.In[1].Shape[0]) / float64(n.W[0].Shape[0])
		}
		for _, w := range n.W {
			if w == nil || len(w.Shape) < 2 {
				continue
			}
			products := share * float64(w.Shape.Size())
			if !w.DType.Quantized() {
				products *= dear
			}
			weights += products
		}
	}
	return l.over(weights)
}

// with is l and one more node's attention.
func (l load) with(window int, each float64) load {
	for i := range l {
		if l[i].window == window {
			l[i].each += each
			return l
		}
	}
	return append(l, reach{window, each})
}

// over is l where a row's weights cost so much.
func (l load) over(weights float64) load {
	for i := range l {
		l[i].each /= max(weights, 1)
	}
	return l
}

// row is the cost of a row at a position.
func (l load) row(at int) float64 {
	cost := 1.0
	for _, x := range l {
		n := at + 1
		if x.window > 0 {
			n = min(n, x.window)
		}
		cost += x.each * float64(n)
	}
	return cost
}

// rows is the cost of n rows from a position on.
func (l load) rows(at, n int) (cost float64) {
	for i := range n {
		cost += l.row(at + i)
	}
	return cost
}

// fit is how many of n rows from a position on cost no more than left.
func (l load) fit(at, n int, left float64) int {
	for i := range n {
		if left -= l.row(at + i); left < 0 {
			return i
		}
	}
	return n
}

// share is how many of n rows w gets in a step of which r is left: all unless others decode there.
func (e *Engine) share(w *work, n int, r *room) int {
	if !r.decoding || e.entire || w.decodes() {
		return n
	}
	left := most*float64(e.chunk) - r.load
	return min(n, max(e.load.fit(w.seq.pages.Len(), n, left), e.chunk/least, 1))
}
