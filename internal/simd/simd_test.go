package simd

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"unsafe"
)

var (
	inf = float32(math.Inf(1))
	nan = float32(math.NaN())
)

// sizes cover empty slices, tails of every length and chunks of 256.
var sizes = []int{0, 1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 48, 63, 100, 255, 256, 257, 513}

func rng(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 42)) }

// values returns n numbers in [-2, 2).
func values(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(int32(r.Uint32())) * 0x1p-30
	}
	return x
}

// anything returns n numbers of any bits: every exponent, subnormals, zeros,
// and where special is true infinities and NaNs.
func anything(r *rand.Rand, n int, special bool) []float32 {
	x := make([]float32, n)
	for i := range x {
		b := r.Uint32()
		switch r.IntN(8) {
		case 0:
			b &= 0x807fffff // subnormal
		case 1:
			b &= 1 << 31 // zero
		case 2:
			b |= 0x7f800000
			if r.IntN(2) == 0 {
				b &= 0xff800000
			}
		}
		if !special && b&0x7f800000 == 0x7f800000 {
			b ^= 0x20000000
		}
		x[i] = math.Float32frombits(b)
	}
	return x
}

// as lends n numbers of another type in guarded memory.
func as[T byte | int16 | uint16 | int32](guard func(n int) []float32, n int) []T {
	var one T
	size := int(unsafe.Sizeof(one))
	m := guard((n*size + 3) / 4)
	if len(m) == 0 {
		return nil
	}
	all := unsafe.Slice((*T)(unsafe.Pointer(&m[0])), len(m)*4/size)
	return all[len(all)-n:]
}

func same(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

func equal(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if !same(got[i], want[i]) {
			t.Fatalf("%s: element %d of %d is %v (%#08x), want %v (%#08x)", what, i, len(want),
				got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
}

// bigFMA is a*b+c rounded once, by math/big.
func bigFMA(a, b, c float32) float32 {
	p := float64(a) * float64(b)
	if s := p + float64(c); s-s != 0 || s == 0 { // specials and signed zeros as IEEE 754 says
		return float32(s)
	}
	sum := new(big.Float).SetPrec(1000).SetFloat64(p)
	sum.Add(sum, new(big.Float).SetFloat64(float64(c)))
	f, _ := sum.Float32()
	return f
}

func TestFMA(t *testing.T) {
	check := func(a, b, c float32) {
		t.Helper()
		if got, want := fma32(a, b, c), bigFMA(a, b, c); !same(got, want) {
			t.Fatalf("fma(%v, %v, %v) = %v (%#08x), want %v (%#08x)", a, b, c,
				got, math.Float32bits(got), want, math.Float32bits(want))
		}
	}
	r := rng(1)
	for range 300000 {
		x := anything(r, 3, true)
		check(x[0], x[1], x[2])
		v := values(r, 3)
		check(v[0], v[1], v[2])
		check(v[0], v[1], x[2])
		check(v[0], v[1], -float32(v[0]*v[1])) // cancellation
	}
	edges := []float32{0, 1, 3, 0x1p-149, 0x3p-149, 0x1p-126, 0x1.fffffep-127, 0x1.fffffep-126, 0x1p-24, 0x1p-25,
		0x1.000002p0, 0x1.fffffep0, 0x1.800002p0, 0x1p24, 0x1.fffffep127, 0x1p127, 0x1p-75, 0x1.000002p-75, 0x1p64, 0x1.8p-64, inf, nan}
	for _, a := range edges {
		for _, b := range edges {
			for _, c := range edges {
				for s := range 8 {
					check(a*float32(1-s&1*2), b*float32(1-s>>1&1*2), c*float32(1-s>>2&1*2))
				}
			}
		}
	}
}

// TestFMATies makes sums that rounding twice gets wrong: c is halfway between
// two float32 numbers but for a product too small for float64 to see.
func TestFMATies(t *testing.T) {
	r := rng(2)
	twice := 0
	for range 500000 {
		// b*a has 48 bits; c moves its top next to a tie, e far below it.
		a := math.Float32frombits(127<<23 | r.Uint32()>>9)
		b := math.Float32frombits(127<<23|r.Uint32()>>9) * float32(math.Ldexp(1, -r.IntN(60)))
		c := math.Float32frombits((127+r.Uint32()%30)<<23 | r.Uint32()>>9)
		switch r.IntN(3) {
		case 0:
			a = 1 // then b = ±half a unit of c
			b = float32(math.Ldexp(1, -24)) * (1 + 0x1p-23*float32(r.IntN(3)))
			c = math.Float32frombits(127<<23 | r.Uint32()>>9)
		case 1: // half a unit of c, plus and minus a speck
			_, e := math.Frexp(float64(c))
			a = 1 + 0x1p-20*float32(r.IntN(8))
			b = float32(math.Ldexp(1/(float64(a)), e-25))
		}
		if r.IntN(2) == 0 {
			b = -b
		}
		if r.IntN(4) == 0 { // among subnormals
			s := float32(math.Ldexp(1, -126-r.IntN(20)))
			b, c = b*s, c*s
		}
		got, want := fma32(a, b, c), bigFMA(a, b, c)
		if !same(got, want) {
			t.Fatalf("fma(%x, %x, %x) = %x, want %x", a, b, c, got, want)
		}
		if float32(float64(float64(a)*float64(b))+float64(c)) != want {
			twice++
		}
	}
	if twice < 100 {
		t.Errorf("only %d cases distinguish rounding once from rounding twice", twice)
	}
	t.Logf("%d cases distinguish", twice)
}
