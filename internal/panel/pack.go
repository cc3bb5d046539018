package panel

import (
	"encoding/binary"
	"fmt"

	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/simd"
	"github.com/karat-run/karat/internal/tensor"
)

// Pack fills panel p from its rows as the file has them, of which the last one may
// have fewer. Panels may be packed by several goroutines at once.
func (w *Weight) Pack(p int, rows []byte) error {
	rowBytes := w.DType.RowBytes(w.K)
	if p < 0 || p >= w.Panels() || len(rows) != min(Rows, w.N-p*Rows)*rowBytes {
		return fmt.Errorf("panel: %v [%d, %d]: panel %d of %d bytes", w.DType, w.N, w.K, p, len(rows))
	}
	if len(rows) < Rows*rowBytes { // the last panel is filled up with zeros
		rows = append(make([]byte, 0, Rows*rowBytes), rows...)[:Rows*rowBytes]
	}
	for c := range w.Chunks() {
		data, k := w.chunk(p, c)
		w.packScales(data, k, rows, rowBytes)
		data = data[scaleBytes(w.DType, k):]
		for ; k > 0; k -= lineSize {
			n := min(k, lineSize)
			if err := w.packCodes(data[:n/32*w.unit], n, rows, rowBytes); err != nil {
				return err
			}
			data, rows = data[n/32*w.unit:], rows[w.DType.RowBytes(n):]
		}
	}
	return nil
}

// lineSize is the number of columns that are packed at once.
const lineSize = 256

// lines are codes row by row: of each unit the four bytes of every vector of
// its planes, in order.
type lines [Rows][lineSize]byte

// packCodes packs the first k columns of rows, which begin rowBytes apart.
func (w *Weight) packCodes(units []byte, k int, rows []byte, rowBytes int) error {
	const high = 16 * Rows // where the plane after that of four bits is
	size := w.DType.BlockBytes()
	switch w.DType {
	case tensor.Q4_0, tensor.Q4_1, tensor.IQ4_NL, tensor.MXFP4: // whose blocks end in what a line is
		simd.Weave(units, rows[size-16:], rowBytes, k/32, size, w.unit, 0)
	case tensor.IQ4_XS:
		simd.Weave(units, rows[size-128:], rowBytes, k/32, 16, w.unit, 0)
	case tensor.Q8_0:
		weave8(units, k, rows, rowBytes)
	case tensor.Q4_K:
		simd.WeaveHalves(units, rows[size-128:], rowBytes, 4, 32, 2*w.unit, w.unit)
	case tensor.Q5_K:
		simd.WeaveHalves(units, rows[size-128:], rowBytes, 4, 32, 2*w.unit, w.unit)
		simd.WeaveBits(units[high:], rows[16:], rowBytes, w.unit, false)
	case tensor.Q6_K:
		for n := 0; n < 8; n += 4 {
			simd.WeaveHalves(units[n*w.unit:], rows[16*n:], rowBytes, 2, 32, w.unit, 2*w.unit)
			simd.WeaveBits(units[n*w.unit+high:], rows[128+8*n:], rowBytes, w.unit, true)
		}
	default:
		return w.packLines(units, k, rows, rowBytes)
	}
	return nil
}

// weave8 is packCodes for Q8_0.
func weave8(units []byte, k int, rows []byte, rowBytes int) {
	const block, unit = simd.BlockWeights + 2, simd.UnitSize
	simd.Weave(units, rows[2:], rowBytes, k/32, block, unit, 128)
	simd.Weave(units[unit/2:], rows[18:], rowBytes, k/32, block, unit, 128)
}

// packLines is packCodes for types whose codes are put together differently.
func (w *Weight) packLines(units []byte, k int, rows []byte, rowBytes int) error {
	var l lines
	var codes [lineSize]byte
	for r := range Rows {
		if err := quant.Codes(w.DType, codes[:k], rows[r*rowBytes:][:w.DType.RowBytes(k)]); err != nil {
			return err
		}
		for at := range k / 32 {
			w.planes.put(l[r][at*w.unit/Rows:], codes[32*at:])
		}
	}
	l.weave(units)
	return nil
}

// weave writes vectors, each of which has four bytes of every line.
func (l *lines) weave(dst []byte) {
	for v := 0; v < len(dst)/(8*Rows); v++ {
		a, b := dst[8*Rows*v:][:4*Rows], dst[8*Rows*v+4*Rows:][:4*Rows]
		for r := 0; r < Rows; r += 2 {
			x, y := load8(l[r][8*v:]), load8(l[r+1][8*v:])
			binary.LittleEndian.PutUint64(a[4*r:], x&(1<<32-1)|y<<32)
			binary.LittleEndian.PutUint64(b[4*r:], x>>32|y&^(1<<32-1))
		}
	}
	if at := len(dst) &^ (8*Rows - 1); at < len(dst) { // an odd vector
		for r := range l {
			copy(dst[at+4*r:at+4*r+4], l[r][at/Rows:])
		}
	}
}

// each4, each2 and each1 are the lowest bits of every byte.
const (
	each4 = 0x0f0f0f0f0f0f0f0f
	each2 = 0x0303030303030303
	each1 = 0x0101010101010101
)

// put2 writes the plane of two bits that begin at bit low of 32 bytes.
func put2(line []byte, o *[4]uint64, low int) {
	v := o[0]>>low&each2 | o[1]>>low&each2<<2 | o[2]>>low&each2<<4 | o[3]>>low&each2<<6
	binary.LittleEndian.PutUint64(line, v)
}

// put1 writes the plane of bit low of 32 bytes.
func put1(line []byte, o *[4]uint64, low int) {
	v := o[0]>>low&each1 | o[1]>>low&each1<<2 | o[2]>>low&each1<<4 | o[3]>>low&each1<<6
	binary.LittleEndian.PutUint32(line, uint32(v)|uint32(v>>32)<<1)
}

func load8(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// put writes a unit of 32 codes to a line.
func (p *planes) put(line, codes []byte) {
	codes = codes[:32]
	var o [4]uint64 // of two vectors each
	for j := range o {
		o[j] = load8(codes[8*j:])
	}
	low := 0
	if p.four {
		binary.LittleEndian.PutUint64(line, o[0]&each4|o[2]&each4<<4)
		binary.LittleEndian.PutUint64(line[8:], o[1]&each4|o[3]&each4<<4)
		line, low = line[16:], 4
	}
	if p.two {
		put2(line, &o, low)
		line, low = line[8:], low+2
	}
	if p.one {
		put1(line, &o, low)
	}
}

// packScales packs the scales of the first k columns of rows, which begin
// rowBytes apart.
func (w *Weight) packScales(chunk []byte, k int, rows []byte, rowBytes int) {
	block, size := w.DType.BlockSize(), w.DType.BlockBytes()
	if block == 32 && w.DType != tensor.MXFP4 {
		d, min, _, _ := w.scales(chunk, k)
		for r := range Rows {
			headers(d[r:], rows[r*rowBytes:], size)
			if min != nil {
				headers(min[r:], rows[r*rowBytes+2:], size)
			}
		}
		return
	}
	for b := range k / block {
		w.packHeaders(chunk, k, b, rows[b*size:], rowBytes)
	}
}

// headers copies the 16 bits that blocks of size bytes begin with.
func headers(dst []uint16, blocks []byte, size int) {
	for at, b := 0, 0; at < len(dst); at, b = at+Rows, b+size {
		dst[at] = binary.LittleEndian.Uint16(blocks[b:])
	}
}

// packHeaders puts the scales of block b, at which rows begin, into a chunk of k columns.
func (w *Weight) packHeaders(chunk []byte, k, b int, rows []byte, rowBytes int) {
	d, min, scales, mins := w.scales(chunk, k)
	d = d[b*Rows:][:Rows]
	var s, m [2][Rows]uint64 // those of 8 groups each
	var h quant.Header
	for r := range Rows {
		at := rows[r*rowBytes:][:w.DType.BlockBytes()]
		switch w.DType {
		case tensor.Q4_K, tensor.Q5_K: // h.Read takes twice as long
			h.D, h.Min = binary.LittleEndian.Uint16(at), binary.LittleEndian.Uint16(at[2:])
			s[0][r], m[0][r] = scalesK(at[4:16])
		case tensor.Q6_K:
			h.D, s[0][r], s[1][r] = binary.LittleEndian.Uint16(at[208:]), load8(at[192:]), load8(at[200:])
		default:
			h.Read(w.DType, at)
			if w.DType == tensor.Q2_K {
				for g := range h.Mins {
					h.Scales[g] |= h.Mins[g] << 4
				}
			}
			s[0][r], s[1][r] = load8(bytes(h.Scales[:8])), load8(bytes(h.Scales[8:]))
		}
		d[r] = h.D
		if min != nil {
			min[b*Rows+r] = h.Min ^ 1<<15
		}
	}
	groups := w.DType.BlockSize() / w.Group()
	if scales != nil {
		simd.WeaveBytes(bytes(scales[b*groups*Rows:][:groups*Rows]), &s)
	}
	if mins != nil {
		simd.WeaveBytes(bytes(mins[b*groups*Rows:][:groups*Rows]), &m)
	}
}

// scalesK is 8 scales and 8 minima of six bits, as quant's headerK has them.
func scalesK(b []byte) (scales, mins uint64) {
	a, c, high := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:])
	scales = uint64(a&0x3f3f3f3f) | uint64(high&0x0f0f0f0f|a>>6&0x03030303<<4)<<32
	mins = uint64(c&0x3f3f3f3f) | uint64(high>>4&0x0f0f0f0f|c>>6&0x03030303<<4)<<32
	return scales, mins
}
