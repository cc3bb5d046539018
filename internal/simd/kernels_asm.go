//go:build amd64 || arm64

package simd

import "unsafe"

// The kernels that both architectures have in assembly: for AVX2, where those with a twin for AVX-512 go on to it by
// themselves (tier_amd64.h), and for NEON. Those of vectors take multiples of 16 elements.

//go:noescape
func addVec(dst, a, b []float32)

//go:noescape
func mulVec(dst, a, b []float32)

//go:noescape
func scaleVec(dst, x []float32, s float32)

//go:noescape
func divideVec(dst, x []float32, s float32)

//go:noescape
func addScaledVec(dst, x []float32, s float32)

//go:noescape
func normVec(dst, x, w []float32, r, offset float32)

//go:noescape
func turnVec(lo, hi, cos, sin []float32)

//go:noescape
func maxVec(x []float32) float32

//go:noescape
func loadF16Vec(dst []float32, src []uint16)

//go:noescape
func loadBF16Vec(dst []float32, src []uint16)

//go:noescape
func storeF16Vec(dst []uint16, src []float32)

//go:noescape
func siluVec(dst, x []float32)

//go:noescape
func geluVec(dst, x []float32)

//go:noescape
func swigluVec(dst, gate, up []float32)

//go:noescape
func gegluVec(dst, gate, up []float32)

//go:noescape
func softcapVec(dst, x []float32, by float32)

//go:noescape
func expSumVec(sums *[lanes]float32, dst, x []float32, top float32)

//go:noescape
func addDotsF32Vec(sums *dotSums, w []float32, stride int, x []float32)

//go:noescape
func addDotsF16Vec(sums *dotSums, w []uint16, stride int, x []float32)

//go:noescape
func addDotsBF16Vec(sums *dotSums, w []uint16, stride int, x []float32)

//go:noescape
func sumDotsVec(dst *[dotRows]float32, sums *dotSums)

//go:noescape
func scoreKeysVec(s *scores, q, k []float32, from, to int, scale float32)

//go:noescape
func addValuesVec(acc, v []float32, p *float32, n, stride int, sum *[Quad]float32)

//go:noescape
func quantizeVec(q []int16, dx, x []float32)

//go:noescape
func groupSumsVec(sums []float32, q *int16, dx *float32, group int)

//go:noescape
func groupInitVec(init []int32, q *int16, group int, factor int32)

//go:noescape
func unpack4Vec(dst, src []byte)

//go:noescape
func unpackTableVec(dst, src []byte, table *[16]byte)

//go:noescape
func unpack41Vec(dst, src []byte)

//go:noescape
func unpack42Vec(dst, src []byte)

//go:noescape
func unpack2Vec(dst, src []byte)

//go:noescape
func unpack21Vec(dst, src []byte)

//go:noescape
func panelScalesVec(dst []float32, d *uint16, scale []int8)

//go:noescape
func limitReadVec(b []byte, f *limitForm)

//go:noescape
func fetch(p unsafe.Pointer, lines int)

// Pause tells the processor that a loop waits for another thread.
func Pause()
