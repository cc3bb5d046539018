package diagnose

import (
	"math"
	"slices"
)

// matrix holds rows in sequence.
type matrix struct {
	rows, cols int
	data       []float64 // [rows, cols]
}

func newMatrix(rows, cols int) *matrix { return &matrix{rows, cols, make([]float64, rows*cols)} }

// wide returns data as a matrix with rows of cols values.
func wide(cols int, data []float64) *matrix { return &matrix{len(data) / cols, cols, data} }

func (m *matrix) row(i int) []float64 { return m.data[i*m.cols : (i+1)*m.cols] }

func (m *matrix) setColumn(j int, x []float64) {
	for i, v := range x {
		m.data[i*m.cols+j] = v
	}
}

// transpose returns m with rows and columns exchanged: [cols, rows].
func (m *matrix) transpose() *matrix {
	t := newMatrix(m.cols, m.rows)
	for i := range m.rows {
		t.setColumn(i, m.row(i))
	}
	return t
}

// times returns m·x.
func (m *matrix) times(x []float64) []float64 {
	y := make([]float64, m.rows)
	for i := range y {
		y[i] = dot(m.row(i), x)
	}
	return y
}

func dot(a, b []float64) float64 {
	var sum float64
	for i, v := range a {
		sum += v * b[i]
	}
	return sum
}

// norm returns the root of the sum of squares.
func norm(x []float64) float64 { return math.Sqrt(dot(x, x)) }

// minus returns a - b.
func minus(a, b []float64) []float64 {
	y := slices.Clone(a)
	for i, v := range b {
		y[i] -= v
	}
	return y
}

// deficient is the share of a column from which on the rest of it, past the columns
// before it, is rounding: the column is a sum of those.
const deficient = 1e-13

// leastSquares returns the x [cols of a, cols of b] for which the columns of a·x - b are shortest, by Householder's
// reflections (Golub and Van Loan, Matrix Computations, algorithm 5.3.2). The result is nil where a does not
// determine x: a has more columns than rows, a column is a sum of others, or a value is no number.
func leastSquares(a, b *matrix) *matrix {
	if a.cols > a.rows || a.rows != b.rows {
		return nil
	}
	q, y := a.transpose(), b.transpose() // columns are rows here
	diagonal := make([]float64, q.rows)
	for k := range q.rows {
		v := q.row(k)[k:] // the part above is the triangle's
		length, whole := norm(v), norm(q.row(k))
		if !(length > deficient*whole) || math.IsInf(length, 0) {
			return nil
		}
		diagonal[k] = -math.Copysign(length, v[0])
		v[0] -= diagonal[k]
		half := dot(v, v) / 2
		for j := k + 1; j < q.rows; j++ {
			reflect(q.row(j)[k:], v, half)
		}
		for j := range y.rows {
			reflect(y.row(j)[k:], v, half)
		}
	}
	x := newMatrix(q.rows, y.rows)
	for j := range y.rows {
		r := y.row(j)
		for k := q.rows - 1; k >= 0; k-- {
			r[k] /= diagonal[k]
			for i, v := range q.row(k)[:k] {
				r[i] -= v * r[k]
			}
		}
		x.setColumn(j, r[:q.rows])
	}
	return x
}

// reflect mirrors x at the plane that v stands on, half being half of v's square.
func reflect(x, v []float64, half float64) {
	s := dot(v, x) / half
	for i, w := range v {
		x[i] -= s * w
	}
}

// solve returns the x for which a·x comes nearest to b, nil if a does not determine x.
func solve(a *matrix, b []float64) []float64 {
	if x := leastSquares(a, wide(1, b)); x != nil {
		return x.data
	}
	return nil
}
