package mistake

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

// changed returns a mistake on no list that changes each row that a node gives.
func changed(computed string, change func(row []float64)) forms {
	return with(computed, then(change))
}

// with returns a mistake of one edit.
func with(computed string, e reference.Edit) forms {
	return func(_ *Proposer, n *graph.Node) []*Hypothesis { return []*Hypothesis{edit(n, computed, detail{}, e)} }
}

// inner reports whether n is a product of a layer.
func inner(s *site, n *graph.Node) bool { return n.Layer != outside && product(s, n) }

// gates are the operations that activate.
var gates = isOp(graph.GLU, graph.Act, graph.Experts)

// hasUp reports whether n multiplies by a second factor.
func hasUp(_ *site, n *graph.Node) bool {
	e, _ := n.Attr.(graph.ExpertsAttr)
	return n.Op != graph.Act && e.Form != graph.Ungated
}

// weighted reports whether n is a norm in a layer that has a weight.
func weighted(_ *site, n *graph.Node) bool {
	return n.Op == graph.RMSNorm && len(n.W) > 0 && n.Layer != outside
}

// found changes what attention finds stored: the keys and values of each position.
func found(change func(at int, key, value []float64)) reference.Edit {
	return stored(func(_ *reference.Eval, k, v []float64, count, _ int) (keys, values []float64) {
		k, v = slices.Clone(k), slices.Clone(v)
		width, wide := len(k)/count, len(v)/count
		for at := range count {
			change(at, k[at*width:(at+1)*width], v[at*wide:(at+1)*wide])
		}
		return k, v
	})
}

// renorm computes a norm by another statistic of each row, before the weight.
func renorm(computed string, statistic func(x []float64, eps float64) (shift, scale float64)) forms {
	return with(computed, ofInputs(func(_ *reference.Eval, s *reference.Spec, _ []int,
		in [][]float64) ([]float64, error) {
		y := in[0]
		w, err := reference.Vector(s.W[0])
		for r := 0; r < len(y) && err == nil; r += len(w) {
			shift, scale := statistic(y[r:r+len(w)], s.Eps)
			for j := range w {
				y[r+j] = (y[r+j] - shift) * scale * (s.Offset + w[j])
			}
		}
		return y, err
	}))
}

func meanOf(x []float64, of func(v float64) float64) (m float64) {
	for _, v := range x {
		m += of(v) / float64(len(x))
	}
	return m
}

func square(v float64) float64 { return v * v }

// strange is mistakes on no list. No search may name one: they measure whether what has no name is called unknown.
var strange = []*entry{
	{id: "x_row_stuck", one: true, at: inner,
		more: changed("output 3 repeats output 2",
			func(v []float64) { v[min(3, len(v)-1)] = v[max(0, min(2, len(v)-2))] })},
	{id: "x_tail_zero", one: true, at: inner,
		more: changed("the last 8 outputs are 0, or the last half",
			func(v []float64) { clear(v[len(v)-min(8, len(v)/2):]) })},
	{id: "x_last_row", one: true, at: inner, tokens: 2,
		more: with("the step's last row is negative", after(func(e *reference.Eval, _ *reference.Spec, at int,
			v []float64) error {
			if first, last, _ := e.Step(at); at == last && at > first {
				for i := range v {
					v[i] = -v[i]
				}
			}
			return nil
		}))},
	{id: "x_row_repeated", one: true, ops: gates, tokens: 2,
		more: with("odd rows repeat the row before", func(s *reference.Spec) {
			s.Func = func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
				rows = slices.Clone(rows)
				for i, at := range rows {
					if first, _, _ := e.Step(at); (at-first)%2 == 1 {
						rows[i]--
					}
				}
				return s.Plain(e, rows)
			}
		})},
	{id: "x_clipped", one: true, ops: gates, more: changed("clipped at 0.3", func(v []float64) {
		for i, x := range v {
			v[i] = min(max(x, -0.3), 0.3)
		}
	})},
	{id: "x_exp_rational", one: true, ops: gates, more: with("tanh approximated by x/(1+|x|)", func(s *reference.Spec) {
		s.Act = func(v float64) float64 { return v / 2 * (1 + v/2/(1+math.Abs(v/2))) }
	})},
	{id: "x_up_plus_one", one: true, ops: gates, at: hasUp,
		more: with("act(gate)·(up+1)", func(s *reference.Spec) { s.Limits.Plus++ })},
	{id: "x_gate_half", one: true, ops: isOp(graph.GLU),
		more: with("the second half of gate repeats the first", func(s *reference.Spec) {
			s.Func = func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
				y, err := s.Plain(e, rows)
				if err != nil {
					return nil, err
				}
				gate, up, err := reference.Both(e, rows, s.In[0], s.In[len(s.In)-1])
				width, act := s.Node.Shape.Size(), s.Act
				if alpha := cmp.Or(s.Limits.Alpha, 1); alpha != 1 {
					act = func(v float64) float64 { return s.Act(alpha*v) / alpha }
				}
				for i := range y {
					if j := i % width; j >= width/2 && err == nil {
						y[i] = act(gate[i-width/2]) * up[i]
					}
				}
				return y, err
			}
		})},
	{id: "x_residual_scaled", one: true, at: func(s *site, n *graph.Node) bool {
		if !residual(s, n) {
			return false
		}
		x := n.In[1] // whose factors are another mistake
		return x.Op != graph.Scale && (x.Op != graph.Add || x.In[0].Op != graph.Scale)
	}, more: with("h + 0.9·x",
		ofInputs(func(_ *reference.Eval, _ *reference.Spec, _ []int, in [][]float64) ([]float64, error) {
			for i, v := range in[1] {
				in[0][i] += 0.9 * v
			}
			return in[0], nil
		}))},
	{id: "x_channel_scaled", at: named("out"),
		more: changed("channel 5 is half as large again", func(v []float64) { v[5%len(v)] *= 1.5 })},
	{id: "x_embed_neighbour", outer: true,
		at: func(s *site, n *graph.Node) bool { return n == s.layers[0].first(graph.Embed) },
		more: with("ids that 3 divides have the next row",
			after(func(e *reference.Eval, s *reference.Spec, at int, row []float64) error {
				id := int(e.IDs()[at])
				if id%3 != 0 || id+1 >= s.W[0].Rows() {
					return nil
				}
				next, err := reference.Row(s.W[0], id+1)
				for j, v := range next {
					row[j] = v * s.By
				}
				return err
			}))},
	{id: "x_logit_bias", outer: true, at: named("output"),
		more: changed("the first 16 logits are 2 higher", func(v []float64) {
			for i := range min(16, len(v)) {
				v[i] += 2
			}
		})},

	{id: "x_norm_abs", one: true, at: weighted,
		more: renorm("by the mean of absolute values", func(x []float64, eps float64) (float64, float64) {
			return 0, 1 / (meanOf(x, math.Abs) + eps)
		})},

	{id: "x_heads_exchanged", ops: isOp(graph.Attention),
		at: func(_ *site, n *graph.Node) bool { return n.In[0].Shape[0] > 1 },
		more: func(_ *Proposer, n *graph.Node) []*Hypothesis {
			dim := n.Shape.Size() / n.In[0].Shape[0]
			return []*Hypothesis{edit(n, "the results of heads 0 and 1 are exchanged", detail{},
				then(func(y []float64) {
					for j := range dim {
						y[j], y[dim+j] = y[dim+j], y[j]
					}
				}))}
		}},
	{id: "x_head_halves", ops: isOp(graph.Attention), more: func(_ *Proposer, n *graph.Node) []*Hypothesis {
		dim := n.Shape.Size() / n.In[0].Shape[0]
		return []*Hypothesis{edit(n, "the halves of each head's result are exchanged", detail{},
			then(func(y []float64) {
				for ; len(y) > 0; y = y[dim:] {
					copy(y[:dim], append(slices.Clone(y[dim/2:dim]), y[:dim/2]...))
				}
			}))}
	}},
	{id: "x_position_lost", ops: isOp(graph.Attention), tokens: 7,
		more: with("values of every 7th position are 0", found(func(at int, _, value []float64) {
			if at%7 == 6 {
				clear(value)
			}
		}))},
	{id: "x_first_key_doubled", ops: isOp(graph.Attention), tokens: 2,
		more: with("the first position's keys are doubled", found(func(at int, key, _ []float64) {
			for i := range key {
				if at == 0 {
					key[i] *= 2
				}
			}
		}))},
	{id: "x_key_decay", ops: isOp(graph.Attention), tokens: 2,
		more: with("keys fade with their position", found(func(at int, key, _ []float64) {
			for i := range key {
				key[i] *= math.Pow(0.98, float64(at))
			}
		}))},
	{id: "x_softmax_sink", ops: isOp(graph.Attention),
		more: with("1 is added to the softmax's sum", func(s *reference.Spec) {
			s.Attention.Soft = func(p []float64) {
				top := max(0, slices.Max(p))
				sum := math.Exp(-top)
				for i, v := range p {
					p[i] = math.Exp(v - top)
					sum += p[i]
				}
				for i := range p {
					p[i] /= sum
				}
			}
		})},
	{id: "x_value_signs", ops: isOp(graph.Attention),
		more: changed("odd channels of the result have the other sign", func(y []float64) {
			for i := 1; i < len(y); i += 2 {
				y[i] = -y[i]
			}
		})},
	{id: "x_rope_reversed", at: turns, tokens: 2,
		more: turnedBy("the frequencies are in the reverse order", func(s *reference.Spec) {
			s.Rope.Freqs = slices.Clone(s.Rope.Freqs)
			slices.Reverse(s.Rope.Freqs)
		})},
	{id: "x_rope_restart", at: turns, tokens: 6,
		more: turnedBy("positions begin again every 5",
			turnsAt(func(_ *reference.Eval, row int) int { return row % 5 }))},
	{id: "x_rope_odd_pairs", at: turns, tokens: 2,
		more: turnedBy("odd pairs turn at half their speed", func(s *reference.Spec) {
			s.Rope.Freqs = slices.Clone(s.Rope.Freqs)
			for i := 1; i < len(s.Rope.Freqs); i += 2 {
				s.Rope.Freqs[i] /= 2
			}
		})},

	{id: "x_router_noise", ops: isOp(graph.Route),
		more: with("noise of 0.3 is added to the scores",
			ofInputs(func(e *reference.Eval, s *reference.Spec, rows []int, in [][]float64) ([]float64, error) {
				count := s.In[0].Shape.Size()
				for i := range in[0] {
					in[0][i] += 0.3 * math.Sin(float64(7*(rows[i/count]*count+i%count)+1))
				}
				return s.RouteBy(e, in[0])
			}))},
	{id: "x_expert_zero", ops: isOp(graph.Route),
		more: changed("the last chosen expert is always 0", func(v []float64) { v[len(v)-2] = 0 })},
}

// equals is engines that compute the same function, written otherwise: their taps differ, their logits do not.
var equals = []*entry{
	{id: "same_rope_offset", at: turns, whole: true, more: func(p *Proposer, n *graph.Node) []*Hypothesis {
		return []*Hypothesis{(turning{at: n, nodes: []*graph.Node{n}}).wrong("positions begin at 3", detail{},
			func(s *reference.Spec) { s.Shift += 3 })}
	}},
	{id: "same_scale_on_queries", ops: isOp(graph.Attention), more: func(p *Proposer, n *graph.Node) []*Hypothesis {
		by := n.Attr.(graph.AttentionAttr).Scale
		if by == 1 {
			return nil
		}
		h := edit(n, fmt.Sprintf("queries are multiplied by %.7g", by), detail{},
			func(s *reference.Spec) { s.Attention.Scale = 1 })
		h.Edits[n.In[0]] = []reference.Edit{func(s *reference.Spec) { s.Times *= by }}
		return []*Hypothesis{h}
	}},
	{id: "same_norm_folded", one: true, at: named("attn_norm", "ffn_norm", "ln1", "ln2"), more: normFolded},
	{id: "same_qk_order", ops: isOp(graph.StoreKV), more: pairsInOrder},
	{id: "same_logits_shifted", outer: true, at: func(s *site, n *graph.Node) bool {
		// A cap would make of the shift another function.
		return Role(n) == "output" && n.Layer == outside && s.layers[0].first(graph.Softcap) == nil
	}, more: changed("all logits are 1 higher", func(v []float64) {
		for i := range v {
			v[i]++
		}
	})},
}

// normFolded multiplies a norm's weight into the products that read it.
func normFolded(p *Proposer, n *graph.Node) []*Hypothesis {
	readers := p.Readers(n)
	if len(n.W) != 1 || slices.ContainsFunc(readers, func(r *graph.Node) bool { return r.Op != graph.Linear }) {
		return nil
	}
	h := edit(n, "is multiplied into the products that read it", detail{}, func(s *reference.Spec) { s.W = nil })
	for _, r := range readers {
		h.Edits[r] = []reference.Edit{func(s *reference.Spec) {
			s.Alter[0] = func(w []float64, _, _ int) []float64 {
				by, err := reference.Vector(n.W[0])
				y := slices.Clone(w)
				for i := range y {
					if err == nil {
						y[i] *= float64(n.Attr.(graph.NormAttr).Offset) + by[i%len(by)]
					}
				}
				return y
			}
		}}
	}
	return []*Hypothesis{h}
}

// pairsInOrder orders the channels of queries and keys for interleaved rope, and turns them so: GGUF's way for Llama.
func pairsInOrder(p *Proposer, store *graph.Node) []*Hypothesis {
	h := edit(store, "channels of queries and keys are interleaved", detail{}, func(*reference.Spec) {})
	turns := []*graph.Node{store.In[0]}
	for _, n := range p.ReadingFrom(store) {
		turns = append(turns, n.In[0])
	}
	for _, r := range turns {
		if a, ok := r.Attr.(graph.RoPEAttr); !ok || len(a.Freqs) != r.Shape.Last()/2 || a.Interleaved {
			return nil
		}
		h.Edits[r] = []reference.Edit{func(s *reference.Spec) { s.Rope.Interleaved = !s.Rope.Interleaved }}
		dim := r.Shape.Last()
		for x := r.In[0]; ; x = x.In[0] {
			if !slices.Contains([]graph.Op{graph.View, graph.RMSNorm, graph.Add, graph.Linear}, x.Op) ||
				x.Op != graph.Linear && len(p.Readers(x)) != 1 {
				return nil
			}
			if len(x.W) > 0 {
				h.Edits[x] = []reference.Edit{interleaved(x, dim)}
			}
			if x.Op == graph.Linear {
				break
			}
		}
	}
	delete(h.Edits, store)
	return []*Hypothesis{h}
}

// interleaved orders the outputs of a weight, in heads of dim, in pairs (2i, 2i+1).
func interleaved(n *graph.Node, dim int) reference.Edit {
	from := func(i int) int { return i/dim*dim + i%dim%2*(dim/2) + i%dim/2 }
	if n.Op == graph.Linear {
		order := make([]int, n.Shape.Size())
		for i := range order {
			order[i] = from(i)
		}
		return reordered(order)
	}
	return alters(0, func(w []float64) {
		was := slices.Clone(w)
		for i := range w {
			w[i] = was[from(i)]
		}
	})
}
