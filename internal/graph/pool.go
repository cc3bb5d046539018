package graph

import (
	"github.com/karat-run/karat/internal/tensor"
)

// Pooling is the way of making one row of several.
type Pooling uint8

const (
	Mean   Pooling = iota // the mean of all rows
	First                 // the first row: of a sequence, BERT's [CLS]
	Joined                // rows side by side: [count, features]
	Woven                 // each feature of all rows side by side: [features, count]
)

func (p Pooling) String() string { return [...]string{"mean", "first", "joined", "woven"}[p] }

// PoolAttr is the way of pooling rows.
type PoolAttr struct {
	Pooling Pooling
	Count   int // of rows pooled into a wanted row, which is the last; 0 for all rows of the sequence
}

// String returns the attribute in Print's form.
func (a PoolAttr) String() string { return "pooling=" + a.Pooling.String() + set("count", a.Count) }

// Pool makes one row of all rows of a sequence. Pool takes the place of Outputs: the result has a row for each wanted
// row, each the last of its sequence. All of the sequence's rows must be in the step, from position 0 on, or the step
// fails: an encoder's prompt is not cut. (For the last row alone Outputs is enough.)
func (b Builder) Pool(p Pooling, x *Node) *Node {
	return b.add(&Node{Op: Pool, Shape: x.Shape, In: []*Node{x}, Attr: PoolAttr{Pooling: p}})
}

// Fold makes one row of each wanted row and the rows before, count in all, of one sequence. A step wants the last of
// each run of count rows: a picture's patches become fewer.
func (b Builder) Fold(p Pooling, count int, x *Node) *Node {
	shape := x.Shape
	if p == Joined || p == Woven {
		shape = tensor.Shape{count * x.Shape.Size()}
	}
	n := b.add(&Node{Op: Pool, Name: join(b.gguf, "fold"), Shape: shape, In: []*Node{x},
		Attr: PoolAttr{Pooling: p, Count: count}})
	if count < 1 || count > 1<<10 {
		n.Shape = x.Shape
		b.errorf(n, "%d rows become a row", count)
	}
	return n
}

// HeadLinear multiplies each head of x {heads, in} by the transpose of its own matrix of w [heads, out, in]: {heads,
// out}. Latent attention's absorbed projections are such products. (DeepSeek-AI 2024, arXiv:2405.04434, section 2.1;
// attn_k_b and attn_v_b in GGUF)
func (b Builder) HeadLinear(w *Weight, x *Node, out int) *Node {
	n := b.weighted(HeadLinear, w, tensor.Shape{x.Shape[0], out, x.Shape.Last()}, tensor.Shape{x.Shape[0], out}, nil, x)
	if len(x.Shape) != 2 {
		b.errorf(n, "shape %v, want heads", []int(x.Shape))
	}
	return n
}
