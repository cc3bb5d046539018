package mistake

import (
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

// lostNorms returns the forms of a cause by which a norm is left out: n itself, the norm that n adds, and norms that
// are computed, as their taps show, but whose readers go on with the value before the norm.
func lostNorms(cause string) forms {
	return func(p *Proposer, n *graph.Node) (all []*Hypothesis) {
		if isNorm(n) && p.MissingNorm(n) == cause {
			all = append(all, edit(n, "leaves the norm out", detail{}, passes(0)))
			if n.Op == graph.RMSNorm && len(n.W) > 0 {
				all = append(all, unlikely(0.5, edit(n, "multiplies by the weight without norming",
					detail{"kept": "weight"}, ofInputs(weightOnly))))
			}
		}
		if isSum(n) && n.In[1].Op == graph.RMSNorm && p.MissingNorm(n.In[1]) == cause {
			all = append(all, edited(n.In[1], "adds what was not normed", detail{},
				reference.Edits{n: {reads(1, n.In[1].In[0])}}))
		}
		for _, x := range n.In {
			if x = Behind(x); x.Op == graph.RMSNorm && p.Tapped(x) && p.MissingNorm(x) == cause {
				all = append(all, edited(x, "leaves the norm out", detail{}, p.readersOf(x, x.In[0])))
			}
		}
		return all
	}
}

// isNorm reports whether n is a norm of any kind.
func isNorm(n *graph.Node) bool {
	return n.Op == graph.RMSNorm || n.Op == graph.LayerNorm || n.Op == graph.L2Norm
}

// weightOnly multiplies by a norm's weight without norming.
func weightOnly(_ *reference.Eval, s *reference.Spec, _ []int, in [][]float64) ([]float64, error) {
	if len(s.W) == 0 {
		return in[0], nil
	}
	w, err := reference.Vector(s.W[0])
	for i := range in[0] {
		in[0][i] *= s.Offset + w[i%len(w)]
	}
	return in[0], err
}

// otherEpsilons lists a norm's other epsilons.
func otherEpsilons(_ *Proposer, n *graph.Node) []*Hypothesis {
	eps, to := float64(n.Attr.(graph.NormAttr).Eps), "the mean square"
	guesses := []float64{1e-12, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e30}
	if n.Op == graph.LayerNorm {
		to, guesses = "the variance", []float64{1e-12, 1e-8, 1e-6, 1e-5, 1e-3, 1e30}
	}
	return []*Hypothesis{unlikely(0.1, fitting(n, Fit{Right: eps, Least: 1e-12, Most: 1, Guesses: guesses,
		Make: func(v float64) *Hypothesis {
			return edit(n, fmt.Sprintf("adds %.3g to %s, not %.3g", v, to, eps), detail{"eps": v, "right": eps},
				func(s *reference.Spec) { s.Eps = v })
		}}))}
}

// otherOffsets lists numbers that are added to a norm's weight.
func otherOffsets(_ *Proposer, n *graph.Node) (all []*Hypothesis) {
	right := float64(n.Attr.(graph.NormAttr).Offset)
	for _, offset := range []float64{0, 1, 2} {
		if len(n.W) > 0 && offset != right {
			all = append(all, edit(n, fmt.Sprintf("multiplies by the weight plus %g, not plus %g", offset, right),
				detail{"offset": offset, "right": right}, func(s *reference.Spec) { s.Offset = offset }))
		}
	}
	return all
}

// otherNorms lists the weights of the other norms of n's layer, and of norms outside the layers.
func otherNorms(p *Proposer, n *graph.Node) (all []*Hypothesis) {
	for _, x := range p.g.Nodes {
		if x == n || x.Op != n.Op || !alikeWeights(x, n) || x.Layer != n.Layer && x.Layer >= 0 {
			continue
		}
		name, cost := Role(x), 0.0
		if x.Layer != n.Layer {
			name, cost = x.Name, 0.5
		}
		if x.Layer < 0 || Role(x) != Role(n) {
			all = append(all, unlikely(cost, edit(n, "has the weight of "+name, detail{"tensor": name}, hasWeights(x))))
		}
	}
	return all
}

// otherMeans lists norms of another kind: a mean that is subtracted, or is not, and a length that is no mean.
func otherMeans(_ *Proposer, n *graph.Node) []*Hypothesis {
	if n.Op == graph.LayerNorm {
		return []*Hypothesis{edit(n, "divides by the root mean square, without subtracting the mean", detail{},
			func(s *reference.Spec) { s.KeepMean = true })}
	}
	return []*Hypothesis{edit(n, "subtracts the mean first, as LayerNorm does", detail{"mean": "subtracted"},
		normsOf(func(x []float64) {
			mean := meanOf(x, func(v float64) float64 { return v })
			for i := range x {
				x[i] -= mean
			}
		}))}
}

// otherLengths lists a norm by the mean square in the place of a norm by length, and the reverse.
func otherLengths(_ *Proposer, n *graph.Node) []*Hypothesis {
	if n.Op == graph.L2Norm {
		return []*Hypothesis{edit(n, "divides by the root of the mean square", detail{}, normsOf(func([]float64) {}))}
	}
	return []*Hypothesis{edit(n, "divides by the root of the sum of squares, not of their mean", detail{},
		normsOver(n.Shape.Last(), n.Shape.Last(), 1))}
}

// otherWidths lists norms by the mean square of other features: of all heads, of each head alone, and of half a row.
func otherWidths(p *Proposer, n *graph.Node) (all []*Hypothesis) {
	d, size := n.Shape.Last(), n.Shape.Size()
	over := func(what string, width, count int) {
		if width <= size && count >= 2 && [2]int{width, count} != [2]int{d, d} && size%width == 0 {
			all = append(all, edit(n, "norms by the mean square of "+what, detail{"over": what},
				normsOver(width, count, count)))
		}
	}
	over("all heads", size, size)
	if dim := p.HeadDim(n); dim > 0 {
		over("each head", dim, dim)
	}
	over("the first half of a row", d, d/2)
	return all
}

// normsOver makes a node an RMSNorm of rows of a width, by the squares of their first features divided by a number.
func normsOver(width, features, by int) reference.Edit {
	return ofInputs(func(_ *reference.Eval, s *reference.Spec, rows []int, in [][]float64) ([]float64, error) {
		for y := in[0]; len(y) > 0; y = y[width:] {
			var sum float64
			for _, v := range y[:features] {
				sum += v * v
			}
			for j := range width {
				y[j] /= math.Sqrt(sum/float64(by) + s.Eps)
			}
		}
		return weightOnly(nil, s, rows, in)
	})
}

// normsOf makes a node an RMSNorm of the vectors of its input, each changed before.
func normsOf(change func(x []float64)) reference.Edit {
	return ofInputs(func(e *reference.Eval, s *reference.Spec, _ []int, in [][]float64) ([]float64, error) {
		for d, r := s.Node.Shape.Last(), 0; r < len(in[0]); r += d {
			change(in[0][r : r+d])
		}
		return s.Norm(e, in[0])
	})
}

// otherStates lists other states feeding a head for drafts: for the model's rows and for the recycled.
func otherStates(p *Proposer, n *graph.Node) []*Hypothesis {
	if n.State == nil || n.State.Recycles == "" {
		return nil
	}
	norm, own := n.In[0], p.g.Node(n.State.Recycles)
	bare := func(s *reference.Spec) { s.Sequence.Recycled = own.In[0] }
	const before = "before the norm"
	from := 2 // the first row with a draft before
	if _, first := p.Wrong(n); first != WholePrompt {
		from = max(from, first)
	}
	all := []*Hypothesis{
		edit(n, "feeds the head the model's state before the last norm", detail{"state": before}, reads(0, norm.In[0])),
		edit(n, "feeds the head the model's state normed twice", detail{"state": "normed twice"},
			after(func(e *reference.Eval, s *reference.Spec, at int, row []float64) error {
				if at == 0 || s.Sequence.Recycles(e, at) {
					return nil
				}
				y, err := e.Spec(norm).Norm(e, row)
				copy(row, y)
				return err
			})),
		edit(n, "feeds the head its own state before its norm", detail{"recycled": before}, bare),
		edit(n, "feeds the head states before their norms, the model's and its own",
			detail{"state": before, "recycled": before},
			func(s *reference.Spec) { reads(0, norm.In[0])(s); bare(s) }),
		edit(n, "feeds the head the state of the row itself, not of the row before", detail{"state": "the row's own"},
			passes(0)),
		edit(n, "keeps the states of drafts, where the verified rows of the model have others",
			detail{"state": "the draft's"}, func(s *reference.Spec) {
				s.Sequence.Recycles = func(e *reference.Eval, at int) bool { return at >= from }
			}),
	}
	if !p.Decodes {
		return slices.DeleteFunc(all, func(h *Hypothesis) bool { return h.Detail["recycled"] != nil })
	}
	return all
}

// normsBehind lists the norm before a half of the layer, or before one of its branches, at work behind it: the half
// reads the bare stream, and the norm reads the half's value, before or after a norm that is there already.
func normsBehind(p *Proposer, n *graph.Node) (all []*Hypothesis) {
	if len(n.In) != 1 || n.Layer < 0 {
		return nil
	}
	all = normsBefore(p, n)
	behind := func(at, value *graph.Node) *Hypothesis {
		h := edited(n, "norms what the half of the layer behind it gives, not what that reads",
			detail{"place": "behind"}, p.readersOf(n, n.In[0]))
		h.Edits[n] = []reference.Edit{reads(0, value)}
		for i, in := range at.In {
			if in == value {
				h.Edits[at] = []reference.Edit{reads(i, n)}
			}
		}
		return h
	}
	for _, sum := range p.Readers(n.In[0]) {
		if sum.Op == graph.Add && len(sum.In) == 2 && sum.In[0] == n.In[0] && sum.ID >= n.ID {
			for at, value := sum, sum.In[1]; value != nil; at, value = value, ends(value, n) {
				all = append(all, behind(at, value))
			}
			break
		}
	}
	return all
}

// normsBefore lists the norm at the end of a half of the layer at work on what the half reads, the stream.
func normsBefore(p *Proposer, n *graph.Node) []*Hypothesis {
	if len(n.In) != 1 || n.Layer < 0 {
		return nil
	}
	for _, sum := range p.Readers(n) {
		if sum.Op != graph.Add || len(sum.In) != 2 || sum.In[1] != n {
			continue
		}
		stream := sum.In[0]
		h := edited(n, "norms what the half of the layer reads, not what it gives", detail{"place": "before"},
			reference.Edits{n: {reads(0, stream)}, sum: {reads(1, n.In[0])}})
		for _, x := range p.Readers(stream) {
			if isNorm(x) && x.Layer == n.Layer {
				return nil // there is one already
			}
			if x != sum && x.ID < n.ID && x.Layer == n.Layer {
				h.Edits[x] = []reference.Edit{reads(0, n)}
			}
		}
		return []*Hypothesis{h}
	}
	return nil
}

// ends returns the input of a norm or a factor at the end of a half of a layer, or of a sum the branch behind norm n;
// nil for others.
func ends(x, n *graph.Node) *graph.Node {
	switch {
	case x != n && (x.Op == graph.RMSNorm || x.Op == graph.Scale):
		return x.In[0]
	case x.Op == graph.Add && len(x.In) == 2:
		for i, y := range x.In {
			if follows(y, n) && !follows(x.In[1-i], n) {
				return y
			}
		}
	}
	return nil
}

// follows reports whether x is computed from n, of the same layer.
func follows(x, n *graph.Node) bool {
	return x == n || x.ID > n.ID && slices.ContainsFunc(x.In, func(y *graph.Node) bool { return follows(y, n) })
}

// normedSums lists the norm of a branch at work on the branch's sum with the stream.
func normedSums(p *Proposer, n *graph.Node) (all []*Hypothesis) {
	for _, x := range p.Readers(n) {
		if x.Op == graph.Add && len(x.In) == 2 && x.In[1] == n {
			h := edit(n, "norms the sum with the residual, not what is added to it", detail{"place": "after the sum"},
				normOfSum(n.In[0], x.In[0]))
			h.Edits[x] = []reference.Edit{passes(1)}
			all = append(all, h)
		}
	}
	return all
}

// normOfSum makes a norm read the sum of two values.
func normOfSum(a, b *graph.Node) reference.Edit {
	return func(s *reference.Spec) {
		s.In = []*graph.Node{a, b}
		ofInputs(func(e *reference.Eval, s *reference.Spec, _ []int, in [][]float64) ([]float64, error) {
			for i, v := range in[1] {
				in[0][i] += v
			}
			return s.Norm(e, in[0])
		})(s)
	}
}

// normsAfterRope lists the norm of queries or keys and the rotation in the other order: with one of their taps where
// both are done, and with taps of both where they now are.
func normsAfterRope(p *Proposer, n *graph.Node) (all []*Hypothesis) {
	add := func(first, second *graph.Node, rope *graph.Node, computed string) {
		h := edited(n, computed, detail{}, reference.Edits{first: {ofInputs(
			func(e *reference.Eval, _ *reference.Spec, rows []int, in [][]float64) ([]float64, error) {
				if first == n {
					return e.Spec(n).Norm(e, e.Spec(rope).Rotate(e, in[0], rows))
				}
				y, err := e.Spec(n).Norm(e, in[0])
				if err != nil {
					return nil, err
				}
				return e.Spec(rope).Rotate(e, y, rows), nil
			})}, second: {passes(0)}})
		if all = append(all, h); second.In[0] == first {
			exchanged := unlikely(0.1, edited(n, computed, detail{}, p.readersOf(second, first)))
			exchanged.Edits[first] = []reference.Edit{reads(0, second)}
			exchanged.Edits[second] = []reference.Edit{reads(0, first.In[0])}
			all = append(all, exchanged)
		}
	}
	for _, x := range p.g.Nodes {
		if x.Op == graph.RoPE && x.ID > n.ID && Behind(x.In[0]) == n {
			add(n, x, x, "turns first and norms then")
		}
	}
	if x := Behind(n.In[0]); x.Op == graph.RoPE { // as Hunyuan
		add(x, n, x, "norms first and turns then")
	}
	return all
}

// extraNorms lists norms that the model does not have.
func extraNorms(p *Proposer, n *graph.Node) (all []*Hypothesis) {
	switch {
	case n.Op == graph.RMSNorm:
		return []*Hypothesis{unlikely(0.6, edit(n, "norms twice", detail{},
			computes(func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
				y, err := s.Plain(e, rows)
				if err != nil {
					return nil, err
				}
				return s.Norm(e, y)
			})))}
	case n.Op == graph.RoPE && isOuterRope(p, n) && Behind(n.In[0]).Op != graph.RMSNorm:
		all = append(all, extraNorm(p, n, side(n), func(e *reference.Eval, s *reference.Spec, rows []int,
			norm func([]float64) []float64) ([]float64, error) {
			y, err := e.Value(s.In[0], rows)
			return s.Rotate(e, norm(y), rows), err
		}))
	case n.Op == graph.Attention && hasPlainStore(n):
		if store := p.model.Store(n); store != nil && len(store.In) > 1 && Behind(store.In[1]).Op != graph.RMSNorm &&
			store.In[1].Op == graph.View {
			all = append(all, extraNorm(p, store.In[1], "values", func(e *reference.Eval, s *reference.Spec, rows []int,
				norm func([]float64) []float64) ([]float64, error) {
				y, err := e.Value(s.In[0], rows)
				return norm(y), err
			}))
		}
	case isSum(n) && n.In[1].Op != graph.RMSNorm:
		all = append(all, extraNorm(p, n, "what is added", func(e *reference.Eval, s *reference.Spec, rows []int,
			norm func([]float64) []float64) ([]float64, error) {
			i := streamOf(n)
			x, y, err := reference.Both(e, rows, s.In[i], s.In[1-i])
			if err != nil {
				return nil, err
			}
			for i, v := range norm(y) {
				x[i] += v
			}
			return x, nil
		}))
	}
	if n.Op == graph.Embed || isScalar(n) || isSum(n) && Role(n) == "out" {
		all = append(all, extraNorm(p, n, "the result", func(e *reference.Eval, s *reference.Spec, rows []int,
			norm func([]float64) []float64) ([]float64, error) {
			y, err := s.Plain(e, rows)
			return norm(y), err
		}))
	}
	return all
}

// extraNorm makes a norm without a weight somewhere in the computation of n. Its epsilon is the model's, or a usual
// number.
func extraNorm(p *Proposer, n *graph.Node, what string, compute func(e *reference.Eval, s *reference.Spec, rows []int,
	norm func([]float64) []float64) ([]float64, error)) *Hypothesis {
	guesses := []float64{p.eps(), 1e-6, 1e-5, 1e-12}
	return unlikely(0.3, fitting(n, Fit{Guesses: guesses, Make: func(eps float64) *Hypothesis {
		return edit(n, "norms "+what+", without a weight", detail{"of": what},
			computes(func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
				return compute(e, s, rows, func(x []float64) []float64 {
					y, err := (&reference.Spec{Node: n, Eps: eps}).Norm(e, x)
					if err != nil {
						return x // there is no weight that could fail
					}
					return y
				})
			}))
	}}))
}
