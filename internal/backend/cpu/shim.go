package cpu

import "github.com/karat-run/karat/internal/simd"

func quantizePairs(q []int16, dx, x []float32) {
	simd.Quantize(q, dx, x)
	for i := 0; i+3 < len(q); i += 4 {
		q[i+1], q[i+2] = q[i+2], q[i+1]
	}
}

func groupInit(init []int32, q []int16, group int, offset int32) {
	for g := range init {
		var s int32
		for _, v := range q[g*group : (g+1)*group] {
			s += int32(v)
		}
		init[g] = -offset * s
	}
}
