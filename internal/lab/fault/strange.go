package fault

import (
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

// Faults that are on no list. No hypothesis may be made for one: they measure
// whether what has no name is called unknown.
var strangeSpecs = slices.Concat(strangeValues, strangeNorms, strangeAttention, strangeExperts)

// changed is a fault that changes an operation's output.
func changed(detail string, change func(c *reference.Call, y []float64, width int)) func(*plan, *graph.Node, string) (string, error) {
	return plain(func(p *plan, n *graph.Node) (string, error) {
		p.then(n, change)
		return detail, nil
	})
}

// rowsOf calls f with each row.
func rowsOf(f func(row []float64)) func(c *reference.Call, y []float64, width int) {
	return func(_ *reference.Call, y []float64, width int) {
		for r := 0; r < len(y); r += width {
			f(y[r : r+width])
		}
	}
}

// outputs picks a layer's last node.
var outputs = named("out")

// branch picks the additions to the stream, but for those of a branch with a factor of its own: another one
// is scale_factor.
var branch = residual(func(n *graph.Node) bool { return n.In[1].Op != graph.Scale })

// inner picks the products of a layer.
func inner(l *layer) []*graph.Node {
	if l.index == outside {
		return nil
	}
	return matrices(l)
}

var strangeValues = []*spec{
	{id: "x_row_stuck", one: true, pick: inner, apply: changed("output 3 repeats output 2", rowsOf(func(v []float64) { v[min(3, len(v)-1)] = v[min(2, len(v)-2)] }))},
	{id: "x_tail_zero", one: true, pick: inner, apply: changed("the last 8 outputs are 0, or the last half", rowsOf(func(v []float64) { clear(v[len(v)-min(8, len(v)/2):]) }))},
	{id: "x_last_row", one: true, pick: inner, tokens: 2, apply: changed("the step's last row is not computed", func(c *reference.Call, y []float64, width int) {
		if len(y) > width {
			clear(y[len(y)-width:])
		}
	})},
	{id: "x_row_repeated", one: true, pick: gates, tokens: 2, apply: changed("odd rows repeat the row before", func(_ *reference.Call, y []float64, width int) {
		for r := width; r < len(y); r += 2 * width {
			copy(y[r:r+width], y[r-width:r])
		}
	})},
	{id: "x_clipped", one: true, pick: gates, apply: changed("clipped at 0.3", rowsOf(func(v []float64) {
		for i, x := range v {
			v[i] = min(max(x, -0.3), 0.3)
		}
	}))},
	{id: "x_exp_rational", one: true, pick: gates, apply: plain(func(p *plan, n *graph.Node) (string, error) {
		// tanh(x) as x/(1+|x|), in both activations
		squash := func(x float64) float64 { return x / (1 + math.Abs(x)) }
		p.mix(n).act = func(v float64) float64 { return v / 2 * (1 + squash(v/2)) }
		return "tanh approximated by x/(1+|x|)", nil
	})},
	{id: "x_up_plus_one", one: true, pick: gates, apply: plain(func(p *plan, n *graph.Node) (string, error) {
		if e, _ := n.Attr.(graph.ExpertsAttr); n.Op == graph.Act || e.Form == graph.Ungated {
			return "", same("it has no up")
		}
		p.mix(n).join = func(act, up float64) float64 { return act * (up + 1) }
		return "act(gate)·(up+1)", nil
	})},
	{id: "x_gate_half", one: true, pick: func(l *layer) []*graph.Node { return l.of(graph.GLU) }, apply: plain(func(p *plan, n *graph.Node) (string, error) {
		p.before(n, func(_ *reference.Call, in [][]float64) {
			width := n.Shape.Size()
			for r := 0; r < len(in[0]); r += width {
				copy(in[0][r+width/2:r+width], in[0][r:r+width/2])
			}
		})
		return "the second half of gate repeats the first", nil
	})},
	{id: "x_residual_scaled", one: true, pick: branch, apply: plain(func(p *plan, n *graph.Node) (string, error) {
		p.before(n, func(_ *reference.Call, in [][]float64) {
			for i := range in[1] {
				in[1][i] *= 0.9
			}
		})
		return "h + 0.9·x", nil
	})},
	{id: "x_channel_scaled", pick: outputs, apply: changed("channel 5 is half as large again", rowsOf(func(v []float64) { v[5%len(v)] *= 1.5 }))},
	{id: "x_embed_neighbour", outer: true, pick: func(l *layer) []*graph.Node {
		if l.index != outside {
			return nil
		}
		return l.of(graph.Embed)[:1]
	}, apply: plain(func(p *plan, n *graph.Node) (string, error) {
		p.wraps[n] = append(p.wraps[n], func(next reference.Kernel) reference.Kernel {
			return func(c *reference.Call) ([]float64, error) {
				d, s := *c, *c.Step
				s.Tokens = slices.Clone(s.Tokens)
				for i, id := range s.Tokens {
					if id%3 == 0 && int(id)+1 < n.W[0].Rows() {
						s.Tokens[i] = id + 1
					}
				}
				d.Step = &s
				return next(&d)
			}
		})
		return "ids that 3 divides have the next row", nil
	})},
	{id: "x_logit_bias", outer: true, pick: named("output"), apply: changed("the first 16 logits are 2 higher", rowsOf(func(v []float64) {
		for i := range min(16, len(v)) {
			v[i] += 2
		}
	}))},
}

// norms picks the norms in layers that have a weight.
var norms = having(graph.RMSNorm, func(p *plan, n *graph.Node) bool { return weighted(p, n) && n.Layer != outside })

// renorm computes a norm by another statistic of each row, before the weight.
func renorm(detail string, statistic func(x []float64, eps float64) (shift, scale float64)) func(*plan, *graph.Node, string) (string, error) {
	return plain(func(p *plan, n *graph.Node) (string, error) {
		p.kernels[n] = func(c *reference.Call) ([]float64, error) {
			w, err := widen(n.W[0])
			if err != nil {
				return nil, err
			}
			a, d, y := n.Attr.(graph.NormAttr), len(w), slices.Clone(c.In[0])
			for r := 0; r < len(y); r += d {
				shift, scale := statistic(y[r:r+d], float64(a.Eps))
				for j := range d {
					y[r+j] = (y[r+j] - shift) * scale * (float64(a.Offset) + w[j])
				}
			}
			return y, nil
		}
		return detail, nil
	})
}

func meanSquare(x []float64) (s float64) {
	for _, v := range x {
		s += v * v / float64(len(x))
	}
	return s
}

var strangeNorms = []*spec{
	{id: "x_norm_half", one: true, pick: norms, apply: renorm("over the first half of the channels", func(x []float64, eps float64) (float64, float64) {
		return 0, 1 / math.Sqrt(meanSquare(x[:len(x)/2])+eps)
	})},
	{id: "x_norm_mean", one: true, pick: norms, apply: renorm("the mean is taken off, as in LayerNorm", func(x []float64, eps float64) (float64, float64) {
		var mean float64
		for _, v := range x {
			mean += v / float64(len(x))
		}
		return mean, 1 / math.Sqrt(meanSquare(x)-mean*mean+eps)
	})},
	{id: "x_norm_abs", one: true, pick: norms, apply: renorm("by the mean of absolute values", func(x []float64, eps float64) (float64, float64) {
		var s float64
		for _, v := range x {
			s += math.Abs(v) / float64(len(x))
		}
		return 0, 1 / (s + eps)
	})},
}

// attends is a fault of the attention kernel.
func attends(detail string, set func(a *attend)) func(*plan, *graph.Node, string) (string, error) {
	return plain(func(p *plan, n *graph.Node) (string, error) {
		set(p.attend(n))
		return detail, nil
	})
}

var strangeAttention = []*spec{
	{id: "x_heads_exchanged", pick: ops(graph.Attention), apply: plain(func(p *plan, n *graph.Node) (string, error) {
		if n.In[0].Shape[0] < 2 {
			return "", same("there is one head")
		}
		p.attend(n).rows = func(y []float64, _, dim int, _ int32) {
			for j := range dim {
				y[j], y[dim+j] = y[dim+j], y[j]
			}
		}
		return "the results of heads 0 and 1 are exchanged", nil
	})},
	{id: "x_head_halves", pick: ops(graph.Attention), apply: attends("the halves of each head's result are exchanged", func(a *attend) {
		a.rows = func(y []float64, heads, dim int, _ int32) {
			for h := range heads {
				v := y[h*dim : (h+1)*dim]
				copy(v, append(slices.Clone(v[dim/2:]), v[:dim/2]...))
			}
		}
	})},
	{id: "x_position_lost", pick: ops(graph.Attention), tokens: 7, apply: attends("values of every 7th position are 0", func(a *attend) {
		a.lost = func(pos int) bool { return pos%7 == 6 }
	})},
	{id: "x_first_key_doubled", pick: ops(graph.Attention), tokens: 2, apply: attends("the first position's keys are doubled", func(a *attend) {
		a.rescale = func(key []float64, pos int) {
			for i := range key {
				if pos == 0 {
					key[i] *= 2
				}
			}
		}
	})},
	{id: "x_key_decay", pick: ops(graph.Attention), tokens: 2, apply: attends("keys fade with their position", func(a *attend) {
		a.rescale = func(key []float64, pos int) {
			for i := range key {
				key[i] *= math.Pow(0.98, float64(pos))
			}
		}
	})},
	{id: "x_softmax_sink", pick: ops(graph.Attention), apply: attends("1 is added to the softmax's sum", func(a *attend) { a.axis = "sink" })},
	{id: "x_value_signs", pick: ops(graph.Attention), apply: attends("odd channels of the result have the other sign", func(a *attend) {
		a.rows = func(y []float64, _, _ int, _ int32) {
			for i := 1; i < len(y); i += 2 {
				y[i] = -y[i]
			}
		}
	})},
	{id: "x_rope_reversed", pick: turning, tokens: 2, apply: plain(func(p *plan, n *graph.Node) (string, error) {
		p.turn(n).reversed = true
		return "the frequencies are in the reverse order", nil
	})},
	{id: "x_rope_restart", pick: turning, tokens: 6, apply: plain(func(p *plan, n *graph.Node) (string, error) {
		p.turn(n).wrap = 5
		return "positions begin again every 5", nil
	})},
	{id: "x_rope_odd_pairs", pick: turning, tokens: 2, apply: freqs(func(f []float64, _ int, _ string) ([]float64, string, error) {
		g := slices.Clone(f)
		for i := 1; i < len(g); i += 2 {
			g[i] /= 2
		}
		return g, "odd pairs turn at half their speed", nil
	})},
}

var strangeExperts = []*spec{
	{id: "x_router_noise", pick: ops(graph.Route), apply: plain(func(p *plan, n *graph.Node) (string, error) {
		p.before(n, func(_ *reference.Call, in [][]float64) {
			for i := range in[0] {
				in[0][i] += 0.3 * math.Sin(float64(7*i+1))
			}
		})
		return "noise of 0.3 is added to the scores", nil
	})},
	{id: "x_expert_zero", pick: ops(graph.Route), apply: changed("the last chosen expert is always 0", rowsOf(func(v []float64) { v[len(v)-2] = 0 }))},
}
