package simd

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"
)

// TestFitTwins compares each tier with the generic twins on groups of all kinds.
func TestFitTwins(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	special := []float32{0, float32(math.Copysign(0, -1)), 1e-38, -1e-40, 3e38, -3e38, 1, -1}
	for range 3000 {
		n := 16 << r.IntN(2)
		x, w := make([]float32, n*(1+r.IntN(FitLanes))), make([]float32, n*FitLanes)
		size, kind := float32(math.Exp(r.NormFloat64()*8)), r.IntN(6)
		for i := range x {
			x[i], w[i] = float32(r.NormFloat64())*size, float32(math.Exp(r.NormFloat64()))
			switch {
			case kind == 0:
				x[i] = abs(x[i])
			case kind == 1 && r.IntN(4) == 0:
				x[i] = special[r.IntN(len(special))]
			case kind == 2 && r.IntN(4) == 0:
				w[i] = 0
			case kind == 3:
				x[i] = size
			}
		}
		top := []float32{3, 15, 31}[r.IntN(3)]
		tries := []float32{top - 0.5, top, top + 0.3, top + 1}
		absolute := r.IntN(2) == 0
		sameFits(t, len(x)/n, func(f *Fit) { FitMin(f, x, w[:len(x)], n, tries, top, absolute) })
		sameFits(t, len(x)/n, func(f *Fit) { FitScale(f, x, w[:len(x)], n, []float32{-top - 0.9, -top, 0.3 - top}, top) })
	}
}

// sameFits compares the first groups that find finds at each tier.
func sameFits(t *testing.T, groups int, find func(f *Fit)) {
	t.Helper()
	defer func(l level) { tier = l }(tier)
	var want Fit
	for l := range bestLevel() + 1 {
		tier = l
		var f Fit
		find(&f)
		if l == generic {
			want = f
		}
		for g := range groups {
			for i, got := range [][2]float32{{f.Scale[g], want.Scale[g]}, {f.Min[g], want.Min[g]}, {f.Low[g], want.Low[g]}, {f.Inverse[g], want.Inverse[g]}} {
				if !same(got[0], got[1]) {
					t.Fatalf("%s: group %d: value %d of the fit is %v, generic %v", Tier(), g, i, got[0], got[1])
				}
			}
		}
	}
}

// TestFit: groups that are scale*q, and scale*q+min, are found.
func TestFit(t *testing.T) {
	eachTier(t, func(t *testing.T) {
		var x, w [FitLanes * 16]float32
		for i := range x {
			x[i], w[i] = float32(i%16-8)*float32(1+i/16), 1
		}
		var f Fit
		FitScale(&f, x[:], w[:], 16, nil, 8)
		for g, s := range f.Scale {
			if s != float32(1+g) || f.Inverse[g] != 1/s {
				t.Errorf("group %d: scale %v, inverse %v", g, s, f.Inverse[g])
			}
		}
		FitMin(&f, x[:], w[:], 16, []float32{15}, 15, false)
		for g, s := range f.Scale {
			if s != float32(1+g) || f.Min[g] != -8*s || f.Low[g] != f.Min[g] {
				t.Errorf("group %d: scale %v, minimum %v, low %v", g, s, f.Min[g], f.Low[g])
			}
		}
	})
}

// TestBlocksTwins compares each tier's blocks with the generic ones, over slices
// that end where memory ends.
func TestBlocksTwins(t *testing.T) {
	guard := guarded(t)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 2000 {
		x := guard(BlockWeights * (1 + r.IntN(5)))
		size := float32(math.Exp(r.NormFloat64() * 20))
		for j := range x {
			x[j] = float32(r.NormFloat64()) * size
			switch {
			case i%4 == 1: // halves
				x[j] = float32(r.IntN(255)-127) / 2
			case i%4 == 2 && r.IntN(2) == 0:
				x[j] = float32(math.Copysign(0, r.NormFloat64()))
			case i%8 == 3:
				x[j] = size * float32(1-2*r.IntN(2))
			}
		}
		if i%50 == 0 {
			clear(x)
		}
		sameBlocks(t, guard, x, bytesQ8_0, BlocksQ8_0)
		sameBlocks(t, guard, x, bytesQ4_0, BlocksQ4_0)
	}
}

func sameBlocks(t *testing.T, guard func(n int) []float32, x []float32, size int, blocks func(dst []byte, x []float32)) {
	t.Helper()
	defer func(l level) { tier = l }(tier)
	got, want := as[byte](guard, len(x)/BlockWeights*size), []byte(nil)
	for l := range bestLevel() + 1 {
		tier = l
		blocks(got, x)
		if l == generic {
			want = bytes.Clone(got)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%s: blocks of %v are\n%x, generic\n%x", Tier(), x, got, want)
		}
	}
}

func TestLargest(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	eachTier(t, func(t *testing.T) {
		for n := range 70 {
			x := make([]float32, n)
			if got := Largest(x); got != 0 {
				t.Errorf("of %d zeros: %v", n, got)
			}
			for i := range x {
				for _, v := range []float32{nan, inf, -2, 1e-45} {
					x[i] = v
					if got := Largest(x); !same(got, abs(v)) {
						t.Errorf("of %d with %v at %d: %v", n, v, i, got)
					}
				}
				x[i] = 0
			}
		}
	})
}
