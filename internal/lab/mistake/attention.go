package mistake

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

// sees returns the attributes of attention n.
func sees(n *graph.Node) graph.AttentionAttr { return n.Attr.(graph.AttentionAttr) }

// window returns how many positions an Attention sees, 0 for all.
func window(n *graph.Node) int { return sees(n).KV.Window }

// hasPlainStore reports whether keys and values of n are alike, so that an engine can take keys for values.
func hasPlainStore(n *graph.Node) bool { kv := sees(n).KV; return !kv.Latent && kv.Values() == kv.Dim }

// otherScalesOfScores lists other factors of the scores.
func otherScalesOfScores(p *Proposer, n *graph.Node) []*Hypothesis {
	right, dim, heads := sees(n).Scale, float64(sees(n).KV.Dim), n.In[0].Shape[0]
	return []*Hypothesis{fitting(n, Fit{Right: right, Least: 1e-4, Most: 100,
		Guesses: []float64{1, 1 / math.Sqrt(dim), 1 / dim, math.Sqrt(dim), math.Pow(dim, -0.25),
			1 / math.Sqrt(float64(p.g.Nodes[0].Shape.Size())/float64(heads)), right * right, math.Sqrt(right)},
		Make: func(v float64) *Hypothesis {
			return edit(n, fmt.Sprintf("scales the scores by %.6g, not by %.6g", v, right),
				detail{"scale": formula(v, dim)}, func(s *reference.Spec) { s.Attention.Scale = v })
		}})}
}

// formula returns how a scale of scores comes of the head's size, or the number.
func formula(v, dim float64) any {
	for _, f := range []struct {
		name  string
		value float64
	}{{"1/sqrt(head_dim)", 1 / math.Sqrt(dim)}, {"1/head_dim", 1 / dim}, {"sqrt(head_dim)", math.Sqrt(dim)},
		{"head_dim^-1/4", math.Pow(dim, -0.25)}} {
		if math.Abs(v/f.value-1) < 1e-3 {
			return f.name
		}
	}
	return v
}

// masks lists other positions that queries see: more of later positions, up to the end of a step, or fewer.
func masks(p *Proposer, n *graph.Node) []*Hypothesis {
	a := sees(n)
	all := []*Hypothesis{edit(n, "hides a query's own position from it", detail{"mask": "not its own"},
		ahead(-1))}
	if a.Grouped {
		all = append(all, edit(n, "hides later positions of a row's group", detail{"mask": "no groups"},
			func(s *reference.Spec) { s.Attention.Grouped = false }))
	} else if !a.Bidirectional && !a.KV.Chunked {
		all = append(all, edit(n, "lets the rows of a picture see later rows of the picture", detail{"mask": "groups"},
			func(s *reference.Spec) { s.Attention.Grouped = true }))
	}
	if a.Bidirectional {
		all = append(all, edit(n, "hides later positions, which the model sees", detail{"mask": "causal"},
			ahead(0)))
		if a.KV.Window > 0 {
			all = append(all, edit(n, "lets queries see all later positions, not those of the window alone",
				detail{"mask": "window of earlier ones"}, ahead(1<<30)))
		}
		return all
	}
	for _, end := range p.stepEnds(n) {
		all = append(all, edit(n, "lets queries see all positions, later ones too", detail{"mask": "none"},
			func(s *reference.Spec) {
				s.Attention.Window = 0
				upTo(1<<30, end)(s)
			}),
			edit(n, "lets queries see one position after their own", detail{"mask": "one ahead"},
				upTo(1, end)))
		if a.KV.Window > 0 {
			all = append(all, edit(n, "lets queries see all later positions", detail{"mask": "window alone"},
				upTo(1<<30, end)))
		}
	}
	return all
}

// ahead makes queries see other numbers of later positions.
func ahead(count int) reference.Edit { return func(s *reference.Spec) { s.Attention.Ahead = count } }

// upTo makes queries see later positions, up to the last of a step.
func upTo(count int, end func(e *reference.Eval, at int) int) reference.Edit {
	return func(s *reference.Spec) {
		s.Attention.Ahead = count
		bounds(s, func(e *reference.Eval, at, from, to int) (int, int) { return from, min(to, end(e, at)) })
	}
}

// since makes a node see no position before a first one.
func since(first func(e *reference.Eval, at int) int) reference.Edit {
	return func(s *reference.Spec) {
		bounds(s, func(e *reference.Eval, at, from, to int) (int, int) { return max(from, first(e, at)), to })
	}
}

// bounds changes the positions that a node sees, after other changes of them.
func bounds(s *reference.Spec, change func(e *reference.Eval, at, from, to int) (int, int)) {
	before := s.Seen
	s.Seen = func(e *reference.Eval, at, from, to int) (int, int) {
		if before != nil {
			from, to = before(e, at, from, to)
		}
		return change(e, at, from, to)
	}
}

// unbounded returns an encoder's window without its end. A search names the mistake that the errors tell.
func unbounded(_ *Proposer, n *graph.Node) []*Hypothesis {
	if n.Op != graph.Attention || !sees(n).Bidirectional || window(n) == 0 {
		return nil
	}
	return []*Hypothesis{built(n, "none", "lets queries see all later positions",
		ahead(1<<30))}
}

// otherAxes lists softmaxes along other axes, and none.
func otherAxes(_ *Proposer, n *graph.Node) []*Hypothesis {
	const top = "takes the largest score of each query away, and divides by the sum over the "
	of := func(axis string) detail { return detail{"axis": axis, "largest": "of keys"} }
	return []*Hypothesis{
		edit(n, "normalizes the scores over the heads", detail{"axis": "heads"}, softOver(true, false)),
		edit(n, "normalizes the scores over the queries", detail{"axis": "queries"}, softOver(false, false)),
		unlikely(0.1, edit(n, top+"heads", of("heads"), softOver(true, true))),
		unlikely(0.1, edit(n, top+"queries", of("queries"), softOver(false, true))),
		unlikely(0.5, edit(n, "does not normalize the scores", detail{"axis": "none"},
			func(s *reference.Spec) { s.Attention.Soft = func([]float64) {} })),
	}
}

// otherGroups lists other key and value heads of a query's head.
func otherGroups(_ *Proposer, n *graph.Node) (all []*Hypothesis) {
	count := sees(n).KV.Heads
	group := func(f func(h int) int) reference.Edit { return func(s *reference.Spec) { s.Attention.Group = f } }
	if count > 1 && count < n.In[0].Shape[0] {
		all = append(all, edit(n, "gives head h the keys and values of head h mod "+fmt.Sprint(count),
			detail{"map": "modulo"}, group(func(h int) int { return h % count })))
	}
	if count > 1 {
		all = append(all, unlikely(0.3, edit(n, "gives all heads the keys and values of the first",
			detail{"map": "first"}, group(func(int) int { return 0 }))))
	}
	return all
}

// lostSinks lists attention without its sinks.
func lostSinks(_ *Proposer, n *graph.Node) []*Hypothesis {
	if len(n.W) == 0 {
		return nil
	}
	return []*Hypothesis{edit(n, "leaves out the sinks", detail{"sinks": "none"},
		func(s *reference.Spec) { s.Attention.Sinks = nil })}
}

// otherCaps lists attention without the cap of its scores, with another cap, and with another function of the cap.
func otherCaps(_ *Proposer, n *graph.Node) []*Hypothesis {
	right := sees(n).Cap
	if right == 0 {
		return nil
	}
	all := []*Hypothesis{edit(n, fmt.Sprintf("does not cap the scores at %.6g", right),
		detail{"cap": "none", "right": right}, func(s *reference.Spec) { s.Attention.Cap = 0 }),
		unlikely(0.2, fitting(n, Fit{Right: right, Least: right / 10, Most: 10 * right,
			Guesses: []float64{15, 20, 30, 50, right / 2, right * 2}, Make: func(v float64) *Hypothesis {
				return edit(n, fmt.Sprintf("caps the scores at %.6g, not at %.6g", v, right),
					detail{"cap": v, "right": right}, func(s *reference.Spec) { s.Attention.Cap = v })
			}}))}
	for _, c := range capForms {
		all = append(all, edit(n, c.words+", of scores", detail{"form": c.words}, func(s *reference.Spec) {
			s.Attention.Cap = 0
			s.Attention.Soft = func(scores []float64) { reference.Softmax(capped(scores, right, c.of)) }
		}))
	}
	return all
}

// lastParts lists values that are another part of a latent.
func lastParts(_ *Proposer, n *graph.Node) []*Hypothesis {
	kv := sees(n).KV
	if !kv.Latent || kv.Values() >= kv.Dim {
		return nil
	}
	computed := fmt.Sprintf("takes the last %d elements of keys for the values, not the first", kv.Values())
	return []*Hypothesis{edit(n, computed,
		detail{"part": "last"}, func(s *reference.Spec) { s.Attention.Tail = true })}
}

// lostChunks lists attention by chunks without them.
func lostChunks(_ *Proposer, n *graph.Node) []*Hypothesis {
	if !sees(n).KV.Chunked {
		return nil
	}
	size := window(n)
	return []*Hypothesis{edit(n, "sees all earlier positions, without chunks",
		detail{"chunk": "none", "right": float64(size)}, func(s *reference.Spec) { s.Attention.Chunk = 0 }),
		edit(n, fmt.Sprintf("sees the last %d positions, not its own chunk of that length", size),
			detail{"chunk": "window", "right": float64(size)},
			func(s *reference.Spec) { s.Attention.Chunk, s.Attention.Window = 0, size })}
}

// hasWindow gives attention n another window, 0 for none.
func hasWindow(n *graph.Node, w int) reference.Edit {
	return func(s *reference.Spec) {
		// Another hypothesis may hide later positions.
		if s.Attention.Window = w; sees(n).Bidirectional && s.Attention.Ahead > 0 {
			s.Attention.Ahead = graph.AttentionAttr{KV: &graph.KV{Window: w}, Bidirectional: true}.Newest(0, 1<<30)
		}
	}
}

// lostWindows lists attention without its window.
func lostWindows(_ *Proposer, n *graph.Node) []*Hypothesis {
	if !hasSliding(nil, n) {
		return nil
	}
	return []*Hypothesis{edit(n, "sees all earlier positions, without the window", detail{}, hasWindow(n, 0))}
}

// hasSliding reports whether n is attention with a window, other than one by chunks.
func hasSliding(_ *site, n *graph.Node) bool {
	return n.Op == graph.Attention && window(n) > 0 && !sees(n).KV.Chunked
}

// otherPatterns lists attention taken for that of another kind of layers: their window, or all that they do.
func otherPatterns(p *Proposer, n *graph.Node) (all []*Hypothesis) {
	if sees(n).KV.Chunked {
		return nil
	}
	for _, x := range p.g.Nodes {
		if x.Op == graph.Attention && window(n) == 0 && window(x) > 0 {
			all = append(all, edit(n, fmt.Sprintf("has the window of %d that other layers have", window(x)),
				detail{"kind": "sliding"}, hasWindow(n, window(x))))
			break
		}
	}
	if h := p.OtherKind(n); h != nil {
		all = append(all, h)
	}
	return all
}

// otherWindows lists windows of another size: usual sizes, and the sizes that the errors tell, since the first row
// that a window changes is that many positions from the beginning.
func otherWindows(p *Proposer, n *graph.Node) []*Hypothesis {
	if sees(n).KV.Chunked {
		return nil
	}
	right, name := window(n), "all"
	if right > 0 {
		name = fmt.Sprint(right)
	}
	guesses := []float64{float64(right - 1), float64(right + 1), float64(right / 2), float64(2 * right)}
	for w := 16; w < p.Longest; w *= 2 {
		guesses = append(guesses, float64(w))
	}
	const most = 8
	if last, first := p.Wrong(n); first < p.Longest {
		for w := first; w > max(last, first-most); w-- {
			guesses = append(guesses, float64(w))
		}
	}
	return []*Hypothesis{unlikely(0.4, fitting(n, Fit{Right: float64(right), Least: 1, Most: float64(p.Longest),
		Integer: true, Guesses: guesses, Make: func(v float64) *Hypothesis {
			if v < 1 || int(v) == right {
				return nil
			}
			return edit(n, fmt.Sprintf("sees %g positions, not %s", v, name),
				detail{"window": v, "right": float64(right)}, hasWindow(n, int(v)))
		}}))}
}

// chunkedWindows lists windows that begin where that of the first or of the last query of a chunk does, as far as a
// prompt is long enough to tell. The likeliest size of several that are as near comes first.
func chunkedWindows(p *Proposer, n *graph.Node) (all []*Hypothesis) {
	if !hasSliding(nil, n) || sees(n).Bidirectional || p.Longest <= window(n) {
		return nil
	}
	for _, size := range []int{32, 64, 128, 256, 512, 16, 8, 4, 2} {
		all = append(all, chunked(n, size, "first", 0), chunked(n, size, "last", size-1))
	}
	return all
}

// chunked makes a window begin for all queries of a chunk of some size where that of one of them begins.
func chunked(n *graph.Node, size int, of string, which int) *Hypothesis {
	return unlikely(0.2, edit(n,
		fmt.Sprintf("begins the window of all queries of a chunk of %d where that of the %s one begins", size, of),
		detail{"chunk": float64(size), "of": of}, func(s *reference.Spec) {
			s.Attention.Window = 0
			since(func(_ *reference.Eval, at int) int { return min(max(at-at%size+which-window(n)+1, 0), at) })(s)
		}))
}

// anyChunk returns windows that begin once for a chunk, of every size up to the window.
func anyChunk(_ *Proposer, n *graph.Node) (all []*Hypothesis) {
	for size := 2; size <= window(n); size++ {
		all = append(all, chunked(n, size, "first", 0))
	}
	return all
}

// keysAsValues lists keys in the place of values.
func keysAsValues(p *Proposer, n *graph.Node) (all []*Hypothesis) {
	store := p.model.Store(n)
	if store == nil || len(store.In) < 2 || !hasPlainStore(n) {
		return nil
	}
	for key := store.In[0]; ; key = key.In[0] {
		if slices.Equal(key.Shape, store.In[1].Shape) && key != store.In[1] {
			h := edited(n, "takes "+Role(key)+" for the values", detail{"values": Role(key)},
				reference.Edits{store: {reads(1, key)}})
			h.Nodes = p.ReadingFrom(store)
			all = append(all, h)
			if key == store.In[0] && len(h.Nodes) > 1 { // one of the readers of the store
				all = append(all, unlikely(0.1, edit(n, "takes the stored keys for the values",
					detail{"values": Role(key), "of": "one layer"},
					stored(func(_ *reference.Eval, k, _ []float64, _, _ int) (_, _ []float64) { return k, k }))))
			}
		}
		if key.Op == graph.Linear || len(key.In) == 0 {
			return all
		}
	}
}

// otherStores lists the keys and values of other layers. Those of another width are read as if they had the layer's
// own: the first features of each head, or one row after the other.
func otherStores(p *Proposer, n *graph.Node) (all []*Hypothesis) {
	store := p.model.Store(n)
	if store == nil || len(store.In) < 2 || !hasPlainStore(n) {
		return nil
	}
	for _, x := range p.g.Nodes {
		if x.Op != graph.StoreKV || x == store || x.ID > n.ID {
			continue
		}
		computed := fmt.Sprintf("reads the keys and values of layer %d, not %d", x.Layer, store.Layer)
		d := detail{"layer": float64(x.Layer), "right": float64(store.Layer)}
		if slices.Equal(x.Shape, store.Shape) {
			h := edit(n, computed, d, func(s *reference.Spec) { s.Attention.Store = x })
			if n.Layer == store.Layer {
				h.Cost = 1
			}
			all = append(all, h)
			continue
		}
		heads, dim, others, width := store.Shape[0], store.Shape[1], x.Shape[0], x.Shape[1]
		read := func(how string, again func(rows []float64) []float64) {
			all = append(all, edit(n, computed+": "+how, detail{"layer": d["layer"], "right": d["right"], "read": how},
				func(s *reference.Spec) {
					s.Attention.Store = x
					stored(func(_ *reference.Eval, k, v []float64, _, _ int) (keys, values []float64) {
						return again(k), again(v)
					})(s)
				}))
		}
		read("as rows of its own length", func(rows []float64) []float64 {
			y := make([]float64, len(rows)/(others*width)*heads*dim)
			copy(y, rows)
			return y
		})
		if dim > width || heads > others {
			continue
		}
		read("the first features of each head", func(rows []float64) []float64 {
			var y []float64
			for t := 0; t < len(rows); t += others * width {
				for h := range heads {
					y = append(y, rows[t+h*width:][:dim]...)
				}
			}
			return y
		})
	}
	return all
}

// nearestStore returns keys and values of the nearest earlier layer that stores any, but the layer's own, and of each.
func nearestStore(p *Proposer, n *graph.Node) (all []*Hypothesis) {
	own := p.model.Store(n)
	var near *graph.Node
	for _, x := range p.g.Nodes {
		if x.Op == graph.StoreKV && x.Layer < n.Layer {
			near = x
		}
	}
	if near == nil || near == own {
		return nil
	}
	for _, h := range otherStores(p, n) {
		if h.Detail["layer"] != float64(near.Layer) {
			continue
		}
		h.Detail["built"] = "nearest"
		if read, _ := h.Detail["read"].(string); read == "as rows of its own length" {
			if h.Detail["built"] = "flat"; near.Shape.Size() == own.Shape.Size() {
				continue
			}
		}
		all = append(all, h)
	}
	return all
}

// softOver normalizes scores over the heads or over the queries, not over the keys; from
// the top is after the largest score of the keys was taken away, as for a softmax over these.
func softOver(heads, fromTop bool) reference.Edit {
	return func(s *reference.Spec) {
		s.Func = func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
			if s.Attention.Read != nil || s.Seen != nil {
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
			plain.Attention.Soft = func(p []float64) {
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
			plain.Attention.Soft = func(p []float64) {
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
		case s.Attention.Chunk > 0:
			return query - query%s.Attention.Chunk
		case s.Attention.Window > 0:
			return max(0, query-s.Attention.Window+1)
		}
		return min(s.Attention.Skip, query)
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

// lostChoices lists attention to all positions in place of the chosen.
func lostChoices(_ *Proposer, n *graph.Node) []*Hypothesis {
	if n.Chosen() == nil {
		return nil
	}
	return []*Hypothesis{edit(n, "sees all positions, not those that the indexer chooses", detail{},
		func(s *reference.Spec) { s.In = s.In[:1] })}
}

// fewerPositions lists choices of fewer positions: usual numbers, halves and quarters.
func fewerPositions(_ *Proposer, n *graph.Node) (all []*Hypothesis) {
	right := n.Shape[0]
	for _, k := range Union([]int{(right + 1) / 2, right / 4, right - 1}, []int{512, 1024}) {
		if k > 0 && k < right {
			all = append(all, edit(n, fmt.Sprintf("chooses %d positions, not %d", k, right),
				detail{"k": float64(k), "right": float64(right)}, func(s *reference.Spec) { s.Attention.Index.K = k }))
		}
	}
	return all
}

// otherScores lists choices by other scores.
func otherScores(_ *Proposer, n *graph.Node) []*Hypothesis {
	return []*Hypothesis{edit(n, "counts negative products, too, without ReLU", detail{"score": "linear"},
		func(s *reference.Spec) { s.Attention.Index.Linear = true }),
		edit(n, "weighs all heads of the indexer alike", detail{"score": "even"},
			func(s *reference.Spec) { s.Attention.Index.Even = true })}
}
