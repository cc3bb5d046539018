package graph

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/tensor"
)

// Builder appends to a Graph under a name scope. It is a value: Layer returns
// a narrower one, and nothing has to be restored afterwards.
//
// Shapes come from the configuration; a weight or an input that disagrees is
// noted and reported by Graph together with all others, so that one load
// shows everything that is wrong with a file.
type Builder struct {
	r        *recorder
	gguf, hf string // scope
	layer    int
}

type recorder struct {
	g    Graph
	seen map[string]int
	errs []error
}

// New is an empty recording.
func New() Builder {
	return Builder{r: &recorder{seen: map[string]int{}}, layer: -1}
}

// Graph ends the recording. The error joins every disagreement found.
func (b Builder) Graph() (*Graph, error) {
	return &b.r.g, errors.Join(b.r.errs...)
}

// Layer narrows the scope to the i-th decoder layer.
func (b Builder) Layer(i int) Builder {
	b.gguf, b.hf, b.layer = fmt.Sprintf("blk.%d", i), fmt.Sprintf("model.layers.%d", i), i
	return b
}

func join(scope, name string) string {
	return strings.Trim(scope+"."+name, ".")
}

// caller is the file and line of the architecture: the first frame outside
// this package.
func caller() string {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		if !strings.Contains(f.Function, "internal/graph.Builder.") || !more {
			return fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
		}
	}
}

func (b Builder) add(n *Node) *Node {
	if n.Name == "" {
		n.Name = join(b.gguf, n.Op.String())
	}
	n.Name = b.unique(n.Name)
	n.Layer, n.Pos, n.ID = b.layer, caller(), len(b.r.g.Nodes)
	b.r.g.Nodes = append(b.r.g.Nodes, n)
	return n
}

func (b Builder) unique(name string) string {
	k := b.r.seen[name]
	b.r.seen[name]++
	if k > 0 {
		return b.unique(fmt.Sprintf("%s#%d", name, k))
	}
	return name
}

func (b Builder) errorf(n *Node, format string, args ...any) {
	b.r.errs = append(b.r.errs, fmt.Errorf("%v: %w", n, fmt.Errorf(format, args...)))
}

// weighted records an operation named after its weight, whose shape the
// configuration says.
func (b Builder) weighted(op Op, w *Weight, want, out tensor.Shape, attr any, in ...*Node) *Node {
	n := b.add(&Node{Op: op, Name: w.GGUF, HF: w.HF + ".out", Shape: out, In: in, Attr: attr, W: []*Weight{w}})
	b.check(n, w, want)
	return n
}

func (b Builder) check(n *Node, w *Weight, want tensor.Shape) {
	switch {
	case !w.There() && w.Name != "":
		b.errorf(n, "%w", NewTensorError(w.Name, Missing, "missing, the configuration says that it has shape %v", []int(want)))
	case w.There() && !slices.Equal(w.Shape, want):
		b.errorf(n, "%w", NewTensorError(w.Name, Misshapen, "shape %v, the configuration says %v", []int(w.Shape), []int(want)))
	}
}

// Refuse notes an error where the file holds a weight that the configuration
// rules out.
func (b Builder) Refuse(w *Weight, fact string) {
	if w.There() {
		b.r.errs = append(b.r.errs, NewTensorError(w.Name, Refused, "the file holds it, but the configuration says that %s", fact))
	}
}

// Name gives v the name that the two formats know it by, in b's scope.
func (b Builder) Name(v *Node, gguf, hf string) *Node {
	v.Name, v.HF = b.unique(join(b.gguf, gguf)), join(b.hf, hf)
	return v
}

// Embed looks up the step's tokens in w [vocab, dim] and scales the rows.
func (b Builder) Embed(w *Weight, vocab, dim int, scale float32) *Node {
	return b.weighted(Embed, w, tensor.Shape{vocab, dim}, tensor.Shape{dim}, EmbedAttr{scale})
}

// Linear is x·Wᵀ, W being [out, in].
func (b Builder) Linear(w *Weight, x *Node, out int) *Node {
	return b.weighted(Linear, w, tensor.Shape{out, x.Shape.Size()}, tensor.Shape{out}, nil, x)
}

// Bias adds w to a Linear's output; the sum takes over its PyTorch name.
func (b Builder) Bias(w *Weight, x *Node) *Node {
	n := b.weighted(Add, w, x.Shape, x.Shape, nil, x)
	n.HF, x.HF = x.HF, ""
	return n
}

// RMSNorm normalizes the last dimension and multiplies by w plus offset (1 in
// Gemma 3). (Zhang and Sennrich 2019, arXiv:1910.07467)
func (b Builder) RMSNorm(w *Weight, x *Node, eps, offset float32) *Node {
	return b.weighted(RMSNorm, w, tensor.Shape{x.Shape.Last()}, x.Shape, NormAttr{eps, offset}, x)
}

// Normalize is RMSNorm without a weight.
func (b Builder) Normalize(x *Node, eps float32) *Node {
	return b.add(&Node{Op: RMSNorm, Shape: x.Shape, In: []*Node{x}, Attr: NormAttr{Eps: eps}})
}

// Heads views {n} as {n/dim, dim}.
func (b Builder) Heads(x *Node, dim int) *Node {
	if dim <= 0 || x.Shape.Size()%dim != 0 {
		n := b.add(&Node{Op: View, Shape: tensor.Shape{1, max(dim, 1)}, In: []*Node{x}, Attr: ViewAttr{}})
		b.errorf(n, "%d features are no multiple of the head size %d", x.Shape.Size(), dim)
		return n
	}
	return b.add(&Node{Op: View, Shape: tensor.Shape{x.Shape.Size() / dim, dim}, In: []*Node{x}, Attr: ViewAttr{}})
}

// Head views row i of {heads, n} as {n}.
func (b Builder) Head(x *Node, i int) *Node {
	n := x.Shape.Last()
	return b.add(&Node{Op: View, Shape: tensor.Shape{n}, In: []*Node{x}, Attr: ViewAttr{Offset: i * n}})
}

// RoPE turns the pairs (i, i+dim/2) of each head of x {heads, dim} by the
// row's position times freqs[i]. role is "q" or "k".
// (Su et al. 2021, arXiv:2104.09864, in the half style of GPT-NeoX)
func (b Builder) RoPE(role string, x *Node, freqs []float64) *Node {
	n := b.add(&Node{Op: RoPE, Name: join(b.gguf, "attn_"+role+"_rope"), HF: join(b.hf, "self_attn."+role+"_rope.out"),
		Shape: x.Shape, In: []*Node{x}, Attr: RoPEAttr{freqs}})
	if x.Shape.Last()%2 != 0 || len(freqs) > x.Shape.Last()/2 {
		b.errorf(n, "%d frequencies for heads of %d", len(freqs), x.Shape.Last())
	}
	return n
}

// StoreKV writes k and v {heads, dim} at the step's positions; an Attention
// over kv reads after it.
func (b Builder) StoreKV(kv *KV, k, v *Node) {
	n := b.add(&Node{Op: StoreKV, Shape: tensor.Shape{kv.Heads, kv.Dim}, In: []*Node{k, v}, Attr: kv})
	if !slices.Equal(k.Shape, n.Shape) || !slices.Equal(v.Shape, n.Shape) {
		b.errorf(n, "keys %v and values %v, the configuration says %v", []int(k.Shape), []int(v.Shape), []int(n.Shape))
	}
}

// Attention lets each head of q {heads, dim} attend to the positions that kv
// holds of its own sequence, up to its own and within the window; heads share
// keys and values in equal runs (Ainslie et al. 2023, arXiv:2305.13245).
func (b Builder) Attention(q *Node, kv *KV, scale float64) *Node {
	if kv == nil {
		kv = &KV{Heads: 1, Dim: q.Shape.Last()}
		b.r.errs = append(b.r.errs, fmt.Errorf("%s: %w", b.gguf, ErrNoStore))
	}
	n := b.add(&Node{Op: Attention, Shape: tensor.Shape{q.Shape.Size()}, In: []*Node{q}, Attr: AttentionAttr{kv, scale}})
	if kv.Heads <= 0 || q.Shape[0]%kv.Heads != 0 || q.Shape.Last() != kv.Dim {
		b.errorf(n, "query heads %v against %d key and value heads of %d", []int(q.Shape), kv.Heads, kv.Dim)
	}
	return n
}

func (b Builder) same(op Op, x, y *Node, attr any) *Node {
	n := b.add(&Node{Op: op, Shape: x.Shape, In: []*Node{x, y}, Attr: attr})
	if x.Shape.Size() != y.Shape.Size() {
		b.errorf(n, "shapes %v and %v", []int(x.Shape), []int(y.Shape))
	}
	return n
}

// Add is x+y.
func (b Builder) Add(x, y *Node) *Node { return b.same(Add, x, y, nil) }

// MulWeight multiplies by a weight of x's size, or of size 1.
func (b Builder) MulWeight(w *Weight, x *Node, size int) *Node {
	n := b.weighted(Mul, w, tensor.Shape{size}, x.Shape, nil, x)
	n.HF = ""
	return n
}

// Scale is x·s.
func (b Builder) Scale(x *Node, s float64) *Node {
	return b.add(&Node{Op: Scale, Shape: x.Shape, In: []*Node{x}, Attr: ScaleAttr{s}})
}

// Softcap is c·tanh(x/c).
func (b Builder) Softcap(x *Node, c float64) *Node {
	return b.add(&Node{Op: Softcap, Shape: x.Shape, In: []*Node{x}, Attr: ScaleAttr{c}})
}

// GLU is act(gate)·up. (Shazeer 2020, arXiv:2002.05202)
func (b Builder) GLU(act Activation, gate, up *Node) *Node {
	return b.same(GLU, gate, up, ActAttr{act})
}

// Outputs keeps the rows whose logits the step wants.
func (b Builder) Outputs(x *Node) *Node {
	return b.add(&Node{Op: Rows, Shape: x.Shape, In: []*Node{x}})
}

// Route picks the k largest of each row's scores {experts}; the result {k, 2}
// holds their indices and softmax weights among each other, times perExpert's.
func (b Builder) Route(scores *Node, perExpert *Weight, k int) *Node {
	n := b.weighted(Route, perExpert, tensor.Shape{scores.Shape.Size()}, tensor.Shape{k, 2}, nil, scores)
	n.Name, n.HF = b.unique(join(b.gguf, "ffn_route")), ""
	if k < 1 || k > scores.Shape.Size() {
		b.errorf(n, "%d of %d experts", k, scores.Shape.Size())
	}
	return n
}

// Experts runs the routed gated MLPs, of intermediate size ff, over x and sums
// them by weight. gateUp is [experts, 2·ff, in], down [experts, in, ff].
func (b Builder) Experts(act Activation, gateUp, down *Weight, x, route *Node, experts, ff int) *Node {
	d := x.Shape.Size()
	n := b.weighted(Experts, gateUp, tensor.Shape{experts, 2 * ff, d}, x.Shape, ActAttr{act}, x, route)
	b.check(n, down, tensor.Shape{experts, d, ff})
	n.W = append(n.W, down)
	return n
}
