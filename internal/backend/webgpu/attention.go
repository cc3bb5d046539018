package webgpu

import (
	"math"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
)

func (p *planner) storeKV(l *lowered) error {
	kv := l.node.Attr.(*graph.KV)
	if k := l.node.In[0]; p.turned[k] == l.node && p.turned[k.In[0]] == l.node {
		return p.storeHeads(l, kv)
	}
	if q := p.turning(l.node); q != nil {
		return p.turn(l, kv, q, l.node.In[0])
	}
	width, wide := kv.Heads*kv.Dim, kv.Heads*kv.Values()
	var params any = storeParams{width, wide}
	if kv.Latent {
		params = latentParams{width}
	}
	d, err := p.dispatch(l.node, "store", variant{"F16": !p.e.b.o.F32KV, "Latent": kv.Latent, "What": p.what()}, params, elements(max(width, wide)))
	if err != nil {
		return err
	}
	l.dispatches = append(l.dispatches, d.dispatch)
	var in []gpu.Range
	for _, n := range l.node.In {
		in = append(in, gpu.Range{Buffer: p.values[n]})
	}
	d.kv, d.ranges = kv, func(c *cache) []gpu.Range {
		s := c.stores[kv]
		all := append(d.head, gpu.Range{Buffer: s.keys}, gpu.Range{Buffer: c.tables[every][s.class]}, in[0])
		if kv.Latent {
			return all
		}
		return append(all, gpu.Range{Buffer: s.values}, in[1])
	}
	return nil
}

// what an element of the cache is, for the shader's comment.
func (p *planner) what() string {
	if p.e.b.o.F32KV {
		return "a float32"
	}
	return "a binary16"
}

// turning is the RoPE of the queries that read what the StoreKV n stores, if it can be
// done together with that of the keys; else nil.
func (p *planner) turning(n *graph.Node) *graph.Node {
	for q, s := range p.turned {
		if s == n && q != n.In[0] {
			return q
		}
	}
	return nil
}

// pair finds the RoPE nodes of g that are done by the StoreKV behind them.
func (p *planner) pair(g *graph.Graph) {
	for _, s := range g.Nodes {
		if s.Op != graph.StoreKV || !even(s.Attr.(*graph.KV)) {
			continue
		}
		if p.headed(s) {
			continue
		}
		k := s.In[0]
		if !p.fuses("turn") || k.Op != graph.RoPE || p.only(k) != s || len(k.Attr.(graph.RoPEAttr).Freqs) == 0 || p.turnedHead(k.In[0]) == k {
			continue
		}
		for _, a := range g.Nodes[s.ID:] {
			if a.Op != graph.Attention || a.Attr.(graph.AttentionAttr).KV != s.Attr.(*graph.KV) {
				continue
			}
			if q := a.In[0]; q.Op == graph.RoPE && q.ID < s.ID && p.extent(q) == p.extent(s) && p.only(q) == a && sameTurns(q, k) && q.In[0] != k.In[0] && p.turnedHead(q.In[0]) != q {
				p.turned[q], p.turned[k] = s, s
				p.own(a, s)
			}
			break
		}
	}
	for _, n := range g.Nodes {
		if s := p.turned[n]; s != nil {
			p.live.Keep(n, s)
		}
	}
}

// even reports whether values are as large as keys, and lie beside them.
func even(kv *graph.KV) bool { return kv.Values() == kv.Dim && !kv.Latent }

// own notes that in steps of one row the Attention a does what the StoreKV s does, RoPE
// included, if it can: it reads the row's own key and value where they come from.
func (p *planner) own(a, s *graph.Node) {
	if !p.fuses("own") || !plain(a) || p.e.b.o.Software || s.Attr.(*graph.KV).Dim%8 != 0 || p.extent(a) != p.extent(s) {
		return
	}
	p.stores[a], p.stores[s] = s, s
	for _, n := range []*graph.Node{a.In[0], s.In[0], s} {
		p.live.Keep(n, a)
	}
}

// sameTurns reports whether two RoPE nodes turn heads of one size alike.
func sameTurns(a, b *graph.Node) bool {
	f, g := a.Attr.(graph.RoPEAttr), b.Attr.(graph.RoPEAttr)
	return a.Shape.Last() == b.Shape.Last() && len(f.Freqs) == len(g.Freqs) && &f.Freqs[0] == &g.Freqs[0] &&
		f.Magnitude == g.Magnitude && halves(f) && halves(g)
}

// turn lowers the RoPE nodes q and k and the StoreKV behind them.
func (p *planner) turn(l *lowered, kv *graph.KV, q, k *graph.Node) error {
	out, err := p.value(q)
	if err != nil {
		return err
	}
	t, err := p.turns(q)
	if err != nil {
		return err
	}
	words := kv.Heads * kv.Dim
	if !p.e.b.o.F32KV {
		words = (words + 1) / 2
	}
	params := turnParams{kv.Dim, q.Shape.Size(), kv.Heads * kv.Dim, t.pairs}
	d, err := p.dispatch(l.node, "turn", variant{"F16": !p.e.b.o.F32KV}, params, elements(q.Shape.Size()+words))
	if err != nil {
		return err
	}
	l.dispatches = append(l.dispatches, d.dispatch)
	if p.stores[l.node] != nil {
		d.from = 2 // for one row attention does it
	}
	from := [3]gpu.Buffer{p.values[q.In[0]], p.values[k.In[0]], p.values[l.node.In[1]]}
	d.kv, d.ranges = kv, func(c *cache) []gpu.Range {
		s := c.stores[kv]
		return append(d.head, gpu.Range{Buffer: out}, gpu.Range{Buffer: s.keys}, gpu.Range{Buffer: s.values}, gpu.Range{Buffer: from[0]}, gpu.Range{Buffer: from[1]},
			gpu.Range{Buffer: from[2]}, gpu.Range{Buffer: t.buffer}, gpu.Range{Buffer: c.tables[every][s.class]})
	}
	return nil
}

// seenVariant is what the forms of attention have in common (seen.wgsl).
type seenVariant struct {
	F16   bool
	Dim   int
	Chunk int   // elements of a head that are summed together
	Head  order // of the norm of a head of queries, if that and RoPE come first
	Turn  bool  // RoPE comes first, and the row's key and value are turned and stored

	ValueDim int  // elements of a head's values
	Latent   bool // keys begin with these

	Capped, Sinks, Chunked, Ahead bool // attributes of the node
}

// Step is from the values of a head to those of the next one.
func (v seenVariant) Step() int {
	if v.Latent {
		return v.Dim
	}
	return v.ValueDim
}

// Access is how the cache is read or written.
func (v seenVariant) Access() string {
	if v.Turn {
		return "read_write"
	}
	return "read"
}

// Words are those of a head's key, or value.
func (v seenVariant) Words() int {
	if v.F16 {
		return v.Dim / 2
	}
	return v.Dim
}

// joinVariant is a form of join.wgsl.
type joinVariant struct {
	ValueDim       int
	Sinks, Chunked bool
}

// plain reports whether a has no attributes that its other kernels lack.
func plain(a *graph.Node) bool {
	attr := a.Attr.(graph.AttentionAttr)
	return len(a.W) == 0 && attr.Cap == 0 && !attr.Bidirectional && even(attr.KV)
}

func (p *planner) seen(kv *graph.KV) seenVariant {
	v := seenVariant{F16: !p.e.b.o.F32KV, Dim: kv.Dim, Chunk: kv.Dim, ValueDim: kv.Values(), Latent: kv.Latent, Chunked: kv.Chunked}
	for _, n := range []int{32, 16} {
		if v.Dim%n == 0 && (v.ValueDim%n == 0 || v.ValueDim%16 != 0) {
			v.Chunk = n
			break
		}
	}
	return v
}

// attendVariant is a form of attend.wgsl, which has a chunk in a workgroup's memory.
type attendVariant struct{ seenVariant }

// Number is what queries and results are read and written as.
func (attendVariant) Number() string { return "vec4f" }

// Keys and Values are what these are read as.
func (attendVariant) Keys() string   { return "vec4u" }
func (attendVariant) Values() string { return "vec4u" }

// attentionVariant is a form of attention.wgsl.
type attentionVariant struct {
	seenVariant
	Groups int  // of 64 invocations
	Part   bool // a page is all that a workgroup takes
}

// Wide reports whether keys are read 16 bytes at a time.
func (v attentionVariant) Wide() bool { return v.Dim%8 == 0 }

// Room is how many partial sums a workgroup keeps.
func (v attentionVariant) Room() int { return max(4*v.ValueDim, v.Dim/v.Chunk*64) }

func (attentionVariant) Number() string { return "f32" }
func (v attentionVariant) Keys() string {
	if v.Wide() {
		return "vec4u"
	}
	return "u32"
}
func (attentionVariant) Values() string { return "u32" }

// page is the parameters of a piece of it: what it reads, and which chunk.
type page struct {
	attendVariant
	What, At string
}

// Pitch is from a head to the next one, and First the first element of this one.
func (v page) Pitch() string {
	if v.What == "keys" {
		return "DIM"
	}
	return "VALUE_STEP"
}

func (v page) First() string {
	if v.What == "keys" {
		return "kv"
	}
	return "part"
}

// Quads of a chunk.
func (v attendVariant) Quads() int { return v.Chunk / 4 }

// Rows whose values an invocation sums.
func (v attendVariant) Rows() int { return v.Quads() / 4 }

func (p *planner) attention(l *lowered) error {
	n := l.node
	a := n.Attr.(graph.AttentionAttr)
	heads, seen := n.In[0].Shape[0], p.seen(a.KV)
	seen.Capped, seen.Sinks, seen.Ahead = a.Cap != 0, len(n.W) > 0, a.Bidirectional
	usual := attentionParams{heads, a.KV.Heads, min(a.KV.Window, math.MaxInt32), float32(a.Scale)}
	var params any = usual
	if seen.Capped {
		params = cappedParams{usual, float32(a.Cap)}
	}
	in := []gpu.Range{{Buffer: p.values[n.In[0]]}}
	if seen.Sinks {
		b, err := p.e.b.vector(weights{n.W[0]})
		if err != nil {
			return err
		}
		in = append(in, gpu.Range{Buffer: b})
	}
	below := 0
	if seen.Dim%16 == 0 && seen.ValueDim%16 == 0 && p.most(n) >= many && !p.e.b.o.Software {
		d, err := p.attendMany(l, attendVariant{seen}, usual, params, in)
		if err != nil {
			return err
		}
		d.from, below = many, many
	}
	v := attentionVariant{seenVariant: seen, Groups: 4}
	if p.e.b.o.Software {
		v.Groups = 1
	}
	var x *split
	if !p.e.b.o.Software && !seen.Ahead { // whose steps are of many rows
		x = &split{p.extent(n), a.KV, heads, seen.ValueDim, p.e.b.limit}
		p.e.splits = append(p.e.splits, x)
	}
	from := 0
	if norm, store := p.queries[n], p.stores[n]; norm != nil {
		from = 2
		if err := p.attendRow(l, norm, v, usual, x); err != nil {
			return err
		}
	} else if store != nil {
		from = 2
		if err := p.attendOwn(l, store, v, usual, x); err != nil {
			return err
		}
	}
	d, err := p.attend(l, "attention", v, params, groups(heads), in...)
	if err != nil {
		return err
	}
	d.from, d.below, d.split = from, below, x
	return p.parts(l, d, v, params, in...)
}

// attendRow adds the dispatches for steps of one row that norm and turn its queries, too.
func (p *planner) attendRow(l *lowered, norm *graph.Node, v attentionVariant, a attentionParams, x *split) error {
	h, head, in, err := p.headOf(norm, l.node.In[0])
	if err != nil {
		return err
	}
	v.Head = h.order
	return p.attendAlone(l, v, headedParams{a, head.size, head.pairs, head.eps, head.offset}, x, in)
}

// attendOwn adds the dispatches for steps of one row that do the work of the StoreKV store.
func (p *planner) attendOwn(l *lowered, store *graph.Node, v attentionVariant, a attentionParams, x *split) error {
	q, k := l.node.In[0], store.In[0]
	t, err := p.turns(q)
	if err != nil {
		return err
	}
	v.Turn = true
	in := []gpu.Range{{Buffer: p.values[q.In[0]]}, {Buffer: t.buffer}, {Buffer: p.values[k.In[0]]}, {Buffer: p.values[store.In[1]]}}
	return p.attendAlone(l, v, turnedParams{a, v.Dim, t.pairs}, x, in)
}

// attendAlone adds the dispatches for steps of one row, which read in.
func (p *planner) attendAlone(l *lowered, v attentionVariant, params any, x *split, in []gpu.Range) error {
	d, err := p.attend(l, "attention", v, params, groups(l.node.In[0].Shape[0]), in...)
	if err != nil {
		return err
	}
	d.from, d.below, d.split = 1, 2, x
	return p.parts(l, d, v, params, in...)
}

// attendMany adds the dispatch for steps of many rows.
func (p *planner) attendMany(l *lowered, v attendVariant, usual attentionParams, params any, in []gpu.Range) (*dispatch, error) {
	if f, ok := p.e.b.unit.flash(v.seenVariant, p.e.b.d.Adapter().Matrices); ok && plain(l.node) && !v.Chunked {
		group := usual.heads / usual.kv_heads
		return p.attend(l, "flash", f, usual, func(rows int) (x, y, z int) { return (rows*group + f.BM - 1) / f.BM, usual.kv_heads, 1 })
	}
	return p.attend(l, "attend", v, params, func(rows int) (x, y, z int) { return (rows + 15) / 16, usual.heads, 1 }, in...)
}

// split is when attention is divided among workgroups by pages: where a row sees many.
type split struct {
	extent     extent
	store      *graph.KV
	heads, dim int
	limit      int // bytes of what they make
}

// crowd is how many workgroups fill a GPU anyway.
const crowd = 1024

// apart is from how many pages on it is divided: a page of large heads takes longer than
// another dispatch.
func (x *split) apart() int {
	if x.dim >= 256 {
		return 2
	}
	return 4
}

// of is the bytes of what a step's pages make, if they are divided, and how many these are.
func (x *split) of(parts [extents]*backend.Step) (bytes, pages int) {
	s := parts[x.extent]
	for _, pos := range s.Pos {
		pages = max(pages, int(pos)/kv.PageSize-x.store.Oldest(int(pos))/kv.PageSize+1)
	}
	bytes = 4 * pages * len(s.Pos) * x.heads * (x.dim + 2)
	if pages < x.apart() || len(s.Pos) >= many || len(s.Pos)*x.heads >= crowd || bytes > x.limit {
		return 0, 0
	}
	return bytes, pages
}

// parts adds the dispatches that take the place of whole, page by page, if that may be divided.
func (p *planner) parts(l *lowered, whole *dispatch, v attentionVariant, params any, in ...gpu.Range) error {
	if whole.split == nil {
		return nil
	}
	join := joinVariant{v.ValueDim, v.Sinks, v.Chunked}
	v.Part, v.Sinks = true, false
	var sinks []gpu.Range
	if join.Sinks {
		in, sinks = in[:1], in[1:]
	}
	heads := whole.split.heads
	part, err := p.attend(l, "attention", v, params, func(rows int) (x, y, z int) { x, y, _ = flat(rows * heads); return x, y, 0 }, in...)
	if err != nil {
		return err
	}
	part.split, part.long, part.from, part.below = whole.split, true, whole.from, whole.below
	ranges := part.ranges
	part.ranges = func(c *cache) []gpu.Range {
		all := ranges(c)
		all[2] = gpu.Range{Buffer: c.parts}
		return all
	}
	d, err := p.dispatch(l.node, "join", join, joinParams{heads, min(whole.split.store.Window, math.MaxInt32)}, groups(heads))
	if err != nil {
		return err
	}
	l.dispatches = append(l.dispatches, d.dispatch)
	store, out := l.node.Attr.(graph.AttentionAttr).KV, p.values[l.node]
	d.split, d.long, d.from, d.below, d.kv = whole.split, true, whole.from, whole.below, store
	d.ranges = func(c *cache) []gpu.Range {
		all := append(d.head, gpu.Range{Buffer: out}, gpu.Range{Buffer: c.parts}, gpu.Range{Buffer: c.tables[whole.split.extent][c.stores[store].class]})
		return append(all, sinks...)
	}
	return nil
}

// attend adds a dispatch that reads keys and values, and as queries those of its node, or
// what in begins with.
func (p *planner) attend(l *lowered, shader string, v, params any, grid func(rows int) (x, y, z int), in ...gpu.Range) (*dispatch, error) {
	kv, out := l.node.Attr.(graph.AttentionAttr).KV, p.values[l.node]
	if len(in) == 0 {
		in = []gpu.Range{{Buffer: p.values[l.node.In[0]]}}
	}
	d, err := p.dispatch(l.node, shader, v, params, grid)
	if err != nil {
		return nil, err
	}
	l.dispatches = append(l.dispatches, d.dispatch)
	d.kv, d.ranges = kv, func(c *cache) []gpu.Range {
		s := c.stores[kv]
		all := append(d.head, gpu.Range{Buffer: out}, in[0], gpu.Range{Buffer: s.keys}, gpu.Range{Buffer: s.values}, gpu.Range{Buffer: c.tables[l.extent][s.class]})
		return append(all, in[1:]...)
	}
	return d.dispatch, nil
}
