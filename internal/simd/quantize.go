package simd

import "math"

// ActGroup is the number of activations that share a scale. A scale for a whole row would save a multiplication a
// group, but rows with outliers, as from Gemma 4's wide norms, would lose too much: a mean KL of 1.0e-6 on
// tiny-gemma4.Q4_K_M instead of 6.3e-7.
const ActGroup = 32

// Quantize rounds x, whole groups of ActGroup, to integers q of 16 bits, in the order of Acts.Q, so that column k is
// about its integer times dx[k/ActGroup]. For each group:
//
//	top = max |x[k]|, inv = 32767/top, integer = round(x[k]*inv), dx = top/32767
//
// where the product is rounded to float32 first, and round is to nearest even. A top below 1e-30 gives dx = 0 and q =
// 0; a NaN or an infinity in the group gives dx = NaN and q = 0, and so NaN as dot product.
func Quantize(q []int16, dx, x []float32) {
	if k := len(dx) * ActGroup; tier > generic {
		quantizeVec(q[:k], dx, x[:k])
		return
	}
	quantizeGeneric(q, dx, x)
}

// GroupSums sets sums[g] to float32(S)*dx, S being the sum of the g-th run of group values of q, exact, and dx the
// run's scale. group is 16 or 32.
func GroupSums(sums []float32, q []int16, dx []float32, group int) {
	n := countEights(len(sums), group)
	if k := n * group; n > 0 {
		_, _ = q[:k], dx[:k/ActGroup]
		groupSumsVec(sums[:n], &q[0], &dx[0], group)
	}
	for g := n; g < len(sums); g++ {
		s := sum16(q[g*group : (g+1)*group])
		sums[g] = float32(float32(s) * dx[g*group/ActGroup])
	}
}

// GroupInit sets init[g] to -offset*S, S being the sum of the g-th run of group values of q: Acts.Init of codes with an
// offset. group is 16 or 32, and offset at most 128, so that the product is exact.
func GroupInit(init []int32, q []int16, group int, offset int32) {
	n := countEights(len(init), group)
	if n > 0 {
		_ = q[:n*group]
		groupInitVec(init[:n], &q[0], group, -offset)
	}
	for g := n; g < len(init); g++ {
		init[g] = -offset * sum16(q[g*group:(g+1)*group])
	}
}

// countEights returns how many of n groups kernels take, eight at a time.
func countEights(n, group int) int {
	if tier == generic || group != 16 && group != 32 {
		return 0
	}
	return n &^ 7
}

// top16 is the largest magnitude of a quantized activation.
const top16 = 32767

func quantizeGeneric(q []int16, dx, x []float32) {
	for g := range dx {
		run := q[g*ActGroup : (g+1)*ActGroup]
		dx[g] = quantizeGroup(run, x[g*ActGroup:(g+1)*ActGroup])
		for i := 0; i < ActGroup; i += 4 {
			run[i+1], run[i+2] = run[i+2], run[i+1]
		}
	}
}

// quantizeGroup rounds one group, in the order of columns.
func quantizeGroup(q []int16, x []float32) (dx float32) {
	top := largestGeneric(x)
	if top < 1e-30 {
		clear(q)
		return 0
	}
	if !(top <= math.MaxFloat32) {
		clear(q)
		return float32(math.NaN())
	}
	inv := top16 / top
	for i, v := range x {
		q[i] = int16(math.RoundToEven(float64(float32(v * inv))))
	}
	return top / top16
}

// sum16 returns the sum of at most 32 integers.
func sum16(q []int16) (s int32) {
	for _, v := range q {
		s += int32(v)
	}
	return s
}
