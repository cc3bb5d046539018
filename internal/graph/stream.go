package graph

import (
	"fmt"

	"github.com/karat-run/karat/internal/tensor"
)

// MixAttr is a number added to each weight of a Mix.
type MixAttr struct{ Plus float64 }

// String returns the attribute in Print's form.
func (a MixAttr) String() string { return fmt.Sprintf("plus=%.7g", a.Plus) }

// Mix returns m sums of the n vectors of x {n, d}: y[i] = Σ (weights[i·n+j] + plus)·x[j], for j in order, weights being
// {m·n}. (AltUp: Baykal and others 2023, arXiv:2301.13310)
func (b Builder) Mix(weights, x *Node, m int, plus float64) *Node {
	n := b.add(&Node{Op: Mix, Shape: tensor.Shape{max(m, 1), x.Shape.Last()}, In: []*Node{weights, x},
		Attr: MixAttr{plus}})
	if len(x.Shape) != 2 || m < 1 || weights.Shape.Size() != m*x.Shape[0] {
		b.errorf(n, "%d weights for %d sums of %v", weights.Shape.Size(), m, []int(x.Shape))
	}
	return n
}

// Match scales the vectors of x {n, d} to the root mean square of z {d}: x·rms(z)/√max(Σx²/d, eps). (Gemma 3n)
func (b Builder) Match(x, z *Node, eps float32) *Node {
	n := b.add(&Node{Op: Match, Shape: x.Shape, In: []*Node{x, z}, Attr: NormAttr{Eps: eps}})
	if z.Shape.Size() != x.Shape.Last() {
		b.errorf(n, "%v to the root mean square of %v", []int(x.Shape), []int(z.Shape))
	}
	return n
}

// Above returns the excess of each number over the vector's mean and by deviations: max(0, x - (mean +
// by·deviation)), the deviation being √(Σ(x - mean)²/d). (Gemma 3n's activation sparsity)
func (b Builder) Above(x *Node, by float64) *Node {
	return b.add(&Node{Op: Above, Shape: x.Shape, In: []*Node{x}, Attr: ScaleAttr{by}})
}
