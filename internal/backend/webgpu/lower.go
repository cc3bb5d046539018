package webgpu

import (
	"encoding/binary"
	"fmt"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
)

// lowerings makes the dispatches of an operation.
var lowerings = map[graph.Op]func(p *planner, l *lowered){
	graph.Embed: lowerEmbed, graph.EmbedPos: lowerEmbedPos,
	graph.Linear: lowerLinear, graph.HeadLinear: lowerHeadLinear,
	graph.RMSNorm: lowerNorm, graph.LayerNorm: lowerLayerNorm, graph.L2Norm: lowerLayerNorm,
	graph.RoPE: lowerRoPE, graph.StoreKV: lowerStoreKV, graph.Attention: lowerAttention,
	graph.Choose: lowerChoose,
	graph.Add:    lowerElements, graph.Mul: lowerElements, graph.Scale: lowerElements, graph.Softcap: lowerElements,
	graph.GLU: lowerElements, graph.Act: lowerElements, graph.ScalePos: lowerScalePos,
	graph.Rows: lowerPick, graph.View: lowerPick, graph.Concat: lowerConcat, graph.Slice: lowerSlice,
	graph.Route: lowerRoute, graph.Experts: lowerExperts, graph.Pool: lowerPool,
	graph.Patches: lowerPatches, graph.Interpolate: lowerInterpolate, graph.Clamp: lowerElements,
	graph.Deepstack: lowerDeepstack, graph.Mix: lowerMix, graph.Match: lowerLayerNorm, graph.Above: lowerLayerNorm,
	graph.Conv: lowerConv, graph.SSMScan: lowerScan, graph.DeltaScan: lowerScan,
}

// lower makes l's dispatches and its buffer, unless another node's dispatches compute l.
func (p *planner) lower(l *lowered) {
	n := l.node
	if n.Alias() {
		p.values[n] = p.values[n.In[0]]
		return
	}
	f := lowerings[n.Op]
	if f == nil {
		check(fmt.Errorf("operation %v has no kernel", n.Op))
	}
	switch n.Op {
	case graph.StoreKV, graph.Linear: // also compute other nodes
		f(p, l)
		return
	}
	if p.f.turned[n] != nil || p.values[n] != nil || p.f.hidden[n] {
		return // its StoreKV or an earlier node has computed the value, or its readers skip the node
	}
	if n.Op != graph.RMSNorm { // its result may be a later node's
		p.value(n)
	}
	f(p, l)
}

// lowerElements lowers an operation on each element of a value, of two values, or of a value and a weight.
func lowerElements(p *planner, l *lowered) {
	n := l.node
	is, value, period, bindings := "", 0.0, 0, []binding{p.values[n], p.values[n.In[0]]}
	switch n.Op {
	case graph.Add:
		is = "a + b"
	case graph.Mul:
		is = "a * b"
	case graph.Scale:
		is, value = "a * p.value", n.Attr.(graph.ScaleAttr).By
	case graph.Softcap:
		is, value = "p.value * tanh_f(a / p.value)", n.Attr.(graph.ScaleAttr).By
	case graph.Act:
		is = activated(n.Attr.(graph.ActAttr))
	case graph.GLU:
		is = gated(n.Attr.(graph.ActAttr))
	}
	v := variant{"Is": is}
	switch {
	case n.Op == graph.Clamp:
		v["Binary"], v["Is"], bindings = true, "min(max(a, y[0]), y[1])", append(bindings, p.vector(n.W...))
	case len(n.In) > 1:
		v["Binary"], bindings = true, append(bindings, p.values[n.In[1]])
	case len(n.W) > 0:
		v["Binary"], period, bindings = true, n.W[0].Shape.Size(), append(bindings, p.vector(n.W[0]))
	}
	size := n.Shape.Size()
	p.add(l, "map", v, params{"size": size, "period": period, "value": float32(value)}, elements(size), bindings...)
}

func lowerRoPE(p *planner, l *lowered) {
	n, a, d := l.node, l.node.Attr.(graph.RoPEAttr), l.node.Shape.Last()
	if len(a.Freqs) == 0 { // nothing turns
		lowerPick(p, l)
		return
	}
	t, grid := p.turns(n), elements(n.Shape.Size())
	numbers := params{"size": d, "heads": n.Shape.Size() / d, "pairs": len(a.Freqs)}
	if halves(a) {
		p.add(l, "rope", nil, numbers, grid, p.values[n], p.values[n.In[0]], t.buffer)
		return
	}
	numbers["apart"] = a.Turning(d) / 2
	p.add(l, "rotate", variant{"Interleaved": a.Interleaved}, numbers, grid, p.values[n], p.values[n.In[0]], t.buffer)
}

// lowerPick lowers a View, or Rows, with the rows to take; or copies.
func lowerPick(p *planner, l *lowered) {
	n := l.node
	numbers, bindings := params{"size": n.Shape.Size(), "width": n.In[0].Shape.Size(), "offset": 0},
		[]binding{p.values[n], p.values[n.In[0]]}
	if n.Op == graph.View {
		numbers["offset"] = n.Attr.(graph.ViewAttr).Offset
	}
	if n.Op == graph.Rows {
		bindings = append(bindings, p.e.outputs)
	}
	p.add(l, "pick", variant{"Gather": n.Op == graph.Rows}, numbers, elements(n.Shape.Size()), bindings...)
}

// layerVariant is a form of layernorm.wgsl.
type layerVariant struct{ Mean, Weight, Bias, Match, Above bool }

// lowerLayerNorm lowers a LayerNorm, an L2Norm, a Match or an Above.
func lowerLayerNorm(p *planner, l *lowered) {
	n := l.node
	v, bindings := layerVariant{n.Op == graph.LayerNorm || n.Op == graph.Above, len(n.W) > 0, len(n.W) > 1,
		n.Op == graph.Match, n.Op == graph.Above}, []binding{p.values[n], p.values[n.In[0]]}
	switch {
	case v.Weight:
		bindings = append(bindings, p.vector(n.W...))
	case v.Match:
		bindings = append(bindings, p.values[n.In[1]])
	}
	eps := float32(0)
	if a, ok := n.Attr.(graph.NormAttr); ok {
		eps = a.Eps
	} else if a, ok := n.Attr.(graph.ScaleAttr); ok {
		eps = float32(a.By)
	}
	size := n.Shape.Last()
	vectors := n.Shape.Size() / size
	numbers := params{"vectors": vectors, "size": size, "eps": eps}
	p.add(l, "layernorm", v, numbers, groups(vectors), bindings...)
}

func lowerMix(p *planner, l *lowered) {
	n := l.node
	numbers := params{"sums": n.Shape[0], "vectors": n.In[1].Shape[0], "size": n.Shape.Last(),
		"plus": float32(n.Attr.(graph.MixAttr).Plus)}
	p.add(l, "mix", nil, numbers, elements(n.Shape.Size()), p.values[n], p.values[n.In[0]], p.values[n.In[1]])
}

func lowerConcat(p *planner, l *lowered) {
	n := l.node
	numbers := params{"size": n.Shape.Last(), "first": n.In[0].Shape.Last(), "vectors": n.Shape.Size() / n.Shape.Last()}
	p.add(l, "concat", nil, numbers, elements(n.Shape.Size()), p.values[n], p.values[n.In[0]], p.values[n.In[1]])
}

func lowerSlice(p *planner, l *lowered) {
	n, d := l.node, l.node.Shape.Last()
	numbers := params{"size": d, "vectors": n.Shape.Size() / d, "width": n.In[0].Shape.Last(),
		"offset": n.Attr.(graph.SliceAttr).Offset}
	p.add(l, "slice", nil, numbers, elements(n.Shape.Size()), p.values[n], p.values[n.In[0]])
}

// lowerHeadLinear lowers a HeadLinear, with a float32 weight on the GPU.
func lowerHeadLinear(p *planner, l *lowered) {
	n := l.node
	numbers := params{"heads": n.Shape[0], "size": n.Shape[1], "k": n.In[0].Shape.Last()}
	p.add(l, "headlinear", nil, numbers, elements(n.Shape.Size()), p.values[n], p.values[n.In[0]], p.vector(n.W[0]))
}

// lowerEmbedPos lowers an EmbedPos: the host writes its rows.
func lowerEmbedPos(p *planner, l *lowered) {
	n := l.node
	l.given = &given{p.values[n], 0, n.Shape.Size(), l.extent, func(s *backend.Step, to []byte) error {
		for _, pos := range s.Pos {
			if int(pos) >= n.W[0].Rows() {
				return fmt.Errorf("position %d, the model has %d", pos, n.W[0].Rows())
			}
		}
		return embeddings(to, n, s.Pos, 1)
	}}
	check(readable(n))
}

// lowerPatches lowers Patches, a step's input, which is written as rows in place of tokens are.
func lowerPatches(*planner, *lowered) {}

// lowerDeepstack lowers a Deepstack: the host writes its rows.
func lowerDeepstack(p *planner, l *lowered) {
	n := l.node
	l.given = &given{p.values[n], 0, n.Shape.Size(), l.extent, func(s *backend.Step, to []byte) error {
		clear(to)
		for i, d := 0, n.Shape.Size(); i < len(s.Tokens); i++ {
			copy(floatsIn(to)[i*d:][:d], s.Deepstack(n, i))
		}
		return nil
	}}
}

// lowerInterpolate lowers an Interpolate: the host writes its rows.
func lowerInterpolate(p *planner, l *lowered) {
	n, a := l.node, l.node.Attr.(graph.PlaceAttr)
	l.given = &given{p.values[n], 0, n.Shape.Size(), l.extent, func(s *backend.Step, to []byte) error {
		grids, err := s.Grids(a)
		if err != nil {
			return err
		}
		return deal(to, n, len(grids), func(t int, row, sum []float32) error {
			clear(sum)
			for _, share := range a.Shares(nil, int(s.Parts[t][1]), int(s.Parts[t][2]), grids[t]) {
				if err := lookUp(row, n.W[0], share.Row); err != nil {
					return err
				}
				for i, x := range row {
					sum[i] += float32(float32(share.Weight) * x)
				}
			}
			return nil
		})
	}}
	check(readable(n))
}

// lowerScalePos lowers a ScalePos: the host writes the factors of rows.
func lowerScalePos(p *planner, l *lowered) {
	n, a := l.node, l.node.Attr.(graph.ScalePosAttr)
	by := must(p.b.memory.empty("factors", 4*p.most(n)))
	l.given = &given{by, 0, 1, l.extent, func(s *backend.Step, to []byte) error {
		for i, f := 0, floatsIn(to); i < len(f); i++ {
			f[i] = float32(rope.Temperature(int(s.Pos[i]), a.Beta, a.Every, a.Shift))
		}
		return nil
	}}
	size := n.Shape.Size()
	p.add(l, "factor", nil, params{"size": size}, elements(size), p.values[n], p.values[n.In[0]], by)
}

// lowerPool lowers a Pool: the host writes the first and the last row of each pool.
func lowerPool(p *planner, l *lowered) {
	n, a := l.node, l.node.Attr.(graph.PoolAttr)
	spans := must(p.b.memory.empty("spans", 8*p.most(n)))
	l.given = &given{spans, 0, 2, every, func(s *backend.Step, to []byte) error {
		first, err := s.Pooled(a)
		for i, f := range first {
			binary.LittleEndian.PutUint32(to[8*i:], uint32(f))
			binary.LittleEndian.PutUint32(to[8*i+4:], uint32(s.Outputs[i]))
		}
		return err
	}}
	v := variant{"Mean": a.Pooling == graph.Mean, "Woven": a.Pooling == graph.Woven}
	numbers := params{"size": n.Shape.Size(), "width": n.In[0].Shape.Size(), "count": a.Count}
	p.add(l, "pool", v, numbers, elements(n.Shape.Size()), p.values[n], p.values[n.In[0]], spans)
}

// lowerConv lowers a Conv. An invocation takes a channel through all rows.
func lowerConv(p *planner, l *lowered) {
	n := l.node
	numbers := params{"size": n.Shape.Size(), "inputs": n.W[0].Shape[1]}
	p.add(l, "conv", variant{"Bias": len(n.W) > 1}, numbers, func(int) (x, y, z int) {
		return flat((n.Shape.Size() + 63) / 64)
	}, p.values[n], stateOf(n.State, false), stateOf(n.State, true), slotsOf, p.values[n.In[0]], p.vector(n.W...))
}

// scanTile is the number of a page's rows computed together in steps of many rows: as a row alone, with the same bits.
const scanTile = 8

// lowerScan lowers a scan: what each row has for itself, the rows in order, and the keys to keep for later steps, since
// all workgroups of the rows read the kept keys.
func lowerScan(p *planner, l *lowered) {
	n, delta := l.node, l.node.Op == graph.DeltaScan
	if n.EachDecays() {
		lowerEachScan(p, l)
		return
	}
	heads, size := n.Shape[0], n.Shape[1]
	in := make([]gpu.Buffer, len(n.In))
	for i, x := range n.In {
		in[i] = p.values[x]
	}
	of, queries, keys, values := n.In[2], in[3], in[2], in[0]
	steps := must(p.b.memory.empty("decays", 16*heads*p.most(n)))
	own := []binding{steps, in[1], p.vector(n.W...)}
	if delta {
		of, queries, keys, values = n.In[1], in[0], in[1], in[2]
		own = []binding{steps, in[3], p.vector(n.W...), in[4]}
	}
	p.add(l, "decays", variant{"Delta": delta}, params{"heads": heads, "most": float32(n.MostShare())}, elements(heads),
		own...)
	kept := stateOf(n.State, true)
	scan := func(tile int) *dispatch {
		return p.add(l, "scan", variant{"Delta": delta, "Tile": tile},
			params{"heads": heads, "size": size, "groups": of.Shape[0], "n": of.Shape[1]},
			func(int) (x, y, z int) { return flat(heads * ((size + 63) / 64)) },
			p.values[n], stateOf(n.State, false), kept, slotsOf, queries, keys, values, steps)
	}
	scan(1).below = many
	if p.most(n) >= many {
		scan(scanTile).from = many
	}
	p.keep(l, of.Shape.Size(), 0, keys)
}

// keep keeps so many numbers of rows for later steps, from an element of a row kept on.
func (p *planner) keep(l *lowered, count, first int, of binding) {
	p.add(l, "keep", nil, params{"keys": count, "row": scanRow(l.node.State), "first": first}, elements(count),
		stateOf(l.node.State, true), slotsOf, of)
}

// lowerEachScan lowers a scan with a decay for each element of a key.
func lowerEachScan(p *planner, l *lowered) {
	n, delta, heads, size := l.node, l.node.Op == graph.DeltaScan, l.node.Shape[0], l.node.Shape[1]
	in := make([]gpu.Buffer, len(n.In))
	for i, x := range n.In {
		in[i] = p.values[x]
	}
	of, queries, keys, values, x, other, numbers := n.In[2], in[3], in[2], p.vector(n.W[0]), in[1], in[0], 4
	work := heads
	if delta {
		of, queries, keys, values, x, other, numbers = n.In[1], in[0], in[1], in[2], in[3], in[4], n.In[1].Shape[1]+1
		work *= numbers
	}
	steps := must(p.b.memory.empty("decays", 4*numbers*heads*p.most(n)))
	p.add(l, "eachstep", variant{"Delta": delta},
		params{"heads": heads, "n": of.Shape[1], "most": float32(n.MostShare())}, elements(work),
		steps, x, p.vector(n.W...), other)
	p.add(l, "eachscan", variant{"Delta": delta, "N": of.Shape[1]},
		params{"heads": heads, "size": size, "groups": of.Shape[0], "row": scanRow(n.State)},
		func(int) (x, y, z int) { return flat((heads*size + 63) / 64) },
		p.values[n], stateOf(n.State, false), stateOf(n.State, true), slotsOf, queries, keys, steps, values)
	p.keep(l, of.Shape.Size(), 0, keys)
	if delta {
		p.keep(l, heads*numbers, of.Shape.Size()+heads*size, steps)
	}
}
