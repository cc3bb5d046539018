package quant

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/simd"
	"github.com/karat-run/karat/internal/tensor"
)

// Quantize writes the weights x, whole rows of k, to dst as elements of d, a
// quantized type or F32, F16 or BF16: d.RowBytes(len(x)) bytes.
//
// importance has a factor for each column, none negative: how much the square of
// an error there matters (the mean square of what the column is multiplied by).
// It may be nil; Q8_0, MXFP4 and the floats do without.
//
// The bytes equal those of llama.cpp's quantizers (ggml_quantize_chunk), except
// where those depend on the compiler: weights below 1e-38, and scales of MXFP4
// from a magnitude within 1e-6 of the next power of two.
//
// A length that does not fit, an importance that is negative or not finite, a
// weight that is not finite, and one that d cannot hold, are errors. What dst
// then holds is not defined.
func Quantize(d tensor.DType, dst []byte, x []float32, k int, importance []float32) error {
	if !d.Quantized() && (!d.Float() || d == tensor.F64) {
		return fmt.Errorf("quant: weights are not written as %v", d)
	}
	if k <= 0 || len(x)%k != 0 {
		return fmt.Errorf("quant: %v: %d weights are no rows of %d", d, len(x), k)
	}
	if k%d.BlockSize() != 0 {
		return fmt.Errorf("quant: %v: a row of %d weights is no multiple of the block of %d", d, k, d.BlockSize())
	}
	if err := checkRow(d, len(x), len(dst)); err != nil {
		return err
	}
	if importance != nil && len(importance) != k {
		return fmt.Errorf("quant: %v: importance of %d columns, the rows have %d", d, len(importance), k)
	}
	for i, v := range importance {
		if !(v >= 0 && v <= math.MaxFloat32) {
			return fmt.Errorf("quant: %v: importance of column %d is %v", d, i, v)
		}
	}
	if i := notFinite(x); i >= 0 {
		return fmt.Errorf("quant: %v: weight %d of row %d is %v", d, i%k, i/k, x[i])
	}
	if !d.Quantized() {
		return storeFloats(d, dst, x, k)
	}
	encode := encoders[d]
	var e encoder
	for row := range len(x) / k {
		x, dst := x[row*k:(row+1)*k], dst[d.RowBytes(row*k):d.RowBytes((row+1)*k)]
		if importance != nil {
			e.square = squares(x) / float32(k) // which larger blocks have of their own
		}
		for b := range k / d.BlockSize() {
			block := dst[d.RowBytes(b*d.BlockSize()):][:d.BlockBytes()]
			x := x[b*d.BlockSize():][:d.BlockSize()]
			var w []float32
			if importance != nil {
				w = importance[b*d.BlockSize():][:d.BlockSize()]
			}
			encode(&e, block, x, w)
			if err := checkScales(d, block); err != nil {
				return fmt.Errorf("quant: %v: weights %d to %d of row %d: %w", d, b*d.BlockSize(), (b+1)*d.BlockSize()-1, row, err)
			}
		}
	}
	return nil
}

// notFinite is the index of the first NaN or infinity of x, -1 if there is none.
func notFinite(x []float32) int {
	var top uint32
	for _, v := range x {
		top = max(top, math.Float32bits(v)<<1)
	}
	if top < 0xff000000 {
		return -1
	}
	for i, v := range x {
		if v-v != 0 {
			return i
		}
	}
	return -1
}

// checkScales finds scales that binary16 does not hold.
func checkScales(d tensor.DType, block []byte) error {
	var h Header
	h.Read(d, block)
	if d != tensor.MXFP4 && (h.D&0x7c00 == 0x7c00 || h.Min&0x7c00 == 0x7c00) {
		return fmt.Errorf("no scale of binary16 (at most 65504) holds them")
	}
	return nil
}

// storeFloats writes a plain type. F16 holds up to 65504.
func storeFloats(d tensor.DType, dst []byte, x []float32, k int) error {
	for i, v := range x {
		switch d {
		case tensor.F32:
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
		case tensor.BF16:
			binary.LittleEndian.PutUint16(dst[2*i:], float16.ToBF16(v))
		default:
			h := float16.ToF16(v)
			if h&0x7c00 == 0x7c00 {
				return fmt.Errorf("quant: F16: weight %d of row %d is %v, beyond 65504", i%k, i/k, v)
			}
			binary.LittleEndian.PutUint16(dst[2*i:], h)
		}
	}
	return nil
}

// encoders writes a block of x, with importance w, which may be nil.
var encoders = map[tensor.DType]func(e *encoder, b []byte, x, w []float32){
	tensor.Q4_0:   (*encoder).q4_0,
	tensor.Q4_1:   (*encoder).q4_1,
	tensor.Q5_0:   (*encoder).q5_0,
	tensor.Q5_1:   (*encoder).q5_1,
	tensor.Q8_0:   (*encoder).q8_0,
	tensor.Q2_K:   (*encoder).q2_K,
	tensor.Q3_K:   (*encoder).q3_K,
	tensor.Q4_K:   (*encoder).q4_K,
	tensor.Q5_K:   (*encoder).q5_K,
	tensor.Q6_K:   (*encoder).q6_K,
	tensor.IQ4_NL: (*encoder).iq4_NL,
	tensor.IQ4_XS: (*encoder).iq4_XS,
	tensor.MXFP4:  (*encoder).mxfp4,
}

// encoder is the work on a block: the weights of errors, the codes, and of each
// group what was found for it.
type encoder struct {
	fit          simd.Fit
	square       float32 // mean of the weights' squares, or twice that
	w            [maxBlock]float32
	q            [maxBlock]byte
	scale        [maxGroups]float32
	min          [maxGroups]float32 // which is subtracted
	low, inverse [maxGroups]float32
	sum          [maxGroups]float32 // of w
	ls, lm       [maxGroups]byte
}

// weigh sets the weights of errors in block x with importance w.
func (e *encoder) weigh(x, w []float32) {
	for i, v := range x {
		e.w[i] = w[i] * root(e.square+float32(v*v))
	}
}

// putHalf writes x as binary16, and returns what it then is.
func putHalf(b []byte, x float32) float32 {
	h := float16.ToF16(x)
	binary.LittleEndian.PutUint16(b, h)
	return float16.F16(h)
}

// squares is the sum of the squares of x.
func squares(x []float32) (sum float32) {
	for _, v := range x {
		sum += float32(v * v)
	}
	return sum
}

// root is the float32 nearest to the square root of x.
func root(x float32) float32 { return float32(math.Sqrt(float64(x))) }

func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

// inverse is 1/x, but 0 where that is beyond float32: codes of weights so small
// do not matter, since their scale is 0.
func inverse(x float32) float32 {
	if v := 1 / x; abs(v) <= math.MaxFloat32 {
		return v
	}
	return 0
}
