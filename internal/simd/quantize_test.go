package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// groupOf returns numbers whose quantization is of one kind or another.
func groupOf(r *rand.Rand, kind int) []float32 {
	x := values(r, ActGroup)
	scale := math.Ldexp(1, r.IntN(250)-125)
	for i := range x {
		x[i] = float32(float64(x[i]) * scale)
	}
	edges := []uint32{0, 1, 0x007fffff, 0x00800000, 0x0da2425f, 0x0da24260, 0x0da24261, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fffffff}
	switch kind {
	case 1: // any bits
		x = anything(r, ActGroup, true)
	case 2: // one number on an edge among smaller ones
		top := edges[r.IntN(len(edges))]
		for i := range x {
			x[i] = math.Float32frombits(r.Uint32() & (top >> 1))
		}
		x[r.IntN(ActGroup)] = math.Float32frombits(top | r.Uint32()&(1<<31))
	case 3: // ties
		for i := range x {
			x[i] = float32(r.IntN(65535)-32767) / 2
		}
		x[r.IntN(ActGroup)] = 32767
	}
	return x
}

// TestQuantizePairs compares every tier with the generic twin, and that with
// Quantize.
func TestQuantizePairs(t *testing.T) {
	guard := guarded(t)
	eachTier(t, func(t *testing.T) {
		r := rng(31)
		for i := range 4000 {
			groups := r.IntN(6)
			x, q, dx := guard(groups*ActGroup), as[int16](guard, groups*ActGroup), guard(groups)
			for g := range groups {
				copy(x[g*ActGroup:], groupOf(r, i%4))
			}
			QuantizePairs(q, dx, x)
			want, wantX := make([]int16, len(q)), make([]float32, groups)
			quantizePairsGeneric(want, wantX, x)
			if !slices.Equal(q, want) || !slices.EqualFunc(dx, wantX, same) {
				t.Fatalf("case %d: %v as %v*%v, want %v*%v", i, x, q, dx, want, wantX)
			}
			Quantize(want, wantX, x)
			for i, v := range want {
				if at := i&^3 + order[i&3]; q[at] != v {
					t.Fatalf("column %d is %d, want %d", i, q[at], v)
				}
			}
			equal(t, "scales", dx, wantX)
		}
	})
}

// TestGroups compares the sums of groups at every tier with the generic twins.
func TestGroups(t *testing.T) {
	guard := guarded(t)
	eachTier(t, func(t *testing.T) {
		r := rng(32)
		for i := range 2000 {
			k, group := 32*r.IntN(40), 16+i%2*16
			q, dx, sums, init := as[int16](guard, k), guard(k/ActGroup), guard(k/group), as[int32](guard, k/group)
			for i := range q {
				q[i] = int16(r.Uint32())
				if r.IntN(3) > 0 {
					q[i] = -32768
				}
			}
			copy(dx, anything(r, len(dx), i%3 == 0))
			GroupSums(sums, q, dx, group)
			want := make([]float32, len(sums))
			groupSumsGeneric(want, q, dx, group)
			equal(t, fmt.Sprintf("sums of %d columns", k), sums, want)

			offset := []int32{0, 1, 8, 128}[r.IntN(4)]
			GroupInit(init, q, group, offset)
			for g, v := range init {
				var sum int32
				for _, v := range q[g*group : (g+1)*group] {
					sum += int32(v)
				}
				if v != -offset*sum {
					t.Fatalf("group %d of %d: %d, want -%d*%d", g, len(init), v, offset, sum)
				}
			}
		}
	})
}
