// Package matrix solves linear equations by least squares.
package matrix

import (
	"math"
	"slices"
)

// Matrix holds rows in sequence.
type Matrix struct {
	Rows, Cols int
	Data       []float64 // [rows, cols]
}

func New(rows, cols int) *Matrix { return &Matrix{rows, cols, make([]float64, rows*cols)} }

// Of returns data as a matrix with rows of cols values.
func Of(cols int, data []float64) *Matrix { return &Matrix{len(data) / cols, cols, data} }

func (m *Matrix) Row(i int) []float64 { return m.Data[i*m.Cols : (i+1)*m.Cols] }

func (m *Matrix) SetColumn(j int, x []float64) {
	for i, v := range x {
		m.Data[i*m.Cols+j] = v
	}
}

// Transpose returns m with rows and columns exchanged: [cols, rows].
func (m *Matrix) Transpose() *Matrix {
	t := New(m.Cols, m.Rows)
	for i := range m.Rows {
		t.SetColumn(i, m.Row(i))
	}
	return t
}

// Times returns m·x.
func (m *Matrix) Times(x []float64) []float64 {
	y := make([]float64, m.Rows)
	for i := range y {
		y[i] = Dot(m.Row(i), x)
	}
	return y
}

func Dot(a, b []float64) float64 {
	var sum float64
	for i, v := range a {
		sum += v * b[i]
	}
	return sum
}

// Norm returns the root of the sum of squares.
func Norm(x []float64) float64 { return math.Sqrt(Dot(x, x)) }

// Minus returns a - b.
func Minus(a, b []float64) []float64 {
	y := slices.Clone(a)
	for i, v := range b {
		y[i] -= v
	}
	return y
}

// deficient is the share of a column up to which the rest, past earlier columns, is rounding: the column is a sum of
// earlier columns.
const deficient = 1e-13

// LeastSquares returns the x [cols of a, cols of b] for which the columns of a·x - b are shortest, by Householder's
// reflections (Golub and Van Loan, Matrix Computations, algorithm 5.3.2). The result is nil where a does not
// determine x: a has more columns than rows, a column is a sum of others, or a value is no number.
func LeastSquares(a, b *Matrix) *Matrix {
	if a.Cols > a.Rows || a.Rows != b.Rows {
		return nil
	}
	q, y := a.Transpose(), b.Transpose() // columns are rows here
	diagonal := make([]float64, q.Rows)
	for k := range q.Rows {
		v := q.Row(k)[k:] // the part above is the triangle's
		length, whole := Norm(v), Norm(q.Row(k))
		if !(length > deficient*whole) || math.IsInf(length, 0) {
			return nil
		}
		diagonal[k] = -math.Copysign(length, v[0])
		v[0] -= diagonal[k]
		half := Dot(v, v) / 2
		for j := k + 1; j < q.Rows; j++ {
			reflect(q.Row(j)[k:], v, half)
		}
		for j := range y.Rows {
			reflect(y.Row(j)[k:], v, half)
		}
	}
	x := New(q.Rows, y.Rows)
	for j := range y.Rows {
		r := y.Row(j)
		for k := q.Rows - 1; k >= 0; k-- {
			r[k] /= diagonal[k]
			for i, v := range q.Row(k)[:k] {
				r[i] -= v * r[k]
			}
		}
		x.SetColumn(j, r[:q.Rows])
	}
	return x
}

// reflect mirrors x at the plane under v, half being half of v's square.
func reflect(x, v []float64, half float64) {
	s := Dot(v, x) / half
	for i, w := range v {
		x[i] -= s * w
	}
}

// Solve returns the x for which a·x comes nearest to b, nil if a does not determine x.
func Solve(a *Matrix, b []float64) []float64 {
	if x := LeastSquares(a, Of(1, b)); x != nil {
		return x.Data
	}
	return nil
}
