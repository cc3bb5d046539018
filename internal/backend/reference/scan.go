package reference

import (
	"math"

	"github.com/karat-run/karat/internal/graph"
)

// recur computes a node with a state. A row reads and writes the state of the sequence. A scan has the settings of a
// Spec.
func (m *Model) recur(
	n *graph.Node, in [][]float64, num *Numerics, set *Sequence, state func(row int) []float64,
) ([]float64, error) {
	var w [3][]float64
	for i := range n.W {
		var err error
		if w[i], err = m.vector(n.W[i]); err != nil {
			return nil, err
		}
	}
	d := n.Shape.Size()
	rows := len(in[0]) / n.In[0].Shape.Size()
	y := make([]float64, rows*d)
	for t := range rows {
		row := make([][]float64, len(in))
		for i, x := range in {
			size := n.In[i].Shape.Size()
			row[i] = x[t*size : (t+1)*size]
		}
		y := y[t*d : (t+1)*d]
		switch n.Op {
		case graph.Conv:
			num.conv(y, state(t), row[0], w[0], w[1])
		case graph.SSMScan:
			num.ssm(n, y, state(t), row, w[:], set)
		case graph.DeltaScan:
			num.delta(n, y, state(t), row, w[:], set)
		}
	}
	return y, nil
}

// conv computes a row: s has the inputs before, [kernel-1, channels], the oldest first.
func (num *Numerics) conv(y, s, x, w, bias []float64) {
	d := len(x)
	kernel := len(s)/d + 1
	for c := range y {
		for j := range kernel {
			v := x[c]
			if j < kernel-1 {
				v = s[j*d+c]
			}
			y[c] = num.round(y[c] + num.round(w[c*kernel+j]*v))
		}
		if bias != nil {
			y[c] += bias[c]
		}
	}
	copy(s, s[d:])
	copy(s[len(s)-d:], x)
}

// softplus returns log(1 + e^x).
func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

// share makes decays alike if elements of keys share the first's.
func (s *Sequence) share(decays []float64) {
	for j := range decays {
		if s.Shared {
			decays[j] = decays[0]
		}
	}
}

// ssm computes a row of Mamba 2's scan, or of Mamba 1's: s is [heads, dim, n].
func (num *Numerics) ssm(n *graph.Node, y, s []float64, in, w [][]float64, set *Sequence) {
	x, dt, b, c := in[0], in[1], in[2], in[3]
	heads, dim, size := n.Shape[0], n.Shape[1], n.In[2].Shape[1]
	decays := make([]float64, len(w[0])/heads)
	for h := range heads {
		t := num.round(softplus(num.round(dt[h] + w[1][h])))
		for j := range decays {
			decays[j] = num.round(math.Exp(num.round(w[0][h*len(decays)+j] * t)))
		}
		set.share(decays)
		g := set.Scan(h) * size
		for p := range dim {
			i := h*dim + p
			s := s[i*size : (i+1)*size]
			by := num.round(t * x[i])
			for j := range s {
				s[j] = num.round(num.round(s[j]*decays[j%len(decays)]) + by*b[g+j])
			}
			y[i] = num.dot(s, c[g:g+size]) + num.round(w[2][h]*x[i])
		}
	}
}

// delta computes a row of the gated delta rule: s is [heads, n, dim].
func (num *Numerics) delta(n *graph.Node, y, s []float64, in, w [][]float64, set *Sequence) {
	q, k, v, gate, beta := in[0], in[1], in[2], in[3], in[4]
	heads, dim, size := n.Shape[0], n.Shape[1], n.In[1].Shape[1]
	decays := make([]float64, len(gate)/heads)
	for h := range heads {
		for j := range decays {
			i := h*len(decays) + j
			decays[j] = num.round(math.Exp(num.round(w[0][h] * num.round(softplus(num.round(gate[i]+w[1][i]))))))
		}
		set.share(decays)
		g, by := set.Scan(h)*size, num.round(set.Most/(1+math.Exp(-beta[h])))
		s, y := s[h*size*dim:(h+1)*size*dim], y[h*dim:(h+1)*dim]
		for p := range dim {
			var held float64
			for j := range size {
				s[j*dim+p] = num.round(s[j*dim+p] * decays[j%len(decays)])
				held = num.round(held + s[j*dim+p]*k[g+j])
			}
			d := num.round(by * num.round(v[h*dim+p]-held))
			for j := range size {
				s[j*dim+p] = num.round(s[j*dim+p] + k[g+j]*d)
				y[p] = num.round(y[p] + s[j*dim+p]*q[g+j])
			}
		}
	}
}
