package reference

import (
	"slices"

	"github.com/karat-run/karat/internal/round"
	"github.com/karat-run/karat/internal/tensor"
)

// arith is the arithmetic of a class. An engine of it computes in float32, or in
// float64, and keeps every operation's result in its own format.
type arith struct {
	class  round.Class
	stored round.Format // of stored values
	single bool         // computes in float32
	lanes  int          // partial sums of a float32 product
}

func newArith(c round.Class) *arith {
	a := &arith{class: c, stored: c.Activations.Stored(), lanes: max(c.Lanes, 1)}
	a.single = a.stored != "" && a.stored != round.F64
	return a
}

// calc rounds the result of one step of an operation.
func (a *arith) calc(x float64) float64 {
	if a.single {
		return float64(float32(x))
	}
	return x
}

// store rounds a value that is kept.
func (a *arith) store(x float64) float64 {
	if a.single {
		return a.stored.To(x)
	}
	return x
}

// storeAll rounds values in place.
func (a *arith) storeAll(x []float64) []float64 {
	if a.single {
		a.stored.Round(x)
	}
	return x
}

// input is x [T, k] as a product with weights of type w reads it.
func (a *arith) input(x []float64, k int, w tensor.DType) []float64 {
	f := a.class.Activations.Input(w)
	if f == a.stored {
		return x
	}
	x = slices.Clone(x)
	for r := 0; r < len(x); r += k {
		f.Round(x[r : r+k])
	}
	return x
}

// dot is the sum of products along x and y.
func (a *arith) dot(x, y []float64) float64 {
	switch {
	case !a.single:
		var s float64
		for j, v := range x {
			s += float64(v * y[j])
		}
		return s
	case a.lanes == 1:
		var s float32
		for j, v := range x {
			s += float32(float32(v) * float32(y[j]))
		}
		return float64(s)
	}
	lanes := make([]float32, a.lanes)
	for len(x) > 0 {
		n := min(len(x), len(lanes))
		for j, v := range x[:n] {
			lanes[j] += float32(float32(v) * float32(y[j]))
		}
		x, y = x[n:], y[n:]
	}
	for n := a.lanes / 2; n > 0; n /= 2 {
		for i := range n {
			lanes[i] += lanes[i+n]
		}
	}
	return float64(lanes[0])
}

// integers reports whether values of a format are integers in blocks, as are the weights that multiply them. Then the sum
// of a block's products is exact.
func integers(f round.Format) bool {
	return f == round.Q8_32 || f == round.Q8_256 || f == round.I16_32
}

// dots stores the products of x with each row of rows, weights of type w, in y.
func (a *arith) dots(y, x, rows []float64, w tensor.DType) {
	k, dot := len(x), a.dot
	if integers(a.class.Activations.Input(w)) {
		dot = dotBlocks
	} else if !a.single || a.lanes == 1 {
		four := dot4[float64]
		if a.single {
			four = dot4[float32]
		}
		for ; len(rows) >= 4*k; y, rows = y[4:], rows[4*k:] {
			y[0], y[1], y[2], y[3] = four(x, rows[:k], rows[k:2*k], rows[2*k:3*k], rows[3*k:4*k])
		}
	}
	for i := range len(rows) / k {
		y[i] = dot(x, rows[i*k:(i+1)*k])
	}
}

// dot4 is four dots at a time, whose sums do not wait for each other.
func dot4[T float32 | float64](x, a, b, c, d []float64) (float64, float64, float64, float64) {
	var p, q, r, s T
	a, b, c, d = a[:len(x)], b[:len(x)], c[:len(x)], d[:len(x)]
	for j, v := range x {
		v := T(v)
		p += T(v * T(a[j]))
		q += T(v * T(b[j]))
		r += T(v * T(c[j]))
		s += T(v * T(d[j]))
	}
	return float64(p), float64(q), float64(r), float64(s)
}

// dotBlocks sums the products of 32 at a time, and those sums in float32.
func dotBlocks(x, y []float64) float64 {
	var sum float32
	for len(x) > 0 {
		n := min(32, len(x))
		var s float64
		for j, v := range x[:n] {
			s += v * y[j]
		}
		sum += float32(s)
		x, y = x[n:], y[n:]
	}
	return float64(sum)
}
