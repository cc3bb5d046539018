package simd

// In the tier wasm other threads have kernels, but no Go. So Go records calls of kernels, and threads make the calls.

// Lanes returns a number of lanes for Record with work for all threads, and 0 for one thread, or no need to record.
func Lanes() int {
	if tier != wasm {
		return 0
	}
	var threads int32
	if hasKernels(&threads); threads == 1 {
		return 0
	}
	return min(4*int(threads), mostLanes)
}

const (
	mostLanes   = 64
	laneHeader  = 1024
	frameBytes  = 136
	mostRecords = 4096
)

// frames are recorded calls: where lanes begin, and then a frame for each call.
var frames []byte

// Record calls f for each lane. Kernels called by f run later, a lane's in order and lanes beside each other, and have
// run when Record returns. So f reads nothing written by kernels, gives kernels no memory of the stack and no two lanes
// the same memory to write, and frees no memory.
func Record(lanes int, f func(lane int) error) error {
	if frames == nil {
		frames = make([]byte, laneHeader+mostRecords*frameBytes)
	}
	record(&frames[0], mostRecords*frameBytes)
	defer joinLanes()
	for lane := range lanes {
		nextLane()
		if err := f(lane); err != nil {
			return err
		}
	}
	return nil
}

// Records reports whether Attention.Add is kernels alone, for values of a size, where Lanes is not 0.
func Records(values int) bool { return values%lanes == 0 }

// Clear sets x to zeros, as a kernel.
func Clear(x []float32) {
	if tier == wasm {
		clearVec(x)
		return
	}
	clear(x)
}

// CopyRows copies n numbers to each row of dst, step apart, from src, from apart, as a kernel.
func CopyRows(dst []float32, step int, src []float32, from, n, rows int) {
	if rows == 0 || n == 0 {
		return
	}
	if tier == wasm {
		d, s := dst[:(rows-1)*step+n], src[:(rows-1)*from+n]
		copyRowsVec(&d[0], step, &s[0], from, n, rows)
		return
	}
	for t := range rows {
		copy(dst[t*step:][:n], src[t*from:][:n])
	}
}
