package matrix

import (
	"math"
	"math/rand/v2"
	"testing"
)

func random(seed uint64, rows, cols int) *Matrix {
	r, m := rand.New(rand.NewPCG(seed, 1)), New(rows, cols)
	for i := range m.Data {
		m.Data[i] = r.NormFloat64()
	}
	return m
}

// TestLeastSquaresKnown solves systems whose solution is known: exact ones, a line through
// three points, and the Hilbert matrix, which loses about as many digits as its condition has.
func TestLeastSquaresKnown(t *testing.T) {
	hilbert, ones := New(6, 6), []float64{1, 1, 1, 1, 1, 1}
	for i := range 6 {
		for j := range 6 {
			hilbert.Row(i)[j] = 1 / float64(i+j+1)
		}
	}
	for name, c := range map[string]struct {
		a       *Matrix
		b, want []float64
		off     float64
	}{
		"one":          {Of(1, []float64{-4}), []float64{8}, []float64{-2}, 1e-15},
		"zero on top":  {Of(2, []float64{0, 2, 3, 1}), []float64{2, 7}, []float64{2, 1}, 1e-14},
		"line":         {Of(2, []float64{1, 0, 1, 1, 1, 2}), []float64{6, 0, 0}, []float64{5, -3}, 1e-13},
		"far in scale": {Of(2, []float64{1e9, 0, 0, 1e-9, 0, 0}), []float64{1e9, 1e-9, 1}, []float64{1, 1}, 1e-15},
		"hilbert":      {hilbert, hilbert.Times(ones), ones, 1e-8},
	} {
		x := Solve(c.a, c.b)
		if x == nil {
			t.Errorf("%s: no solution", name)
			continue
		}
		if d := Norm(Minus(x, c.want)); !(d <= c.off) {
			t.Errorf("%s: %v, want %v", name, x, c.want)
		}
	}
}

// TestLeastSquaresOrthogonal wants the remainder orthogonal to all columns, and the input unchanged.
func TestLeastSquaresOrthogonal(t *testing.T) {
	for _, size := range [][3]int{{1, 1, 1}, {5, 5, 2}, {40, 7, 3}, {130, 64, 1}, {96, 96, 5}} {
		a, b := random(1, size[0], size[1]), random(2, size[0], size[2])
		before := random(1, size[0], size[1])
		x := LeastSquares(a, b)
		if x == nil || x.Rows != a.Cols || x.Cols != b.Cols {
			t.Fatalf("%v: %v", size, x)
		}
		if Norm(Minus(a.Data, before.Data)) != 0 {
			t.Errorf("%v: a has changed", size)
		}
		columns, xs, bs := a.Transpose(), x.Transpose(), b.Transpose()
		for j := range b.Cols {
			rest := Minus(a.Times(xs.Row(j)), bs.Row(j))
			for i := range columns.Rows {
				if c := columns.Row(i); math.Abs(Dot(c, rest)) > 1e-12*Norm(c)*Norm(bs.Row(j)) {
					t.Errorf("%v: what is left has %g along column %d", size, Dot(c, rest), i)
				}
			}
		}
	}
}

// TestLeastSquaresRefuses wants nothing where there is no one solution.
func TestLeastSquaresRefuses(t *testing.T) {
	twice := random(3, 9, 4)
	third, sum := make([]float64, 9), make([]float64, 9)
	for i := range 9 {
		third[i] = twice.Row(i)[0] + 3*twice.Row(i)[2]
	}
	twice.SetColumn(3, third)
	for name, a := range map[string]*Matrix{
		"a column that is a sum of others": twice, "zeros": New(9, 2), "more columns than rows": random(4, 9, 10),
		"no number": Of(1, []float64{1, 2, math.NaN(), 4, 5, 6, 7, 8, 9}), "infinity": Of(1, []float64{1, 2, math.Inf(1), 4, 5, 6, 7, 8, 9}),
	} {
		if x := Solve(a, sum); x != nil {
			t.Errorf("%s: %v", name, x)
		}
	}
}
