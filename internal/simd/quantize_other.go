//go:build !amd64 && !arm64

package simd

func quantize(q []int16, dx, x []float32) { quantizeGeneric(q, dx, x) }

func groupSums(sums []float32, q []int16, dx []float32, group int) {
	groupSumsGeneric(sums, q, dx, group)
}

func groupInit(init []int32, q []int16, group int, offset int32) {
	groupInitGeneric(init, q, group, offset)
}
