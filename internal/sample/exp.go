package sample

import (
	"math"

	"github.com/karat-run/karat/internal/simd"
)

// negligible bounds the exponents of weights too small to matter: 2^-80 for each token of any vocabulary sums to less
// than a draw's step of 2^-53.
const negligible = -56

// weigh sets each weight of c to e^((logit - the highest logit) / temperature) and returns their sum, in c's order.
func weigh(c []candidate, temperature float64) (total float64) {
	top := highest(c)
	var powers [256]float64
	for len(c) > 0 {
		n := min(len(c), len(powers))
		for i, x := range c[:n] {
			powers[i] = (float64(x.logit) - top) / temperature
			if powers[i] <= negligible {
				powers[i] = math.Inf(-1)
			}
		}
		simd.ExpsF64(powers[:n])
		for i, w := range powers[:n] {
			c[i].weight = w
			total += w
		}
		c = c[n:]
	}
	return total
}

// sumExp returns the sum of e^(x - top) over logits, in their order.
func sumExp(logits []float32, top float64) (sum float64) {
	var powers [256]float64
	for len(logits) > 0 {
		n := min(len(logits), len(powers))
		for i, x := range logits[:n] {
			powers[i] = float64(x) - top
		}
		simd.ExpsF64(powers[:n])
		for _, e := range powers[:n] {
			sum += e
		}
		logits = logits[n:]
	}
	return sum
}

// Numbers of log.
const (
	ln2High = 0x1.62e42feep-01      // ln 2 in 32 bits: its products with exponents are exact
	ln2Low  = 0x1.a39ef35793c76p-33 // the rest of ln 2
)

// log returns the natural logarithm of a normal x > 0, to 2 ulp or 1e-16, by Halley's iteration on e^y = x: each step
// triples the correct digits. math.Log differs between architectures. All products are converted, to keep the compiler
// from fusing them with the next addition.
func log(x float64) float64 {
	b := math.Float64bits(x)
	k := float64(int64(b>>52) - 1023)
	m := math.Float64frombits(b&(1<<52-1) | 1023<<52) // x = m * 2^k, 1 <= m < 2
	y := (m - 1) * math.Ln2
	for range 4 {
		e := simd.ExpF64(y)
		y += float64(2 * ((m - e) / (m + e)))
	}
	return float64(k*ln2High) + (float64(k*ln2Low) + y)
}
