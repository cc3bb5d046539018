package sim

import (
	"math/rand/v2"
	"slices"

	"github.com/karat-run/karat/internal/tensor"
)

// Numerics is how an engine rounds. A nil one, and the zero value, is float64.
type Numerics struct {
	Store func(x []float64)                   // rounds the kept result of a computation; nil for no rounding
	Input func(row []float64, w tensor.DType) // rounds a row that a product with such weights reads
	KV    func(x []float64)                   // rounds keys and values
	GELU  func(float64) float64               // in place of the tanh form
	Order Order                               // of sums of products

	// Jitter multiplies all that is stored or given by 1 + Jitter·(a number of -1..1):
	// with 2^-24 that is what a float32 engine's rounding may be.
	Jitter float64
	Given  float64 // the same, of the given values alone
	Random *rand.Rand
}

// Order is how sums of products run.
type Order uint8

// The orders of sums: exact but for float64, and in float32: one sum, from the end, in 16 lanes.
const (
	Exact Order = iota
	Forward
	Backward
	Lanes
)

func (n *Numerics) input(x []float64) {
	if n != nil && max(n.Jitter, n.Given) != 0 {
		n.shake(x, max(n.Jitter, n.Given))
	}
}

func (n *Numerics) store(x []float64) {
	if n == nil {
		return
	}
	if n.Jitter != 0 {
		n.shake(x, n.Jitter)
	}
	if n.Store != nil {
		n.Store(x)
	}
}

// Stored is x as it is kept.
func (n *Numerics) Stored(x []float64) []float64 {
	x = slices.Clone(x)
	n.store(x)
	return x
}

func (n *Numerics) shake(x []float64, by float64) {
	for i, v := range x {
		x[i] = v * (1 + by*(2*n.Random.Float64()-1))
	}
}

// speed is what rounding may multiply the turning speed of a pair by. Engines keep
// angles in float32, whose error grows with the position, and many come to the speed of
// pair i by i products.
func (n *Numerics) speed(i int) float64 {
	if n == nil || n.Jitter == 0 {
		return 1
	}
	return 1 + n.Jitter*float64(1+i)*(2*n.Random.Float64()-1)
}

func (n *Numerics) kv(x []float64) []float64 {
	if n == nil || n.KV == nil {
		return x
	}
	x = slices.Clone(x)
	n.KV(x)
	return x
}

// quantize is x [T, k] as products with weights of that type read it.
func (n *Numerics) quantize(x []float64, k int, w tensor.DType) []float64 {
	if n == nil || n.Input == nil {
		return x
	}
	x = slices.Clone(x)
	for r := 0; r < len(x); r += k {
		n.Input(x[r:r+k], w)
	}
	return x
}

// act is an activation as the engine has it.
func (n *Numerics) act(f func(float64) float64) func(float64) float64 {
	if n != nil && n.GELU != nil && f(1) == GELUTanh(1) {
		return n.GELU
	}
	return f
}

// sum rounds a sum that grows term by term.
func (n *Numerics) sum(s float64) float64 {
	if n == nil || n.Order == Exact {
		return s
	}
	return float64(float32(s))
}

func (n *Numerics) dot(a, b []float64) float64 {
	if n == nil || n.Order == Exact {
		return dot(a, b)
	}
	var y [1]float64
	n.dots(y[:], 1, narrow(a), narrow(b))
	return y[0]
}

// dots is the float32 products of rows of x, each as long as w, with w, stride apart in
// y. Of the orders that make one sum four rows run at once: they wait for nothing but
// themselves.
func (n *Numerics) dots(y []float64, stride int, x, w []float32) {
	k := len(w)
	for r := 0; len(x) > 0; {
		if n.Order == Lanes || len(x) < 4*k {
			y[r*stride] = float64(n.dot32(x[:k], w))
			x, r = x[k:], r+1
			continue
		}
		a, b, c, d := x[:k], x[k:2*k], x[2*k:3*k], x[3*k:4*k]
		var s0, s1, s2, s3 float32
		for i := range k {
			if n.Order == Backward {
				i = k - 1 - i
			}
			v := w[i]
			s0 += float32(a[i] * v)
			s1 += float32(b[i] * v)
			s2 += float32(c[i] * v)
			s3 += float32(d[i] * v)
		}
		for i, s := range []float32{s0, s1, s2, s3} {
			y[(r+i)*stride] = float64(s)
		}
		x, r = x[4*k:], r+4
	}
}

func (n *Numerics) dot32(a, b []float32) (s float32) {
	switch n.Order {
	case Forward:
		for i, v := range a {
			s += float32(v * b[i])
		}
		return s
	case Backward:
		for i := len(a) - 1; i >= 0; i-- {
			s += float32(a[i] * b[i])
		}
		return s
	}
	var lanes [16]float32
	for len(a) >= len(lanes) {
		x, y := (*[16]float32)(a), (*[16]float32)(b)
		for l := range lanes {
			lanes[l] += float32(x[l] * y[l])
		}
		a, b = a[len(lanes):], b[len(lanes):]
	}
	for l, v := range a {
		lanes[l] += float32(v * b[l])
	}
	for w := len(lanes) / 2; w > 0; w /= 2 {
		for i := range w {
			lanes[i] += lanes[i+w]
		}
	}
	return lanes[0]
}

// dot is the sum of products in four parts.
func dot(a, b []float64) float64 {
	var s0, s1, s2, s3 float64
	b = b[:len(a)]
	i := 0
	for ; i+4 <= len(a); i += 4 {
		x, y := a[i:i+4:i+4], b[i:i+4:i+4]
		s0 += x[0] * y[0]
		s1 += x[1] * y[1]
		s2 += x[2] * y[2]
		s3 += x[3] * y[3]
	}
	for ; i < len(a); i++ {
		s0 += a[i] * b[i]
	}
	return s0 + s1 + (s2 + s3)
}
