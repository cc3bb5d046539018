package simd

//go:noescape
func quantizeNEON(q []int16, dx, x []float32)

//go:noescape
func groupSumsNEON(sums []float32, q *int16, dx *float32, group int)

//go:noescape
func groupInitNEON(init []int32, q *int16, group int, factor int32)

func quantize(q []int16, dx, x []float32) {
	k := len(dx) * ActGroup
	if tier == generic {
		quantizeGeneric(q, dx, x)
		return
	}
	quantizeNEON(q[:k], dx, x[:k])
}

// fours is how many of n groups the kernels take, four at a time; the generic
// twins take the rest.
func fours(n, group int) int {
	if tier == generic || group != 16 && group != 32 {
		return 0
	}
	return n &^ 3
}

func groupSums(sums []float32, q []int16, dx []float32, group int) {
	n := fours(len(sums), group)
	k := n * group
	if n > 0 {
		_, _ = q[:k], dx[:k/ActGroup]
		groupSumsNEON(sums[:n], &q[0], &dx[0], group)
	}
	groupSumsGeneric(sums[n:], q[k:], dx[k/ActGroup:], group)
}

func groupInit(init []int32, q []int16, group int, offset int32) {
	n := fours(len(init), group)
	k := n * group
	if n > 0 {
		_ = q[:k]
		groupInitNEON(init[:n], &q[0], group, -offset)
	}
	groupInitGeneric(init[n:], q[k:], group, offset)
}
