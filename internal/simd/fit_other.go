//go:build !amd64

package simd

type fitLanes struct{}

func fitScale(f *Fit, x, w []float32, n int, tries []float32, top float32) {
	fitScaleGeneric(f, x, w, n, tries, top)
}

func fitMin(f *Fit, x, w []float32, n int, tries []float32, top float32, absolute bool) {
	fitMinGeneric(f, x, w, n, tries, top, absolute)
}
