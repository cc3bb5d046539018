package webgpu

import (
	"fmt"

	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/graph"
)

// The shaders' Params, by their names there.
type (
	mapParams struct {
		size, period int
		value        float32
	}
	ropeParams      struct{ size, heads, pairs int }
	rotateParams    struct{ size, heads, pairs, apart int }
	pickParams      struct{ size, width, offset int }
	storeParams     struct{ width, wide int }
	latentParams    struct{ width int }
	turnParams      struct{ size, queries, width, pairs int }
	attentionParams struct {
		heads, kv_heads, window int
		scale                   float32
	}
	cappedParams struct {
		attentionParams
		cap float32
	}
	headedParams struct {
		attentionParams
		size, pairs int
		eps, offset float32
	}
	turnedParams struct {
		attentionParams
		size, pairs int
	}
	joinParams struct{ heads, window int }
)

// gx is GX of prelude.wgsl.
const gx = 32768

// flat is a grid of n workgroups.
func flat(n int) (x, y, z int) { return min(n, gx), (n + gx - 1) / gx, 1 }

// elements is the grid of a kernel whose invocations take an element each, of rows of
// so many, in workgroups of 64.
func elements(size int) func(rows int) (x, y, z int) {
	return func(rows int) (x, y, z int) { return flat((rows*size + 63) / 64) }
}

// groups is the grid of a kernel whose workgroups take one of size things of a row.
func groups(size int) func(rows int) (x, y, z int) {
	return func(rows int) (x, y, z int) { return flat(rows * size) }
}

// lower makes l's dispatches and its buffer.
func (p *planner) lower(l *lowered) error {
	n := l.node
	if n.Alias() {
		p.values[n] = p.values[n.In[0]]
		return nil
	}
	if n.Op == graph.StoreKV {
		return p.storeKV(l)
	}
	if p.turned[n] != nil {
		return nil // its StoreKV computes it
	}
	if s := p.stacks[n]; s != nil {
		if s.nodes[0] != n {
			return nil // the first one's dispatch computes it
		}
		if err := p.linear(l); err != nil {
			return err
		}
		return p.adapt(l, s)
	}
	if p.values[n] != nil {
		return nil // what goes into it has computed it
	}
	if p.hidden[n] {
		return nil // what reads it looks through it
	}
	if n.Op == graph.RMSNorm {
		return p.norm(l)
	}
	if _, err := p.value(n); err != nil {
		return err
	}
	switch n.Op {
	case graph.Embed:
		return p.embed(l)
	case graph.RoPE:
		return p.rope(l)
	case graph.Attention:
		return p.attention(l)
	case graph.Add, graph.Mul, graph.Scale, graph.GLU, graph.Act, graph.Softcap:
		return p.elementwise(l)
	case graph.Rows:
		return p.pick(l, gpu.Range{Buffer: p.e.outputs})
	case graph.View:
		return p.pick(l)
	case graph.Route:
		return p.route(l)
	case graph.Experts:
		return p.experts(l)
	}
	return p.rare(l)
}

// rare lowers the operations that few families have.
func (p *planner) rare(l *lowered) error {
	switch l.node.Op {
	case graph.LayerNorm, graph.L2Norm:
		return p.layerNorm(l)
	case graph.Concat:
		return p.concat(l)
	case graph.Slice:
		return p.slice(l)
	case graph.Conv, graph.SSMScan, graph.DeltaScan:
		return p.scan(l)
	case graph.HeadLinear:
		return p.headLinear(l)
	case graph.Pool:
		return p.pool(l)
	case graph.EmbedPos:
		return p.embedPos(l)
	case graph.ScalePos:
		return p.scalePos(l)
	}
	return fmt.Errorf("operation %v has no kernel", l.node.Op)
}

// expression is the expressions of map.wgsl, by operation.
var expression = map[graph.Op]string{graph.Add: "a + b", graph.Mul: "a * b"}

// variant is a template's parameters.
type variant = map[string]any

func (p *planner) elementwise(l *lowered) error {
	n := l.node
	v, params := variant{}, mapParams{size: n.Shape.Size()}
	in := []gpu.Range{{Buffer: p.values[n.In[0]]}}
	switch n.Op {
	case graph.Scale:
		v["Is"], params.value = "a * p.value", float32(n.Attr.(graph.ScaleAttr).By)
	case graph.Softcap:
		v["Is"], params.value = "p.value * tanh_f(a / p.value)", float32(n.Attr.(graph.ScaleAttr).By)
	case graph.Act:
		v["Is"] = activated(n.Attr.(graph.ActAttr))
	case graph.GLU:
		v["Is"] = gated(n.Attr.(graph.ActAttr))
	default:
		v["Is"] = expression[n.Op]
	}
	switch {
	case len(n.In) > 1:
		v["Binary"], in = true, append(in, gpu.Range{Buffer: p.values[n.In[1]]})
	case len(n.W) > 0:
		w, err := p.e.b.vector(weights{n.W[0]})
		if err != nil {
			return err
		}
		v["Binary"], params.period, in = true, n.W[0].Shape.Size(), append(in, gpu.Range{Buffer: w})
	}
	return p.add(l, "map", v, params, elements(params.size), p.values[n], in...)
}

func (p *planner) rope(l *lowered) error {
	n := l.node
	f := n.Attr.(graph.RoPEAttr).Freqs
	if len(f) == 0 { // nothing turns
		return p.add(l, "pick", variant{"Gather": false}, pickParams{n.Shape.Size(), n.Shape.Size(), 0}, elements(n.Shape.Size()), p.values[n], gpu.Range{Buffer: p.values[n.In[0]]})
	}
	t, err := p.turns(n)
	if err != nil {
		return err
	}
	d := n.Shape.Last()
	if a := n.Attr.(graph.RoPEAttr); !halves(a) {
		v := variant{"Interleaved": a.Interleaved}
		params := rotateParams{d, n.Shape.Size() / d, len(f), a.Turning(d) / 2}
		return p.add(l, "rotate", v, params, elements(n.Shape.Size()), p.values[n], gpu.Range{Buffer: p.values[n.In[0]]}, gpu.Range{Buffer: t.buffer})
	}
	return p.add(l, "rope", nil, ropeParams{d, n.Shape.Size() / d, len(f)}, elements(n.Shape.Size()), p.values[n], gpu.Range{Buffer: p.values[n.In[0]]}, gpu.Range{Buffer: t.buffer})
}

// halves reports whether a turns the halves of whole heads, as rope.wgsl and the fusions with
// it do.
func halves(a graph.RoPEAttr) bool { return a.Dim == 0 && !a.Interleaved }

// pick lowers a View, or with the rows to take, Rows.
func (p *planner) pick(l *lowered, rows ...gpu.Range) error {
	n := l.node
	params := pickParams{n.Shape.Size(), n.In[0].Shape.Size(), 0}
	if n.Op == graph.View {
		params.offset = n.Attr.(graph.ViewAttr).Offset
	}
	in := append([]gpu.Range{{Buffer: p.values[n.In[0]]}}, rows...)
	return p.add(l, "pick", variant{"Gather": len(rows) > 0}, params, elements(params.size), p.values[n], in...)
}

// begun is a dispatch with the ranges of its first two bindings.
type begun struct {
	*dispatch
	head []gpu.Range // of no spare capacity
}

// dispatch begins a dispatch of n's rows: its kernel, Params and Step.
func (p *planner) dispatch(n *graph.Node, shader string, v any, params any, grid func(rows int) (x, y, z int)) (*begun, error) {
	pipe, err := p.e.b.d.pipe(shader, v)
	if err != nil {
		return nil, err
	}
	limit := p.e.b.d.Adapter().Limits.Groups
	if x, y, z := grid(p.most(n)); max(x, y, z) > limit {
		return nil, fmt.Errorf("kernel %s: %d x %d x %d workgroups for %d rows, this GPU has at most %d in each dimension", pipe.name, x, y, z, p.most(n), limit)
	}
	data, err := pipe.pack(params)
	if err != nil {
		return nil, err
	}
	at, err := p.e.params.place(data)
	if err != nil {
		return nil, err
	}
	step := gpu.Range{Buffer: p.e.counts, At: int(p.extent(n)) * p.e.params.align, Size: 16}
	return &begun{&dispatch{pipe: pipe, grid: grid}, []gpu.Range{at, step}[:2:2]}, nil
}

// add appends a dispatch of l's rows.
func (p *planner) add(l *lowered, shader string, v any, params any, grid func(rows int) (x, y, z int), out gpu.Buffer, in ...gpu.Range) error {
	d, err := p.dispatch(l.node, shader, v, params, grid)
	if err != nil {
		return err
	}
	ranges := append(append(d.head, gpu.Range{Buffer: out}), in...)
	if d.group, err = p.e.b.d.gpu.NewGroup(d.pipe.Pipeline, ranges...); err != nil {
		return err
	}
	p.e.b.made = append(p.e.b.made, d.group)
	l.dispatches = append(l.dispatches, d.dispatch)
	return nil
}
