package reference

import (
	"math/rand/v2"
	"slices"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/round"
	"github.com/karat-run/karat/internal/simd"
	"github.com/karat-run/karat/internal/tensor"
)

// Numerics is the rounding of an engine. Nil, and the zero value, is float64.
type Numerics struct {
	Store func(x []float64)                   // rounds the kept result of a computation; nil for no rounding
	Input func(row []float64, w tensor.DType) // rounds a row for a product with weights of a type
	KV    round.Format                        // of keys and values; "" for no rounding
	GELU  func(float64) float64               // in place of the tanh form
	Order Order                               // of sums of products
	Ties  bool                                // whether experts are chosen by rounded probabilities
	Name  string                              // tells the functions from other numerics' functions

	// Integers reports whether products with weights of a type read integers in blocks of 32. Then the sum of a
	// block's products is exact, and float32 sums run over blocks. Nil is no.
	Integers func(w tensor.DType) bool

	// Jitter multiplies all values stored or given by 1 + Jitter·(a number of -1..1): 2^-24 is a float32 engine's
	// rounding.
	Jitter float64
	Given  float64 // the same, of the given values alone
	Random *rand.PCG
}

// Order is how sums of products run.
type Order uint8

// The orders of sums: exact in float64, and in float32: one sum, from the end, in 16 lanes.
const (
	Exact Order = iota
	Forward
	Backward
	Lanes
)

// Rounds returns the numerics of a class; nil for float64.
func Rounds(c round.Class) *Numerics {
	stored := c.Activations.Stored()
	if c == (round.Class{}) || c == (round.Class{Activations: round.F64}) {
		return nil
	}
	n := &Numerics{}
	if stored != "" && stored != round.F64 {
		n.Store, n.Order = stored.Round, Forward
		if c.Lanes > 1 {
			n.Order = Lanes
		}
	}
	n.Input = func(row []float64, w tensor.DType) {
		if f := c.Activations.Input(w); f != stored {
			f.Round(row)
		}
	}
	n.Integers = func(w tensor.DType) bool {
		switch c.Activations.Input(w) {
		case round.Q8_32, round.Q8_256, round.I16_32:
			return true
		}
		return false
	}
	if c.KV != "" {
		n.KV = c.KV
	}
	if c.GELU == round.F16Table {
		n.GELU = c.GELU.At
	}
	return n
}

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

// Stored returns x in the form of stored values.
func (n *Numerics) Stored(x []float64) []float64 {
	x = slices.Clone(x)
	n.store(x)
	return x
}

func (n *Numerics) shake(x []float64, by float64) {
	for i, v := range x {
		x[i] = v * (1 + by*n.chance())
	}
}

// chance returns a number of -1..1.
func (n *Numerics) chance() float64 { return 2*(float64(n.Random.Uint64()<<11>>11)/(1<<53)) - 1 }

// speed returns a factor of rounding for the turning speed of a pair. Engines keep angles in float32, with an error
// that grows with the position, and many come to the speed of pair i by i products.
func (n *Numerics) speed(i int) float64 {
	if n == nil || n.Jitter == 0 {
		return 1
	}
	return 1 + n.Jitter*float64(1+i)*n.chance()
}

// keep returns keys or values, rows of heads of dim elements, as kept.
func (n *Numerics) keep(x []float64, dim int, values bool) []float64 {
	if n == nil || n.KV == "" {
		return x
	}
	x = slices.Clone(x)
	n.KV.Keep(x, dim, values)
	return x
}

// hasOlder reports whether rows see older positions of a store otherwise.
func hasOlder(n *Numerics, s *graph.KV) bool {
	return n != nil && n.KV == round.KVPages && backend.IsNarrow(&graph.Graph{}, s)
}

// pageOf returns the first position of a position's page.
func pageOf(pos int) int { return pos &^ (kv.PageSize - 1) }

// older returns the kept keys and values, from position first on, a page's start, as the row at a position sees them.
func (n *Numerics) older(kvs *graph.KV, k, v []float64, first, at int) (keys, values []float64) {
	keys, values = slices.Clone(k), slices.Clone(v)
	for p := first / kv.PageSize; p < backend.RecentPage(at); p++ {
		if p == 0 && kvs.Window == 0 {
			continue
		}
		i, width, wide := p-first/kv.PageSize, kvs.Heads*kvs.Dim, kvs.Heads*kvs.Values()
		round.Older(keys[i*kv.PageSize*width:(i+1)*kv.PageSize*width], width, kvs.Dim, false)
		round.Older(values[i*kv.PageSize*wide:(i+1)*kv.PageSize*wide], wide, kvs.Values(), true)
	}
	return keys, values
}

// quantize returns x [T, k] rounded for products with weights of a type.
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

// act returns the engine's form of an activation.
func (n *Numerics) act(f func(float64) float64) func(float64) float64 {
	if n != nil && n.GELU != nil && f(1) == GELUTanh(1) {
		return n.GELU
	}
	return f
}

// exact reports whether sums are float64.
func (n *Numerics) exact() bool { return n == nil || n.Order == Exact }

// round rounds the result of a step of an operation.
func (n *Numerics) round(x float64) float64 {
	if n.exact() {
		return x
	}
	return float64(float32(x))
}

// mean returns the mean of rows of d values, in the first row's place.
func (n *Numerics) mean(rows []float64, d int) []float64 {
	sum, count := rows[:d], float64(len(rows)/d)
	for rows = rows[d:]; len(rows) > 0; rows = rows[d:] {
		for j := range sum {
			sum[j] = n.round(sum[j] + rows[j])
		}
	}
	for j := range sum {
		sum[j] /= count
	}
	return sum
}

// pooled makes one row of rows of d elements, and may write to rows.
func pooled(n *Numerics, p graph.Pooling, rows []float64, d int) []float64 {
	switch count := len(rows) / d; p {
	case graph.Mean:
		return n.mean(rows, d)
	case graph.Woven:
		y := make([]float64, len(rows))
		for i, v := range rows {
			y[i%d*count+i/d] = v
		}
		return y
	}
	return rows
}

// dot returns the product of two rows.
func (n *Numerics) dot(a, b []float64) float64 {
	var y [1]float64
	if n.exact() {
		simd.DotsF64(y[:], 1, a, b, len(a))
	} else {
		n.dots(y[:], 1, narrow(a), narrow(b), len(a))
	}
	return y[0]
}
