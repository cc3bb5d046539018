package simd

// The kernels that amd64 alone has.

//go:noescape
func addBlockVec(sums *[dotCols]dotSums, w, x []float32, stride, k int)

//go:noescape
func dotDoublesAVX2(w []float64, stride int, x []float64) (a, b float64)

//go:noescape
func dotColumnsAVX2(sums *[doubleRows][lanes]float64, w []float64, stride int, x []float64)

//go:noescape
func weighAllAVX512(s *scores, seen *[Quad]uint64, top, c *[Quad]float32) (raised int)

//go:noescape
func blocksQ8_0AVX2(dst *byte, x []float32)

//go:noescape
func blocksQ4_0AVX2(dst *byte, x []float32)

//go:noescape
func largestAVX2(x []float32) float32

//go:noescape
func sideBySideAVX2(dst, src *float32, n int)

//go:noescape
func fitScaleAVX2(f *Fit, x, w *float32, n int, tries []float32, top float32)

//go:noescape
func fitMinAVX2(f *Fit, x, w, codes *float32, n int, tries []float32, top float32, absolute uint32)

//go:noescape
func weaveVec(dst, src *byte, stride, n, in, out int, flip byte)

//go:noescape
func weaveHalvesVec(dst, src *byte, stride, n, in, out, other int)

//go:noescape
func weaveBitsVec(dst, src *byte, stride, out, two int)

//go:noescape
func weaveWordsAVX2(dst *uint16, src *byte, stride, n, in int)

//go:noescape
func weaveBytesAVX2(dst, src *byte, stride int)

//go:noescape
func weaveScalesAVX2(dst, src *byte, stride int)

//go:noescape
func addRowVec(acc *float32, data *byte, q *int16, dx *float32, init *int32, sums *float32,
	chunks, scales, stride, group int, table *[16]byte, gap, sumgap, end, codes int)

//go:noescape
func addChunks4AVX512(acc *float32, data *byte, q *int16, dx *float32, init *int32, chunks, scales, stride int)

//go:noescape
func addChunks8AVX512(acc *float32, data *byte, q *int16, dx *float32, init *int32, chunks, scales, stride int)

// Twins for AVX-512, to which kernels for AVX2 of the same arguments go on.
func siluAVX512(dst, x []float32)
func geluAVX512(dst, x []float32)
func swigluAVX512(dst, gate, up []float32)
func gegluAVX512(dst, gate, up []float32)
func softcapAVX512(dst, x []float32, by float32)
func expSumAVX512(sums *[lanes]float32, dst, x []float32, top float32)
func addDotsF32AVX512(sums *dotSums, w []float32, stride int, x []float32)
func addDotsF16AVX512(sums *dotSums, w []uint16, stride int, x []float32)
func addDotsBF16AVX512(sums *dotSums, w []uint16, stride int, x []float32)
func addBlockAVX512(sums *[dotCols]dotSums, w, x []float32, stride, k int)
func scoreKeysAVX2(s *scores, q, k []float32, from, to int, scale float32)
func scoreKeysAVX512(s *scores, q, k []float32, from, to int, scale float32)
func addValuesAVX512(acc, v []float32, p *float32, n, stride int, sum *[Quad]float32)
func unpack4AVX512(dst, src []byte)
func unpackTableAVX512(dst, src []byte, table *[16]byte)
func unpack41AVX512(dst, src []byte)
func unpack42AVX512(dst, src []byte)
func unpack2AVX512(dst, src []byte)
func unpack21AVX512(dst, src []byte)
func panelScalesAVX512(dst []float32, d *uint16, scale []int8)
func weaveAVX512(dst, src *byte, stride, n, in, out int, flip byte)
func weaveHalvesAVX512(dst, src *byte, stride, n, in, out, other int)
func weaveBitsAVX512(dst, src *byte, stride, out, two int)
func limitReadAVX512(b []byte, f *limitForm)
func addRowAVX512(acc *float32, data *byte, q *int16, dx *float32, init *int32, sums *float32,
	chunks, scales, stride, group int, table *[16]byte, gap, sumgap, end, codes int)
