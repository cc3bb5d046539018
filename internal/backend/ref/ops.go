package ref

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/rope"
)

func apply(x []float64, f func(float64) float64) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = f(v)
	}
	return y
}

func activation(a graph.Activation) func(float64) float64 {
	if a == graph.SiLU {
		return func(v float64) float64 { return v / (1 + math.Exp(-v)) }
	}
	return func(v float64) float64 {
		return v / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)))
	}
}

// gated is act(in[0]), times in[1] if there is one.
func gated(in [][]float64, act func(float64) float64) []float64 {
	y := apply(in[0], act)
	if len(in) > 1 {
		for i := range y {
			y[i] *= in[1][i]
		}
	}
	return y
}

// embed is row id of the weight, scaled, for each token.
func embed(n *graph.Node, ids []int32) ([]float64, error) {
	d, scale := n.Shape.Size(), float64(n.Attr.(graph.EmbedAttr).Scale)
	buf, y := make([]float32, d), make([]float64, 0, len(ids)*d)
	for _, id := range ids {
		if err := quant.Dequantize(n.W[0].DType, buf, n.W[0].Row(int(id))); err != nil {
			return nil, err
		}
		for _, v := range buf {
			y = append(y, float64(v)*scale)
		}
	}
	return y, nil
}

func rmsNorm(n *graph.Node, x []float64) ([]float64, error) {
	a, d := n.Attr.(graph.NormAttr), n.Shape.Last()
	var w []float64
	if len(n.W) > 0 {
		var err error
		if w, err = weight(n.W[0]); err != nil {
			return nil, err
		}
	}
	y := make([]float64, len(x))
	for r := 0; r < len(x); r += d {
		var s float64
		for _, v := range x[r : r+d] {
			s += v * v
		}
		s = 1 / math.Sqrt(s/float64(d)+float64(a.Eps))
		for j := range d {
			y[r+j] = x[r+j] * s
			if w != nil {
				y[r+j] *= float64(a.Offset) + w[j]
			}
		}
	}
	return y, nil
}

// combine adds or multiplies two inputs, or an input and a weight that is
// repeated over the rows.
func combine(n *graph.Node, in [][]float64) ([]float64, error) {
	x := in[0]
	var z []float64
	var err error
	if len(in) > 1 {
		z = in[1]
	} else if z, err = weight(n.W[0]); err != nil {
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
	return y, nil
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

func rotate(n *graph.Node, x []float64, pos []int32) []float64 {
	y, heads, d := slices.Clone(x), n.Shape[0], n.Shape[1]
	for t, p := range pos {
		for i, f := range n.Attr.(graph.RoPEAttr).Freqs {
			cos, sin := rope.Turn(int(p), f)
			for h := range heads {
				v := y[(t*heads+h)*d:][:d]
				a, b := v[i], v[i+d/2]
				v[i], v[i+d/2] = a*cos-b*sin, b*cos+a*sin
			}
		}
	}
	return y
}

// keep stores the keys and values of the step's rows.
func keep(k *graph.KV, key, val []float64, s *backend.Step) error {
	to, err := s.Cache.(*cache).find(k)
	if err != nil {
		return err
	}
	d := k.Heads * k.Dim
	for t, p := range s.Pos {
		to.put(to.slot(s.Seqs[t], int(p)), key[t*d:(t+1)*d], val[t*d:(t+1)*d])
	}
	return nil
}

func attention(n *graph.Node, q []float64, s *backend.Step) ([]float64, error) {
	a := n.Attr.(graph.AttentionAttr)
	c, heads, d := s.Cache.(*cache), n.In[0].Shape[0], a.KV.Dim
	from, err := c.find(a.KV)
	if err != nil {
		return nil, err
	}
	y := make([]float64, len(q))
	for t, p := range s.Pos {
		first := 0
		if a.KV.Window > 0 {
			first = max(0, int(p)-a.KV.Window+1)
		}
		if !c.held(from, s.Seqs[t], first) {
			return nil, fmt.Errorf("position %d, which row %d at position %d sees, is no longer held", first, t, p)
		}
		for i := first; i <= int(p); i++ {
			from.reach(from.slot(s.Seqs[t], i)) // a kernel may have stored nothing
		}
		for h := range heads {
			g := h * a.KV.Heads / heads
			at := func(i int) int { return (from.slot(s.Seqs[t], first+i)*a.KV.Heads + g) * d }
			row := (t*heads + h) * d
			attend(y[row:row+d], q[row:row+d], from.k, from.v, at, int(p)-first+1, a.Scale)
		}
	}
	return y, nil
}

// attend is y = softmax(q·kᵀ·scale)·v over n keys and values, of which the
// i-th start at at(i).
func attend(y, q, k, v []float64, at func(int) int, n int, scale float64) {
	p, top, sum := make([]float64, n), math.Inf(-1), 0.0
	for i := range p {
		for j, x := range k[at(i):][:len(q)] {
			p[i] += q[j] * x
		}
		p[i] *= scale
		top = max(top, p[i])
	}
	for i := range p {
		p[i] = math.Exp(p[i] - top)
		sum += p[i]
	}
	for i := range p {
		for j, x := range v[at(i):][:len(q)] {
			y[j] += p[i] / sum * x
		}
	}
}

// route gives, for each row, k pairs of an expert's index and its weight.
// Equal scores go to the lower index; a NaN counts as the lowest score.
func route(n *graph.Node, scores []float64) ([]float64, error) {
	scale, err := weight(n.W[0])
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
		slices.SortStableFunc(order, func(a, b int) int {
			switch {
			case s[a] > s[b] || s[b] != s[b] && s[a] == s[a]:
				return -1
			case s[b] > s[a] || s[a] != s[a] && s[b] == s[b]:
				return 1
			}
			return 0
		})
		var sum float64
		for _, e := range order[:k] {
			sum += math.Exp(s[e] - s[order[0]])
		}
		for _, e := range order[:k] {
			y = append(y, float64(e), math.Exp(s[e]-s[order[0]])/sum*scale[e])
		}
	}
	return y, nil
}

// experts sums the routed MLPs of each row of x by weight.
func experts(n *graph.Node, x, routes []float64) ([]float64, error) {
	gateUp, down := map[int][]float64{}, map[int][]float64{} // of the experts that rows are routed to
	d, ff, k := n.Shape.Size(), n.W[1].Shape[2], n.In[1].Shape[0]
	act := activation(n.Attr.(graph.ActAttr).Act)
	y := make([]float64, len(x))
	for t := range len(x) / d {
		for j := range k {
			e, p := int(routes[(t*k+j)*2]), routes[(t*k+j)*2+1]
			if e < 0 || e >= n.W[0].Shape[0] {
				return nil, fmt.Errorf("row %d is routed to expert %d of %d", t, e, n.W[0].Shape[0])
			}
			if gateUp[e] == nil {
				var errs [2]error
				gateUp[e], errs[0] = weight(n.W[0].Matrix(e))
				down[e], errs[1] = weight(n.W[1].Matrix(e))
				if err := errors.Join(errs[:]...); err != nil {
					return nil, err
				}
			}
			h := product(x[t*d:(t+1)*d], gateUp[e])
			for i := range ff {
				h[i] = act(h[i]) * h[ff+i]
			}
			for i, v := range product(h[:ff], down[e]) {
				y[t*d+i] += p * v
			}
		}
	}
	return y, nil
}

// product is w·x for w [n, len(x)].
func product(x, w []float64) []float64 {
	y := make([]float64, len(w)/len(x))
	for i := range y {
		for j, v := range x {
			y[i] += v * w[i*len(x)+j]
		}
	}
	return y
}
