package graph

import (
	"cmp"
	"slices"

	"github.com/karat-run/karat/internal/tensor"
)

// stateful records an operation with a state of its own.
func (b Builder) stateful(op Op, s State, shape tensor.Shape, w []*Weight, in ...*Node) *Node {
	s.Layer = b.layer
	return b.add(&Node{Op: op, Shape: shape, In: in, W: w, State: &s})
}

// ScanAttr is how the state of a scan decays, and how far DeltaScan corrects it.
type ScanAttr struct {
	Each bool    // each element of a key has a decay of its own, not each head
	Most float64 // of the share of a correction; 0 for 1
}

// String returns the attribute in Print's form.
func (a ScanAttr) String() string { return (flag("each", a.Each) + set("most", a.Most))[1:] }

// scan records a scan of values x with keys and queries in groups, and so many numbers for each head.
func (b Builder) scan(op Op, each int, x, keys *Node, w []*Weight, in ...*Node) *Node {
	n := keys.Shape.Last()
	s := State{Name: "scan", Size: x.Shape.Size() * n,
		Rows: []Run{{keys.Shape[0], n}, {x.Shape[0], x.Shape.Last()}, {x.Shape[0], each}, {x.Shape[0], each}}}
	return b.stateful(op, s, x.Shape, w, in...)
}

// EachDecays reports whether n is a scan with a decay for each element of a key.
func (n *Node) EachDecays() bool {
	a, _ := n.Attr.(ScanAttr)
	return a.Each
}

// MostShare returns the limit of a DeltaScan's shares of a correction.
func (n *Node) MostShare() float64 {
	a, _ := n.Attr.(ScanAttr)
	return cmp.Or(a.Most, 1)
}

// pageRows is the number of a page's rows. The state of a convolution, which is bounded, follows from the rows of one
// page.
const pageRows, mostInputs = 64, 64

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
	return b.ssm(tensor.Shape{x.Shape[0]}, a, dtBias, d, x, dt, bs, cs)
}

// SSMScanEach returns Mamba 1's selective scan: SSMScan of heads of one value x {heads, 1}, where a [heads, n] decays
// each number of a state otherwise. (Gu and Dao 2023, arXiv:2312.00752)
//
// The rows of a page are the inputs of the scan, and the state behind the last row of a step, by which the next step
// goes on, with the row's number, for each head: backends may leave these out, and go through the page again.
func (b Builder) SSMScanEach(a, dtBias, d *Weight, x, dt, bs, cs *Node) *Node {
	heads, size := x.Shape[0], bs.Shape.Last()
	n := b.ssm(tensor.Shape{heads, size}, a, dtBias, d, x, dt, bs, cs)
	n.Attr, n.State.Rows[3] = ScanAttr{Each: true}, Run{1, (heads*(size+1) + pageRows - 1) / pageRows}
	if x.Shape.Last() != 1 || bs.Shape[0] != 1 {
		b.errorf(n, "x %v and b %v, want heads of 1 with a common key", []int(x.Shape), []int(bs.Shape))
	}
	return n
}

func (b Builder) ssm(decay tensor.Shape, a, dtBias, d *Weight, x, dt, bs, cs *Node) *Node {
	heads := x.Shape[0]
	n := b.scan(SSMScan, 1, x, bs, []*Weight{a, dtBias, d}, x, dt, bs, cs)
	one := tensor.Shape{heads}
	b.checkAll(n, decay, one, one)
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
// decay is negative: Hugging Face's -exp(A_log). q and k are normed and scaled before. With a {heads·n} and bias
// [heads·n], each element of a key decays by itself. (Yang, Kautz and Hatamizadeh 2024, arXiv:2412.06464; Kimi Team
// 2025, arXiv:2510.26692)
func (b Builder) DeltaScan(decay, bias *Weight, q, k, v, a, beta *Node) *Node {
	return b.DeltaScanWith(ScanAttr{}, decay, bias, q, k, v, a, beta)
}

// DeltaScanWith is DeltaScan with Most·sigmoid(beta) for the share of a correction; Each of attr follows from a. Shares
// above 1 may turn a state's sign. (Grazzi et al. 2024, arXiv:2411.12537)
func (b Builder) DeltaScanWith(attr ScanAttr, decay, bias *Weight, q, k, v, a, beta *Node) *Node {
	heads, each := v.Shape[0], 1
	if attr.Each = a.Shape.Size() != heads; attr.Each {
		each = k.Shape.Last()
	}
	n := b.scan(DeltaScan, each, v, k, []*Weight{decay, bias}, q, k, v, a, beta)
	if attr != (ScanAttr{}) {
		n.Attr = attr
	}
	b.checkAll(n, tensor.Shape{heads}, tensor.Shape{heads * each})
	if len(v.Shape) != 2 || len(k.Shape) != 2 || !slices.Equal(q.Shape, k.Shape) || a.Shape.Size() != heads*each ||
		beta.Shape.Size() != heads || heads%k.Shape[0] != 0 {
		b.errorf(n, "q %v, k %v, v %v, a %v, beta %v", []int(q.Shape), []int(k.Shape), []int(v.Shape), []int(a.Shape),
			[]int(beta.Shape))
	}
	return n
}
