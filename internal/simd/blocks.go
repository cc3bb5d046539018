package simd

// BlockWeights is the number of weights in the blocks that BlocksQ8_0 and
// BlocksQ4_0 write.
const BlockWeights = 32

// The bytes of a block: a scale of binary16, and the codes.
const (
	bytesQ8_0 = 2 + BlockWeights
	bytesQ4_0 = 2 + BlockWeights/2
)

// BlocksQ8_0 writes x, whole blocks, which are finite, as blocks of GGUF's Q8_0.
// Each step is rounded:
//
//	scale = max |x[i]| / 127, inverse = 1/scale, or 0 where that is infinite
//	code = x[i]*inverse, rounded to an integer, halves away from zero
func BlocksQ8_0(dst []byte, x []float32) {
	n := len(x) / BlockWeights
	blocksQ8_0(dst[:n*bytesQ8_0], x[:n*BlockWeights])
}

// BlocksQ4_0 writes x, whole blocks, which are finite, as blocks of GGUF's Q4_0.
// Each step is rounded:
//
//	peak = the first x[i] of the largest magnitude, +0 if all are zeros
//	scale = peak / -8, inverse = 1/scale, or 0 where that is infinite
//	code = x[i]*inverse + 8.5, without its fraction, at most 15
func BlocksQ4_0(dst []byte, x []float32) {
	n := len(x) / BlockWeights
	blocksQ4_0(dst[:n*bytesQ4_0], x[:n*BlockWeights])
}

// Largest is the largest magnitude in x, 0 if x is empty, NaN if it holds one.
func Largest(x []float32) float32 { return largest(x) }
