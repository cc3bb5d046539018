package simd

import "math"

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

// sum16 is the sum of at most 32 integers.
func sum16(q []int16) (s int32) {
	for _, v := range q {
		s += int32(v)
	}
	return s
}

func groupSumsGeneric(sums []float32, q []int16, dx []float32, group int) {
	for g := range sums {
		s := sum16(q[g*group : (g+1)*group])
		sums[g] = float32(float32(s) * dx[g*group/ActGroup])
	}
}

func groupInitGeneric(init []int32, q []int16, group int, offset int32) {
	for g := range init {
		init[g] = -offset * sum16(q[g*group:(g+1)*group])
	}
}
