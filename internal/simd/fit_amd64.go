package simd

// maxFit is the longest group.
const maxFit = 32

// fitLanes are the values, the weights and the integers of groups side by side.
type fitLanes struct{ x, w, q [FitLanes * maxFit]float32 }

//go:noescape
func sideBySideAVX2(dst, src *float32, n int)

//go:noescape
func fitScaleAVX2(f *Fit, x, w *float32, n int, tries []float32, top float32)

//go:noescape
func fitMinAVX2(f *Fit, x, w, codes *float32, n int, tries []float32, top float32, absolute uint32)

// sideBySide reports whether there are kernels for groups of n, all of them there,
// and puts x and w into f for these.
func (f *Fit) sideBySide(x, w []float32, n int) bool {
	if tier == generic || n != 16 && n != maxFit || len(x) != FitLanes*n {
		return false
	}
	_ = w[:len(x)]
	sideBySideAVX2(&f.lanes.x[0], &x[0], n)
	sideBySideAVX2(&f.lanes.w[0], &w[0], n)
	return true
}

func fitScale(f *Fit, x, w []float32, n int, tries []float32, top float32) {
	if !f.sideBySide(x, w, n) {
		fitScaleGeneric(f, x, w, n, tries, top)
		return
	}
	fitScaleAVX2(f, &f.lanes.x[0], &f.lanes.w[0], n, tries, top)
}

func fitMin(f *Fit, x, w []float32, n int, tries []float32, top float32, absolute bool) {
	if !f.sideBySide(x, w, n) {
		fitMinGeneric(f, x, w, n, tries, top, absolute)
		return
	}
	var mask uint32
	if absolute {
		mask--
	}
	fitMinAVX2(f, &f.lanes.x[0], &f.lanes.w[0], &f.lanes.q[0], n, tries, top, mask)
}
