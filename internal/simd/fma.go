package simd

import "math"

// fma32 returns a*b+c rounded once, to nearest even: the result of a hardware instruction, on machines with and without
// the instruction, infinities, subnormals and signed zeros included.
func fma32(a, b, c float32) float32 {
	p := float64(float64(a) * float64(b)) // exact: 24+24 bits
	s := p + float64(c)
	if needsRoundOnce(s) {
		return roundOnce(p, float64(c), s)
	}
	return float32(s)
}

// needsRoundOnce reports whether rounding the float64 sum s again, to float32, may differ from rounding the exact sum:
// s is a tie between two float32 numbers, perhaps made by its own rounding, or is not a normal float32.
func needsRoundOnce(s float64) bool {
	bits := math.Float64bits(s)
	return bits<<35 == 1<<63 || bits<<1-(1023-126)<<53 >= (126+128)<<53
}

// roundOnce returns p+c rounded once to float32, given s = p+c rounded to float64. Wherever s is not exact, the odd one
// of its two float64 neighbours takes its place: an odd last bit keeps a sum on its side of a tie. (Boldo and Melquiond
// 2008, doi:10.1109/TC.2007.70819)
//
//go:noinline
func roundOnce(p, c, s float64) float32 {
	if s-s != 0 {
		return float32(s) // infinity or NaN
	}
	t := s - p
	lost := (p - (s - t)) + (c - t) // exactly p+c-s (Knuth's TwoSum)
	if bits := math.Float64bits(s); lost != 0 && bits&1 == 0 {
		if (lost > 0) == (s > 0) {
			bits++
		} else {
			bits--
		}
		s = math.Float64frombits(bits)
	}
	return float32(s)
}
