package simd

import "math"

// Levels sets q to the integers nearest to (x*inverse-1)/2, from 0 to top. Of two equally near, the even integer wins.
func Levels(q []byte, x []float32, inverse float32, top int32) {
	if q = q[:len(x)]; tier >= avx2 && len(x)%16 == 0 {
		levelsAVX2(q, x, inverse, top)
		return
	}
	levelsGeneric(q, x, inverse, top)
}

func levelsGeneric(q []byte, x []float32, inverse float32, top int32) {
	const magic = 3 << 22 // a sum with it has an integer in its low bits: Nearest, without branches
	for i, v := range x {
		n := int32(math.Float32bits(float32(0.5*(float32(inverse*v)-1))+magic)) - int32(math.Float32bits(magic))
		q[i] = byte(min(max(n, 0), top))
	}
}

// Closest returns the first of near with the least sum of w*(v-x)*(v-x), added in order, v being the value at the
// level of a weight. The low bits of an entry are the levels, the first lowest: two bits for each of 8 weights x, or
// three bits for each of 4. The result is 0 if no sum is less than math.MaxFloat32. The number of entries is a multiple
// of FitLanes.
func Closest(near []uint32, x, w []float32, values *[8]float32) uint32 {
	switch w = w[:len(x)]; {
	case tier < avx2 || len(near)%FitLanes != 0 || len(near) == 0:
		return closestGeneric(near, x, w, values)
	case len(x) == 8:
		return closest8AVX2(near, &x[0], &w[0], values)
	}
	return closest4AVX2(near, &x[:4][0], &w[0], values)
}

func closestGeneric(near []uint32, x, w []float32, values *[8]float32) (best uint32) {
	least := float32(math.MaxFloat32)
	if len(x) == 4 {
		x, w := (*[4]float32)(x), (*[4]float32)(w)
		for _, p := range near {
			a, b, c, d := values[p&7]-x[0], values[p>>3&7]-x[1], values[p>>6&7]-x[2], values[p>>9&7]-x[3]
			sum := float32(float32(w[0]*a)*a) + float32(float32(w[1]*b)*b)
			sum += float32(float32(w[2]*c) * c)
			if sum += float32(float32(w[3]*d) * d); sum < least {
				least, best = sum, p
			}
		}
		return best
	}
	var costs [8][4]float32 // by weight and level: lists are longer than levels
	for i := range costs {
		for level := range costs[i] {
			far := values[level] - x[i]
			costs[i][level] = float32(float32(w[i]*far) * far)
		}
	}
	for _, p := range near {
		sum := costs[0][p&3] + costs[1][p>>2&3]
		sum += costs[2][p>>4&3]
		sum += costs[3][p>>6&3]
		sum += costs[4][p>>8&3]
		sum += costs[5][p>>10&3]
		sum += costs[6][p>>12&3]
		if sum += costs[7][p>>14&3]; sum < least {
			least, best = sum, p
		}
	}
	return best
}

// SplitPlaces is the maximum of places where a group's levels change, and 7 more.
const SplitPlaces = 40

// Splits holds sums of a group's weights in order: of all weights before a place, and for two shifts of the levels the
// sums xq and qq of the weights before a place, and behind, and the value of the level between two places.
type Splits struct {
	X, W          [SplitPlaces]float32
	Before, After [2][2][SplitPlaces]float32
	Middle        [2]float32
}

// Sums returns xq and qq for places i1 and i2.
func (s *Splits) Sums(shift, i1, i2 int) (xq, qq float32) {
	x, w, v := s.X[i2]-s.X[i1], s.W[i2]-s.W[i1], s.Middle[shift]
	before, after := &s.Before[shift], &s.After[shift]
	return before[0][i1] + float32(x*v) + after[0][i2], before[1][i1] + float32(float32(w*v)*v) + after[1][i2]
}

// First returns the first place i2 from a place on, at most n, with a shift whose xq*xq is more than score*qq, for qq
// more than 0; n+1 without any.
func (s *Splits) First(i1, from, n int, score float32) int {
	if tier >= avx2 && i1 < SplitPlaces && from <= n && n <= SplitPlaces-8 {
		return min(firstSplitAVX2(s, i1, from, n, score), n+1)
	}
	return s.firstGeneric(i1, from, n, score)
}

func (s *Splits) firstGeneric(i1, from, n int, score float32) int {
	for i2 := from; i2 <= n; i2++ {
		for shift := range s.Middle {
			if xq, qq := s.Sums(shift, i1, i2); qq > 0 && float32(xq*xq) > float32(score*qq) {
				return i2
			}
		}
	}
	return n + 1
}
