package simd

import (
	"bytes"
	"testing"
)

// TestLevels compares every tier with the generic twin, infinities included.
func TestLevels(t *testing.T) {
	eachTier(t, func(t *testing.T) {
		for i := range 300 {
			r := rng(uint64(i))
			x := values(r, []int{16, 32, 48, 5}[i%4])
			if i%3 == 0 {
				x = anything(r, len(x), true)
			}
			q, want := make([]byte, len(x)), make([]byte, len(x))
			inverse := []float32{1, 30, 1e-3, 1e30, -2}[i%5]
			levelsGeneric(want, x, inverse, int32(2+i%6))
			if Levels(q, x, inverse, int32(2+i%6)); !bytes.Equal(q, want) {
				t.Fatalf("case %d: levels %v, want %v", i, q, want)
			}
		}
	})
}

// TestClosest compares every tier with the generic twin: on equal sums the first entry wins, and none on sums beyond
// float32.
func TestClosest(t *testing.T) {
	eachTier(t, func(t *testing.T) {
		for i := range 600 {
			r := rng(uint64(i))
			size := 4 + i%2*4
			near := make([]uint32, FitLanes*(1+r.IntN(9)))
			for j := range near {
				near[j] = uint32(r.Uint32())
				if i%3 == 0 {
					near[j] &= 0xffff0303 // many alike
				}
			}
			x, w, levels := values(r, size), values(r, size), [8]float32(values(r, 8))
			for j := range w {
				w[j] = max(w[j], -w[j])
			}
			if i%7 == 0 {
				w[0] = 3e38
				levels[0], levels[1], levels[2], levels[3] = 1e20, 1e20, 1e20, 1e20
				levels[4], levels[5], levels[6], levels[7] = 1e20, 1e20, 1e20, 1e20
			}
			want := closestGeneric(near, x, w, &levels)
			if got := Closest(near, x, w, &levels); got != want {
				t.Fatalf("case %d: %#x of %#x, want %#x", i, got, near, want)
			}
		}
	})
}

// TestFirstSplit compares every tier with the generic twin, for every score and place.
func TestFirstSplit(t *testing.T) {
	eachTier(t, func(t *testing.T) {
		for i := range 200 {
			r := rng(uint64(i))
			var s Splits
			for _, to := range []*[SplitPlaces]float32{&s.X, &s.W, &s.Before[0][0], &s.Before[0][1], &s.Before[1][0],
				&s.Before[1][1], &s.After[0][0], &s.After[0][1], &s.After[1][0], &s.After[1][1]} {
				copy(to[:], values(r, SplitPlaces))
			}
			copy(s.Middle[:], values(r, 2))
			n := r.IntN(33)
			for from := range n + 2 {
				i1, score := r.IntN(33), []float32{0, 1, 100, -1}[r.IntN(4)]
				if got, want := s.First(i1, from, n, score), s.firstGeneric(i1, from, n, score); got != want {
					t.Fatalf("case %d: from %d of %d: %d, want %d", i, from, n, got, want)
				}
			}
		}
	})
}
