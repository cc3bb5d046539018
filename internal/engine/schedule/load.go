package schedule

import "github.com/karat-run/karat/internal/graph"

// A step in which sequences decode is the gap between two of their tokens. Rows far from the beginning of a prompt
// attend to more positions, and take longer. For example, at position 4,096 of a model of a billion weights in Q4_0 a
// row takes twice as long. So such a step is also bounded in work.
const (
	// dear is the number of products of quantized integers in the time of a product in floats, of attention or of
	// weights. (Measured with AMX, one layer of 2048 by 8192 in Q4_0: 4.2. In BF16 it is 0.9.)
	dear = 4

	// mostWork is the maximum work of a step in which sequences decode, in steps of a prompt's first rows.
	mostWork = 1.5

	// leastShare is the part of Options.Rows given to a prompt in any case: an eighth.
	leastShare = 8
)

// Load is the cost of a row. A row at position 0 costs 1.
type Load []reach

// reach is the cost of attention to the positions of a window.
type reach struct {
	window int // positions; 0 is all
	each   float64
}

// NewLoad returns the cost of g's rows by their products. Logits do not count, since few rows of a prompt have any.
func NewLoad(g *graph.Graph) (l Load) {
	weights := 0.0
	for _, n := range g.Nodes {
		share := 1.0
		switch n.Op {
		case graph.Embed, graph.EmbedPos:
			continue // a single row of a table
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
			if !w.CodeType().Quantized() {
				products *= dear
			}
			weights += products
		}
	}
	return l.over(weights)
}

// with returns l with the attention of another node.
func (l Load) with(window int, each float64) Load {
	for i := range l {
		if l[i].window == window {
			l[i].each += each
			return l
		}
	}
	return append(l, reach{window, each})
}

// over returns l with costs divided by the cost of the weights.
func (l Load) over(weights float64) Load {
	for i := range l {
		l[i].each /= max(weights, 1)
	}
	return l
}

// row returns the cost of a row at a position.
func (l Load) row(at int) float64 {
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

// rows returns the cost of n rows from a position on.
func (l Load) rows(at, n int) (cost float64) {
	for i := range n {
		cost += l.row(at + i)
	}
	return cost
}

// fit returns the number of rows, at most n from a position on, with a cost of at most left.
func (l Load) fit(at, n int, left float64) int {
	for i := range n {
		if left -= l.row(at + i); left < 0 {
			return i
		}
	}
	return n
}
