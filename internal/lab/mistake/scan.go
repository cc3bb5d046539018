package mistake

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// alters makes a node compute with its i-th weight changed.
func alters(i int, change func(w []float64)) reference.Edit {
	return func(s *reference.Spec) {
		w := s.W[i]
		f, err := reference.Vector(w)
		if err != nil {
			s.Func = func(*reference.Eval, *reference.Spec, []int) ([]float64, error) { return nil, err }
			return
		}
		change(f)
		c := &graph.Weight{GGUF: w.GGUF, HF: w.HF, Tensor: tensor.Tensor{Name: w.Name, DType: tensor.F64, Shape: w.Shape}}
		for _, v := range f {
			c.Data = binary.LittleEndian.AppendUint64(c.Data, math.Float64bits(v))
		}
		s.W = slices.Clone(s.W)
		s.W[i] = c
	}
}

func zeros(w []float64) { clear(w) }

// headHypotheses returns hypotheses of products of heads, and of pooling.
func headHypotheses(n *graph.Node) []*Hypothesis {
	if a, ok := n.Attr.(graph.PoolAttr); ok {
		other := graph.Mean + graph.First - a.Pooling
		return []*Hypothesis{edit("pooling", n, "gives the "+other.String()+", not the "+a.Pooling.String(), detail{}, func(s *reference.Spec) { s.Pooling = other })}
	}
	var all []*Hypothesis
	for _, by := range []int{1, n.W[0].Shape[0] - 1} {
		all = append(all, edit("heads_exchanged", n, "has the matrices of other heads", detail{"apart": float64(by)}, alters(0, func(w []float64) {
			at := by * len(w) / n.W[0].Shape[0]
			copy(w, append(slices.Clone(w[at:]), w[:at]...))
		})))
	}
	return all
}

// scanHypotheses returns hypotheses of convolutions and scans.
func (p *Proposer) scanHypotheses(n *graph.Node) []*Hypothesis {
	size := p.Size(n)
	all := []*Hypothesis{edit("state_lost", n, "begins each step without a state", detail{}, func(s *reference.Spec) { s.First = p.ownStep(size) })}
	if n.Op == graph.Conv {
		k := n.W[0].Shape[1]
		all = append(all, edit("conv_order", n, "multiplies the newest input by the first weight", detail{}, alters(0, func(w []float64) {
			for i := 0; i < len(w); i += k {
				slices.Reverse(w[i : i+k])
			}
		})))
		if len(n.W) > 1 {
			all = append(all, edit("bias_missing", n, "adds no bias", detail{}, func(s *reference.Spec) { s.W = s.W[:1] }))
		}
		return all
	}
	all = append(all,
		edit("scan_decay", n, "adds no bias to its steps", detail{"bias": 0.0}, alters(1, zeros)),
		edit("scan_decay", n, "takes the decay's logarithm for the decay", detail{}, alters(0, func(w []float64) {
			for i, v := range w {
				w[i] = math.Log(math.Abs(v))
			}
		})))
	if n.Op == graph.SSMScan {
		all = append(all, edit("scan_skip", n, "leaves out the skip connection (D·x)", detail{}, alters(2, zeros)))
	}
	return all
}
