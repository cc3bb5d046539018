package fault

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/tensor"
)

// vectorSpecs are of the operations on vectors that few families have: LayerNorm, and
// the values that depend on positions.
var vectorSpecs = []*spec{
	{id: "norm_mean", pick: ops(graph.LayerNorm), apply: plain(normMean)},
	{id: "position_embedding", pick: ops(graph.EmbedPos), apply: positionEmbedding, values: []string{"missing"}},
	{id: "position_scale", pick: ops(graph.ScalePos), apply: positionScale, values: []string{"missing"}, tokens: 2},
	{id: "parts_swapped", pick: having(graph.Concat, func(_ *plan, n *graph.Node) bool {
		return n.In[0] != n.In[1] && slices.Equal(n.In[0].Shape, n.In[1].Shape)
	}), apply: plain(partsSwapped)},
	{id: "slice_part", one: true, pick: ops(graph.Slice), apply: plain(neighbour)},
	{id: "gate_missing", one: true, pick: having(graph.Mul, func(_ *plan, n *graph.Node) bool { return len(n.In) == 2 }), apply: gateMissing, values: []string{"gate"}},
	{id: "norm_length", pick: ops(graph.L2Norm), apply: plain(normLength)},
	{id: "heads_exchanged", pick: ops(graph.HeadLinear), apply: plain(headsExchanged)},
	{id: "pooling", outer: true, pick: ops(graph.Pool), apply: plain(otherPooling), tokens: 2},
	{id: "conv_order", pick: ops(graph.Conv), apply: plain(convOrder)},
	{id: "scan_decay", pick: ops(graph.SSMScan, graph.DeltaScan), apply: scanDecay, values: []string{"log"}, tokens: 2},
	{id: "scan_skip", pick: ops(graph.SSMScan), apply: plain(scanSkip)},
	{id: "state_lost", apart: true, pick: ops(graph.Conv, graph.SSMScan, graph.DeltaScan), apply: plain(stateLost), tokens: 2},
}

// gateMissing gives on one of two factors.
func gateMissing(p *plan, n *graph.Node, value string) (string, error) {
	switch value {
	case "":
		p.pass(n, 0)
		return "the first factor alone", nil
	case "gate":
		p.pass(n, 1)
		return "the second factor alone", nil
	}
	return "", odd(value, "gate")
}

// neighbour takes the part before a Slice's own, or the one behind it.
func neighbour(_ *plan, n *graph.Node) (string, error) {
	a, d := n.Attr.(graph.SliceAttr), n.Shape.Last()
	was := a.Offset
	switch {
	case was >= d:
		a.Offset -= d
	case was+2*d <= n.In[0].Shape.Last():
		a.Offset += d
	default:
		return "", same("there is no other part")
	}
	n.Attr = a
	return fmt.Sprintf("begins at %d, not at %d", a.Offset, was), nil
}

// normLength divides by the root mean square.
func normLength(p *plan, n *graph.Node) (string, error) {
	p.kernels[n] = func(c *reference.Call) ([]float64, error) {
		rms := *c.Node
		rms.Op = graph.RMSNorm
		return c.Default(&rms)
	}
	return "an RMSNorm for a norm to length 1", nil
}

// altered makes a node compute with a weight whose values are changed.
func altered(n *graph.Node, i int, change func(w []float32)) error {
	w := n.W[i]
	f := make([]float32, w.Shape.Size())
	if err := quant.Dequantize(w.DType, f, w.Data); err != nil {
		return err
	}
	change(f)
	c := &graph.Weight{GGUF: w.GGUF, HF: w.HF, Tensor: tensor.Tensor{Name: w.Name, DType: tensor.F32, Shape: w.Shape}}
	for _, v := range f {
		c.Data = binary.LittleEndian.AppendUint32(c.Data, math.Float32bits(v))
	}
	n.W[i] = c
	return nil
}

// headsExchanged gives each head the next one's matrix.
func headsExchanged(_ *plan, n *graph.Node) (string, error) {
	heads := n.W[0].Shape[0]
	if heads < 2 {
		return "", same("there is one head")
	}
	return "each head has the next one's matrix", altered(n, 0, func(w []float32) {
		size := len(w) / heads
		copy(w, append(slices.Clone(w[size:]), w[:size]...))
	})
}

func otherPooling(_ *plan, n *graph.Node) (string, error) {
	a := n.Attr.(graph.PoolAttr)
	was := a.Pooling
	a.Pooling = graph.Mean + graph.First - was
	n.Attr = a
	return fmt.Sprintf("%v for %v", a.Pooling, was), nil
}

// convOrder reverses each channel's weights.
func convOrder(_ *plan, n *graph.Node) (string, error) {
	k := n.W[0].Shape[1]
	return "the newest input meets the oldest one's weight", altered(n, 0, func(w []float32) {
		for i := 0; i < len(w); i += k {
			slices.Reverse(w[i : i+k])
		}
	})
}

// scanDecay leaves out the bias of a scan's steps, or takes the logarithm of the decay for it.
func scanDecay(_ *plan, n *graph.Node, value string) (string, error) {
	switch value {
	case "":
		return "steps without their bias", altered(n, 1, func(w []float32) { clear(w) })
	case "log":
		return "A_log for -exp(A_log)", altered(n, 0, func(w []float32) {
			for i, v := range w {
				w[i] = float32(math.Log(math.Abs(float64(v))))
			}
		})
	}
	return "", odd(value, "log")
}

// scanSkip leaves out what goes past the scan.
func scanSkip(_ *plan, n *graph.Node) (string, error) {
	return "without D·x", altered(n, 2, func(w []float32) { clear(w) })
}

// stateLost begins each step with no state.
func stateLost(p *plan, n *graph.Node) (string, error) {
	p.decode = true
	p.kernels[n] = func(c *reference.Call) ([]float64, error) {
		for i, q := range c.Step.Seqs {
			if i == 0 || q != c.Step.Seqs[i-1] {
				clear(c.State(i))
			}
		}
		return c.Default(n)
	}
	return "each step begins without a state", nil
}

// normMean makes a LayerNorm divide by the root mean square.
func normMean(p *plan, n *graph.Node) (string, error) {
	p.kernels[n] = func(c *reference.Call) ([]float64, error) {
		rms := *c.Node
		rms.Op, rms.W = graph.RMSNorm, c.Node.W[:min(1, len(c.Node.W))]
		y, err := c.Default(&rms)
		if err != nil || len(c.Node.W) < 2 {
			return y, err
		}
		add := *c.Node
		add.Op, add.W = graph.Add, c.Node.W[1:]
		return c.Default(&add, y)
	}
	return "an RMSNorm with a bias, for LayerNorm", nil
}

// positionEmbedding reads the table two rows further on, as OPT's begins, or not at all.
func positionEmbedding(p *plan, n *graph.Node, value string) (string, error) {
	detail, shift := "two positions further on", int32(2)
	switch value {
	case "":
	case "missing":
		detail = "left out"
	default:
		return "", odd(value, "missing")
	}
	p.kernels[n] = func(c *reference.Call) ([]float64, error) {
		if value != "" {
			return make([]float64, len(c.Step.Pos)*n.Shape.Size()), nil
		}
		d, s := *c, *c.Step
		s.Pos = slices.Clone(s.Pos)
		for i := range s.Pos {
			s.Pos[i] = min(s.Pos[i]+shift, int32(n.W[0].Rows()-1))
		}
		d.Step = &s
		return d.Default(n)
	}
	return detail, nil
}

// positionScale begins the factor's steps a position later or earlier, or leaves it out.
func positionScale(p *plan, n *graph.Node, value string) (string, error) {
	a := n.Attr.(graph.ScalePosAttr)
	switch value {
	case "":
		a.Shift = 1 - min(a.Shift, 1)
		n.Attr = a
		return fmt.Sprintf("counts from %d", a.Shift), nil
	case "missing":
		p.pass(n, 0)
		return "left out", nil
	}
	return "", odd(value, "missing")
}

// partsSwapped puts the second part first.
func partsSwapped(_ *plan, n *graph.Node) (string, error) {
	n.In[0], n.In[1] = n.In[1], n.In[0]
	return "the second part comes first", nil
}
