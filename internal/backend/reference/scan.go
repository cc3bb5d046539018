package reference

import (
	"fmt"
	"math"

	"github.com/karat-run/karat/internal/graph"
)

// stateful computes a node with a state: state is that of a row's sequence, which the
// row reads and writes.
func (a *arith) stateful(n *graph.Node, in [][]float64, state func(row int) []float64) ([]float64, error) {
	var w [3][]float64
	for i := range n.W {
		var err error
		if w[i], err = a.weight(n.W[i]); err != nil {
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
			a.conv(y, state(t), row[0], w[0], w[1])
		case graph.SSMScan:
			a.ssm(n, y, state(t), row, w[:])
		case graph.DeltaScan:
			a.delta(n, y, state(t), row, w[:])
		default:
			return nil, fmt.Errorf("operation %v has no meaning here", n.Op)
		}
	}
	return a.storeAll(y), nil
}

// conv is one row: s has the inputs before, [kernel-1, channels], the oldest first.
func (a *arith) conv(y, s, x, w, bias []float64) {
	d := len(x)
	kernel := len(s)/d + 1
	for c := range y {
		for j := range kernel {
			v := x[c]
			if j < kernel-1 {
				v = s[j*d+c]
			}
			y[c] = a.calc(y[c] + a.calc(w[c*kernel+j]*v))
		}
		if bias != nil {
			y[c] += bias[c]
		}
	}
	copy(s, s[d:])
	copy(s[len(s)-d:], x)
}

// softplus is log(1 + e^x).
func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

// ssm is one row of Mamba 2's scan: s is [heads, dim, n].
func (a *arith) ssm(n *graph.Node, y, s []float64, in, w [][]float64) {
	x, dt, b, c := in[0], in[1], in[2], in[3]
	heads, dim, groups, size := n.Shape[0], n.Shape[1], n.In[2].Shape[0], n.In[2].Shape[1]
	for h := range heads {
		t := a.calc(softplus(a.calc(dt[h] + w[1][h])))
		decay := a.calc(math.Exp(a.calc(w[0][h] * t)))
		g := h * groups / heads * size
		for p := range dim {
			i := h*dim + p
			s := s[i*size : (i+1)*size]
			by := a.calc(t * x[i])
			for j := range s {
				s[j] = a.calc(a.calc(s[j]*decay) + by*b[g+j])
			}
			y[i] = a.dot(s, c[g:g+size]) + a.calc(w[2][h]*x[i])
		}
	}
}

// delta is one row of the gated delta rule: s is [heads, n, dim].
func (a *arith) delta(n *graph.Node, y, s []float64, in, w [][]float64) {
	q, k, v, gate, beta := in[0], in[1], in[2], in[3], in[4]
	heads, dim, groups, size := n.Shape[0], n.Shape[1], n.In[1].Shape[0], n.In[1].Shape[1]
	for h := range heads {
		decay := a.calc(math.Exp(a.calc(w[0][h] * a.calc(softplus(a.calc(gate[h]+w[1][h]))))))
		g, by := h*groups/heads*size, a.calc(1/(1+math.Exp(-beta[h])))
		s, y := s[h*size*dim:(h+1)*size*dim], y[h*dim:(h+1)*dim]
		for p := range dim {
			var held float64
			for j := range size {
				s[j*dim+p] = a.calc(s[j*dim+p] * decay)
				held = a.calc(held + s[j*dim+p]*k[g+j])
			}
			d := a.calc(by * a.calc(v[h*dim+p]-held))
			for j := range size {
				s[j*dim+p] = a.calc(s[j*dim+p] + k[g+j]*d)
				y[p] = a.calc(y[p] + s[j*dim+p]*q[g+j])
			}
		}
	}
}
