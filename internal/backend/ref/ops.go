package ref

import (
	"fmt"
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
	if act == graph.SiLU {
		return func(v float64) float64 { return v / (1 + math.Exp(-v)) }
	}
	return a.class.GELU.At
}

// gated is act(in[0]), times in[1] if there is one.
func (a *arith) gated(in [][]float64, act func(float64) float64) []float64 {
	y := a.apply(in[0], act)
	if len(in) > 1 {
		for i := range y {
			y[i] *= in[1][i]
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

func (a *arith) rotate(n *graph.Node, x []float64, pos []int32) []float64 {
	y, heads, d := slices.Clone(x), n.Shape[0], n.Shape[1]
	for t, p := range pos {
		for i, f := range n.Attr.(graph.RoPEAttr).Freqs {
			cos, sin := rope.Turn(int(p), f)
			cos, sin = a.store(cos), a.store(sin)
			for h := range heads {
				v := y[(t*heads+h)*d:][:d]
				re, im := v[i], v[i+d/2]
				v[i] = a.store(a.store(re*cos) - a.store(im*sin))
				v[i+d/2] = a.store(a.store(im*cos) + a.store(re*sin))
			}
		}
	}
	return y
}

// keep stores the keys and values of the step's rows.
func (a *arith) keep(k *graph.KV, key, val []float64, s *backend.Step) error {
	to, err := s.Cache.(*cache).find(k)
	if err != nil {
		return err
	}
	if f := a.class.KV; f != "" {
		key, val = slices.Clone(key), slices.Clone(val)
		f.Round(key)
		f.Round(val)
	}
	d := k.Heads * k.Dim
	for t, p := range s.Pos {
		to.put(to.slot(s.Seqs[t], int(p)), key[t*d:(t+1)*d], val[t*d:(t+1)*d])
	}
	return nil
}

func (a *arith) attention(n *graph.Node, q []float64, s *backend.Step) ([]float64, error) {
	attr := n.Attr.(graph.AttentionAttr)
	c, heads, d := s.Cache.(*cache), n.In[0].Shape[0], attr.KV.Dim
	from, err := c.find(attr.KV)
	if err != nil {
		return nil, err
	}
	y := make([]float64, len(q))
	for t, p := range s.Pos {
		first := 0
		if attr.KV.Window > 0 {
			first = max(0, int(p)-attr.KV.Window+1)
		}
		if !c.held(from, s.Seqs[t], first) {
			return nil, fmt.Errorf("position %d, which row %d at position %d sees, is no longer held", first, t, p)
		}
		for i := first; i <= int(p); i++ {
			from.reach(from.slot(s.Seqs[t], i)) // a kernel may have stored nothing
		}
		for h := range heads {
			g := h * attr.KV.Heads / heads
			at := func(i int) int { return (from.slot(s.Seqs[t], first+i)*attr.KV.Heads + g) * d }
			row := (t*heads + h) * d
			a.attend(y[row:row+d], q[row:row+d], from.k, from.v, at, int(p)-first+1, attr.Scale)
		}
	}
	return a.storeAll(y), nil
}

// attend is y = softmax(q·kᵀ·scale)·v over n keys and values, of which the
// i-th start at at(i).
func (a *arith) attend(y, q, k, v []float64, at func(int) int, n int, scale float64) {
	p, top, sum := make([]float64, n), math.Inf(-1), 0.0
	for i := range p {
		p[i] = a.store(a.store(a.dot(q, k[at(i):][:len(q)])) * scale)
		top = max(top, p[i])
	}
	for i := range p {
		p[i] = a.calc(math.Exp(a.calc(p[i] - top)))
		sum = a.calc(sum + p[i])
	}
	for i := range p {
		w := a.store(p[i] / sum)
		for j, x := range v[at(i):][:len(q)] {
			y[j] = a.calc(y[j] + a.calc(w*x))
		}
	}
}

// route gives, for each row, k pairs of an expert's index and its weight.
// Equal scores go to the lower index; a NaN counts as the lowest score.
func (a *arith) route(n *graph.Node, scores []float64) ([]float64, error) {
	scale, err := a.weight(n.W[0])
	if err != nil {
		return nil, err
	}
	k, count := n.Shape[0], len(scale)
	y := make([]float64, 0, len(scores)/count*k*2)
	for r := 0; r < len(scores); r += count {
		s := scores[r : r+count]
		order := make([]int, count)
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(i, j int) int {
			switch {
			case s[i] > s[j] || s[j] != s[j] && s[i] == s[i]:
				return -1
			case s[j] > s[i] || s[i] != s[i] && s[j] == s[j]:
				return 1
			}
			return 0
		})
		var sum float64
		for _, e := range order[:k] {
			sum = a.calc(sum + a.calc(math.Exp(s[e]-s[order[0]])))
		}
		for _, e := range order[:k] {
			p := a.calc(a.calc(math.Exp(s[e]-s[order[0]])) / sum)
			y = append(y, float64(e), a.store(p*scale[e]))
		}
	}
	return y, nil
}
