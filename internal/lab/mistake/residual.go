package mistake

import (
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

// isSum reports whether n adds two values in a layer.
func isSum(n *graph.Node) bool { return n.Op == graph.Add && len(n.W) == 0 && n.Layer >= 0 }

// lostBiases lists sums, norms, convolutions and experts without their bias.
func lostBiases(_ *Proposer, n *graph.Node) []*Hypothesis {
	switch {
	case n.Op == graph.Add && len(n.W) > 0:
		return []*Hypothesis{edit(n, "leaves the bias out", detail{}, passes(0))}
	case (n.Op == graph.LayerNorm || n.Op == graph.Conv) && len(n.W) > 1:
		return []*Hypothesis{edit(n, "adds no bias", detail{}, func(s *reference.Spec) { s.W = s.W[:1] })}
	case n.Op == graph.Experts && n.Attr.(graph.ExpertsAttr).Biased:
		return []*Hypothesis{edit(n, "leaves out the experts' biases", detail{},
			func(s *reference.Spec) { s.Experts.Biased = false })}
	}
	return nil
}

// lostStreams lists sums of the residual stream and a layer's output that are one of the two.
func lostStreams(_ *Proposer, n *graph.Node) []*Hypothesis {
	if !isSum(n) {
		return nil
	}
	stream := streamOf(n)
	all := []*Hypothesis{edit(n, "passes on the layer's output without the residual stream", detail{"lost": "stream"},
		passes(1-stream))}
	if !isPLE(n.In[1]) && n.In[1].Op != graph.Deepstack { // their branches have causes of their own
		all = append(all, lostBranch(n))
	}
	return all
}

func lostBranch(n *graph.Node) *Hypothesis {
	return edit(n, "passes on the residual stream without the layer's output", detail{"lost": "branch"},
		passes(streamOf(n)))
}

// streamOf returns which input of a sum is the residual stream: the first, if the second is not what the first is
// computed from, as in BERT.
func streamOf(n *graph.Node) int {
	if follows(n.In[0], n.In[1]) {
		return 1
	}
	return 0
}

// isScalar reports whether n multiplies by a weight of one number.
func isScalar(n *graph.Node) bool {
	return n.Op == graph.Mul && len(n.W) > 0 && n.W[0].Shape.Size() == 1
}

// otherScalars lists a layer's scalar that is 1, squared or another layer's, or multiplies less than the stream.
func otherScalars(p *Proposer, n *graph.Node) []*Hypothesis {
	if !isScalar(n) {
		return nil
	}
	all := []*Hypothesis{edit(n, "leaves the multiplication out", detail{"scalar": "one"}, passes(0)),
		edit(n, "multiplies by the scalar twice", detail{"scalar": "squared"},
			alters(0, func(w []float64) { w[0] *= w[0] }))}
	for _, x := range p.Siblings(n) {
		all = append(all, unlikely(0.3, edit(n, fmt.Sprintf("multiplies by the scalar of layer %d", x.Layer),
			detail{"apart": float64(x.Layer - n.Layer)}, hasWeights(x))))
	}
	// The scalar on what the layer adds, or on its last branch, not on the stream.
	for stream, depth := n.In[0], 0; isSum(stream) && stream.Layer == n.Layer; stream, depth = stream.In[0], depth+1 {
		start := stream.In[0]
		what := "on the last branch"
		if start.Op != graph.Add || start.Layer != n.Layer {
			what = "on what the layer adds"
		} else if depth > 0 {
			continue
		}
		all = append(all, edit(n, "multiplies "+what[3:]+", not the stream", detail{"scalar": what},
			ofScalar(n.In[0], start, func(stream, start, by float64) float64 { return start + by*(stream-start) })))
	}
	return all
}

// ofScalar makes a product by a scalar a function of two values and the scalar.
func ofScalar(a, b *graph.Node, f func(a, b, by float64) float64) reference.Edit {
	return func(s *reference.Spec) {
		s.In = []*graph.Node{a, b}
		ofInputs(func(_ *reference.Eval, s *reference.Spec, _ []int, in [][]float64) ([]float64, error) {
			w, err := reference.Vector(s.W[0])
			for i, v := range in[0] {
				in[0][i] = f(v, in[1][i], w[i%len(w)])
			}
			return in[0], err
		})(s)
	}
}

// otherFactorsOf lists other factors than the model's own, of embeddings or of values.
func otherFactorsOf(computed string, n *graph.Node, right float64, guesses ...float64) *Hypothesis {
	size := math.Abs(right)
	return fitting(n, Fit{Right: right, Least: size / 1000, Most: 1000 * size, Guesses: guesses,
		Make: func(v float64) *Hypothesis {
			return edit(n, fmt.Sprintf(computed, v, right), detail{"factor": v, "right": right},
				func(s *reference.Spec) { s.By = v })
		}})
}

// otherEmbeddingScales lists other factors of embeddings.
func otherEmbeddingScales(p *Proposer, n *graph.Node) []*Hypothesis {
	if n.Op != graph.Embed {
		return nil
	}
	right, width := float64(n.Attr.(graph.EmbedAttr).Scale), float64(n.Shape.Size())
	return []*Hypothesis{otherFactorsOf("scales the embedding by %.6g, not %.6g", n, right,
		1, math.Sqrt(width), width, 1/math.Sqrt(width), 0.5*right, 2*right, right*right)}
}

// otherScaleFactors lists other factors of a Scale.
func otherScaleFactors(_ *Proposer, n *graph.Node) []*Hypothesis {
	right := n.Attr.(graph.ScaleAttr).By
	return []*Hypothesis{otherFactorsOf("multiplies by %.6g, not by %.6g", n, right,
		1, right*right, math.Sqrt(math.Abs(right)), 1/right)}
}

// isPLEScale reports whether n is an embedding or a factor of per-layer embeddings: these lie outside the layers.
func isPLEScale(p *Proposer, n *graph.Node) bool {
	if n.Op == graph.Embed {
		return n != p.g.Nodes[0]
	}
	return n.Op == graph.Scale && n.Layer < 0 &&
		slices.ContainsFunc(p.g.Nodes[1:], func(x *graph.Node) bool { return x.Op == graph.Embed })
}

// otherFactorsOfValues lists other factors of a Scale, behind mistakes that leave less to chance, such as a scale of
// scores.
func otherFactorsOfValues(p *Proposer, n *graph.Node) []*Hypothesis {
	if isPLEScale(p, n) {
		return nil
	}
	h := unlikely(0.4, otherScaleFactors(p, n)[0])
	form, right := h.Fit.Make, h.Fit.Right
	h.Fit.Make = func(v float64) *Hypothesis {
		x := form(v)
		if v == 1 || v == right*right { // left out or twice, which no other factor is by chance
			x.Cost = -0.6
		}
		return x
	}
	return []*Hypothesis{h}
}

// scaledTwice leaves a factor out, or multiplies by it twice.
func scaledTwice(p *Proposer, n *graph.Node) (all []*Hypothesis) {
	if n.Op != graph.Scale || isPLEScale(p, n) {
		return nil
	}
	for _, h := range otherScaleFactors(p, n) {
		for form, v := range map[string]float64{"without": 1, "twice": h.Fit.Right * h.Fit.Right} {
			if h.Fit.Right != 1 {
				x := h.Fit.Make(v)
				x.Detail = detail{"built": form}
				all = append(all, x)
			}
		}
	}
	return all
}

// otherLogitScales lists logits by a factor: the head's product, or what a cap reads or gives.
func otherLogitScales(p *Proposer, n *graph.Node) (all []*Hypothesis) {
	by := func(guesses []float64, make func(v float64) *Hypothesis) *Hypothesis {
		return fitting(n, Fit{Right: 1, Least: 1e-3, Most: 1e3, Guesses: guesses, Make: make})
	}
	if n.Op == graph.Linear {
		if isHead(p, n) {
			all = append(all, unlikely(0.5, by(factors(n), timesProduct(n))))
		}
		return all
	}
	cap := n.Attr.(graph.ScaleAttr).By
	for _, place := range []string{"before", "after"} {
		all = append(all, unlikely(0.4, by([]float64{0.5, 2}, func(v float64) *Hypothesis {
			return edit(n, fmt.Sprintf("multiplies the logits by %.6g %s the cap", v, place),
				detail{"factor": v, "place": place}, func(s *reference.Spec) {
					if place == "after" {
						s.Times = v
						return
					}
					s.By, s.Times = cap/v, v // v·tanh's cap: cap·tanh(v·x/cap)
				})
		})))
	}
	return all
}

// lostSoftcaps lists logits without their cap.
func lostSoftcaps(_ *Proposer, n *graph.Node) []*Hypothesis {
	return []*Hypothesis{edit(n, "does not cap the logits", detail{}, func(s *reference.Spec) { s.By = 0 })}
}

// otherSoftcaps lists other caps of logits.
func otherSoftcaps(_ *Proposer, n *graph.Node) []*Hypothesis {
	right := n.Attr.(graph.ScaleAttr).By
	all := []*Hypothesis{unlikely(0.2, fitting(n, Fit{Right: right, Least: 1, Most: 1000,
		Guesses: []float64{15, 20, 30, 50, right / 2, right * 2}, Make: func(v float64) *Hypothesis {
			if v == right {
				return nil
			}
			return edit(n, fmt.Sprintf("caps at %.6g, not at %.6g", v, right), detail{"cap": v, "right": right},
				func(s *reference.Spec) { s.By = v })
		}}))}
	for _, c := range capForms {
		all = append(all, edit(n, c.words, detail{"form": c.words}, ofInputs(func(_ *reference.Eval, s *reference.Spec,
			_ []int, in [][]float64) ([]float64, error) {
			return capped(in[0], s.By, c.of), nil
		})))
	}
	return all
}

// capForms are other functions of a value and its cap than cap·tanh(x/cap).
var capForms = []struct {
	words string
	of    func(x, cap float64) float64
}{
	{outsideCap, func(x, cap float64) float64 { return x * math.Tanh(x/cap) }},
	{plainCap, func(x, cap float64) float64 { return math.Tanh(x / cap) }},
	{steepCap, func(x, cap float64) float64 { return cap * math.Tanh(x) }},
	{cutCap, func(x, cap float64) float64 { return min(max(x, -cap), cap) }},
}

const (
	outsideCap = "computes x·tanh(x/cap), not cap·tanh(x/cap)"
	plainCap   = "computes tanh(x/cap), not cap·tanh(x/cap)"
	steepCap   = "computes cap·tanh(x), not cap·tanh(x/cap)"
	cutCap     = "cuts values off at the cap"
)

// capWords returns the values of mistakes of caps, of which usual ones have no word.
func capWords(usual ...detail) wordings {
	all := wordings{"outside": {{"form": outsideCap}}, "plain": {{"form": plainCap}}, "steep": {{"form": steepCap}},
		"cut": {{"form": cutCap}}}
	if len(usual) > 0 {
		all[""] = usual
	}
	return all
}

// capped caps values by a function, in place.
func capped(x []float64, cap float64, by func(x, cap float64) float64) []float64 {
	for i, v := range x {
		x[i] = by(v, cap)
	}
	return x
}

// otherPositionEmbeddings lists learned positions that are not added, or read at another position.
func otherPositionEmbeddings(_ *Proposer, n *graph.Node) []*Hypothesis {
	all := []*Hypothesis{edit(n, "adds no positions", detail{}, func(s *reference.Spec) { s.Times = 0 })}
	for _, shift := range []int{1, 2, -1} {
		all = append(all, edit(n, fmt.Sprintf("reads the table at the position plus %d", shift),
			detail{"shift": float64(shift)}, func(s *reference.Spec) { s.Shift = shift }))
	}
	return all
}

// otherTemperatures lists factors by position that are left out, or count positions from another number.
func otherTemperatures(_ *Proposer, n *graph.Node) []*Hypothesis {
	shift := n.Attr.(graph.ScalePosAttr).Shift
	other := 1 - min(shift, 1)
	return []*Hypothesis{
		edit(n, "multiplies by no factor", detail{}, passes(0)),
		edit(n, fmt.Sprintf("counts positions from %d", other), detail{"shift": float64(other)},
			func(s *reference.Spec) { s.Shift = other - shift }),
	}
}

// swappedParts lists two parts of a value in the other order.
func swappedParts(_ *Proposer, n *graph.Node) []*Hypothesis {
	if n.In[0] == n.In[1] || !slices.Equal(n.In[0].Shape, n.In[1].Shape) {
		return nil
	}
	return []*Hypothesis{edit(n, "puts the second part first", detail{},
		func(s *reference.Spec) { s.In = []*graph.Node{s.In[1], s.In[0]} })}
}

// otherSlices lists the parts of a value before and behind the one that is meant.
func otherSlices(_ *Proposer, n *graph.Node) (all []*Hypothesis) {
	d, width, right := n.Shape.Last(), n.In[0].Shape.Last(), n.Attr.(graph.SliceAttr).Offset
	for offset := right % d; offset+d <= width; offset += d {
		if offset == right {
			continue
		}
		all = append(all, edit(n, fmt.Sprintf("takes the part from %d on, not from %d", offset, right),
			detail{"offset": float64(offset), "right": float64(right)},
			ofInputs(func(_ *reference.Eval, _ *reference.Spec, _ []int, in [][]float64) (y []float64, err error) {
				for x := in[0]; len(x) > 0; x = x[width:] {
					y = append(y, x[offset:offset+d]...)
				}
				return y, nil
			})))
	}
	return all
}

// neighbour returns the part before a Slice's own, or the one behind it.
func neighbour(p *Proposer, n *graph.Node) []*Hypothesis {
	if n.Op != graph.Slice {
		return nil
	}
	right, d := n.Attr.(graph.SliceAttr).Offset, n.Shape.Last()
	for _, offset := range []int{right - d, right + d} {
		for _, h := range otherSlices(p, n) {
			if h.Detail["offset"] == float64(offset) {
				h.Detail = detail{"built": "neighbour"}
				return []*Hypothesis{h}
			}
		}
	}
	return nil
}

// otherPoolings lists the other way to make one row of several.
func otherPoolings(_ *Proposer, n *graph.Node) []*Hypothesis {
	right := n.Attr.(graph.PoolAttr).Pooling
	other := graph.Mean + graph.First - right
	if right > graph.First {
		other = graph.Joined + graph.Woven - right
	}
	return []*Hypothesis{edit(n, "gives the "+other.String()+", not the "+right.String(), detail{},
		func(s *reference.Spec) { s.Pool.Pooling = other })}
}

// reversedKernels lists convolutions whose newest input meets the first weight.
func reversedKernels(_ *Proposer, n *graph.Node) []*Hypothesis {
	k := n.W[0].Shape[1]
	return []*Hypothesis{edit(n, "multiplies the newest input by the first weight", detail{},
		alters(0, func(w []float64) {
			for i := 0; i < len(w); i += k {
				slices.Reverse(w[i : i+k])
			}
		}))}
}

// otherDecays lists scans of steps without a bias, and scans whose decay is taken for its logarithm.
func otherDecays(_ *Proposer, n *graph.Node) []*Hypothesis {
	return []*Hypothesis{
		edit(n, "adds no bias to its steps", detail{"bias": 0.0}, alters(1, func(w []float64) { clear(w) })),
		edit(n, "takes the decay's logarithm for the decay", detail{}, alters(0, func(w []float64) {
			for i, v := range w {
				w[i] = math.Log(math.Abs(v))
			}
		}))}
}

// otherScanGroups lists scans whose heads have the groups by turns.
func otherScanGroups(_ *Proposer, n *graph.Node) []*Hypothesis {
	groups := reference.Groups(n)
	if groups < 2 || groups == n.Shape[0] {
		return nil
	}
	return []*Hypothesis{edit(n, fmt.Sprintf("gives head h the group h mod %d", groups), detail{"map": "modulo"},
		func(s *reference.Spec) { s.Sequence.Scan = func(h int) int { return h % groups } })}
}

// sharedDecays lists scans whose keys' elements all decay as the first.
func sharedDecays(_ *Proposer, n *graph.Node) []*Hypothesis {
	if !n.EachDecays() {
		return nil
	}
	return []*Hypothesis{edit(n, "lets all elements of a key decay as the first", detail{},
		func(s *reference.Spec) { s.Sequence.Shared = true })}
}

// lesserShares lists scans of the delta rule whose corrections have the sigmoid's share, without a factor.
func lesserShares(_ *Proposer, n *graph.Node) []*Hypothesis {
	if n.MostShare() == 1 {
		return nil
	}
	told := fmt.Sprintf("corrects by the sigmoid of beta, not by %.6g times as much", n.MostShare())
	return []*Hypothesis{edit(n, told, detail{}, func(s *reference.Spec) { s.Sequence.Most = 1 })}
}

// otherMixes lists sums of streams whose weights are in the other order, or lack the number added to each.
func otherMixes(_ *Proposer, n *graph.Node) (all []*Hypothesis) {
	if n.Shape[0] == n.In[1].Shape[0] && n.Shape[0] > 1 {
		all = append(all, edit(n, "takes the weights of a stream for those of a sum", detail{"mix": "turned"},
			ofInputs(func(e *reference.Eval, s *reference.Spec, _ []int, in [][]float64) ([]float64, error) {
				m, turned := n.Shape[0], make([]float64, len(in[0]))
				for i, v := range in[0] {
					turned[i/(m*m)*m*m+i%m*m+i/m%m] = v
				}
				return reference.Mix(e, s, turned, in[1]), nil
			})))
	}
	if by := n.Attr.(graph.MixAttr).Plus; by != 0 {
		all = append(all, edit(n, fmt.Sprintf("does not add %.6g to the weights", by), detail{"mix": "plain"},
			func(s *reference.Spec) { s.By = 0 }))
	}
	return all
}

// lostMatches lists streams that keep their own size.
func lostMatches(_ *Proposer, n *graph.Node) []*Hypothesis {
	return []*Hypothesis{edit(n, "leaves the streams at their own size", detail{}, passes(0))}
}

// otherBounds lists gates without a bound, and with a deviation of a number less.
func otherBounds(_ *Proposer, n *graph.Node) []*Hypothesis {
	d := float64(n.Shape.Last())
	return []*Hypothesis{edit(n, "keeps all of the gates", detail{"bound": "none"}, passes(0)),
		edit(n, "divides the variance by a number less", detail{"bound": "sample"},
			func(s *reference.Spec) { s.By *= math.Sqrt(d / (d - 1)) })}
}

// lostSkips lists scans without their skip connection.
func lostSkips(_ *Proposer, n *graph.Node) []*Hypothesis {
	return []*Hypothesis{edit(n, "leaves out the skip connection (D·x)", detail{},
		alters(2, func(w []float64) { clear(w) }))}
}
