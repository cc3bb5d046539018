package check

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestOthers compares others with the numbers that are left without one.
func TestOthers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := 2; n < 9; n++ {
		for range 100 {
			x := make([]float64, n)
			for i := range x {
				x[i] = float64(r.IntN(5)) // some are equal
			}
			all := slices.Sorted(slices.Values(x))
			for i := range x {
				rest := slices.Delete(slices.Clone(x), i, i+1)
				slices.Sort(rest)
				low, middle, high := spreadWithout(all, x[i])
				if low != rest[0] || middle != rest[len(rest)/2] || high != rest[len(rest)-1] {
					t.Fatalf("%v without %v: %v, %v, %v", all, x[i], low, middle, high)
				}
			}
		}
	}
}
