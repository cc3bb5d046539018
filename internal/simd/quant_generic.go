package simd

import "math"

// top16 is the largest magnitude of a quantized activation.
const top16 = 32767

// quantizeGeneric rounds one group.
func quantizeGeneric(q []int16, x []float32) (dx float32) {
	q = q[:len(x)]
	var bits uint32 // without signs, float32 numbers are ordered as their bits are
	for _, v := range x {
		bits = max(bits, math.Float32bits(v)&^(1<<31))
	}
	top := math.Float32frombits(bits)
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

// quantizePairsGeneric rounds whole groups.
func quantizePairsGeneric(q []int16, dx, x []float32) {
	for g := range dx {
		run := q[g*ActGroup : (g+1)*ActGroup]
		dx[g] = quantizeGeneric(run, x[g*ActGroup:(g+1)*ActGroup])
		for i := 0; i < ActGroup; i += 4 {
			run[i+1], run[i+2] = run[i+2], run[i+1]
		}
	}
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

func dotQGeneric(w *QuantRow, x []int16, dx, sums []float32) float32 {
	var acc float32
	for g, scale := range w.Scale {
		q := w.Q[g*w.Group : (g+1)*w.Group]
		a := x[g*w.Group:][:len(q)]
		var dot int32
		for i, v := range q {
			dot += int32(v) * int32(a[i])
		}
		acc = fma32(float32(float32(dot)*dx[g*w.Group/ActGroup]), scale, acc)
		if w.Min != nil {
			acc = fma32(sums[g], w.Min[g], acc)
		}
	}
	return acc
}

func dotRowsQGeneric(dst []float32, w *QuantRow, x []int16, dx, sums []float32) {
	k := len(w.Q)
	for r := range dst {
		var s []float32
		if w.Min != nil {
			s = sums[r*len(w.Scale):]
		}
		dst[r] = dotQGeneric(w, x[r*k:], dx[r*k/ActGroup:], s)
	}
}
