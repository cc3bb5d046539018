package reference

import (
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/rope"
)

func (a *arith) apply(x []float64, f func(float64) float64) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = f(v)
	}
	return a.storeAll(y)
}

func (a *arith) activation(act graph.Activation) func(float64) float64 {
	switch act {
	case graph.SiLU:
		return func(v float64) float64 { return v / (1 + math.Exp(-v)) }
	case graph.GELUErf:
		return func(v float64) float64 { return v / 2 * math.Erfc(-v/math.Sqrt2) }
	case graph.ReLUSquared:
		return func(v float64) float64 { return max(v, 0) * max(v, 0) }
	case graph.Sigmoid:
		return sigmoid
	case graph.Tanh:
		return math.Tanh
	}
	return a.class.GELU.At
}

func sigmoid(v float64) float64 { return 1 / (1 + math.Exp(-v)) }

// gated is act(in[0]), times in[1] if there is one.
func (a *arith) gated(in [][]float64, attr graph.ActAttr) []float64 {
	gate, act := in[0], a.activation(attr.Act)
	if attr.Limit > 0 {
		gate = a.apply(gate, func(v float64) float64 { return min(v, attr.Limit) })
	}
	if alpha := attr.Alpha; alpha != 0 {
		of := act
		act = func(v float64) float64 { return of(alpha*v) / alpha }
	}
	y := a.apply(gate, act)
	if len(in) > 1 {
		for i, up := range in[1] {
			if attr.Limit > 0 {
				up = max(-attr.Limit, min(up, attr.Limit))
			}
			y[i] *= a.store(up + attr.Plus)
		}
	}
	return a.storeAll(y)
}

// embed is row id of the weight, scaled, for each token.
func (a *arith) embed(n *graph.Node, ids []int32) ([]float64, error) {
	d, scale := n.Shape.Size(), a.store(float64(n.Attr.(graph.EmbedAttr).Scale))
	buf, y := make([]float32, d), make([]float64, 0, len(ids)*d)
	for _, id := range ids {
		if err := quant.Dequantize(n.W[0].DType, buf, n.W[0].Row(int(id))); err != nil {
			return nil, err
		}
		for _, v := range buf {
			y = append(y, a.store(float64(v))*scale)
		}
	}
	return a.storeAll(y), nil
}

// replace puts the rows that are not nil in place of y's.
func (a *arith) replace(y []float64, rows [][]float32) {
	for i, x := range rows {
		for j, v := range x {
			y[i*len(x)+j] = a.store(float64(v))
		}
	}
}

// rmsNorm has what transformers keeps of it: Gemma 3's, with an offset, is rounded
// once, the others' also before the weight.
func (a *arith) rmsNorm(n *graph.Node, x []float64) ([]float64, error) {
	attr, d := n.Attr.(graph.NormAttr), n.Shape.Last()
	var w []float64
	if len(n.W) > 0 {
		var err error
		if w, err = a.weight(n.W[0]); err != nil {
			return nil, err
		}
	}
	y := make([]float64, len(x))
	for r := 0; r < len(x); r += d {
		s := a.calc(a.dot(x[r:r+d], x[r:r+d])/float64(d)) + float64(attr.Eps)
		s = a.calc(1 / math.Sqrt(a.calc(s)))
		for j := range d {
			y[r+j] = a.calc(x[r+j] * s)
			if w == nil {
				continue
			}
			if attr.Offset == 0 {
				y[r+j] = a.store(y[r+j])
			}
			y[r+j] *= a.calc(float64(attr.Offset) + w[j])
		}
	}
	return a.storeAll(y), nil
}

// combine adds or multiplies two inputs, or an input and a weight that is
// repeated over the rows.
func (a *arith) combine(n *graph.Node, in [][]float64) ([]float64, error) {
	x := in[0]
	var z []float64
	var err error
	if len(in) > 1 {
		z = in[1]
	} else if z, err = a.weight(n.W[0]); err != nil {
		return nil, err
	}
	y := make([]float64, len(x))
	for i, v := range x {
		if n.Op == graph.Add {
			y[i] = v + z[i%len(z)]
		} else {
			y[i] = v * z[i%len(z)]
		}
	}
	return a.storeAll(y), nil
}

func view(n *graph.Node, x []float64) []float64 {
	from, size, off := n.In[0].Shape.Size(), n.Shape.Size(), n.Attr.(graph.ViewAttr).Offset
	if from == size {
		return x
	}
	var y []float64
	for r := 0; r < len(x); r += from {
		y = append(y, x[r+off:r+off+size]...)
	}
	return y
}

func (a *arith) rotate(n *graph.Node, x []float64, s *backend.Step) []float64 {
	y, heads, d := slices.Clone(x), n.Shape[0], n.Shape[1]
	attr := n.Attr.(graph.RoPEAttr)
	for t, p := range s.Pos {
		for i, f := range attr.Freqs {
			if s.Parts != nil && attr.Sections != [3]int{} {
				p = s.Parts[t][attr.Part(i)]
			}
			cos, sin := rope.TurnBy(int(p), f, attr.Magnitude)
			cos, sin = a.store(cos), a.store(sin)
			j, k := attr.Pair(i, d)
			for h := range heads {
				v := y[(t*heads+h)*d:][:d]
				re, im := v[j], v[k]
				v[j] = a.store(a.store(re*cos) - a.store(im*sin))
				v[k] = a.store(a.store(im*cos) + a.store(re*sin))
			}
		}
	}
	return y
}
