package diagnose

import (
	"math"
	"math/rand/v2"
	"testing"
)

func random(seed uint64, rows, cols int) *matrix {
	r, m := rand.New(rand.NewPCG(seed, 1)), newMatrix(rows, cols)
	for i := range m.data {
		m.data[i] = r.NormFloat64()
	}
	return m
}

// TestLeastSquaresKnown solves systems whose solution is known: exact ones, a line through
// three points, and the Hilbert matrix, which loses about as many digits as its condition has.
func TestLeastSquaresKnown(t *testing.T) {
	hilbert, ones := newMatrix(6, 6), []float64{1, 1, 1, 1, 1, 1}
	for i := range 6 {
		for j := range 6 {
			hilbert.row(i)[j] = 1 / float64(i+j+1)
		}
	}
	for name, c := range map[string]struct {
		a       *matrix
		b, want []float64
		off     float64
	}{
		"one":          {wide(1, []float64{-4}), []float64{8}, []float64{-2}, 1e-15},
		"zero on top":  {wide(2, []float64{0, 2, 3, 1}), []float64{2, 7}, []float64{2, 1}, 1e-14},
		"line":         {wide(2, []float64{1, 0, 1, 1, 1, 2}), []float64{6, 0, 0}, []float64{5, -3}, 1e-13},
		"far in scale": {wide(2, []float64{1e9, 0, 0, 1e-9, 0, 0}), []float64{1e9, 1e-9, 1}, []float64{1, 1}, 1e-15},
		"hilbert":      {hilbert, hilbert.times(ones), ones, 1e-8},
	} {
		x := solve(c.a, c.b)
		if x == nil {
			t.Errorf("%s: no solution", name)
			continue
		}
		if d := norm(minus(x, c.want)); !(d <= c.off) {
			t.Errorf("%s: %v, want %v", name, x, c.want)
		}
	}
}

// TestLeastSquaresOrthogonal wants the remainder orthogonal to all columns, and the input unchanged.
func TestLeastSquaresOrthogonal(t *testing.T) {
	for _, size := range [][3]int{{1, 1, 1}, {5, 5, 2}, {40, 7, 3}, {130, 64, 1}, {96, 96, 5}} {
		a, b := random(1, size[0], size[1]), random(2, size[0], size[2])
		before := random(1, size[0], size[1])
		x := leastSquares(a, b)
		if x == nil || x.rows != a.cols || x.cols != b.cols {
			t.Fatalf("%v: %v", size, x)
		}
		if norm(minus(a.data, before.data)) != 0 {
			t.Errorf("%v: a has changed", size)
		}
		columns, xs, bs := a.transpose(), x.transpose(), b.transpose()
		for j := range b.cols {
			rest := minus(a.times(xs.row(j)), bs.row(j))
			for i := range columns.rows {
				if c := columns.row(i); math.Abs(dot(c, rest)) > 1e-12*norm(c)*norm(bs.row(j)) {
					t.Errorf("%v: what is left has %g along column %d", size, dot(c, rest), i)
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
		third[i] = twice.row(i)[0] + 3*twice.row(i)[2]
	}
	twice.setColumn(3, third)
	for name, a := range map[string]*matrix{
		"a column that is a sum of others": twice, "zeros": newMatrix(9, 2), "more columns than rows": random(4, 9, 10),
		"no number": wide(1, []float64{1, 2, math.NaN(), 4, 5, 6, 7, 8, 9}), "infinity": wide(1, []float64{1, 2, math.Inf(1), 4, 5, 6, 7, 8, 9}),
	} {
		if x := solve(a, sum); x != nil {
			t.Errorf("%s: %v", name, x)
		}
	}
}
