package graph

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/tensor"
)

// Builder appends to a Graph under a name scope. A Builder is a value: Layer returns a narrower Builder, and nothing
// has to be restored afterwards.
//
// Shapes come from the configuration; a weight or an input that disagrees is noted and reported by Graph together with
// all others, so that one load shows all faults of a file.
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

// New returns an empty recording.
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

// caller returns the file and line of the architecture: the first frame outside this package.
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

// weighted records an operation named after its weight, with the configuration's shape.
func (b Builder) weighted(op Op, w *Weight, want, out tensor.Shape, attr any, in ...*Node) *Node {
	n := b.add(&Node{Op: op, Name: w.GGUF, HF: w.HF + ".out", Shape: out, In: in, Attr: attr, W: []*Weight{w}})
	b.check(n, w, want)
	return n
}

// check compares w's shape with the configuration's. Leading ones may lack: llama-quantize leaves ones out.
func (b Builder) check(n *Node, w *Weight, want tensor.Shape) {
	if w.There() && slices.Equal(w.Shape.Trimmed(), want.Trimmed()) {
		w.Shape = want
	}
	var e *TensorError
	switch {
	case !w.There() && w.Name != "":
		e = NewTensorError(w.Name, Missing, "missing, the configuration says that it has shape %v", []int(want))
	case w.There() && !slices.Equal(w.Shape, want):
		e = NewTensorError(w.Name, Misshapen, "shape %v, the configuration says %v", []int(w.Shape), []int(want))
	default:
		return
	}
	e.Want = want
	b.errorf(n, "%w", e)
}

// Refuse notes an error if the file holds a weight ruled out by the configuration.
func (b Builder) Refuse(w *Weight, fact string) {
	if w.There() {
		b.r.errs = append(b.r.errs,
			NewTensorError(w.Name, Refused, "the file holds it, but the configuration says that %s", fact))
	}
}

// Name gives v its name in each of the two formats, in b's scope.
func (b Builder) Name(v *Node, gguf, hf string) *Node {
	v.Name, v.HF = b.unique(join(b.gguf, gguf)), join(b.hf, hf)
	return v
}

// Embed looks up the step's tokens in w [vocab, dim] and scales the rows.
func (b Builder) Embed(w *Weight, vocab, dim int, scale float32) *Node {
	return b.weighted(Embed, w, tensor.Shape{vocab, dim}, tensor.Shape{dim}, EmbedAttr{scale})
}

// Linear returns x·Wᵀ, W being [out, in].
func (b Builder) Linear(w *Weight, x *Node, out int) *Node {
	return b.weighted(Linear, w, tensor.Shape{out, x.Shape.Size()}, tensor.Shape{out}, nil, x)
}

// Bias adds w to a Linear's output; the sum takes over its PyTorch name.
func (b Builder) Bias(w *Weight, x *Node) *Node {
	n := b.weighted(Add, w, x.Shape, x.Shape, nil, x)
	n.HF, x.HF = x.HF, ""
	return n
}

// BiasRow adds row i of w [rows, x's size].
func (b Builder) BiasRow(w *Weight, rows, i int, x *Node) *Node {
	want := tensor.Shape{rows, x.Shape.Size()}
	if w.There() && slices.Equal(w.Shape, want) {
		return b.Bias(w.Matrix(i), x)
	}
	n := b.add(&Node{Op: Add, Name: w.GGUF, Shape: x.Shape, In: []*Node{x}, W: []*Weight{w}})
	b.check(n, w, want)
	return n
}

// RMSNorm normalizes the last dimension and multiplies by w plus offset (1 in Gemma 3). (Zhang and Sennrich 2019,
// arXiv:1910.07467)
func (b Builder) RMSNorm(w *Weight, x *Node, eps, offset float32) *Node {
	return b.weighted(RMSNorm, w, tensor.Shape{x.Shape.Last()}, x.Shape, NormAttr{eps, offset}, x)
}

// Normalize returns RMSNorm without a weight.
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

// RoPE turns pairs of each head of x {heads, dim} by the row's position times a.Freqs. role is "q" or "k". (Su et al.
// 2021, arXiv:2104.09864)
func (b Builder) RoPE(role string, x *Node, a RoPEAttr) *Node {
	n := b.add(&Node{Op: RoPE, Name: join(b.gguf, "attn_"+role+"_rope"), HF: join(b.hf, "self_attn."+role+"_rope.out"),
		Shape: x.Shape, In: []*Node{x}, Attr: a})
	turning := a.Turning(x.Shape.Last())
	switch {
	case a.Dim < 0 || turning > x.Shape.Last():
		b.errorf(n, "%d of the %d features of a head turn", a.Dim, x.Shape.Last())
	case turning%2 != 0 || len(a.Freqs) > turning/2:
		b.errorf(n, "%d frequencies for heads of %d", len(a.Freqs), turning)
	case !(a.Magnitude >= 0 && a.Magnitude <= 1e6):
		b.errorf(n, "magnitude %v", a.Magnitude)
	case slices.Min(a.Sections[:]) < 0 ||
		a.Sections != [3]int{} && a.Sections[0]+a.Sections[1]+a.Sections[2] != turning/2:
		b.errorf(n, "sections %v of %d pairs", a.Sections, turning/2)
	}
	return n
}

// StoreKV writes k and v {heads, dim} at the step's positions; an Attention over kv reads afterwards. For a latent kv,
// v is nil.
func (b Builder) StoreKV(kv *KV, k, v *Node) {
	n := b.add(&Node{Op: StoreKV, Shape: tensor.Shape{kv.Heads, kv.Dim}, In: []*Node{k, v}, Attr: kv})
	if kv.Latent {
		n.In = n.In[:1]
		v = &Node{Shape: tensor.Shape{kv.Heads, kv.Values()}}
	}
	if !slices.Equal(k.Shape, n.Shape) || !slices.Equal(v.Shape, tensor.Shape{kv.Heads, kv.Values()}) {
		b.errorf(n, "keys %v and values %v, the configuration says %v", []int(k.Shape), []int(v.Shape), []int(n.Shape))
	}
	if kv.ValueDim < 0 || kv.Latent && kv.Values() > kv.Dim || kv.Chunked && kv.Window < 1 {
		b.errorf(n, "values of %d for keys of %d, latent %v; chunked %v with a window of %d", kv.Values(),
			kv.Dim, kv.Latent, kv.Chunked, kv.Window)
	}
}

// Attention lets each head of q {heads, dim} attend to the positions of its own sequence in kv, up to its own and
// within the window; heads share keys and values in equal runs (Ainslie et al. 2023, arXiv:2305.13245).
func (b Builder) Attention(q *Node, kv *KV, scale float64) *Node {
	return b.AttentionWith(q, AttentionAttr{KV: kv, Scale: scale}, nil)
}

// AttentionWith returns attention in another way; sinks [heads] may be nil.
func (b Builder) AttentionWith(q *Node, a AttentionAttr, sinks *Weight) *Node {
	if a.KV == nil {
		a.KV = &KV{Heads: 1, Dim: q.Shape.Last()}
		b.r.errs = append(b.r.errs, fmt.Errorf("%s: %w", b.gguf, ErrNoStore))
	}
	kv, heads := a.KV, q.Shape[0]
	n := b.add(&Node{Op: Attention, Shape: tensor.Shape{heads * kv.Values()}, In: []*Node{q}, Attr: a})
	if sinks != nil {
		b.check(n, sinks, tensor.Shape{heads})
		n.W = []*Weight{sinks}
	}
	if kv.Heads <= 0 || heads%kv.Heads != 0 || q.Shape.Last() != kv.Dim {
		b.errorf(n, "query heads %v against %d key and value heads of %d", []int(q.Shape), kv.Heads, kv.Dim)
	}
	if !(a.Cap >= 0 && a.Cap <= 1e30) || (a.Bidirectional || a.Grouped) && kv.Chunked {
		b.errorf(n, "a cap of %v, bidirectional %v, grouped %v, chunked %v", a.Cap, a.Bidirectional, a.Grouped,
			kv.Chunked)
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

// Add returns x+y.
func (b Builder) Add(x, y *Node) *Node { return b.same(Add, x, y, nil) }

// Mul returns x·y, element by element.
func (b Builder) Mul(x, y *Node) *Node { return b.same(Mul, x, y, nil) }

// MulWeight multiplies by a weight with as many elements as x, or with one.
func (b Builder) MulWeight(w *Weight, x *Node, shape ...int) *Node {
	n := b.weighted(Mul, w, shape, x.Shape, nil, x)
	n.HF = ""
	return n
}

// Scale returns x·s.
func (b Builder) Scale(x *Node, s float64) *Node {
	return b.add(&Node{Op: Scale, Shape: x.Shape, In: []*Node{x}, Attr: ScaleAttr{s}})
}

// Softcap returns c·tanh(x/c).
func (b Builder) Softcap(x *Node, c float64) *Node {
	return b.add(&Node{Op: Softcap, Shape: x.Shape, In: []*Node{x}, Attr: ScaleAttr{c}})
}

// GLU returns act(gate)·up. (Shazeer 2020, arXiv:2002.05202)
func (b Builder) GLU(act Activation, gate, up *Node) *Node {
	return b.GLUWith(ActAttr{Act: act}, gate, up)
}

// GLUWith returns a GLU with limits.
func (b Builder) GLUWith(a ActAttr, gate, up *Node) *Node {
	n := b.same(GLU, gate, up, a)
	b.checkActivation(n, a)
	return n
}

// Outputs keeps the rows with wanted logits.
func (b Builder) Outputs(x *Node) *Node {
	return b.add(&Node{Op: Rows, Shape: x.Shape, In: []*Node{x}})
}

// Route picks the k largest of each row's scores {experts}; the result {k, 2} holds their indices and softmax weights
// among each other, times perExpert's.
func (b Builder) Route(scores *Node, perExpert *Weight, k int) *Node {
	return b.RouteWith(scores, k, RouteAttr{}, perExpert, nil)
}

// RouteWith returns a Route by other rules. perExpert may be nil, and bias has to be where there is no bias.
func (b Builder) RouteWith(scores *Node, k int, a RouteAttr, perExpert, bias *Weight) *Node {
	count := scores.Shape.Size()
	if a.Biased = bias != nil; a.Groups == 0 || a.Groups == 1 {
		a.Groups, a.Kept, a.Best = 0, 0, 0 // one group is all experts
	}
	n := b.add(&Node{Op: Route, Name: join(b.gguf, "ffn_route"), Shape: tensor.Shape{k, 2}, In: []*Node{scores},
		Attr: a})
	for _, w := range []*Weight{perExpert, bias} {
		if w != nil {
			b.check(n, w, tensor.Shape{count})
			n.W = append(n.W, w)
		}
	}
	from := count // experts open to choice
	if a.Groups != 0 {
		if a.Groups < 0 || count%a.Groups != 0 || a.Kept < 1 || a.Kept > a.Groups || a.Best < 0 ||
			a.Best > count/a.Groups {
			b.errorf(n, "%d of %d groups of %d experts, by the best %d of each", a.Kept, a.Groups, count, a.Best)
			return n
		}
		from = count / a.Groups * a.Kept
	}
	if k < 1 || k > from {
		b.errorf(n, "%d of %d experts", k, from)
	}
	if !(math.Abs(a.Factor) <= 1e30 && a.Eps >= 0 && a.Eps <= 1 && a.Near >= 0 && a.Near <= 1e30) {
		b.errorf(n, "weights of experts times %v, divided by their sum and %v, near by %v", a.Factor, a.Eps, a.Near)
	}
	return n
}

// Experts runs the routed gated MLPs, of intermediate size ff, over x and sums them by weight. gateUp is [experts,
// 2·ff, in], down [experts, in, ff].
func (b Builder) Experts(act Activation, gateUp, down *Weight, x, route *Node, experts, ff int) *Node {
	return b.ExpertsWith(ExpertsAttr{ActAttr: ActAttr{Act: act}}, []*Weight{gateUp, down}, nil, x, route, experts, ff)
}

// ExpertsWith returns Experts of another form: matrices in the order of a.Form, and the biases of each, if any.
func (b Builder) ExpertsWith(a ExpertsAttr, matrices, biases []*Weight, x, route *Node, experts, ff int) *Node {
	d := x.Shape.Size()
	rows := ff
	if a.Form == Fused || a.Form == Interleaved {
		rows = 2 * ff
	}
	a.Biased = len(biases) > 0
	n := b.weighted(Experts, matrices[0], tensor.Shape{experts, rows, d}, x.Shape, a, x, route)
	n.W = append(append([]*Weight{}, matrices...), biases...)
	if a.Form == Apart {
		b.check(n, matrices[1], tensor.Shape{experts, ff, d})
	}
	b.check(n, matrices[len(matrices)-1], tensor.Shape{experts, d, ff})
	for i, w := range biases {
		width := rows
		if i == len(biases)-1 {
			width = d
		}
		b.check(n, w, tensor.Shape{experts, width})
	}
	b.checkActivation(n, a.ActAttr)
	if want := a.Form.firsts() + 1; len(matrices) != want || a.Biased && len(biases) != want {
		b.errorf(n, "%d matrices and %d biases, experts that are %v have %d", len(matrices), len(biases), a.Form, want)
	}
	if a.Form == Ungated && (a.Limit != 0 || a.Plus != 0 || a.Alpha != 0) {
		b.errorf(n, "limits of gate and up without a gate")
	}
	return n
}

func (b Builder) checkActivation(n *Node, a ActAttr) {
	if !(a.Limit >= 0 && a.Alpha >= 0 && a.Limit <= 1e30 && a.Alpha <= 1e30 && a.Plus >= -1e30 && a.Plus <= 1e30) {
		b.errorf(n, "activation with limit %v, alpha %v, plus %v", a.Limit, a.Alpha, a.Plus)
	}
}
