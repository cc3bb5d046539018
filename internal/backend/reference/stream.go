package reference

import "math"

// Mix returns sums of vectors by the rows' own weights.
func Mix(e *Eval, s *Spec, weights, x []float64) []float64 {
	n, d, m := s.In[1].Shape[0], s.Node.Shape.Last(), s.Node.Shape[0]
	y := make([]float64, len(x)/n*m)
	for t := range len(x) / (n * d) {
		for i := range m {
			sum := y[(t*m+i)*d:][:d]
			for j := range n {
				by := e.num.round(weights[(t*m+i)*n+j] + s.By)
				for k := range sum {
					sum[k] = e.num.round(sum[k] + by*x[(t*n+j)*d+k])
				}
			}
		}
	}
	return y
}

// match scales vectors to the root mean square of a row's other value.
func match(e *Eval, s *Spec, x, z []float64) []float64 {
	d, n := s.Node.Shape.Last(), s.Node.Shape.Size()
	y := make([]float64, len(x))
	for at := 0; at < len(x); at += d {
		v, to := x[at:at+d], z[at/n*d:][:d]
		by := e.num.round(math.Sqrt(e.num.dot(to, to) / float64(d)))
		q := e.num.round(1 / math.Sqrt(max(e.num.dot(v, v)/float64(d), s.Eps)))
		for i := range v {
			y[at+i] = e.num.round(v[i]*by) * q
		}
	}
	return y
}

// above returns the excess of numbers over a bound.
func above(e *Eval, s *Spec, x []float64) []float64 {
	d := s.Node.Shape.Last()
	y := make([]float64, len(x))
	for at := 0; at < len(x); at += d {
		y, mean := y[at:at+d], 0.
		for _, v := range x[at : at+d] {
			mean = e.num.round(mean + v)
		}
		mean /= float64(d)
		for i := range y {
			y[i] = x[at+i] - mean
		}
		deviation := math.Sqrt(e.num.dot(y, y) / float64(d))
		for i := range y {
			y[i] = max(0, y[i]-e.num.round(s.By*deviation))
		}
	}
	return y
}
