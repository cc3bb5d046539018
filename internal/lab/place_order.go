package lab

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/registry"
	"github.com/karat-run/karat/internal/rope"
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
	sizes, layers := map[*graph.Node]int{}, map[int]bool{} // of heads that are interleaved, and where that is not as usual
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
				map[order]string{halves: "in its two halves", interleaved: "neighbours"}[other], slices.Sorted(maps.Keys(layers)),
				votes[nil][other]))
	}
	for i := range l.out.Taps {
		if t := &l.out.Taps[i]; sizes[t.Node] > 0 {
			t.pairs = sizes[t.Node]
		}
	}
}

// turn is a rotation, the projection it is of, these and what lies between, and whose keys it is about.
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

// turned returns a head after rotation, with its pairs in an order.
func turned(x []float64, by graph.RoPEAttr, position int, o order) []float64 {
	y := make([]float64, len(x))
	for i, f := range by.Freqs {
		a, b := i, i+len(x)/2
		if o == interleaved {
			a, b = 2*i, 2*i+1
		}
		cos, sin := rope.TurnBy(position, f, by.Magnitude)
		y[a], y[b] = x[a]*cos-x[b]*sin, x[b]*cos+x[a]*sin
	}
	return y
}

// turnOrder finds the order of a rotation, by the rotation's own tap or by attention's output, at the last position
// in the first head.
func (l *placer) turnOrder(n *graph.Node) order {
	in := l.raw(source(n.In[0]))
	if in == nil {
		return unknown
	}
	position := in.First + in.Rows - 1
	x, by := in.at(position), n.Attr.(graph.RoPEAttr)
	if out := l.raw(n).at(position); out != nil {
		size := n.Shape.Last()
		return nearer(out[:size], turned(x[:size], by, position, halves), turned(x[:size], by, position, interleaved))
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
	attr := a.Attr.(graph.AttentionAttr)
	var keys, values *graph.Node
	for _, n := range l.g.Nodes {
		if n.Op == graph.StoreKV && n.Attr == attr.KV {
			keys, values = source(n.In[0]), source(n.In[len(n.In)-1])
		}
	}
	queries := source(a.In[0])
	if keys == nil || keys.Op != graph.RoPE || queries.Op != graph.RoPE {
		return unknown
	}
	out := l.raw(a)
	q, k, v := l.raw(source(queries.In[0])), l.raw(source(keys.In[0])), l.raw(values)
	if out == nil || q == nil || k == nil || v == nil {
		return unknown
	}
	last := min(out.First+out.Rows-1, max(out.First, 200)) // far enough to tell
	first := 0
	if w := attr.KV.Window; w > 0 {
		first = max(0, last+1-w)
	}
	var got [interleaved + 1][]float64
	for _, o := range []order{halves, interleaved} {
		got[o] = make([]float64, attr.KV.Dim)
		var scores []float64
		for t := first; t <= last; t++ {
			x, y := q.at(last), k.at(t)
			if x == nil || y == nil || v.at(t) == nil {
				return unknown
			}
			x = turned(x[:attr.KV.Dim], queries.Attr.(graph.RoPEAttr), last, o)
			y = turned(y[:attr.KV.Dim], keys.Attr.(graph.RoPEAttr), t, o)
			s := 0.
			for j := range x {
				s += x[j] * y[j] * attr.Scale
			}
			scores = append(scores, s)
		}
		mix(got[o], scores, func(i int) []float64 { return v.at(first + i) })
	}
	return nearer(out.at(last)[:attr.KV.Dim], got[halves], got[interleaved])
}

// mix sets y to the rows' mean by the softmax of their scores.
func mix(y, scores []float64, row func(int) []float64) {
	top := math.Inf(-1)
	for _, s := range scores {
		top = max(top, s)
	}
	sum := 0.
	for i, s := range scores {
		w := math.Exp(s - top)
		sum += w
		for j, v := range row(i)[:len(y)] {
			y[j] += w * v
		}
	}
	for j := range y {
		y[j] /= sum
	}
}
