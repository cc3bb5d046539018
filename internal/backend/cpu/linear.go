package cpu

import (
	"unsafe"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/simd"
	"github.com/karat-run/karat/internal/tensor"
)

// activations are a value's rows rounded to 16-bit integers, kept while
// products with several weights follow each other.
type activations struct {
	node *graph.Node // whose value they are; nil for none
	q    []int16     // [rows, k]
	dx   []float32   // [rows, k/ActGroup]
	sums []float32   // [rows, k/group], for weights with minima
	of   int         // the group size of sums; 0 for none

	pool *pool
	x    []float32 // what is being rounded, rows of k
	k    int
	body func(worker, from, to int) error
}

// init makes the loop that rounds rows.
func (a *activations) init(p *pool) {
	a.pool = p
	a.body = func(_, from, to int) error {
		k, groups := a.k, a.k/simd.ActGroup
		for r := from; r < to; r++ {
			simd.Quantize(a.q[r*k:(r+1)*k], a.dx[r*groups:(r+1)*groups], a.x[r*k:(r+1)*k])
		}
		return nil
	}
}

// quantize rounds the rows of x, the value of n, unless that was the last
// thing it did.
func (a *activations) quantize(n *graph.Node, x []float32, rows, k, group int) error {
	if a.node != n || n == nil {
		a.node, a.of = n, 0
		a.q, a.dx = grow(a.q, rows*k), grow(a.dx, rows*(k/simd.ActGroup))
		a.x, a.k = x, k
		if err := a.pool.run(rows, 4, a.body); err != nil {
			return err
		}
	}
	if group != 0 && a.of != group {
		a.of, a.sums = group, grow(a.sums, rows*k/group)
		simd.GroupSums(a.sums, a.q, a.dx, group)
	}
	return nil
}

// grow is s with room for n elements.
func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// scratch is what one worker needs to read a weight row.
type scratch struct {
	row  simd.QuantRow
	f32  []float32
	u16  []uint16
	sums []float32 // a row's products with all activation rows
}

// product multiplies rows by the transpose of a weight [n, k].
type product struct {
	e        *executable
	w        *graph.Weight
	integers bool
	body     func(worker, from, to int) error

	// What is being multiplied, [rows, k], and the result, [rows, n].
	x, out []float32
	rows   int
}

func (e *executable) newProduct(w *graph.Weight) *product {
	p := &product{e: e, w: w, integers: e.integers(w.DType)}
	p.body = p.rowsOfWeight
	return p
}

// run is out = x·wᵀ; x is the value of node in, or of none.
func (p *product) run(in *graph.Node, out, x []float32, rows int) error {
	if rows == 0 {
		return nil // behind Rows, in a step that wants no logits: read no weights
	}
	p.out, p.x, p.rows = out, x, rows
	if p.integers {
		if err := p.e.x.quantize(in, x, rows, p.w.Shape.Last(), sumGroup(p.w.DType)); err != nil {
			return err
		}
	}
	return p.e.b.pool.run(p.w.Rows(), 16, p.body)
}

// rowsOfWeight multiplies all rows by some of the weight's.
func (p *product) rowsOfWeight(worker, from, to int) error {
	k, n := p.w.Shape.Last(), p.w.Rows()
	s := &p.e.scratch[worker]
	s.sums = grow(s.sums, p.rows)
	for i := from; i < to; i++ {
		var err error
		if p.integers {
			err = s.productQ(s.sums, p.w.DType, p.w.Row(i), k, &p.e.x)
		} else {
			err = s.product(s.sums, p.w.DType, p.w.Row(i), k, p.x)
		}
		if err != nil {
			return err
		}
		for r, v := range s.sums {
			p.out[r*n+i] = v
		}
	}
	return nil
}

// integers reports whether products with weights of type d are of integers.
func (e *executable) integers(d tensor.DType) bool {
	return e.b.o.Precision == Fast && d.Quantized()
}

// sumGroup is the size of the groups whose sums weights of type d need; 0 for none.
func sumGroup(d tensor.DType) int {
	if quant.HasMin(d) {
		return quant.GroupSize(d)
	}
	return 0
}

// productQ sets dst[r] to the product of a quantized weight row with row r of a.
func (s *scratch) productQ(dst []float32, d tensor.DType, row []byte, k int, a *activations) error {
	groups := k / quant.GroupSize(d)
	s.row.Group = quant.GroupSize(d)
	s.row.Q, s.row.Scale = grow(s.row.Q, k), grow(s.row.Scale, groups)
	s.row.Min = nil
	var sums []float32
	if quant.HasMin(d) {
		s.f32 = grow(s.f32, groups)
		s.row.Min, sums = s.f32, a.sums
	}
	if err := quant.Unpack(d, s.row.Q, s.row.Scale, s.row.Min, row); err != nil {
		return err
	}
	simd.DotRowsQ(dst, &s.row, a.q, a.dx, sums)
	return nil
}

// product sets dst[r] to the product of a weight row with row r of x [len(dst), k].
func (s *scratch) product(dst []float32, d tensor.DType, row []byte, k int, x []float32) error {
	x = x[:len(dst)*k]
	switch d {
	case tensor.F16:
		simd.DotRowsF16(dst, s.words(row), x)
		return nil
	case tensor.BF16:
		simd.DotRowsBF16(dst, s.words(row), x)
		return nil
	}
	s.f32 = grow(s.f32, k)
	if err := quant.Dequantize(d, s.f32, row); err != nil {
		return err
	}
	simd.DotRowsF32(dst, s.f32, x)
	return nil
}

// littleEndian is the order of the machine's bytes.
var littleEndian = func() bool {
	x := uint16(1)
	return *(*byte)(unsafe.Pointer(&x)) == 1
}()

// words is b as 16-bit numbers: in place where order and alignment allow.
func (s *scratch) words(b []byte) []uint16 {
	n := len(b) / 2
	if n > 0 && littleEndian && uintptr(unsafe.Pointer(&b[0]))%2 == 0 {
		return unsafe.Slice((*uint16)(unsafe.Pointer(&b[0])), n) // n*2 <= len(b)
	}
	s.u16 = grow(s.u16, n)
	for i := range s.u16 {
		s.u16[i] = uint16(b[2*i]) | uint16(b[2*i+1])<<8
	}
	return s.u16
}
