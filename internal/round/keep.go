package round

import (
	"math"

	"github.com/karat-run/karat/internal/float16"
)

// pageSize is the number of positions of a page of KVPages.
const pageSize = 64

// Keep rounds rows of keys or values, in heads of dim elements, to a form of KV. Of KVPages the form is the newest
// positions'.
func (f Format) Keep(x []float64, dim int, values bool) {
	form, size := f, 0
	switch f {
	case KVQ8, KVQ8Turned:
		form = Q8_32
	case KVPages:
		form, size = F16, min(64, dim&-dim)
	}
	if (f == KVQ8Turned || f == KVQ4Turned) && dim%64 == 0 {
		if size = dim & -dim; values {
			size = 64
		}
	}
	turn(x, size)
	if f == KVQ4 || f == KVQ4Turned {
		blocks(x, 32, q4_0)
	} else {
		form.Round(x)
	}
	turn(x, size)
}

// Older rounds a full page of keys or values kept by Keep, [64, width] in heads of dim elements, to KVPages' older
// form: scales for 32 elements of a key, or for 32 positions of an element of values (simd.Narrow.Pack).
func Older(page []float64, width, dim int, values bool) {
	size := min(64, dim&-dim)
	turn(page, size)
	column := make([]float64, pageSize)
	for e := 0; values && e < width; e++ {
		for j := range column {
			column[j] = page[j*width+e]
		}
		blocks(column, 32, narrow)
		for j, v := range column {
			page[j*width+e] = v
		}
	}
	for at := 0; !values && at < len(page); at += dim {
		blocks(page[at:at+dim], 32, narrow)
	}
	turn(page, size)
}

// turn multiplies runs of a power of two by the matrix of Walsh and Hadamard over √size, in place; 0 and 1 are no turn.
func turn(x []float64, size int) {
	if size < 2 {
		return
	}
	for h := 1; h < size; h *= 2 {
		for i, a := range x {
			if i&h == 0 {
				x[i], x[i+h] = a+x[i+h], a-x[i+h]
			}
		}
	}
	for i := range x {
		x[i] /= math.Sqrt(float64(size))
	}
}

// q4_0 computes quantize_row_q4_0_ref in llama.cpp's ggml-quants.c.
func q4_0(block []float64, top float64) {
	d, inverse := single(top/-8), 0.0
	if d != 0 {
		inverse = single(1 / d)
	}
	for i, v := range block {
		block[i] = (min(15, math.Trunc(single(single(v*inverse)+8.5))) - 8) * F16.To(d)
	}
}

// narrow computes simd.Narrow.Pack.
func narrow(block []float64, top float64) {
	top = math.Abs(top)
	bits := float16.ToF16(float32(single(top / 127)))
	if single(float64(float16.F16(bits))*127) < top {
		bits++
	}
	d, inverse := float64(float16.F16(bits)), 0.0
	if d > 0 {
		inverse = single(1 / d)
	}
	for i, v := range block {
		block[i] = math.RoundToEven(single(v*inverse)) * d
	}
}
