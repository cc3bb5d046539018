package quant

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/simd"
	"github.com/karat-run/karat/internal/tensor"
)

// Quantize writes the weights x, whole rows of k, to dst as elements of d, a quantized type or F32, F16 or BF16:
// d.RowBytes(len(x)) bytes.
//
// importance has a factor for each column, none negative: the weight of the square of an error there (the mean square
// of the column's inputs). importance may be nil; Q8_0, MXFP4 and the floats do without.
//
// The bytes equal llama.cpp's (ggml_quantize_chunk), except where llama.cpp's depend on the
// compiler: weights below 1e-38, and scales of MXFP4 from a magnitude within 1e-6 of the next power of two.
//
// A length that does not fit, an importance that is negative or not finite, a weight that is not finite, and a weight
// beyond d's range, are errors. The contents of dst are then undefined.
func Quantize(d tensor.DType, dst []byte, x []float32, k int, importance []float32) error {
	if !isWritten(d) {
		return fmt.Errorf("weights are not written as %v", d)
	}
	if k <= 0 || len(x)%k != 0 {
		return fmt.Errorf("%v: %d weights are no rows of %d", d, len(x), k)
	}
	if k%d.BlockSize() != 0 {
		return fmt.Errorf("%v: a row of %d weights is no multiple of the block of %d", d, k, d.BlockSize())
	}
	if err := checkRow(d, len(x), len(dst)); err != nil {
		return err
	}
	if importance == nil && needsImportance(d) {
		return fmt.Errorf("%v needs an importance matrix", d)
	}
	if importance != nil && len(importance) != k {
		return fmt.Errorf("%v: importance of %d columns, the rows have %d", d, len(importance), k)
	}
	for i, v := range importance {
		if !(v >= 0 && v <= math.MaxFloat32) {
			return fmt.Errorf("%v: importance of column %d is %v", d, i, v)
		}
	}
	if !(simd.Largest(x) <= math.MaxFloat32) {
		i := slices.IndexFunc(x, func(v float32) bool { return v-v != 0 })
		return fmt.Errorf("%v: weight %d of row %d is %v", d, i%k, i/k, x[i])
	}
	if !d.Quantized() {
		return storeFloats(d, dst, x, k)
	}
	var e encoder
	for row := range len(x) / k {
		x, dst := x[row*k:(row+1)*k], dst[d.RowBytes(row*k):d.RowBytes((row+1)*k)]
		e.row(d, dst, x, importance)
		if b := badScale(d, dst); b >= 0 {
			size := d.BlockSize()
			return fmt.Errorf("%v: no scale of binary16 (at most 65504) holds weights %d to %d of row %d", d, b*size,
				(b+1)*size-1, row)
		}
	}
	return nil
}

// needsImportance reports whether the search for d has no weights of errors without importance.
func needsImportance(d tensor.DType) bool {
	return d == tensor.IQ1_S || d == tensor.IQ2_XXS || d == tensor.IQ2_XS
}

// isWritten reports whether Quantize writes d.
func isWritten(d tensor.DType) bool {
	if d.Quantized() {
		return d == tensor.Q8_0 || int(d) < len(encoders) && encoders[d] != nil
	}
	return d.Float() && d != tensor.F64
}

// row writes a row.
func (e *encoder) row(d tensor.DType, dst []byte, x, importance []float32) {
	switch {
	case d == tensor.Q8_0:
		simd.BlocksQ8_0(dst, x)
		return
	case d == tensor.Q4_0 && importance == nil:
		simd.BlocksQ4_0(dst, x)
		return
	case importance != nil && d.BlockSize() == 32:
		e.square = squares(x) / float32(len(x)) // larger blocks have their own
	}
	encode, n, size := encoders[d], d.BlockSize(), d.BlockBytes()
	for b := range len(x) / n {
		var w []float32
		if importance != nil {
			e.at, e.x, e.importance = b%simd.FitLanes, x[b*n:], importance[b*n:]
			w = e.importance[:n]
		}
		encode(e, dst[b*size:][:size], x[b*n:][:n], w)
	}
}

// badScale returns the index of the first block whose scale, or minimum, is no finite number; -1 if there is none.
// Scales of fewer than 16 bits are finite.
func badScale(d tensor.DType, row []byte) int {
	f := formatOf(d)
	var h Header
	for b := 0; d != tensor.MXFP4 && b*d.BlockBytes() < len(row); b++ {
		block := row[b*d.BlockBytes():]
		if h.readHalves(d, f, block); h.D&0x7c00 == 0x7c00 || f.min && h.Min&0x7c00 == 0x7c00 {
			return b
		}
	}
	return -1
}

// storeFloats writes a plain type. F16 holds up to 65504, BF16 a little less than F32.
func storeFloats(d tensor.DType, dst []byte, x []float32, k int) error {
	to, infinity := float16.ToF16, uint16(0x7c00)
	switch d {
	case tensor.F32:
		for i, v := range x {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
		}
		return nil
	case tensor.BF16:
		to, infinity = float16.ToBF16, 0x7f80
	}
	words := float16.Words(dst)
	if d == tensor.F16 && words != nil {
		simd.StoreF16(words, x)
	} else {
		for i, v := range x {
			binary.LittleEndian.PutUint16(dst[2*i:], to(v))
		}
	}
	for i, v := range x {
		if half16(dst[2*i:])&infinity == infinity {
			return fmt.Errorf("%v: weight %d of row %d is %v, more than it holds", d, i%k, i/k, v)
		}
	}
	return nil
}

// encoder is the work on a block: the weights of errors, the codes, and the results of each group's search.
type encoder struct {
	fit          simd.Fit
	at           int       // index of a block of 32 among the blocks searched together
	x            []float32 // weights of the row, from the block on
	importance   []float32 // of x
	square       float32   // mean of the weights' squares, or twice that
	w            [maxBlock]float32
	q            [maxBlock]byte
	scale        [maxGroups]float32
	min          [maxGroups]float32 // subtracted minima
	low, inverse [maxGroups]float32
	sum          [maxGroups]float32 // of w
	ls, lm       [maxGroups]byte
	size         [maxBlock]float32 // magnitudes of the weights
	point        [64]uint16        // of a grid
	sign         [32]byte          // of 8 weights each
}

// weigh sets the weights of errors in block x with importance w.
func (e *encoder) weigh(x, w []float32) {
	for i, v := range x {
		e.w[i] = w[i] * root(e.square+float32(v*v))
	}
}

// putHalf writes x as binary16, and returns the rounded value.
func putHalf(b []byte, x float32) float32 {
	h := float16.ToF16(x)
	binary.LittleEndian.PutUint16(b, h)
	return float16.F16(h)
}

// squares returns the sum of the squares of x.
func squares(x []float32) (sum float32) {
	for _, v := range x {
		sum += float32(v * v)
	}
	return sum
}

// root returns the float32 nearest to the square root of x.
func root(x float32) float32 { return float32(math.Sqrt(float64(x))) }

func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

// inverse returns 1/x, but 0 where 1/x is beyond float32: codes of weights so small do not matter, since their scale is
// 0.
func inverse(x float32) float32 {
	if v := 1 / x; abs(v) <= math.MaxFloat32 {
		return v
	}
	return 0
}
