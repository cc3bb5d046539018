package sample

import (
	"math"
	"math/rand/v2"
	"testing"
)

// ulps is the distance of a and b in units of the last place of b.
func ulps(a, b float64) float64 {
	return math.Abs(a-b) / (math.Nextafter(math.Abs(b), math.Inf(1)) - math.Abs(b))
}

func TestLog(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 50_000 {
		x := math.Exp(-700 + 1400*r.Float64())
		if want := math.Log(x); ulps(log(x), want) > 3 && math.Abs(log(x)-want) > 2e-16 {
			t.Fatalf("log(%v) = %v, math.Log = %v", x, log(x), want)
		}
	}
	if log(1) != 0 || log(2) != math.Ln2 {
		t.Errorf("log(1) = %v, log(2) = %v", log(1), log(2))
	}
}
