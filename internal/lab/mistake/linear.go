package mistake

import (
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

func (p *Proposer) embedHypotheses(n *graph.Node) []*Hypothesis {
	cause := "embed_scale"
	if n != p.g.Nodes[0] {
		cause = "ple_scale"
	}
	right := float64(n.Attr.(graph.EmbedAttr).Scale)
	width := float64(n.Shape.Size())
	all := []*Hypothesis{fitting(cause, n, Fit{Right: right, Least: right / 1000, Most: right * 1000,
		Guesses: []float64{1, math.Sqrt(width), width, 1 / math.Sqrt(width), 0.5 * right, 2 * right, right * right},
		Make: func(v float64) *Hypothesis {
			return edit(cause, n, fmt.Sprintf("scales the embedding by %.6g, not %.6g", v, right), detail{"factor": v, "right": right},
				func(s *reference.Spec) { s.By = v })
		}})}
	return append(all, p.normed(n), edit("weight_missing", n, "gives zeros for the embedding", detail{"weight": "zero"}, func(s *reference.Spec) { s.Times = 0 }))
}

func (p *Proposer) linearHypotheses(n *graph.Node) []*Hypothesis {
	w := n.W[0]
	rows, cols := w.Rows(), w.Shape.Last()
	all := []*Hypothesis{
		edit("weight_transposed", n, fmt.Sprintf("reads the bytes of the weight [%d, %d] as those of its transpose", rows, cols), detail{},
			func(s *reference.Spec) { s.Alter = transposed }),
		unlikely(0.5, edit("weight_missing", n, "multiplies by zeros", detail{"weight": "zero"}, func(s *reference.Spec) { s.Times = 0 })),
	}
	all = append(all, p.otherWeights(n)...)
	all = append(all, p.pairedRows(n)...)
	all = append(all, layouts(n)...)
	if n.Shape.Size() == n.In[0].Shape.Size() {
		all = append(all, unlikely(1, edit("weight_missing", n, "gives on its input", detail{"weight": "identity"}, passes(0))))
	}
	cause := "weight_scale"
	if n.Layer < 0 && n == p.Head() {
		cause = "logits_scale"
	}
	all = append(all, unlikely(0.5, fitting(cause, n, Fit{Right: 1, Least: 1e-3, Most: 1e3, Guesses: factors(n), Make: func(v float64) *Hypothesis {
		return edit(cause, n, fmt.Sprintf("gives %.6g times the product", v), detail{"factor": v}, func(s *reference.Spec) { s.Times = v })
	}})))
	if cause == "logits_scale" && w != p.g.Nodes[0].W[0] && slices.Equal(w.Shape, p.g.Nodes[0].W[0].Shape) {
		all = append(all, edit("head_wrong", n, "multiplies by the embedding, not by the head's own weight", detail{"weight": "token_embd"},
			func(s *reference.Spec) { s.W = p.g.Nodes[0].W }))
	}
	if n == p.Head() {
		all = append(all, p.lostLogits(n)...)
	}
	return all
}

// lostLogits returns a head whose last rows are not there, if the engine's last logits are
// always 0.
func (p *Proposer) lostLogits(n *graph.Node) []*Hypothesis {
	w, end := n.Shape.Size(), p.Logits
	if end == 0 || end == w {
		return nil
	}
	return []*Hypothesis{edit("head_wrong", n, fmt.Sprintf("multiplies by the first %d of the head's %d rows alone", end, w), detail{"rows": float64(end)}, func(s *reference.Spec) {
		s.Func = func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
			y, err := s.Plain(e, rows)
			for at := 0; at < len(y); at += w {
				clear(y[at+end : at+w])
			}
			return y, err
		}
	})}
}

// factors returns constants that ports forget or repeat.
func factors(n *graph.Node) []float64 {
	d := float64(n.In[0].Shape.Size())
	out := []float64{0.5, 2, -1, 1 / math.Sqrt2, math.Sqrt2, 0.25, 4, math.Sqrt(d), 1 / math.Sqrt(d), d, 1 / d}
	return append(out, 1.0/16, 16)
}

// transposed reads w [rows, cols] as if its bytes were those of [cols, rows].
func transposed(w []float64, rows, cols int) []float64 {
	y := make([]float64, len(w))
	for i := range rows {
		for j := range cols {
			y[i*cols+j] = w[j*rows+i]
		}
	}
	return y
}

// otherWeights returns weights of n's shape that may be in its place: of the same role in
// other layers, and of other roles in this one.
func (p *Proposer) otherWeights(n *graph.Node) []*Hypothesis {
	var all []*Hypothesis
	for _, x := range p.g.Nodes {
		if x == n || x.Op != graph.Linear || n.Layer < 0 || x.Layer < 0 || !slices.Equal(x.W[0].Shape, n.W[0].Shape) {
			continue
		}
		change := func(s *reference.Spec) { s.W = x.W }
		switch {
		case Role(x) == Role(n):
			all = append(all, unlikely(0.1*math.Abs(float64(x.Layer-n.Layer)), edit("weight_wrong_layer", n, fmt.Sprintf("multiplies by the weight of layer %d", x.Layer),
				detail{"apart": float64(x.Layer - n.Layer)}, change)))
		case x.Layer == n.Layer && isPair(n, x, "ffn_gate", "ffn_up"):
			all = append(all, edit("gate_up_swapped", n, "multiplies by the weight of "+Role(x), detail{}, change))
		case x.Layer == n.Layer:
			all = append(all, edit("weight_wrong_layer", n, "multiplies by the weight of "+Role(x), detail{"tensor": Role(x)}, change))
		}
	}
	return all
}

// pairedRows returns rows in the order of the other style of rope, of a product without a tap, of which
// no order can be read off.
func (p *Proposer) pairedRows(n *graph.Node) []*Hypothesis {
	dim := p.HeadDim(n)
	with := n
	for _, x := range p.Readers(n) {
		if x.Op == graph.Add && len(x.W) > 0 && len(x.In) == 1 { // its bias, which lies in that order, too
			dim, with = p.HeadDim(x), x
		}
	}
	if Role(n) != "attn_q" && Role(n) != "attn_k" || dim < 4 || p.Tapped(n) || p.Tapped(with) {
		return nil
	}
	paired, unpaired := make([]int, n.Shape.Size()), make([]int, n.Shape.Size())
	for i := range paired {
		h, k := i/dim*dim, i%dim
		paired[i], unpaired[i] = h+k/2+k%2*(dim/2), h+k%(dim/2)*2+k/(dim/2)
	}
	var all []*Hypothesis
	for _, order := range [][]int{paired, unpaired} {
		all = append(all, unlikely(0.2, edit("weight_permuted", n, "gives the rows of the weight in another order"+DescribeOrder(order, dim), detail{"order": "permuted"}, Reordered(order))))
		if with != n {
			h := unlikely(0.1, edit("weight_permuted", n, "gives the rows of the weight and its bias in another order"+DescribeOrder(order, dim), detail{"order": "permuted"}, func(*reference.Spec) {}))
			h.Edits[with] = []reference.Edit{Reordered(order)}
			all = append(all, h)
		}
	}
	return all
}

// isPair reports whether two nodes of a layer have those roles, either way.
func isPair(a, b *graph.Node, x, y string) bool {
	return Role(a) == x && Role(b) == y || Role(a) == y && Role(b) == x
}

// layouts returns rows of a weight read at a wrong distance: rows that were padded to
// whole blocks read as if they followed each other, or the reverse.
func layouts(n *graph.Node) []*Hypothesis {
	cols := n.W[0].Shape.Last()
	var all []*Hypothesis
	for _, block := range []int{32, 64, 128, 256} {
		padded := (cols + block - 1) / block * block
		if padded == cols {
			continue
		}
		all = append(all,
			unlikely(0.2, edit("weight_layout", n, fmt.Sprintf("reads rows that are padded to blocks of %d as if they followed each other", block),
				detail{"block": float64(block), "read": "packed"}, func(s *reference.Spec) { s.Alter = strided(padded, cols) })),
			unlikely(0.2, edit("weight_layout", n, fmt.Sprintf("reads rows that follow each other as if they were padded to blocks of %d", block),
				detail{"block": float64(block), "read": "row-wise"}, beyond(cols, padded))))
	}
	return all
}

// strided reads rows at a distance of read that were laid out at a distance of laid;
// what lies past the end is 0.
func strided(laid, read int) func(w []float64, rows, cols int) []float64 {
	return func(w []float64, rows, cols int) []float64 {
		buffer := make([]float64, max(rows*laid, rows*read)+cols)
		for i := range rows {
			copy(buffer[i*laid:], w[i*cols:(i+1)*cols])
		}
		y := make([]float64, 0, rows*cols)
		for i := range rows {
			y = append(y, buffer[i*read:i*read+cols]...)
		}
		return y
	}
}

// beyond reads rows at a distance that is larger than theirs. What lies past the weight's end nobody
// knows, so the features of rows that do are left as the engine has them.
func beyond(laid, read int) reference.Edit {
	return func(s *reference.Spec) {
		s.Alter = strided(laid, read)
		s.Func = func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
			y, err := s.Plain(e, rows)
			width := s.Node.Shape.Size()
			first := beforeEnd(width, laid, read)
			for i, row := range rows {
				if err != nil || !e.Known(s.Node, row) {
					continue
				}
				var own []float64
				if own, err = e.Value(s.Node, []int{row}); err == nil {
					copy(y[i*width+first:(i+1)*width], own[first:])
				}
			}
			return y, err
		}
	}
}

// beforeEnd returns how many features have rows that end before the weight does, if there are enough to compare, else
// all. Nearly anything holds in a few, and the first is the same at any distance. A sixteenth of them, read wrongly,
// lies about a third of the row's norm off, which is no rounding.
func beforeEnd(width, laid, read int) int {
	if first := min((width*laid-laid)/read+1, width); first >= max(8, width/16) {
		return first
	}
	return width
}

func DescribeOrder(order []int, dim int) string {
	if dim == 0 || len(order)%dim != 0 {
		return ""
	}
	within, paired, unpaired := true, true, true
	for i, j := range order {
		within = within && i/dim == j/dim
		h, k := i/dim*dim, i%dim
		paired = paired && j == h+k/2+k%2*(dim/2)
		unpaired = unpaired && j == h+k%(dim/2)*2+k/(dim/2)
	}
	switch {
	case paired:
		return ": interleaved for rotary pairs"
	case unpaired:
		return ": halves made of interleaved pairs"
	case within:
		return ", within heads"
	}
	return ""
}

// Reordered returns a node's features in another order.
func Reordered(order []int) reference.Edit {
	w := len(order)
	return func(s *reference.Spec) {
		s.Func = func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
			y, err := s.Plain(e, rows)
			if err != nil {
				return nil, err
			}
			out := make([]float64, len(y))
			for i := range y {
				out[i] = y[i/w*w+order[i%w]]
			}
			return out, nil
		}
	}
}

// Superblock is how many values the largest blocks of quantized types hold.
const Superblock = 256
