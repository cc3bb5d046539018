package graph

import (
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/tensor"
)

// SliceAttr is where a Slice begins in the last dimension of its input.
type SliceAttr struct{ Offset int }

// String returns the attribute in Print's form.
func (a SliceAttr) String() string { return fmt.Sprintf("offset=%d", a.Offset) }

// ScalePosAttr is a factor growing with the position in steps: 1 + Beta·log(1 + floor((pos + Shift)/Every)). Attention
// over long contexts multiplies queries by it. Shift is 1 in llama4 and 0 in ministral3.
type ScalePosAttr struct {
	Beta         float64
	Every, Shift int
}

// String returns the attribute in Print's form.
func (a ScalePosAttr) String() string {
	return fmt.Sprintf("beta=%.7g every=%d shift=%d", a.Beta, a.Every, a.Shift)
}

// LayerNorm subtracts the mean of the last dimension, divides by the standard deviation, and multiplies by w and adds
// bias, either of which may be nil; eps is added to the variance. (Ba et al. 2016, arXiv:1607.06450)
func (b Builder) LayerNorm(w, bias *Weight, x *Node, eps float32) *Node {
	n := &Node{Op: LayerNorm, Shape: x.Shape, In: []*Node{x}, Attr: NormAttr{Eps: eps}}
	if w == nil {
		if n = b.add(n); bias != nil {
			b.errorf(n, "a bias, and no weight")
		}
		return n
	}
	n.Name, n.HF = w.GGUF, w.HF+".out"
	n = b.add(n)
	for _, v := range []*Weight{w, bias} {
		if v != nil {
			n.W = append(n.W, v)
			b.check(n, v, tensor.Shape{x.Shape.Last()})
		}
	}
	return n
}

// L2Norm divides the last dimension by its length: x·rsqrt(Σx² + eps). (qwen3_next's l2norm. The L2 norm of llama4
// divides by the root of the mean square, as Normalize does.)
func (b Builder) L2Norm(x *Node, eps float32) *Node {
	return b.add(&Node{Op: L2Norm, Shape: x.Shape, In: []*Node{x}, Attr: NormAttr{Eps: eps}})
}

// Concat puts the last dimensions of x and y side by side: {heads, n} and {heads, m} are {heads, n+m}.
func (b Builder) Concat(x, y *Node) *Node {
	last := len(x.Shape) - 1
	shape := append(slices.Clone(x.Shape[:last]), x.Shape.Last()+y.Shape.Last())
	n := b.add(&Node{Op: Concat, Shape: shape, In: []*Node{x, y}})
	if len(y.Shape) != len(x.Shape) || !slices.Equal(x.Shape[:last], y.Shape[:last]) {
		b.errorf(n, "shapes %v and %v", []int(x.Shape), []int(y.Shape))
	}
	return n
}

// Slice returns n elements of the last dimension from offset on: of {heads, dim}, {heads, n}.
func (b Builder) Slice(x *Node, offset, n int) *Node {
	last := len(x.Shape) - 1
	shape := append(slices.Clone(x.Shape[:last]), max(n, 1))
	y := b.add(&Node{Op: Slice, Shape: shape, In: []*Node{x}, Attr: SliceAttr{offset}})
	if offset < 0 || n < 1 || n > x.Shape.Last() || offset > x.Shape.Last()-n {
		b.errorf(y, "%d elements from %d on, of %d", n, offset, x.Shape.Last())
	}
	return y
}

// EmbedPos looks up the rows' positions in w [positions, dim]. A step at a later position is refused.
func (b Builder) EmbedPos(w *Weight, positions, dim int) *Node {
	return b.weighted(EmbedPos, w, tensor.Shape{positions, dim}, tensor.Shape{dim}, nil)
}

// ScalePos multiplies each row by the factor of its position.
func (b Builder) ScalePos(x *Node, a ScalePosAttr) *Node {
	n := b.add(&Node{Op: ScalePos, Shape: x.Shape, In: []*Node{x}, Attr: a})
	if a.Every < 1 || a.Shift < 0 {
		b.errorf(n, "steps of %d positions, shifted by %d", a.Every, a.Shift)
	}
	return n
}

// Act returns act(x).
func (b Builder) Act(act Activation, x *Node) *Node {
	return b.add(&Node{Op: Act, Shape: x.Shape, In: []*Node{x}, Attr: ActAttr{Act: act}})
}

// LayerAs does Layer's work for families with layers not named model.layers in PyTorch, but modules: transformer.h.
func (b Builder) LayerAs(modules string, i int) Builder { return b.Block("blk", modules, i) }

// Block narrows the scope to the i-th layer of a part of a model, named so in the two formats: v.blk, visual.blocks.
func (b Builder) Block(gguf, hf string, i int) Builder {
	return Builder{b.r, fmt.Sprintf("%s.%d", gguf, i), fmt.Sprintf("%s.%d", hf, i), i}
}
