//lint:file-ignore U1000 assembly calls kernels that no Go function calls

package simd

import "unsafe"

// The kernels in assembly. An architecture without a kernel has the name alone (kernels_no*.s), and no tier calling the
// kernel.

// Kernels of both architectures: for AVX2, going on to a twin for AVX-512 where there is one (tier_amd64.h), and for
// NEON. Kernels of vectors take multiples of 16 elements.

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

// addDotsE4M3Vec takes the first scales of the rows, each of per blocks of 16.
//
//go:noescape
func addDotsE4M3Vec(sums *dotSums, w []byte, stride int, x []float32, scales *[dotRows]*float32, per int)

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
func unpack1Vec(dst, src []byte)

//go:noescape
func unpackDigitsVec(dst, src *byte)

//go:noescape
func loadE4M3Vec(dst []float32, src []byte)

//go:noescape
func panelScalesVec(dst []float32, d *uint16, scale []int8)

//go:noescape
func unpackGridVec(dst, src *byte, octets *gridOctet, shape *gridShape, spread *byte, high uint32, four int)

//go:noescape
func gridScalesVec(dst *float32, src *byte, places *gridPlace, n int, mask uint32, unit float32)

//go:noescape
func limitReadVec(b []byte, f *limitForm)

//go:noescape
func fetch(p unsafe.Pointer, lines int)

// Pause lets the processor know about a loop waiting for another thread.
func Pause()

// Kernels of amd64 alone.

//go:noescape
func addBlockVec(sums *[dotCols]dotSums, w, x []float32, stride, k int)

//go:noescape
func sumBlockAVX512(dst []float32, stride int, sums *[dotCols]dotSums)

//go:noescape
func addPairVec(acc, v []float32, p *float32, n, stride int)

//go:noescape
func addSerialAVX2(sums *[serialRows][serialCols]float32, w []float32, gap int, x []float32)

//go:noescape
func dotDoublesAVX2(w []float64, stride int, x []float64) (a, b float64)

//go:noescape
func dotDoublesAVX512(dst, w, x []float64)

//go:noescape
func expDoublesAVX2(v []float64, numbers *[9 + expTerms]float64)

//go:noescape
func expDoublesAVX512(v []float64, numbers *[9 + expTerms]float64)

//go:noescape
func weighAllAVX512(s *scores, seen *[Quad]uint64, top, c *[Quad]float32) (raised int)

//go:noescape
func blocksQ8_0AVX2(dst *byte, x []float32)

//go:noescape
func blocksQ4_0AVX2(dst *byte, x []float32)

//go:noescape
func largestAVX2(x []float32) float32

//go:noescape
func interleaveAVX2(dst, src *float32, n int)

//go:noescape
func fitScaleAVX2(f *Fit, x, w *float32, n int, tries []float32, top float32)

//go:noescape
func fitMinAVX2(f *Fit, x, w, codes *float32, n int, tries []float32, top float32, absolute uint32)

//go:noescape
func levelsAVX2(q []byte, x []float32, inverse float32, top int32)

//go:noescape
func closest8AVX2(near []uint32, x, w *float32, values *[8]float32) uint32

//go:noescape
func closest4AVX2(near []uint32, x, w *float32, values *[8]float32) uint32

//go:noescape
func firstSplitAVX2(s *Splits, i1, from, n int, score float32) int

//go:noescape
func weaveVec(dst, src *byte, stride, n, in, out int, flip byte)

//go:noescape
func weaveHalvesVec(dst, src *byte, stride, n, in, out, other int)

//go:noescape
func weaveBitsVec(dst, src *byte, stride, out, two int)

//go:noescape
func weaveWordsVec(dst *uint16, src *byte, stride, n, in int)

//go:noescape
func weaveBytesVec(dst, src *byte, stride int)

//go:noescape
func weaveScalesVec(dst, src *byte, stride int)

//go:noescape
func addRowVec(acc *float32, data *byte, q *int16, dx *float32, init *int32, sums *float32,
	chunks, scales, stride, group int, table *[16]byte, gap, sumgap, end, codes, mask int)

//go:noescape
func addChunks4AVX512(acc *float32, data *byte, q *int16, dx *float32, init *int32, chunks, scales, stride int)

//go:noescape
func addChunks8AVX512(acc *float32, data *byte, q *int16, dx *float32, init *int32, chunks, scales, stride int)

// addPanelAVX512 takes the bytes between rows of init and sums, between rows of
// dx, and in the groups of a row of init. So does addPanelAVX2.
//
//go:noescape
func addPanelAVX512(acc []float32, codes *byte, scale, min *float32, q *int16, dx *float32, init *int32, sums *float32,
	group, stride, dxstride, end int, next *byte)

//go:noescape
func addPanelAVX2(acc []float32, codes *byte, scale, min *float32, q *int16, dx *float32, init *int32, sums *float32,
	group, stride, dxstride, end int, next *byte)

// addWideAVX2 is addPanelAVX2 for a multiple of four rows, and codes as widenCodesAVX2
// leaves them: 16 bits each, in the order of Panel.Wide.
//
//go:noescape
func addWideAVX2(acc []float32, codes *uint16, scale, min *float32, q *int16, dx *float32, init *int32, sums *float32,
	group, stride, dxstride, end int)

//go:noescape
func widenCodesAVX2(dst *uint16, codes *byte, vectors int)

// tiles16AMX and tiles32AMX take pairs of groups of 16 and 32, and tiles1AMX a single group of 32, of blocks of 16
// rows, or of a block of height 4, 8 or 12. The rows of acc lie stride bytes apart; the other pointers are to the first
// group, of whole rows of k columns.
//
//go:noescape
func tiles16AMX(panels *tilePanel, count, blocks, pairs int, acts *uint16, acc, dx, sums *float32,
	k, groups, stride int, config *tileConfig, height int)

//go:noescape
func tiles32AMX(panels *tilePanel, count, blocks, pairs int, acts *uint16, acc, dx, sums *float32,
	k, groups, stride int, config *tileConfig, height int)

//go:noescape
func tiles1AMX(panels *tilePanel, count, blocks, pairs int, acts *uint16, acc, dx, sums *float32,
	k, groups, stride int, config *tileConfig, height int)

//go:noescape
func shiftAVX2(codes []byte, by *uint32)

//go:noescape
func scaleE4M3AVX2(dst []float32, src []byte, s float32)

//go:noescape
func addDigitsAVX512(acc *float32, data *byte, q *int16, dx *float32, init *int32, chunks, step, gap, sumgap, end int,
	table *byte)

//go:noescape
func addPointsAVX512(acc *float32, data *byte, q *int16, dx *float32, init *int32, chunks, step, gap, sumgap, end int,
	points *byte, unit float32, first, less int)

//go:noescape
func unpackGridAVX512(dst, src *byte, steps *gridStep, n int, shape *gridShape, points, words *byte,
	index, four int)

//go:noescape
func splitAVX512(dst []uint16, q []int16)

//go:noescape
func widenAVX512(dst []uint16, codes []byte, offset byte)

//go:noescape
func widen4AVX512(dst []uint16, src []byte, table *[64]uint16)

//go:noescape
func widen41AVX512(dst []uint16, src []byte, table *[64]uint16)

//go:noescape
func widen42AVX512(dst []uint16, src []byte, table *[64]uint16)

//go:noescape
func addRows4AMX(acc *float32, data, acts *byte, size, rows, panels, chunks, panel,
	scales, stride, bytes, min, init int, table *[16]byte, config *tileConfig)

//go:noescape
func addRowsLess8AMX(acc *float32, data, acts *byte, size, rows, panels, chunks, panel,
	scales, stride, bytes, min, init int, table *[16]byte, config *tileConfig)

//go:noescape
func addRowsTableAMX(acc *float32, data, acts *byte, size, rows, panels, chunks, panel,
	scales, stride, bytes, min, init int, table *[16]byte, config *tileConfig)

//go:noescape
func addRows41AMX(acc *float32, data, acts *byte, size, rows, panels, chunks, panel,
	scales, stride, bytes, min, init int, table *[16]byte, config *tileConfig)

//go:noescape
func addRows8AMX(acc *float32, data, acts *byte, size, rows, panels, chunks, panel,
	scales, stride, bytes, min, init int, table *[16]byte, config *tileConfig)

//go:noescape
func joinRowAVX512(dst *byte, q *int16, steps, step, tile int)

func limitIntsAVX2(rounds int)

func limitIntsAVX512(rounds int)

//go:noescape
func limitIntsAMX(rounds int, config *[64]byte)

func limitFloatsAVX2(rounds int)

func limitFloatsAVX512(rounds int)

// Twins for AVX-512 of the kernels for AVX2 with the same arguments.

func siluAVX512(dst, x []float32)
func geluAVX512(dst, x []float32)
func swigluAVX512(dst, gate, up []float32)
func gegluAVX512(dst, gate, up []float32)
func softcapAVX512(dst, x []float32, by float32)
func expSumAVX512(sums *[lanes]float32, dst, x []float32, top float32)
func addDotsF32AVX512(sums *dotSums, w []float32, stride int, x []float32)
func addDotsF16AVX512(sums *dotSums, w []uint16, stride int, x []float32)
func addDotsBF16AVX512(sums *dotSums, w []uint16, stride int, x []float32)
func addDotsE4M3AVX512(sums *dotSums, w []byte, stride int, x []float32, scales *[dotRows]*float32, per int)
func addBlockAVX512(sums *[dotCols]dotSums, w, x []float32, stride, k int)
func addPairAVX512(acc, v []float32, p *float32, n, stride int)
func scoreKeysAVX2(s *scores, q, k []float32, from, to int, scale float32)
func scoreKeysAVX512(s *scores, q, k []float32, from, to int, scale float32)
func addValuesAVX512(acc, v []float32, p *float32, n, stride int, sum *[Quad]float32)
func unpack4AVX512(dst, src []byte)
func unpackTableAVX512(dst, src []byte, table *[16]byte)
func unpack41AVX512(dst, src []byte)
func unpack42AVX512(dst, src []byte)
func unpack2AVX512(dst, src []byte)
func unpack21AVX512(dst, src []byte)
func unpack1AVX512(dst, src []byte)
func unpackDigitsAVX512(dst, src *byte)
func gridScalesAVX512(dst *float32, src *byte, places *gridPlace, n int, mask uint32, unit float32)
func panelScalesAVX512(dst []float32, d *uint16, scale []int8)
func weaveAVX512(dst, src *byte, stride, n, in, out int, flip byte)
func weaveHalvesAVX512(dst, src *byte, stride, n, in, out, other int)
func weaveBitsAVX512(dst, src *byte, stride, out, two int)
func limitReadAVX512(b []byte, f *limitForm)
func addRowAVX512(acc *float32, data *byte, q *int16, dx *float32, init *int32, sums *float32,
	chunks, scales, stride, group int, table *[16]byte, gap, sumgap, end, codes, mask int)

// Kernels of arm64 alone.

//go:noescape
func addPanelVec(acc []float32, codes *byte, scale, min *float32, q *int16, dx *float32, init *int32, sums *float32,
	group, groups, step int)

//go:noescape
func addPanelSDOT(acc []float32, codes *byte, scale, min *float32, q *int16, dx *float32, init *int32, sums *float32,
	group, groups, step int)

func limitIntsNEON(rounds int)

func limitIntsSDOT(rounds int)

func limitFloatsNEON(rounds int)

// Kernels of the tier wasm alone: see Record.

// hasKernels sets threads to the number of threads for kernels.
//
//go:noescape
func hasKernels(threads *int32)

//go:noescape
func record(frames *byte, size int)

func nextLane()

func joinLanes()

//go:noescape
func clearVec(x []float32)

//go:noescape
func addChunksVec(acc *float32, data *byte, q *int16, dx *float32, init *int32, sums *float32,
	chunks, scales, stride, group int, table *[16]byte, rows, codes int)

//go:noescape
func expDoublesVec(v []float64)

// attendVec takes the spans of two queries in each word.
//
//go:noescape
func attendVec(s *scores, q, k, v, acc, top, sum *float32, dim, values, first, second, from, to int,
	limit, scale float32)

//go:noescape
func copyRowsVec(dst *float32, step int, src *float32, from, n, rows int)
