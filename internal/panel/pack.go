package panel

import (
	"encoding/binary"
	"fmt"

	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/tensor"
)

// Pack fills panel p from the weight's rows as the file has them. Panels may be
// packed by several goroutines at once.
func (w *Weight) Pack(p int, rows []byte) error {
	rowBytes := w.DType.RowBytes(w.K)
	if len(rows) != w.N*rowBytes || p < 0 || p >= w.Panels() {
		return fmt.Errorf("panel: %v [%d, %d]: panel %d of %d bytes", w.DType, w.N, w.K, p, len(rows))
	}
	rows = rows[p*Rows*rowBytes : min((p+1)*Rows, w.N)*rowBytes]
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
	var l lines
	size := w.DType.RowBytes(k)
	for r := range count(rows, rowBytes) {
		if err := w.flatten(l[r][:k], rows[r*rowBytes:][:size]); err != nil {
			return err
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

// flatten makes a line of the codes of len(dst) columns of a row.
func (w *Weight) flatten(dst, row []byte) error {
	block, size := w.DType.BlockSize(), w.DType.BlockBytes()
	switch w.DType {
	case tensor.Q4_0, tensor.Q4_1, tensor.IQ4_NL, tensor.IQ4_XS, tensor.MXFP4: // whose blocks end in what a line is
		for skip := size - block/2; len(row) >= size; row = row[size:] {
			for codes := row[skip:size]; len(codes) >= 16 && len(dst) >= 16; codes, dst = codes[16:], dst[16:] {
				binary.LittleEndian.PutUint64(dst, load8(codes))
				binary.LittleEndian.PutUint64(dst[8:], load8(codes[8:]))
			}
		}
		return nil
	case tensor.Q4_K, tensor.Q5_K, tensor.Q6_K:
		for ; len(row) >= size; row = row[size:] {
			w.flattenK(dst, row[:size])
			dst = dst[block/32*w.unit/Rows:]
		}
		return nil
	case tensor.Q8_0:
		return quant.Codes(w.DType, dst, row)
	}
	var buf [lineSize]byte
	codes := buf[:len(dst)]
	if err := quant.Codes(w.DType, codes, row); err != nil {
		return err
	}
	for ; len(codes) > 0; codes = codes[32:] {
		w.planes.put(dst, codes)
		dst = dst[w.unit/Rows:]
	}
	return nil
}

// each4, each2 and each1 are the lowest bits of every byte.
const (
	each4 = 0x0f0f0f0f0f0f0f0f
	each2 = 0x0303030303030303
	each1 = 0x0101010101010101
)

// flattenK makes a line of a block of 256 as quant's codesQ4_K, codesQ5_K and
// codesQ6_K have it, planes from planes: half the time that codes take between.
func (w *Weight) flattenK(dst, b []byte) {
	var at [8][]byte // the units
	for u := range at {
		at[u] = dst[u*w.unit/Rows:]
	}
	switch w.DType {
	case tensor.Q4_K, tensor.Q5_K:
		for n, qs := 0, b[len(b)-128:]; n < 4; n++ {
			halves(at[2*n], at[2*n+1], qs[32*n:])
		}
		if w.planes.one {
			high := [4]uint64{load8(b[16:]), load8(b[24:]), load8(b[32:]), load8(b[40:])}
			for u, line := range at {
				put1(line[16:], &high, u)
			}
		}
	case tensor.Q6_K:
		for n := 0; n < 8; n += 4 {
			ql, qh := b[16*n:], b[128+8*n:]
			halves(at[n], at[n+2], ql)
			halves(at[n+1], at[n+3], ql[32:])
			high := [4]uint64{load8(qh), load8(qh[8:]), load8(qh[16:]), load8(qh[24:])}
			for u, line := range at[n : n+4] {
				put2(line[16:], &high, 2*u)
			}
		}
	}
}

// halves writes the planes of two units whose codes lie in the low and in the
// high halves of 32 bytes.
func halves(low, high, qs []byte) {
	low, high, qs = low[:16], high[:16], qs[:32]
	for j := 0; j < 16; j += 8 {
		x, y := load8(qs[j:]), load8(qs[j+16:])
		binary.LittleEndian.PutUint64(low[j:], x&each4|y&each4<<4)
		binary.LittleEndian.PutUint64(high[j:], x>>4&each4|y&^each4)
	}
}

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
		for r := range count(rows, rowBytes) {
			headers(d[r:], rows[r*rowBytes:], size)
			if min != nil {
				headers(min[r:], rows[r*rowBytes+2:], size)
			}
		}
		return
	}
	for r := range count(rows, rowBytes) {
		w.packHeaders(chunk, k, r, rows[r*rowBytes:])
	}
}

// count is the number of rows, of the first of which some columns may be cut off.
func count(rows []byte, rowBytes int) int { return (len(rows) + rowBytes - 1) / rowBytes }

// headers copies the 16 bits that blocks of size bytes begin with.
func headers(dst []uint16, blocks []byte, size int) {
	for at, b := 0, 0; at < len(dst); at, b = at+Rows, b+size {
		dst[at] = binary.LittleEndian.Uint16(blocks[b:])
	}
}

// packHeaders puts the scales of k columns of a row into row r of a chunk.
func (w *Weight) packHeaders(chunk []byte, k, r int, row []byte) {
	d, min, scales, mins := w.scales(chunk, k)
	groups := w.DType.BlockSize() / w.Group() * Rows
	var h quant.Header
	for b := range k / w.DType.BlockSize() {
		h.Read(w.DType, row[b*w.DType.BlockBytes():])
		d[b*Rows+r] = h.D
		if min != nil {
			min[b*Rows+r] = h.Min ^ 1<<15
		}
		if w.DType == tensor.Q2_K {
			for g := range h.Mins {
				h.Scales[g] |= h.Mins[g] << 4
			}
		}
		if scales != nil {
			spread(scales[b*groups:][:groups], r, &h.Scales)
		}
		if mins != nil {
			spread(mins[b*groups:][:groups], r, &h.Mins)
		}
	}
}

// spread writes row r of the scales of groups.
func spread(dst []int8, r int, scales *[16]int8) {
	for g := 0; r < len(dst); g, r = g+1, r+Rows {
		dst[r] = scales[g&15]
	}
}
