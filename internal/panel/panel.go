// Package panel repacks quantized weights for the kernels of package simd: sixteen rows side by side, in
// codes and scales of about as many bytes as the file's blocks.
//
// A panel is simd.PanelRows rows; the last panel of a weight is filled up with zeros. A panel is stored in
// chunks of Chunk columns (the last may be shorter), each beginning at a multiple of 64 bytes: first its
// scales, and then the codes of its units (see simd.Panel) at the next multiple:
//
//	blocks of 32:   D [k/32][16], Min likewise if the type has minima (16 bits)
//	blocks of 256:  D [16], Min [16] if the type has minima           (16 bits)
//	                Scales [groups][16], Mins likewise                (8 bits)
//	TQ2_0, Q2_0, Q1_0: D [blocks][16]                                 (16 bits)
//	grouped types:  D [16] (16 bits), and zero points [16] (8 bits) or Min [16], for each block
//	NVFP4:          scales [groups][16], as the file has them         (8 bits)
//	TQ1_0 and types of grids: D [16] (16 bits), and the file's other bytes, four of each row in a vector
//
// as quant.Header has them, but Min of a block of 256 is negative, for additions everywhere. In Q2_K Scales
// and Mins share a byte, as in the file.
//
// A weight need not be stored so: one in place has its rows as the file has them, and
// packs a chunk at each reading. A weight of a type with fewer bytes than planes take
// (HasPlanes) is always in place: each reading unpacks the file's blocks.
//
// Files, users before the used: unpack.go, pack.go, scratch.go, panel.go (a weight), grid.go (types with grids).
package panel

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/simd"
	"github.com/karat-run/karat/internal/tensor"
)

const (
	// Rows is the number of weight rows in a panel.
	Rows = simd.PanelRows
	// Chunk is the number of columns unpacked at once.
	Chunk = simd.StoredColumns
)

// Weight is a quantized matrix [n, k] in panels, or in place.
type Weight struct {
	DType tensor.DType
	N, K  int
	file  tensor.Tensor // its rows
	data  []byte        // nil for a weight in place

	// Columns has the place of each column in the activations, nil in order. Products read activations so.
	Columns  []int
	mul, div float32 // applied to NVFP4's scales

	stored     *simd.Stored // nil if AddRow does not know the type
	codes      simd.Codes
	grid       *simd.Grid  // or nil
	woven      bool        // a panel has the file's bytes
	wide       *[64]uint16 // codes in the form of simd.WidenPlanes, or nil
	table      *[16]byte   // codes by stored value, or nil if the stored values are the codes
	unit       int         // bytes of a unit of codes
	scaleBytes int         // of a whole chunk
	chunkBytes int         // likewise, with its codes
	panelBytes int
}

// tableOf returns the integers of a type's codes plus 128.
func tableOf(d tensor.DType) *[16]byte {
	t := quant.Table(d)
	if d == tensor.NVFP4 {
		t = quant.Table(tensor.MXFP4) // the same floats
	}
	if t == nil {
		return nil
	}
	b := new([16]byte)
	for i, v := range t {
		b[i] = byte(v) + 128
	}
	return b
}

// codesOf returns the planes of a type's codes.
func codesOf(d tensor.DType) simd.Codes {
	if bits, _ := d.Groups(); bits > 0 {
		return groupedCodes[bits]
	}
	switch d {
	case tensor.Q8_0:
		return simd.Codes8
	case tensor.Q5_0, tensor.Q5_1, tensor.Q5_K:
		return simd.Codes41
	case tensor.Q6_K:
		return simd.Codes42
	case tensor.Q2_K, tensor.TQ2_0, tensor.Q2_0:
		return simd.Codes2
	case tensor.Q1_0:
		return simd.Codes1
	case tensor.NVFP4:
		return simd.CodesTable
	case tensor.Q3_K:
		return simd.Codes21
	}
	switch {
	case !HasPlanes(d), wovenBytes(d) > 0:
		return simd.Codes8
	case quant.Table(d) != nil:
		return simd.CodesTable
	}
	return simd.Codes4
}

// groupedCodes are the planes of grouped types, by the bits of codes.
var groupedCodes = []simd.Codes{2: simd.Codes2, 3: simd.Codes21, 4: simd.Codes4, 5: simd.Codes41, 6: simd.Codes42,
	8: simd.Codes8}

// HasPlanes reports whether panels can store the quantized type d.
func HasPlanes(d tensor.DType) bool {
	return d <= tensor.MXFP4 || d == tensor.NVFP4 || d >= tensor.TQ1_0 || gridOf(d) != nil
}

// hasGroups reports whether groups have scales of their own under a block's.
func hasGroups(d tensor.DType) bool {
	return d.BlockSize() == maxBlock && d != tensor.TQ2_0 && wovenBytes(d) == 0
}

// maxBlock is the number of weights in the longest block.
const maxBlock = 256

// scaleBytes returns the bytes of the scales of k columns of a panel.
func scaleBytes(d tensor.DType, k int) int {
	n := k / d.BlockSize() * Rows * 2
	if hasGroups(d) {
		n += k / quant.GroupSize(d) * Rows
	}
	switch {
	case d == tensor.NVFP4:
		n = k / quant.GroupSize(d) * Rows
	case isZeros(d):
		n += n / 2
	case d == tensor.Q2_K:
		n += k / d.BlockSize() * Rows * 2
	case quant.HasMin(d):
		n *= 2
	}
	return (n + 63) &^ 63
}

// isZeros reports whether d is a grouped type with zero points.
func isZeros(d tensor.DType) bool {
	_, zero := d.Groups()
	return zero
}

// headBytes returns the bytes of a grouped type's scales of a block in a panel.
func headBytes(d tensor.DType) int {
	if isZeros(d) {
		return 3 * Rows
	}
	return 4 * Rows
}

// isGrouped reports whether d is a grouped type.
func isGrouped(d tensor.DType) bool {
	bits, _ := d.Groups()
	return bits > 0
}

// chunkBytes returns the bytes of a chunk of k columns.
func chunkBytes(d tensor.DType, k int) int {
	if n := wovenBytes(d); n > 0 {
		return k / Chunk * n
	}
	return scaleBytes(d, k) + k/32*codesOf(d).UnitBytes()
}

// panelBytes returns the bytes of a panel of k columns.
func panelBytes(d tensor.DType, k int) int {
	return k/Chunk*chunkBytes(d, Chunk) + chunkBytes(d, k%Chunk)
}

// Size returns the number of bytes of a weight of the quantized type d in panels, or in the file for a weight
// in place. k is a multiple of d's block size.
func Size(d tensor.DType, n, k int) int {
	if !HasPlanes(d) {
		return n * d.RowBytes(k)
	}
	return (n + Rows - 1) / Rows * panelBytes(d, k)
}

// New makes a weight in place of t, [n, k] of a quantized type: t's Data stays unchanged until the weight, or
// all weights made by Move, are packed.
func New(t tensor.Tensor) (*Weight, error) { return NewCoded(tensor.Coded{Tensor: t, Mul: 1, Div: 1}) }

// NewCoded does New's work for codes behind values. Scales of NVFP4 alone may have factors.
func NewCoded(t tensor.Coded) (*Weight, error) {
	d := t.DType
	size, err := tensor.Bytes(d, t.Shape)
	if err != nil || !d.Quantized() || len(t.Shape) != 2 || t.Order == nil && t.Source == nil && len(t.Data) != size {
		return nil, fmt.Errorf("%v %v of %d bytes", d, []int(t.Shape), len(t.Data))
	}
	k := t.Shape[1]
	w := &Weight{DType: d, N: t.Shape[0], K: k, file: t.Tensor, Columns: t.Columns, mul: t.Mul, div: t.Div,
		stored: stored(d, t.Mul, t.Div), codes: codesOf(d), table: tableOf(d),
		grid: gridOf(d), woven: wovenBytes(d) > 0, unit: codesOf(d).UnitBytes(),
		scaleBytes: scaleBytes(d, Chunk), chunkBytes: chunkBytes(d, Chunk), panelBytes: panelBytes(d, k)}
	w.wide = w.wideTable()
	return w, nil
}

// Move makes a weight in data, Size bytes of zeros, whose panels are to be packed.
func (w *Weight) Move(data []byte) (*Weight, error) {
	if size := Size(w.DType, w.N, w.K); len(data) != size || !HasPlanes(w.DType) {
		return nil, fmt.Errorf("%v [%d, %d]: %d bytes, need %d", w.DType, w.N, w.K, len(data), size)
	}
	m := *w
	m.data = data
	return &m, nil
}

// InPlace reports whether w keeps the rows of the file.
func (w *Weight) InPlace() bool { return w.data == nil }

// Records reports whether kernels alone read w's panels, for simd.Record.
func Records(w *Weight) bool {
	return !w.InPlace() && (!w.woven || w.grid != nil) && (w.stored == nil || w.stored.Shared == 0)
}

// wideTable returns nil for types whose planes simd.WidenPlanes does not read.
func (w *Weight) wideTable() *[64]uint16 {
	if isZeros(w.DType) {
		return nil
	}
	switch w.codes {
	case simd.Codes8, simd.Codes2, simd.Codes21, simd.Codes1:
		return nil
	}
	t := new([64]uint16)
	for i := range t {
		code := byte(i)
		if w.codes == simd.Codes4 || w.codes == simd.CodesTable {
			code &= 15
		}
		if w.table != nil {
			code = w.table[code]
		}
		t[i] = uint16(math.Float32bits(float32(int32(code)-w.Offset())) >> 16) // exact
	}
	return t
}

// stored returns the layout of the type for simd.AddRow, nil without any. Scales of NVFP4 have factors.
func stored(d tensor.DType, mul, div float32) *simd.Stored {
	c := codesOf(d)
	if isGrouped(d) {
		return &simd.Stored{Codes: c, Group: quant.GroupSize(d), Shared: d.BlockSize() / quant.GroupSize(d),
			Min: quant.HasMin(d), Zero: isZeros(d), Scales: scaleBytes(d, Chunk), Chunk: chunkBytes(d, Chunk)}
	}
	if d == tensor.TQ2_0 || d == tensor.Q2_0 || d == tensor.Q1_0 {
		return &simd.Stored{Codes: c, Group: quant.GroupSize(d), Shared: d.BlockSize() / quant.GroupSize(d),
			Scales: scaleBytes(d, Chunk), Chunk: chunkBytes(d, Chunk)}
	}
	s := &simd.Stored{Codes: simd.CodesDigits, Group: quant.GroupSize(d), Shared: d.BlockSize() / quant.GroupSize(d),
		Offset: quant.Offset(d), Scales: 4 * Rows, Chunk: wovenBytes(d)}
	if s.Grid = gridOf(d); s.Grid != nil && s.Grid.Straight() {
		s.Codes = simd.CodesPoints
		return s
	} else if d == tensor.TQ1_0 {
		return s
	}
	if c == simd.Codes2 || c == simd.Codes21 || !HasPlanes(d) || wovenBytes(d) > 0 {
		return nil
	}
	table, offset := tableOf(d), byte(quant.Offset(d))
	if table != nil {
		offset = 128
	}
	return &simd.Stored{Codes: c, Table: table, Group: quant.GroupSize(d), Bytes: d.BlockSize() > 64,
		Brain: d == tensor.MXFP4, Small: d == tensor.NVFP4, Mul: mul, Div: div, Min: quant.HasMin(d),
		Offset: offset, Scales: scaleBytes(d, Chunk), Chunk: chunkBytes(d, Chunk)}
}

// Stored returns the layout of Whole and Woven for simd.AddRow, nil for a type unknown there.
func (w *Weight) Stored() *simd.Stored { return w.stored }

// Whole returns the chunks of Chunk columns of some panels, and all bytes in between: panels begin Bytes apart.
func (w *Weight) Whole(from, to int) []byte {
	return w.data[from*w.panelBytes:][:(to-1-from)*w.panelBytes+w.K/Chunk*w.chunkBytes]
}

// Bytes is the size of a panel.
func (w *Weight) Bytes() int { return w.panelBytes }

// Panels is the number of panels.
func (w *Weight) Panels() int { return (w.N + Rows - 1) / Rows }

// Chunks is the number of chunks in a panel.
func (w *Weight) Chunks() int { return (w.K + Chunk - 1) / Chunk }

// Group returns the number of columns sharing a scale.
func (w *Weight) Group() int { return quant.GroupSize(w.DType) }

// HasMin reports whether a minimum is added to each weight.
func (w *Weight) HasMin() bool { return quant.HasMin(w.DType) }

// Offset returns the difference from the weights' integers to their unsigned codes.
func (w *Weight) Offset() int32 {
	if w.table != nil {
		return 128
	}
	return int32(quant.Offset(w.DType))
}

// columns returns the number of columns of chunk c.
func (w *Weight) columns(c int) int { return min(Chunk, w.K-c*Chunk) }

// chunk returns the stored chunk c of panel p, and its columns.
func (w *Weight) chunk(p, c int) (data []byte, k int) {
	k = w.columns(c)
	at := p*w.panelBytes + c*w.chunkBytes
	return w.data[at:min(at+w.chunkBytes, (p+1)*w.panelBytes)], k
}

// words views b as 16-bit numbers.
func words(b []byte) []uint16 {
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*uint16)(unsafe.Pointer(&b[0])), len(b)/2)
}

// integers views b as signed bytes.
func integers(b []byte) []int8 {
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*int8)(unsafe.Pointer(&b[0])), len(b))
}

// bytes views b as unsigned bytes.
func bytes(b []int8) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(&b[0])), len(b)) }

// scales cuts the scales of a chunk of k columns into their four parts.
func (w *Weight) scales(b []byte, k int) (d, min []uint16, scales, mins []int8) {
	perBlock, perGroup := k/w.DType.BlockSize()*Rows, k/w.Group()*Rows
	if w.DType == tensor.NVFP4 {
		return nil, nil, integers(b[:perGroup]), nil
	}
	d, b = words(b[:2*perBlock]), b[2*perBlock:]
	if w.HasMin() {
		min, b = words(b[:2*perBlock]), b[2*perBlock:]
	}
	if hasGroups(w.DType) {
		scales, b = integers(b[:perGroup]), b[perGroup:]
		if w.HasMin() && w.DType != tensor.Q2_K {
			mins = integers(b[:perGroup])
		}
	}
	return d, min, scales, mins
}
