package mistake

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

func (p *Proposer) attentionHypotheses(n *graph.Node) []*Hypothesis {
	a := n.Attr.(graph.AttentionAttr)
	dim, heads := float64(a.KV.Dim), n.In[0].Shape[0]
	all := []*Hypothesis{
		fitting("attention_scale", n, Fit{Right: a.Scale, Least: 1e-4, Most: 100,
			Guesses: []float64{1, 1 / math.Sqrt(dim), 1 / dim, math.Sqrt(dim), math.Pow(dim, -0.25), 1 / math.Sqrt(float64(p.g.Nodes[0].Shape.Size())/float64(heads)), a.Scale * a.Scale, math.Sqrt(a.Scale)},
			Make: func(v float64) *Hypothesis {
				return edit("attention_scale", n, fmt.Sprintf("scales the scores by %.6g, not by %.6g", v, a.Scale), detail{"scale": formula(v, dim)},
					func(s *reference.Spec) { s.Scale = v })
			}}),
		edit("mask", n, "hides a query's own position from it", detail{"mask": "not its own"}, func(s *reference.Spec) { s.Ahead = -1 }),
	}
	all = append(all, softHypotheses(n)...)
	all = append(all, unlikely(0.5, edit("softmax_axis", n, "does not normalize the scores", detail{"axis": "none"}, func(s *reference.Spec) { s.Soft = func([]float64) {} })),
		edit("weight_missing", n, "gives zeros for attention", detail{"value": "zero"}, func(s *reference.Spec) { s.Times = 0 }))
	if a.KV.Heads > 1 && a.KV.Heads < heads {
		all = append(all, edit("gqa_map", n, "gives head h the keys and values of head h mod "+fmt.Sprint(a.KV.Heads), detail{"map": "modulo"},
			func(s *reference.Spec) { s.Group = func(h int) int { return h % a.KV.Heads } }))
	}
	if a.KV.Heads > 1 {
		all = append(all, unlikely(0.3, edit("gqa_map", n, "gives all heads the keys and values of the first", detail{"map": "first"},
			func(s *reference.Spec) { s.Group = func(int) int { return 0 } })))
	}
	all = append(all, p.masks(n, a)...)
	all = append(all, seenHypotheses(n, a)...)
	all = append(all, p.Windows(n)...)
	all = append(all, p.decoded(n)...)
	if a.KV.Latent || a.KV.Values() != a.KV.Dim {
		return all // the others take keys and values for each other
	}
	all = append(all, p.normedValues(n)...)
	return append(all, p.stores(n, a.KV)...)
}

// masks hide less of later positions than they should, up to the end of a step.
func (p *Proposer) masks(n *graph.Node, a graph.AttentionAttr) []*Hypothesis {
	if a.Bidirectional {
		return nil // later positions are the model's, too
	}
	var all []*Hypothesis
	for _, end := range p.stepEnds(n) {
		all = append(all, edit("mask", n, "lets queries see all positions, later ones too", detail{"mask": "none"}, func(s *reference.Spec) { s.Ahead, s.Window, s.Until = 1<<30, 0, end }),
			edit("mask", n, "lets queries see one position after their own", detail{"mask": "one ahead"}, func(s *reference.Spec) { s.Ahead, s.Until = 1, end }))
		if a.KV.Window > 0 {
			all = append(all, edit("mask", n, "lets queries see all later positions", detail{"mask": "window alone"}, func(s *reference.Spec) { s.Ahead, s.Until = 1<<30, end }))
		}
	}
	return all
}

// softHypotheses returns softmaxes along other axes.
func softHypotheses(n *graph.Node) []*Hypothesis {
	return []*Hypothesis{
		edit("softmax_axis", n, "normalizes the scores over the heads", detail{"axis": "heads"}, softOver(true, false)),
		edit("softmax_axis", n, "normalizes the scores over the queries", detail{"axis": "queries"}, softOver(false, false)),
		unlikely(0.1, edit("softmax_axis", n, "takes the largest score of each query away, and divides by the sum over the heads", detail{"axis": "heads", "largest": "of keys"}, softOver(true, true))),
		unlikely(0.1, edit("softmax_axis", n, "takes the largest score of each query away, and divides by the sum over the queries", detail{"axis": "queries", "largest": "of keys"}, softOver(false, true))),
	}
}

// formula returns how a scale of scores comes of the head's size, or the number.
func formula(v, dim float64) any {
	for _, f := range []struct {
		name  string
		value float64
	}{{"1/sqrt(head_dim)", 1 / math.Sqrt(dim)}, {"1/head_dim", 1 / dim}, {"sqrt(head_dim)", math.Sqrt(dim)}, {"head_dim^-1/4", math.Pow(dim, -0.25)}} {
		if math.Abs(v/f.value-1) < 1e-3 {
			return f.name
		}
	}
	return v
}

// Windows lists other windows of attention n than the model has.
func (p *Proposer) Windows(n *graph.Node) []*Hypothesis {
	longest, kv := p.Longest, n.Attr.(graph.AttentionAttr).KV
	both := n.Attr.(graph.AttentionAttr)
	window := func(w int) reference.Edit {
		return func(s *reference.Spec) {
			if s.Window = w; both.Bidirectional && s.Ahead > 0 { // which may be hidden, under another hypothesis
				s.Ahead = graph.AttentionAttr{KV: &graph.KV{Window: w}, Bidirectional: true}.Newest(0, 1<<30)
			}
		}
	}
	var all []*Hypothesis
	if kv.Chunked {
		return nil
	}
	if kv.Window > 0 {
		all = append(all, perChunk(n, kv.Window, longest)...)
		all = append(all, edit("window_missing", n, "sees all earlier positions, without the window", detail{}, window(0)))
	}
	for _, x := range p.g.Nodes {
		if a, ok := x.Attr.(graph.AttentionAttr); ok && kv.Window == 0 && a.KV.Window > 0 {
			all = append(all, edit("layer_pattern", n, fmt.Sprintf("has the window of %d that other layers have", a.KV.Window), detail{"kind": "sliding"}, window(a.KV.Window)))
			break
		}
	}
	if h := p.OtherKind(n); h != nil {
		all = append(all, h)
	}
	guesses := []float64{float64(kv.Window - 1), float64(kv.Window + 1), float64(kv.Window / 2), float64(2 * kv.Window)}
	for w := 16; w < longest; w *= 2 {
		guesses = append(guesses, float64(w))
	}
	// The first row that a window changes is that many positions from the beginning.
	const most = 8
	if last, first := p.Wrong(n); first < longest {
		for w := first; w > max(last, first-most); w-- {
			guesses = append(guesses, float64(w))
		}
	}
	return append(all, unlikely(0.4, fitting("window_size", n, Fit{Right: float64(kv.Window), Least: 1, Most: float64(longest), Integer: true, Guesses: guesses, Make: func(v float64) *Hypothesis {
		if v < 1 || int(v) == kv.Window {
			return nil
		}
		right := "all"
		if kv.Window > 0 {
			right = fmt.Sprint(kv.Window)
		}
		return edit("window_size", n, fmt.Sprintf("sees %g positions, not %s", v, right), detail{"window": v, "right": float64(kv.Window)}, window(int(v)))
	}})))
}

// perChunk returns windows that begin where that of the first or of the last query of a chunk does, as far as a
// prompt is long enough to tell. The likeliest size of several that are as near comes first.
func perChunk(n *graph.Node, window, longest int) []*Hypothesis {
	if n.Attr.(graph.AttentionAttr).Bidirectional || longest <= window {
		return nil
	}
	var all []*Hypothesis
	for _, size := range []int{32, 64, 128, 256, 512, 16, 8, 4, 2} {
		all = append(all, chunked(n, window, size, "first", 0), chunked(n, window, size, "last", size-1))
	}
	return all
}

// chunked makes a window begin for all queries of a chunk of some size where that of one of them begins.
func chunked(n *graph.Node, window, size int, of string, which int) *Hypothesis {
	return unlikely(0.2, edit("window_per_chunk", n,
		fmt.Sprintf("begins the window of all queries of a chunk of %d where that of the %s one begins", size, of),
		detail{"chunk": float64(size), "of": of}, func(s *reference.Spec) {
			s.Window = 0
			s.First = func(_ *reference.Eval, at int) int { return min(max(at-at%size+which-window+1, 0), at) }
		}))
}

// stores returns other keys and values than the layer's: keys in the place of values, and
// other layers'.
func (p *Proposer) stores(n *graph.Node, kv *graph.KV) []*Hypothesis {
	store := p.model.Store(n)
	if store == nil || len(store.In) < 2 {
		return nil
	}
	var all []*Hypothesis
	for key := store.In[0]; ; key = key.In[0] {
		if slices.Equal(key.Shape, store.In[1].Shape) && key != store.In[1] {
			h := edit("k_as_v", n, "takes "+Role(key)+" for the values", detail{"values": Role(key)}, func(*reference.Spec) {})
			h.Edits, h.Nodes = reference.Edits{store: {reads(1, key)}}, p.ReadingFrom(store)
			all = append(all, h)
			if key == store.In[0] && len(h.Nodes) > 1 { // one of the readers of the store
				all = append(all, unlikely(0.1, edit("k_as_v", n, "takes the stored keys for the values", detail{"values": Role(key), "of": "one layer"}, func(s *reference.Spec) {
					s.Only = func(_ *reference.Eval, k, _ []float64, _ [2]int, _ int) ([]float64, []float64) { return k, k }
				})))
			}
		}
		if key.Op == graph.Linear || len(key.In) == 0 {
			break
		}
	}
	for _, x := range p.g.Nodes {
		if x.Op != graph.StoreKV || x == store || x.ID > n.ID {
			continue
		}
		if !slices.Equal(x.Shape, store.Shape) {
			all = append(all, misfits(n, store, x)...)
			continue
		}
		h := edit("kv_share_source", n, fmt.Sprintf("reads the keys and values of layer %d, not %d", x.Layer, store.Layer),
			detail{"layer": float64(x.Layer), "right": float64(store.Layer)}, func(s *reference.Spec) { s.Store = x })
		if n.Layer == store.Layer {
			h.Cost += 1
		}
		all = append(all, h)
	}
	return all
}

// misfits returns stores of another width, read as if they had the layer's own: the first
// features of each head, or one row after the other.
func misfits(n, store, x *graph.Node) []*Hypothesis {
	heads, dim, others, width := store.Shape[0], store.Shape[1], x.Shape[0], x.Shape[1]
	read := func(what string, again func(rows []float64) []float64) *Hypothesis {
		return edit("kv_share_source", n, fmt.Sprintf("reads the keys and values of layer %d, not %d: %s", x.Layer, store.Layer, what),
			detail{"layer": float64(x.Layer), "right": float64(store.Layer), "read": what}, func(s *reference.Spec) { s.Store, s.Again, s.Width = x, again, heads*dim })
	}
	flat := read("as rows of its own length", func(rows []float64) []float64 {
		return append(slices.Clone(rows), make([]float64, max(0, len(rows)/(others*width)*heads*dim-len(rows)))...)
	})
	if dim > width || heads > others {
		return []*Hypothesis{flat}
	}
	return []*Hypothesis{flat, read("the first features of each head", func(rows []float64) []float64 {
		var y []float64
		for t := 0; t < len(rows); t += others * width {
			for h := range heads {
				y = append(y, rows[t+h*width:][:dim]...)
			}
		}
		return y
	})}
}

// softOver normalizes scores over the heads or over the queries, not over the keys; from
// the top is after the largest score of the keys was taken away, as for a softmax over these.
func softOver(heads, fromTop bool) reference.Edit {
	return func(s *reference.Spec) {
		s.Func = func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
			if s.Again != nil || s.First != nil || s.Only != nil {
				return nil, errors.New("other keys than the model's are not normalized otherwise, too")
			}
			queries := rows
			if !heads {
				queries = make([]int, e.Len())
				for i := range queries {
					queries[i] = i
				}
			}
			plain := *s
			var weights [][]float64 // by query and head
			plain.Soft = func(p []float64) {
				p = slices.Clone(p)
				if fromTop {
					top := slices.Max(p)
					for j := range p {
						p[j] -= top
					}
				}
				weights = append(weights, p)
			}
			if _, err := plain.Attend(e, queries); err != nil {
				return nil, err
			}
			count := s.In[0].Shape[0]
			if heads {
				for i := range rows {
					normalize(weights[i*count:(i+1)*count], func(int) int { return 0 })
				}
			} else {
				for h := range count {
					var of [][]float64
					for q := range queries {
						of = append(of, weights[q*count+h])
					}
					normalize(of, oldest(s))
				}
			}
			i := 0
			plain.Soft = func(p []float64) {
				at := i / count
				if !heads {
					at = rows[at]
				}
				copy(p, weights[at*count+i%count])
				i++
			}
			return plain.Attend(e, rows)
		}
	}
}

// oldest returns the first position that a query sees.
func oldest(s *reference.Spec) func(query int) int {
	return func(query int) int {
		switch {
		case s.Chunk > 0:
			return query - query%s.Chunk
		case s.Window > 0:
			return max(0, query-s.Window+1)
		}
		return 0
	}
}

// normalize makes weights of lists of scores, each of keys from the oldest of the list on: over the lists, for each
// key.
func normalize(scores [][]float64, oldest func(list int) int) {
	keys := 0
	for i, list := range scores {
		keys = max(keys, oldest(i)+len(list))
	}
	top, sums := slices.Repeat([]float64{math.Inf(-1)}, keys), make([]float64, keys)
	for i, list := range scores {
		for j, p := range list {
			top[oldest(i)+j] = max(top[oldest(i)+j], p)
		}
	}
	for i, list := range scores {
		for j, p := range list {
			k := oldest(i) + j
			list[j] = math.Exp(p - top[k])
			sums[k] += list[j]
		}
	}
	for i, list := range scores {
		for j := range list {
			list[j] /= sums[oldest(i)+j]
		}
	}
}

// normedValues returns a norm of heads of values that the model does not have.
func (p *Proposer) normedValues(n *graph.Node) []*Hypothesis {
	var all []*Hypothesis
	if store := p.model.Store(n); store != nil && len(store.In) > 1 && Behind(store.In[1]).Op != graph.RMSNorm && store.In[1].Op == graph.View {
		all = append(all, p.extraNorm(store.In[1], "values", func(e *reference.Eval, s *reference.Spec, rows []int, norm func([]float64) []float64) ([]float64, error) {
			y, err := e.Value(s.In[0], rows)
			return norm(y), err
		}))
	}
	return all
}

// ByErrors lists what the engine may do instead of attention n, as far as the errors of its rows tell it.
func (p *Proposer) ByErrors(n *graph.Node) []*Hypothesis {
	a := n.Attr.(graph.AttentionAttr)
	return slices.Concat(p.anew(n), p.masks(n, a), p.Windows(n))
}
