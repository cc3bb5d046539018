package simd

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"
)

// quantize is Quantize with room for the scales.
func quantize(q []int16, x []float32) []float32 {
	dx := make([]float32, (len(x)+ActGroup-1)/ActGroup)
	Quantize(q, dx, x)
	return dx
}

func TestQuantize(t *testing.T) { eachTier(t, testQuantize) }

func testQuantize(t *testing.T) {
	r := rng(5)
	for _, n := range sizes {
		x, q := values(r, n), make([]int16, n)
		for i := range x {
			x[i] *= float32(math.Ldexp(1, (n+i/ActGroup)%60-30))
		}
		for g, dx := range quantize(q, x) {
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
	x, q := []float32{32767, 0.5, 1.5, 2.5, -0.5, -1.5, -32767, 100.25}, make([]int16, 8)
	if dx := quantize(q, x); dx[0] != 1 || !slices.Equal(q, []int16{32767, 0, 2, 2, 0, -2, -32767, 100}) {
		t.Errorf("%v, %v", q, dx)
	}
	// The largest magnitude never leaves int16, whatever its bits.
	r := rng(6)
	for range 1000000 {
		b := 0x0e000000 + r.Uint32()%(0x7f800000-0x0e000000) // 1.6e-30 and more
		x := [1]float32{-math.Float32frombits(b)}
		if dx := quantize(q[:1], x[:]); q[0] != -32767 || !(dx[0] > 0) {
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
		q := []int16{7, 7, 7}[:len(c.x)]
		if dx := quantize(q, c.x); !same(dx[0], c.want) || slices.ContainsFunc(q, func(v int16) bool { return v != 0 }) {
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

func quantRow(r *rand.Rand, k, group int, mins bool) *QuantRow {
	w := &QuantRow{Q: make([]int8, k), Scale: values(r, k/group), Group: group}
	for i := range w.Q {
		w.Q[i] = int8(r.Uint32())
	}
	if mins {
		w.Min = values(r, k/group)
	}
	return w
}

func integers(r *rand.Rand, n int) []int16 {
	x := make([]int16, n)
	for i := range x {
		x[i] = int16(r.IntN(65535) - 32767)
	}
	return x
}

// dotQByHand states the contract with math/big.
func dotQByHand(w *QuantRow, x []int16, dx []float32) float32 {
	var acc float32
	for g := range w.Scale {
		dot, sum := big.NewInt(0), big.NewInt(0)
		for i := g * w.Group; i < (g+1)*w.Group; i++ {
			dot.Add(dot, big.NewInt(int64(w.Q[i])*int64(x[i])))
			sum.Add(sum, big.NewInt(int64(x[i])))
		}
		f, _ := new(big.Float).SetInt(dot).Float32()
		d := dx[g*w.Group/ActGroup]
		acc = bigFMA(f*d, w.Scale[g], acc)
		if w.Min != nil {
			f, _ = new(big.Float).SetInt(sum).Float32()
			acc = bigFMA(f*d, w.Min[g], acc)
		}
	}
	return acc
}

func TestDotQ(t *testing.T) { eachTier(t, testDotQ) }

func testDotQ(t *testing.T) {
	r := rng(7)
	for _, k := range []int{0, 32, 64, 96, 256, 512} {
		for _, group := range []int{16, 32} {
			for _, mins := range []bool{false, true} {
				const rows = 5
				w, x := quantRow(r, k, group, mins), integers(r, rows*k)
				dx, sums := values(r, rows*k/ActGroup), make([]float32, rows*k/group)
				GroupSums(sums, x, dx, group)
				got, want := make([]float32, rows), make([]float32, rows)
				DotRowsQ(got, w, x, dx, sums)
				for i := range rows {
					row, s, d := x[i*k:(i+1)*k], sums[i*k/group:(i+1)*k/group], dx[i*k/ActGroup:(i+1)*k/ActGroup]
					want[i] = dotQByHand(w, row, d)
					if !mins {
						s = nil
					}
					equal(t, "one row", []float32{DotQ(w, row, d, s)}, want[i:i+1])
					exact, size := dotQExact(w, row, d)
					if d := math.Abs(float64(got[i]) - exact); d > size*float64(k/group+2)*0x1p-23 {
						t.Errorf("%v, want %v", got[i], exact)
					}
				}
				equal(t, "rows", got, want)
			}
		}
	}
}

// dotQExact is the product in float64, and the sum of its terms' magnitudes.
func dotQExact(w *QuantRow, x []int16, dx []float32) (sum, size float64) {
	for i, q := range w.Q {
		v := float64(w.Scale[i/w.Group]) * float64(q)
		if w.Min != nil {
			v += float64(w.Min[i/w.Group])
		}
		a := float64(x[i]) * float64(dx[i/ActGroup])
		sum += v * a
		size += math.Abs(v*a) + math.Abs(float64(w.Scale[i/w.Group])*float64(q)*a)
	}
	return sum, size
}

// TestDotQBound has every product at its largest, all of one sign.
func TestDotQBound(t *testing.T) { eachTier(t, testDotQBound) }

func testDotQBound(t *testing.T) {
	w := &QuantRow{Q: slices.Repeat([]int8{-128}, 32), Scale: []float32{1}, Group: 32}
	for x, want := range map[int16]float32{32767: -134213632, -32767: 134213632, -32768: 1 << 27} {
		if got := DotQ(w, slices.Repeat([]int16{x}, 32), []float32{1}, nil); got != want {
			t.Errorf("%d: %v, want %v", x, got, want)
		}
	}
	w.Q[0], w.Q[31] = 127, 127 // 30*128*32767 - 2*127*32767 rounds to nearest even, 8 being the unit
	if got := DotQ(w, slices.Repeat([]int16{-32767}, 32), []float32{1}, nil); got != float32(117502462) {
		t.Errorf("%v", got)
	}
}

func TestDotQSpecials(t *testing.T) { eachTier(t, testDotQSpecials) }

func testDotQSpecials(t *testing.T) {
	w := &QuantRow{Q: make([]int8, 32), Scale: []float32{1, inf}, Group: 16}
	x := make([]int16, 32)
	for _, c := range []struct{ got, want float32 }{
		{DotQ(w, x, []float32{1}, nil), nan}, // 0*Inf
		{DotQ(&QuantRow{Q: w.Q, Scale: []float32{1, 1}, Group: 16}, x, []float32{nan}, nil), nan},
		{DotQ(&QuantRow{Q: w.Q, Scale: []float32{1, nan}, Group: 16}, x, []float32{0}, nil), nan},
		{DotQ(&QuantRow{Q: w.Q, Scale: []float32{1, 1}, Group: 16}, x, []float32{0}, nil), 0},
	} {
		if !same(c.got, c.want) {
			t.Errorf("%v, want %v", c.got, c.want)
		}
	}
}

// as lends n numbers of another type in guarded memory.
func as[T int8 | byte | int16 | uint16 | int32](guard func(n int) []float32, n int) []T {
	var one T
	size := int(unsafe.Sizeof(one))
	m := guard((n*size + 3) / 4)
	if len(m) == 0 {
		return nil
	}
	all := unsafe.Slice((*T)(unsafe.Pointer(&m[0])), len(m)*4/size)
	return all[len(all)-n:]
}

// TestDotQTwins compares each tier with the generic twin, over rows of all
// lengths and numbers.
func TestDotQTwins(t *testing.T) {
	guard, r := guarded(t), rng(21)
	eachTier(t, func(t *testing.T) {
		for i := range 1200 {
			group, rows := 16+i%2*16, r.IntN(20)
			k := r.IntN(21) * 32
			mins, wild := i%4 < 2, i%8 == 7
			w := &QuantRow{Q: as[int8](guard, k), Scale: guard(k / group), Group: group}
			for i := range w.Q {
				w.Q[i] = int8(r.Uint32())
			}
			x, dx, sums := as[int16](guard, rows*k), guard(rows*k/ActGroup), guard(rows*k/group)
			for i := range x {
				x[i] = int16(r.Uint32())
			}
			fill := func(s []float32) {
				if wild {
					copy(s, anything(r, len(s), true))
				} else {
					copy(s, values(r, len(s)))
				}
			}
			fill(w.Scale)
			fill(dx)
			fill(sums)
			if mins {
				w.Min = guard(k / group)
				fill(w.Min)
			}
			got, want := make([]float32, rows), make([]float32, rows)
			dotRowsQGeneric(want, w, x, dx, sums)
			DotRowsQ(got, w, x, dx, sums)
			equal(t, "rows", got, want)
		}
	})
}
