package webgpu

import (
	"math"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
)

// lowerStoreKV lowers a StoreKV, with the norms and RoPE left to the StoreKV.
func lowerStoreKV(p *planner, l *lowered) {
	kv := l.node.Attr.(*graph.KV)
	if p.narrow[kv] {
		p.storeNarrow(l, kv)
		return
	}
	if k := l.node.In[0]; p.f.turned[k] == l.node && p.f.turned[k.In[0]] == l.node {
		p.storeHeads(l, kv)
		return
	}
	if q := p.f.turning(l.node); q != nil {
		p.storeTurned(l, kv, q, l.node.In[0])
		return
	}
	width, wide := kv.Heads*kv.Dim, kv.Heads*kv.Values()
	v := variant{"F16": !p.b.o.F32KV, "Latent": kv.Latent, "What": "a binary16"}
	if p.b.o.F32KV {
		v["What"] = "a float32"
	}
	numbers, bindings := params{"width": width}, []binding{keysOf(kv), tableOf(kv, every), p.values[l.node.In[0]]}
	if !kv.Latent {
		numbers["wide"], bindings = wide, append(bindings, valuesOf(kv), p.values[l.node.In[1]])
	}
	p.add(l, "store", v, numbers, elements(max(width, wide)), bindings...)
}

// storeNarrow lowers a StoreKV to pages in binary16, and to the 8-bit form of the pages filled.
func (p *planner) storeNarrow(l *lowered, kv *graph.KV) {
	width, wide := kv.Heads*kv.Dim, kv.Heads*kv.Values()
	blocks := width / 32
	keep := params{"width": width, "size": spinOf(kv.Dim), "unit": narrowWords * width}
	older := params{"width": width, "unit": narrowWords * width, "wide": 0, "room": 0}
	in := []binding{keysOf(kv), tableOf(kv, every), p.values[l.node.In[0]]}
	out := []binding{keysOf(kv), tableOf(kv, every)}
	if !kv.Latent {
		keep["wide"], keep["run"], keep["room"] = wide, spinOf(kv.Values()), narrowWords*wide
		older["wide"], older["room"] = wide, narrowWords*wide
		in, out = append(in, valuesOf(kv), p.values[l.node.In[1]]), append(out, valuesOf(kv))
		blocks += wide / 32
	}
	v := variant{"Latent": kv.Latent}
	p.add(l, "newest", v, keep, elements(max(width, wide)/2), in...)
	p.add(l, "older", v, older, groups(blocks), out...)
}

// storeTurned lowers the RoPE nodes q and k and the StoreKV after both.
func (p *planner) storeTurned(l *lowered, kv *graph.KV, q, k *graph.Node) {
	out, t := p.value(q), p.turns(q)
	words := kv.Heads * kv.Dim
	if !p.b.o.F32KV {
		words = (words + 1) / 2
	}
	numbers := params{"size": kv.Dim, "queries": q.Shape.Size(), "width": kv.Heads * kv.Dim, "pairs": t.pairs}
	d := p.add(l, "turn", variant{"F16": !p.b.o.F32KV}, numbers, elements(q.Shape.Size()+words),
		out, keysOf(kv), valuesOf(kv), p.values[q.In[0]], p.values[k.In[0]], p.values[l.node.In[1]], t.buffer,
		tableOf(kv, every))
	if p.f.stores[l.node] != nil {
		d.from = 2 // for one row attention computes the nodes
	}
}

// seenVariant is the common part of the forms of attention (seen.wgsl).
type seenVariant struct {
	F16   bool
	Dim   int
	Chunk int   // elements of a head summed together
	Head  order // of the norm of a head of queries, before RoPE
	Turn  bool  // RoPE comes first, and the row's key and value are turned and stored

	ValueDim int  // elements of a head's values
	Latent   bool // keys begin with the values
	Skip     int  // first positions, seen by no row behind

	Capped, Sinks, Chunked, Ahead, Grouped bool // attributes of the node
	Chosen                                 bool // blocks are of chosen positions

	Narrow          bool // older pages have 8 bits, and all are turned by Hadamard matrices
	Recent          int  // positions in binary16, with Narrow
	Spin, ValueSpin int  // sizes of the matrices of keys and of values
}

// spinOf returns the size of the Hadamard matrix for heads of n elements.
func spinOf(n int) int { return min(64, n&-n) }

// joinVariant is a form of join.wgsl.
type joinVariant struct {
	ValueDim, Skip int
	Sinks, Chunked bool
}

// seenOf returns the form of attention to a store.
func seenOf(kv *graph.KV, f16 bool) seenVariant {
	v := seenVariant{F16: f16, Dim: kv.Dim, Chunk: kv.Dim, ValueDim: kv.Values(), Latent: kv.Latent,
		Skip: kv.Skip, Chunked: kv.Chunked}
	for _, n := range []int{32, 16} {
		if v.Dim%n == 0 && (v.ValueDim%n == 0 || v.ValueDim%16 != 0) {
			v.Chunk = n
			break
		}
	}
	return v
}

// attendVariant is a form of attend.wgsl, with a chunk in a workgroup's memory.
type attendVariant struct{ seenVariant }

// Vectors reports whether the kernel reads queries four elements, and keys and values 16 bytes, at a time.
func (attendVariant) Vectors() bool { return true }

// attentionVariant is a form of attention.wgsl.
type attentionVariant struct {
	seenVariant
	Groups int  // of 64 invocations
	Part   bool // a workgroup takes a single page
}

// Vectors reports the same for attention.wgsl.
func (attentionVariant) Vectors() bool { return false }

// page is the parameters of a piece of attend.wgsl: its input, and its chunk.
type page struct {
	attendVariant
	What, At string
}

// attending lowers an Attention node.
type attending struct {
	p     *planner
	l     *lowered
	kv    *graph.KV
	heads int
	usual params // without a cap
	split *split // nil where never divided
	only  stepKind
}

// lowerAttention lowers an Attention: for one row, also with norms, turns or stores, for a few rows, and for many.
func lowerAttention(p *planner, l *lowered) {
	n := l.node
	attr := n.Attr.(graph.AttentionAttr)
	a := &attending{p: p, l: l, kv: attr.KV, heads: n.In[0].Shape[0]}
	seen := seenOf(a.kv, !p.b.o.F32KV)
	if seen.Narrow = p.narrow[a.kv]; seen.Narrow {
		seen.Recent, seen.Spin, seen.ValueSpin = backend.Recent, spinOf(seen.Dim), spinOf(seen.ValueDim)
		if seen.Latent {
			seen.ValueSpin = seen.Spin // values are a part of the keys
		}
	}
	seen.Chosen = n.Chosen() != nil
	seen.Capped, seen.Sinks, seen.Ahead = attr.Cap != 0, len(n.W) > 0, attr.Bidirectional
	a.usual = params{"heads": a.heads, "kv_heads": a.kv.Heads, "window": min(a.kv.Window, math.MaxInt32),
		"scale": float32(attr.Scale)}
	if attr.Grouped {
		a.only = ungrouped
	}
	a.lower(seen, attr)
	if a.split = nil; attr.Grouped {
		a.only, seen.Grouped = grouped, true
		a.lower(seen, attr)
	}
}

// lowerChoose lowers a Choose: a workgroup for each row.
func lowerChoose(p *planner, l *lowered) {
	n := l.node
	index := n.Attr.(graph.ChooseAttr).Index
	numbers := params{"heads": n.In[0].Shape[0], "dim": index.Dim, "choices": n.Shape.Size(), "skip": index.Skip}
	p.add(l, "indexer", variant{"F16": !p.b.o.F32KV}, numbers, groups(1), p.values[n], p.values[n.In[0]],
		p.values[n.In[1]], keysOf(index), tableOf(index, l.extent))
}

// lower adds the dispatches of a form.
func (a *attending) lower(seen seenVariant, attr graph.AttentionAttr) {
	p, n, software := a.p, a.l.node, a.p.b.o.Software
	numbers, in := a.usual, []binding{p.values[n.In[0]]}
	if seen.Capped {
		numbers = numbers.with(params{"cap": float32(attr.Cap)})
	}
	if seen.Sinks {
		in = append(in, p.vector(n.W[0]))
	}
	if seen.Chosen {
		in, numbers = append(in, p.values[n.Chosen()]), numbers.with(params{"choices": n.Chosen().Shape.Size()})
	}
	below := 0
	if seen.Dim%16 == 0 && seen.ValueDim%16 == 0 && p.most(n) >= many && !software && !seen.Narrow && !seen.Chosen {
		d := a.addMany(attendVariant{seen}, numbers, in)
		d.from, below = many, many
	}
	v := attentionVariant{seenVariant: seen, Groups: 4}
	if software {
		v.Groups = 1
	}
	// Steps of rows that see later ones have many.
	if !software && !seen.Ahead && !seen.Grouped && !seen.Narrow && !seen.Chosen {
		a.split = &split{a.l.extent, a.kv, a.heads, seen.ValueDim, p.b.memory.limit}
		p.e.splits = append(p.e.splits, a.split)
	}
	from := 0
	if norm, store := p.f.queries[n], p.f.stores[n]; norm != nil || store != nil {
		from = 2
		a.addAlone(v, norm, store)
	}
	a.addFew(v, numbers, in, from, below)
}

// addAlone adds the dispatches for steps of one row, which also norm and turn its queries, or do the work of the
// StoreKV store.
func (a *attending) addAlone(v attentionVariant, norm, store *graph.Node) {
	p, q := a.p, a.l.node.In[0]
	if norm != nil {
		h, numbers, in := p.headOf(norm, q)
		v.Head = h.order
		a.addFew(v, a.usual.with(params{"size": numbers["size"], "pairs": numbers["pairs"], "eps": numbers["eps"],
			"offset": numbers["offset"]}), in, 1, 2)
		return
	}
	t := p.turns(q)
	v.Turn = true
	a.addFew(v, a.usual.with(params{"size": v.Dim, "pairs": t.pairs}),
		[]binding{p.values[q.In[0]], t.buffer, p.values[store.In[0].In[0]], p.values[store.In[1]]}, 1, 2)
}

// addFew adds the dispatches for steps of few rows: of whole contexts, and page by page for divided contexts.
func (a *attending) addFew(v attentionVariant, numbers params, in []binding, from, below int) {
	d := a.add("attention", v, numbers, groups(a.heads), a.p.values[a.l.node], in)
	d.from, d.below, d.split = from, below, a.split
	if a.split == nil {
		return
	}
	join := joinVariant{v.ValueDim, v.Skip, v.Sinks, v.Chunked}
	v.Part, v.Sinks = true, false
	var sinks []binding
	if join.Sinks {
		in, sinks = in[:1], in[1:]
	}
	heads := func(rows int) (x, y, z int) { x, y, _ = flat(rows * a.heads); return x, y, 0 }
	part := a.add("attention", v, numbers, heads, partsOf, in)
	whole := a.p.add(a.l, "join", join, params{"heads": a.heads, "window": min(a.kv.Window, math.MaxInt32)},
		groups(a.heads),
		append([]binding{a.p.values[a.l.node], partsOf, tableOf(a.kv, a.l.extent)}, sinks...)...)
	for _, d := range []*dispatch{part, whole} {
		d.split, d.long, d.from, d.below = a.split, true, from, below
	}
}

// addMany adds the dispatch for steps of many rows.
func (a *attending) addMany(v attendVariant, numbers params, in []binding) *dispatch {
	b, out := a.p.b, a.p.values[a.l.node]
	f, ok := b.unit.flash(v.seenVariant, b.d.Adapter().Matrices)
	if ok && isPlain(a.l.node) && !v.Chunked && !v.Grouped {
		group := a.heads / a.kv.Heads
		tiles := func(rows int) (x, y, z int) { return (rows*group + f.BM - 1) / f.BM, a.kv.Heads, 1 }
		return a.add("flash", f, a.usual, tiles, out, in[:1])
	}
	return a.add("attend", v, numbers, func(rows int) (x, y, z int) { return (rows + 15) / 16, a.heads, 1 }, out, in)
}

// add adds a dispatch reading keys and values: in begins with the queries.
func (a *attending) add(shader string, v any, numbers params, g grid, out binding, in []binding) *dispatch {
	bindings := []binding{out, in[0], keysOf(a.kv), valuesOf(a.kv), tableOf(a.kv, a.l.extent)}
	d := a.p.add(a.l, shader, v, numbers, g, append(bindings, in[1:]...)...)
	d.only = a.only
	return d
}

// split is when attention is divided among workgroups by pages: where a row sees many.
type split struct {
	extent     extent
	store      *graph.KV
	heads, dim int
	limit      int // bytes of the parts
}

// crowd is how many workgroups fill a GPU anyway.
const crowd = 1024

// minPages returns the number of pages from which on attention is divided: a page of large heads takes longer than
// another dispatch.
func (x *split) minPages() int {
	if x.dim >= 256 {
		return 2
	}
	return 4
}

// size returns the bytes and the number of a step's pages, if divided.
func (x *split) size(parts [extents]*backend.Step) (bytes, pages int) {
	s := parts[x.extent]
	for _, pos := range s.Pos {
		pages = max(pages, int(pos)/kv.PageSize-x.store.Oldest(int(pos))/kv.PageSize+1)
	}
	bytes = 4 * pages * len(s.Pos) * x.heads * (x.dim + 2)
	if pages < x.minPages() || len(s.Pos) >= many || len(s.Pos)*x.heads >= crowd || bytes > x.limit {
		return 0, 0
	}
	return bytes, pages
}

// flashTile is a workgroup's part in flash.wgsl: rows, subgroups, subgroups across, and the elements of a page's keys
// or values in its memory.
type flashTile struct{ BM, Subgroups, Across, Chunk int }

// flashVariant is a form of flash.wgsl.
type flashVariant struct {
	attendVariant
	matrixUnit
	flashTile
}

// Threads returns a workgroup's invocations.
func (v flashVariant) Threads() int { return v.Subgroups * v.Lanes }

// WM returns a subgroup's rows.
func (v flashVariant) WM() int { return v.BM * v.Across / v.Subgroups }

// Rows returns the number of rows of scores of which an invocation has two columns.
func (v flashVariant) Rows() int { return v.BM * 32 / v.Threads() }

// memory returns the bytes of v's memory for a workgroup.
func (v flashVariant) memory() int {
	return 2*v.BM*(v.Dim+8) + 2*64*(v.Chunk+8) + 4*v.BM*68 + 2*v.BM*72 + 20*v.BM
}

// fits reports whether a GPU has room for v, with matrices and invocations dividing their tiles.
func (v flashVariant) fits(has *gpu.Matrices) bool {
	n := v.Threads()
	return v.memory() <= has.WorkgroupBytes && n <= has.Invocations && n >= v.BM && n%32 == 0 && v.Dim%v.Chunk == 0 &&
		v.WM()%v.M == 0 && v.Chunk%(v.Across*v.N) == 0 && v.BM*32%n == 0 && v.Rows() <= 16 && 64*v.Chunk/8%n == 0
}

// flashTiles returns the tiles to use: the first with room on a GPU.
var flashTiles = func(m, dim int) []flashTile {
	chunk := 32
	if dim%64 == 0 {
		chunk = 64
	}
	return []flashTile{{4 * m, 8, 2, chunk}, {2 * m, 8, 4, chunk}, {2 * m, 4, 2, chunk}, {m, 4, 4, chunk}}
}

// flash returns the form of flash.wgsl for heads as of v, on a unit of a GPU, or false if there is none.
func (u *matrixUnit) flash(v seenVariant, has *gpu.Matrices) (flashVariant, bool) {
	if u == nil || !u.Views || !v.F16 || v.Dim%32 != 0 {
		return flashVariant{}, false
	}
	for _, t := range flashTiles(u.M, v.Dim) {
		if f := (flashVariant{attendVariant{v}, *u, t}); f.fits(has) {
			return f, true
		}
	}
	return flashVariant{}, false
}
