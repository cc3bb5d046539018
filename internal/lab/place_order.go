package lab

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/registry"
)

// The two orders of a head's rotated pairs. An engine may have either, if its
// projections' rows and its rotation agree about it: attention is the same.
type order int

const (
	unknown     order = iota
	halves            // first the left sides of all pairs, then the right ones: the graph's
	interleaved       // pair by pair: llama.cpp's for families whose rows its converter permutes
)

// permuted reports whether converters to GGUF permute the rows of the family whose
// file recorded n.
func permuted(n *graph.Node) bool {
	name, _, _ := strings.Cut(n.Pos, ".go:")
	f := registry.Find(name)
	return f != nil && slices.ContainsFunc(f.Habits, func(h family.Habit) bool { return h.Heads != "" })
}

// orderHeads finds the order the engine has, and sets how l's taps of rotated heads, before and after the
// rotation, are read. llama.cpp's order is known; other engines have halves. Either order gives way to the other,
// among the layers that read the same keys, where more projections of all prompts follow the other: W·x shows their
// rows in that order, and rotation or attention went by the same order. (A prompt of a single token decides
// nothing: nothing is turned.)
func (l *placer) orderHeads(all []*placer) {
	usual := halves
	var turns []turn
	for _, n := range l.g.Nodes {
		if a, ok := n.Attr.(graph.RoPEAttr); !ok || 2*len(a.Freqs) != n.Shape.Last() || a.Interleaved {
			continue
		}
		if l.out.Names == NamesLlamaCpp && permuted(n) {
			usual = interleaved
		}
		t := turn{rope: n, linear: n, kv: l.keysOf(n)}
		for ; t.linear.Op != graph.Linear && len(t.linear.In) > 0; t.linear = source(t.linear.In[0]) {
			t.nodes = append(t.nodes, t.linear)
		}
		t.nodes = append(t.nodes, t.linear)
		turns = append(turns, t)
	}
	votes := map[*graph.KV]map[order]int{}
	err := mmap.Guard(func() error {
		for _, l := range all {
			l.vote(turns, usual, votes)
		}
		return nil
	})
	if err != nil {
		return
	}
	other := halves + interleaved - usual
	sizes, layers := map[*graph.Node]int{}, map[int]bool{} // of interleaved heads, and where unlike the usual
	for _, t := range turns {
		v := votes[t.kv]
		if v == nil {
			v = votes[nil] // of all
		}
		changed := v[other] > v[usual]
		if changed {
			layers[t.rope.Layer] = true
		}
		for _, n := range t.nodes {
			if changed == (usual == halves) {
				sizes[n] = t.rope.Shape.Last()
			}
		}
	}
	if len(layers) > 0 {
		l.out.Inferred = append(l.out.Inferred,
			fmt.Sprintf("the rotated pairs of a head are %s in layers %v: %d projections and what follows have them so",
				map[order]string{halves: "in its two halves", interleaved: "neighbours"}[other],
				slices.Sorted(maps.Keys(layers)),
				votes[nil][other]))
	}
	for i := range l.out.Taps {
		if t := &l.out.Taps[i]; sizes[t.Node] > 0 {
			t.pairs = sizes[t.Node]
		}
	}
}

// turn holds a rotation, the projection being rotated, the nodes from the projection to the rotation, and the store of
// the keys.
type turn struct {
	rope, linear *graph.Node
	nodes        []*graph.Node
	kv           *graph.KV
}

// keysOf returns the place of the keys a rotation turns, or meets as queries; nil if there is none.
func (l *placer) keysOf(rope *graph.Node) *graph.KV {
	for _, n := range l.g.Nodes {
		switch a := n.Attr.(type) {
		case graph.AttentionAttr:
			if source(n.In[0]) == rope {
				return a.KV
			}
		case *graph.KV:
			if source(n.In[0]) == rope {
				return a
			}
		}
	}
	return nil
}

// vote counts the orders a prompt's values show, by keys; nil stands for all.
func (l *placer) vote(turns []turn, usual order, votes map[*graph.KV]map[order]int) {
	for _, t := range turns {
		if o := l.rowOrder(t.linear, t.rope.Shape.Last()); t.kv != nil && o != unknown &&
			(o == usual || o == l.turnOrder(t.rope)) {
			for _, kv := range []*graph.KV{t.kv, nil} {
				if votes[kv] == nil {
					votes[kv] = map[order]int{}
				}
				votes[kv][o]++
			}
		}
	}
}

// raw returns a copy of the first tap placed at n, nil if there is none.
func (l *placer) raw(n *graph.Node) *Placed {
	for _, t := range l.out.Taps {
		if t.Node == n {
			return &t
		}
	}
	return nil
}

// at returns the tap's row at a position, nil if the tap lacks the position.
func (p *Placed) at(position int) []float64 {
	if p == nil || position < p.First || position >= p.First+p.Rows {
		return nil
	}
	x := make([]float64, p.Width)
	p.Read(x, position-p.First)
	return x
}

// nearer returns the order whose vector lies clearly nearer to x, if there is one.
func nearer(x, half, inter []float64) order {
	var h, i float64
	for j, v := range x {
		h += (v - half[j]) * (v - half[j])
		i += (v - inter[j]) * (v - inter[j])
	}
	switch {
	case 16*h < i:
		return halves
	case 16*i < h:
		return interleaved
	}
	return unknown
}

// rowOrder compares a projection's output with the product of its weight and its input,
// at the last position in the first head.
func (l *placer) rowOrder(n *graph.Node, size int) order {
	out, bias := l.raw(n), make([]float32, size)
	if n.Op != graph.Linear {
		return unknown
	}
	if b := l.biased(n); out == nil && b != nil && b.W[0].DType.Float() {
		out = l.raw(b)
		if err := quant.Dequantize(b.W[0].DType, bias, b.W[0].Data[:b.W[0].DType.RowBytes(size)]); err != nil {
			return unknown
		}
	}
	if out == nil {
		return unknown
	}
	position := out.First + out.Rows - 1
	x, got := l.raw(source(n.In[0])).at(position), out.at(position)
	w := n.W[0]
	if x == nil || len(w.Data) == 0 {
		return unknown
	}
	want := make([]float64, size)
	row := make([]float32, len(x))
	for i := range want {
		if err := quant.Dequantize(w.DType, row, w.Row(i)); err != nil {
			return unknown
		}
		want[i] = float64(bias[i])
		for j, v := range row {
			want[i] += float64(v) * x[j]
		}
	}
	return nearer(got[:size], want, interleave(want))
}

// biased returns the sum of a projection and its bias, nil if the projection has no bias.
func (l *placer) biased(n *graph.Node) *graph.Node {
	i := slices.IndexFunc(l.g.Nodes, func(b *graph.Node) bool {
		return b.Op == graph.Add && len(b.W) == 1 && len(b.In) == 1 && b.In[0] == n
	})
	if i < 0 {
		return nil
	}
	return l.g.Nodes[i]
}

// interleave puts the halves of x in pairs.
func interleave(x []float64) []float64 {
	y := make([]float64, len(x))
	for i := range len(x) / 2 {
		y[2*i], y[2*i+1] = x[i], x[len(x)/2+i]
	}
	return y
}

// turnOrder finds the order of a rotation, by the rotation's own tap or by attention's output.
func (l *placer) turnOrder(n *graph.Node) order {
	in := l.raw(source(n.In[0]))
	if in == nil {
		return unknown
	}
	last := in.First + in.Rows - 1
	if out := l.raw(n); out.at(last) != nil {
		return l.orderIn(out, last, n.Shape.Last(), in)
	}
	for _, a := range l.g.Nodes {
		if a.Op == graph.Attention && a.Layer == n.Layer {
			return l.attendOrder(a)
		}
	}
	return unknown
}

// attendOrder finds the order in which the queries and keys of an attention were turned, by attention's output.
func (l *placer) attendOrder(a *graph.Node) order {
	store, queries := l.model.Store(a), source(a.In[0])
	if store == nil || source(store.In[0]).Op != graph.RoPE || queries.Op != graph.RoPE {
		return unknown
	}
	out, q := l.raw(a), l.raw(source(queries.In[0]))
	k, v := l.raw(source(source(store.In[0]).In[0])), l.raw(source(store.In[len(store.In)-1]))
	if out == nil || q == nil || k == nil || v == nil {
		return unknown
	}
	last := min(out.First+out.Rows-1, max(out.First, 200)) // far enough to tell
	kv, first := a.Attr.(graph.AttentionAttr).KV, 0
	if kv.Window > 0 {
		first = max(0, last+1-kv.Window)
	}
	for _, t := range []*Placed{k, v} {
		if t.at(first) == nil || t.at(last) == nil || q.at(last) == nil {
			return unknown
		}
	}
	return l.orderIn(out, last, kv.Values(), q, k, v)
}

// orderIn finds the order in which rotations turn pairs between some taps and out, by out's first values at a position.
func (l *placer) orderIn(out *Placed, position, size int, from ...*Placed) order {
	known := map[*graph.Node]reference.Known{}
	for _, t := range from {
		known[t.Node] = Tap{*t}
	}
	e := l.model.Eval(make([]int32, position+1), known, nil).At(l.p.Parts)
	var got [interleaved + 1][]float64
	for _, o := range []order{halves, interleaved} {
		edits := reference.Edits{}
		for _, n := range l.g.Nodes {
			if n.Op == graph.RoPE {
				edits[n] = []reference.Edit{func(s *reference.Spec) { s.Rope.Interleaved = o == interleaved }}
			}
		}
		y, err := e.With(edits).Compute(out.Node, []int{position})
		if err != nil {
			return unknown
		}
		got[o] = y[:size]
	}
	return nearer(out.at(position)[:size], got[halves], got[interleaved])
}
