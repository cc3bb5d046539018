package float16

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// TestF16 checks every pattern against its definition and back.
func TestF16(t *testing.T) {
	for i := range 1 << 16 {
		b := uint16(i)
		exp, frac := int(b>>10)&31, float64(b&0x3ff)
		var want float64
		switch exp {
		case 0:
			want = math.Ldexp(frac, -24)
		case 31:
			want = math.Inf(1)
			if frac != 0 {
				want = math.NaN()
			}
		default:
			want = math.Ldexp(1024+frac, exp-25)
		}
		if b>>15 == 1 {
			want = -want
		}
		got := F16(b)
		if math.IsNaN(want) {
			if got == got || !isNaN16(ToF16(got)) {
				t.Fatalf("F16(%#04x) = %v, back %#04x", b, got, ToF16(got))
			}
			continue
		}
		if float64(got) != want || ToF16(got) != b {
			t.Fatalf("F16(%#04x) = %v, want %v; back %#04x", b, got, want, ToF16(got))
		}
	}
}

func isNaN16(b uint16) bool { return b&0x7c00 == 0x7c00 && b&0x3ff != 0 }

// TestRounding compares the encoders with big.Float's rounding to 11 and 8 bits.
func TestRounding(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200000 {
		x := math.Float32frombits(r.Uint32())
		if x != x || math.IsInf(float64(x), 0) {
			continue
		}
		if a := math.Abs(float64(x)); a < 1e38 && a > 2e-38 {
			want, _ := new(big.Float).SetPrec(8).SetFloat64(float64(x)).Float32()
			if got := BF16(ToBF16(x)); got != want {
				t.Fatalf("bfloat16 of %v: %v, want %v", x, got, want)
			}
		}
		x = float32(math.Ldexp(float64(r.Uint32()), int(r.IntN(46))-56)) // 2^-56 .. 2^22
		prec := uint(11)
		if _, e := math.Frexp(float64(x)); e < -13 { // subnormal: fewer bits, 2^-24 the last
			prec = uint(max(0, e+24))
		}
		var want float32
		if prec > 0 {
			want, _ = new(big.Float).SetPrec(prec).SetFloat64(float64(x)).Float32()
		} else if x > 0x1p-25 {
			want = 0x1p-24
		}
		if want > 65504 {
			want = float32(math.Inf(1))
		}
		if got := F16(ToF16(x)); got != want {
			t.Fatalf("binary16 of %v: %v, want %v", x, got, want)
		}
		if got := F16(ToF16(-x)); got != -want {
			t.Fatalf("binary16 of %v: %v, want %v", -x, got, -want)
		}
	}
}
