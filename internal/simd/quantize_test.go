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

// TestQuantize compares every tier with the generic twin.
func TestQuantize(t *testing.T) {
	guard := guarded(t)
	eachTier(t, func(t *testing.T) {
		r := rng(31)
		for i := range 4000 {
			groups := r.IntN(6)
			x, q, dx := guard(groups*ActGroup), as[int16](guard, groups*ActGroup), guard(groups)
			for g := range groups {
				copy(x[g*ActGroup:], groupOf(r, i%4))
			}
			Quantize(q, dx, x)
			want, wantX := make([]int16, len(q)), make([]float32, groups)
			quantizeGeneric(want, wantX, x)
			if !slices.Equal(q, want) || !slices.EqualFunc(dx, wantX, same) {
				t.Fatalf("case %d: %v as %v*%v, want %v*%v", i, x, q, dx, want, wantX)
			}
		}
	})
}

// quantized is what Quantize makes of x, filled up with zeros to whole groups, in
// the order of columns.
func quantized(x []float32) (q []int16, dx []float32) {
	x = append(slices.Clone(x), make([]float32, -len(x)&(ActGroup-1))...)
	pairs := slices.Repeat([]int16{7}, len(x))
	q, dx = make([]int16, len(x)), make([]float32, len(x)/ActGroup)
	Quantize(pairs, dx, x)
	for i := range q {
		q[i] = pairs[i&^3+order[i&3]]
	}
	return q, dx
}

func TestQuantizeErrors(t *testing.T) { eachTier(t, testQuantizeErrors) }

func testQuantizeErrors(t *testing.T) {
	r := rng(5)
	for _, n := range sizes {
		x := values(r, n)
		for i := range x {
			x[i] *= float32(math.Ldexp(1, (n+i/ActGroup)%60-30))
		}
		q, scales := quantized(x)
		for g, dx := range scales {
			largest := 0
			for i := g * ActGroup; i < min((g+1)*ActGroup, n); i++ {
				largest = max(largest, int(q[i]), -int(q[i]))
				if d := math.Abs(float64(q[i])*float64(dx) - float64(x[i])); d > float64(dx)*0.505 {
					t.Fatalf("element %d: %v as %d*%v", i, x[i], q[i], dx)
				}
			}
			if largest != 32767 {
				t.Errorf("%d elements: the largest integer of group %d is %d", n, g, largest)
			}
		}
	}
}

func TestQuantizeTies(t *testing.T) { eachTier(t, testQuantizeTies) }

func testQuantizeTies(t *testing.T) {
	if q, dx := quantized([]float32{32767, 0.5, 1.5, 2.5, -0.5, -1.5, -32767, 100.25}); dx[0] != 1 ||
		!slices.Equal(q[:8], []int16{32767, 0, 2, 2, 0, -2, -32767, 100}) {
		t.Errorf("%v, %v", q, dx)
	}
	// The largest magnitude never leaves int16, whatever its bits.
	r := rng(6)
	for range 1000000 {
		var x [ActGroup]float32
		var q [ActGroup]int16
		var dx [1]float32
		b := 0x0e000000 + r.Uint32()%(0x7f800000-0x0e000000) // 1.6e-30 and more
		x[0] = -math.Float32frombits(b)
		if Quantize(q[:], dx[:], x[:]); q[0] != -32767 || !(dx[0] > 0) {
			t.Fatalf("%v: %d, %v", x[0], q[0], dx)
		}
	}
}

func TestQuantizeSpecials(t *testing.T) { eachTier(t, testQuantizeSpecials) }

func testQuantizeSpecials(t *testing.T) {
	for _, c := range []struct {
		x    []float32
		want float32
	}{
		{[]float32{1, nan, 2}, nan},
		{[]float32{1, -nan, 2}, nan},
		{[]float32{1, inf, 2}, nan},
		{[]float32{-inf, 0, 2}, nan},
		{[]float32{0, float32(math.Copysign(0, -1)), 0}, 0},
		{[]float32{9e-31, 1e-40, -9e-31}, 0},
	} {
		if q, dx := quantized(c.x); !same(dx[0], c.want) || slices.ContainsFunc(q, func(v int16) bool { return v != 0 }) {
			t.Errorf("%v: %v, %v, want dx %v and zeros", c.x, q, dx, c.want)
		}
	}
}

func TestGroupSums(t *testing.T) { eachTier(t, testGroupSums) }

func testGroupSums(t *testing.T) {
	q, sums, dx := make([]int16, 96), make([]float32, 6), []float32{1, 2, nan}
	for i := range q {
		q[i] = int16(i * 11)
	}
	GroupSums(sums, q, dx, 16)
	equal(t, "16", sums, []float32{1320, 4136, 2 * 6952, 2 * 9768, nan, nan})
	GroupSums(sums[:3], q, dx, 32)
	equal(t, "32", sums[:3], []float32{5456, 2 * 16720, nan})
}

func integers(r *rand.Rand, n int) []int16 {
	x := make([]int16, n)
	for i := range x {
		x[i] = int16(r.IntN(65535) - 32767)
	}
	return x
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
			generically(func() { GroupSums(want, q, dx, group) })
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
