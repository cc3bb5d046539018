package simd

//go:noescape
func quantizeAVX2(q []int16, dx, x []float32)

//go:noescape
func groupSumsAVX2(sums []float32, q *int16, dx *float32, group int)

//go:noescape
func groupInitAVX2(init []int32, q *int16, group int, factor int32)

func quantize(q []int16, dx, x []float32) {
	k := len(dx) * ActGroup
	if tier == generic {
		quantizeGeneric(q, dx, x)
		return
	}
	quantizeAVX2(q[:k], dx, x[:k])
}

// eights is how many of n groups the kernels take, eight at a time; the generic
// twins take the rest.
func eights(n, group int) int {
	if tier == generic || group != 16 && group != 32 {
		return 0
	}
	return n &^ 7
}

func groupSums(sums []float32, q []int16, dx []float32, group int) {
	n := eights(len(sums), group)
	k := n * group
	if n > 0 {
		_, _ = q[:k], dx[:k/ActGroup]
		groupSumsAVX2(sums[:n], &q[0], &dx[0], group)
	}
	groupSumsGeneric(sums[n:], q[k:], dx[k/ActGroup:], group)
}

func groupInit(init []int32, q []int16, group int, offset int32) {
	n := eights(len(init), group)
	k := n * group
	if n > 0 {
		_ = q[:k]
		groupInitAVX2(init[:n], &q[0], group, -offset)
	}
	groupInitGeneric(init[n:], q[k:], group, offset)
}
