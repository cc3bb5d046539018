package graph

import (
	"slices"

	"github.com/karat-run/karat/internal/tensor"
)

// stateful records an operation with a state of its own.
func (b Builder) stateful(op Op, s State, shape tensor.Shape, w []*Weight, in ...*Node) *Node {
	s.Layer = b.layer
	return b.add(&Node{Op: op, Shape: shape, In: in, W: w, State: &s})
}

// scan records a scan of values x with keys and queries in groups, and a number for each head.
func (b Builder) scan(op Op, x, keys *Node, w []*Weight, in ...*Node) *Node {
	n := keys.Shape.Last()
	s := State{Name: "scan", Size: x.Shape.Size() * n,
		Rows: []Run{{keys.Shape[0], n}, {x.Shape[0], x.Shape.Last()}, {x.Shape[0], 1}, {x.Shape[0], 1}}}
	return b.stateful(op, s, x.Shape, w, in...)
}

// mostInputs bounds a convolution: its state follows from the rows of one page.
const mostInputs = 64

// checkAll checks the shapes of a node's weights.
func (b Builder) checkAll(n *Node, shapes ...tensor.Shape) {
	for i, w := range n.W {
		b.check(n, w, shapes[i])
	}
}

// Conv returns a causal convolution of each channel with its own row of w [channels, kernel]: the sum of w[c][j]·x[c]
// at the position kernel-1-j before, plus bias, which may be nil. Before a sequence's first position everything is 0.
// The state is the last kernel-1 inputs. (Mamba's, LFM2's and Qwen 3.5's short convolutions)
//
// The order of the sum is fixed: from the oldest input on, the bias last.
func (b Builder) Conv(w, bias *Weight, x *Node, kernel int) *Node {
	d, list := x.Shape.Size(), []*Weight{w}
	if bias != nil {
		list = append(list, bias)
	}
	n := b.stateful(Conv, State{Name: "conv", Size: (max(kernel, 1) - 1) * d, Rows: []Run{{1, d}}}, x.Shape, list, x)
	if kernel < 2 || kernel > mostInputs {
		b.errorf(n, "a convolution of %d inputs", kernel)
	}
	b.checkAll(n, tensor.Shape{d, kernel}, tensor.Shape{d})
	return n
}

// SSMScan returns Mamba 2's selective scan. For each head of x {heads, dim}, with dt {heads}, the groups of b and c
// {groups, n}, shared by heads in equal runs, and weights a, dtBias and d [heads], the state s [dim, n] becomes, row by
// row,
//
//	t = softplus(dt + dtBias)
//	s = exp(a·t)·s + (t·x)⊗b
//	y = s·c + d·x
//
// a is negative: Hugging Face's -exp(A_log). Backends compute a page's rows from the state at its start: a step's cuts
// do not show. (Dao and Gu 2024, arXiv:2405.21060)
func (b Builder) SSMScan(a, dtBias, d *Weight, x, dt, bs, cs *Node) *Node {
	heads := x.Shape[0]
	n := b.scan(SSMScan, x, bs, []*Weight{a, dtBias, d}, x, dt, bs, cs)
	one := tensor.Shape{heads}
	b.checkAll(n, one, one, one)
	if len(x.Shape) != 2 || len(bs.Shape) != 2 || !slices.Equal(bs.Shape, cs.Shape) || dt.Shape.Size() != heads ||
		heads%bs.Shape[0] != 0 {
		b.errorf(n, "x %v, dt %v, b %v, c %v", []int(x.Shape), []int(dt.Shape), []int(bs.Shape), []int(cs.Shape))
	}
	return n
}

// DeltaScan returns the scan of the gated delta rule. For each head of v {heads, dim}, with a and beta {heads}, the
// heads of q and k {groups, n}, shared by heads of v in equal runs, and weights decay and bias [heads], the state s [n,
// dim] becomes, row by row,
//
//	s = exp(decay·softplus(a + bias))·s
//	s = s + k⊗(sigmoid(beta)·(v - k·s))
//	y = q·s
//
// decay is negative: Hugging Face's -exp(A_log). q and k are normed and scaled before. (Yang, Kautz and Hatamizadeh
// 2024, arXiv:2412.06464)
func (b Builder) DeltaScan(decay, bias *Weight, q, k, v, a, beta *Node) *Node {
	heads := v.Shape[0]
	n := b.scan(DeltaScan, v, k, []*Weight{decay, bias}, q, k, v, a, beta)
	b.checkAll(n, tensor.Shape{heads}, tensor.Shape{heads})
	if len(v.Shape) != 2 || len(k.Shape) != 2 || !slices.Equal(q.Shape, k.Shape) || a.Shape.Size() != heads ||
		beta.Shape.Size() != heads || heads%k.Shape[0] != 0 {
		b.errorf(n, "q %v, k %v, v %v, a %v, beta %v", []int(q.Shape), []int(k.Shape), []int(v.Shape), []int(a.Shape),
			[]int(beta.Shape))
	}
	return n
}
