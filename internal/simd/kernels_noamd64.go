//go:build !amd64

package simd

// The kernels of kernels_amd64.go and those of matrix units, which no tier here calls.

const avx2, avx512, amx = never, never, never

func addBlockVec(_ *[dotCols]dotSums, _, _ []float32, _, _ int)                         {}
func dotDoublesAVX2([]float64, int, []float64) (a, b float64)                           { return }
func dotColumnsAVX2(*[doubleRows][lanes]float64, []float64, int, []float64)             {}
func weighAllAVX512(_ *scores, _ *[Quad]uint64, _, _ *[Quad]float32) (raised int)       { return }
func blocksQ8_0AVX2(*byte, []float32)                                                   {}
func blocksQ4_0AVX2(*byte, []float32)                                                   {}
func largestAVX2([]float32) (top float32)                                               { return }
func sideBySideAVX2(_, _ *float32, _ int)                                               {}
func fitScaleAVX2(_ *Fit, _, _ *float32, _ int, _ []float32, _ float32)                 {}
func fitMinAVX2(_ *Fit, _, _, _ *float32, _ int, _ []float32, _ float32, _ uint32)      {}
func weaveVec(_, _ *byte, _, _, _, _ int, _ byte)                                       {}
func weaveHalvesVec(_, _ *byte, _, _, _, _, _ int)                                      {}
func weaveBitsVec(_, _ *byte, _, _, _ int)                                              {}
func weaveWordsAVX2(_ *uint16, _ *byte, _, _, _ int)                                    {}
func weaveBytesAVX2(_, _ *byte, _ int)                                                  {}
func weaveScalesAVX2(_, _ *byte, _ int)                                                 {}
func addChunks4AVX512(_ *float32, _ *byte, _ *int16, _ *float32, _ *int32, _, _, _ int) {}
func addChunks8AVX512(_ *float32, _ *byte, _ *int16, _ *float32, _ *int32, _, _, _ int) {}
func addRowVec(_ *float32, _ *byte, _ *int16, _ *float32, _ *int32, _ *float32, _, _, _, _ int, _ *[16]byte, _, _, _, _ int) {
}
func splitAVX512([]uint16, []int16)                                             {}
func widenAVX512([]uint16, []byte, byte)                                        {}
func widen4AVX512([]uint16, []byte, *[64]uint16)                                {}
func widen41AVX512([]uint16, []byte, *[64]uint16)                               {}
func widen42AVX512([]uint16, []byte, *[64]uint16)                               {}
func joinRowAVX512(_ *byte, _ *int16, _, _, _ int)                              {}
func addTilesAMX(_ []float32, _, _ int, _ []*Panel, _ *Acts, _ []uint16)        {}
func addRowsAMX(_ []float32, _ []byte, _ int, _ *Stored, _ []byte, _, _, _ int) {}
