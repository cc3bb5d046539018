package panel

import (
	"encoding/binary"

	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/simd"
	"github.com/karat-run/karat/internal/tensor"
)

// Pack fills panel p. Panels may be packed by several goroutines at once, each with a Scratch.
func (w *Weight) Pack(s *Scratch, p int) {
	for c := range w.Chunks() {
		data, k := w.chunk(p, c)
		rows, stride := w.rows(s, p, c)
		w.pack(data, k, rows, stride)
	}
}

// Woven returns chunk c of panel p of a weight in place, as in a weight in panels. The chunk is in s until
// the next use of s.
func (w *Weight) Woven(s *Scratch, p, c int) []byte {
	k := w.columns(c)
	if s.woven == nil {
		s.woven = room(maxChunk)
	}
	data := s.woven[:chunkBytes(w.DType, k)]
	w.fetch(p+1, c)
	rows, stride := w.rows(s, p, c)
	w.pack(data, k, rows, stride)
	return data
}

// fetch prefetches the share of panel p's rows at chunk c: panels follow each other in a file, except in some
// types' order of rows.
func (w *Weight) fetch(p, c int) {
	bytes := Rows * w.DType.RowBytes(Chunk)
	if from := Rows*p*w.DType.RowBytes(w.K) + c*bytes; from < len(w.file.Data) {
		simd.Fetch(w.file.Data[from:min(from+bytes, len(w.file.Data))])
	}
}

// maxChunk is the bytes of the largest chunk, and maxRow the bytes of a row's part in a file.
var maxChunk, maxRow = func() (chunk, row int) {
	for _, d := range tensor.QuantizedTypes() {
		if row = max(row, d.RowBytes(Chunk)); HasPlanes(d) {
			chunk = max(chunk, chunkBytes(d, Chunk))
		}
	}
	return chunk, row
}()

// rows returns chunk c's part of panel p's rows, and the distance between rows: in place, or in s if out of
// order, decoded or fewer than Rows. Missing rows are zeros.
func (w *Weight) rows(s *Scratch, p, c int) (rows []byte, stride int) {
	from, size := w.DType.RowBytes(c*Chunk), w.DType.RowBytes(w.columns(c))
	if stride = w.DType.RowBytes(w.K); w.file.Order == nil && w.file.Source == nil && (p+1)*Rows <= w.N {
		return w.file.Data[p*Rows*stride+from:], stride
	}
	if s.rows == nil {
		s.rows = make([]byte, Rows*maxRow)
	}
	clear(s.rows)
	for r := range min(Rows, w.N-p*Rows) {
		w.file.RowPart(p*Rows+r, from, s.rows[r*size:(r+1)*size])
	}
	return s.rows, size
}

// pack packs k columns of rows, rowBytes apart.
func (w *Weight) pack(chunk []byte, k int, rows []byte, rowBytes int) {
	size := scaleBytes(w.DType, k)
	clear(chunk[size-2*Rows : size]) // may be padding
	w.packScales(chunk, k, rows, rowBytes)
	w.packCodes(chunk[size:], k, rows, rowBytes)
}

// packCodes packs the codes of k columns.
func (w *Weight) packCodes(units []byte, k int, rows []byte, rowBytes int) {
	const four, two = 16 * Rows, 8 * Rows // bytes of a unit's planes
	size := w.DType.BlockBytes()
	if w.woven { // four words at a time, the last perhaps again
		first, words := size%4, size/4
		if w.DType == tensor.TQ1_0 {
			first = 0 // the scale is last
		}
		simd.Weave(units, rows[first:], rowBytes, words/4, 16, 16*Rows, 0)
		simd.Weave(units[4*Rows*(words-4):], rows[first+4*(words-4):], rowBytes, 1, 16, 0, 0)
		return
	}
	if isGrouped(w.DType) {
		packGrouped(w.DType, units, k, rows, rowBytes)
		return
	}
	switch w.DType {
	case tensor.Q4_0, tensor.Q4_1, tensor.IQ4_NL, tensor.MXFP4: // with a plane's codes at the end of blocks
		simd.Weave(units, rows[size-16:], rowBytes, k/32, size, w.unit, 0)
	case tensor.Q5_0, tensor.Q5_1:
		simd.Weave(units, rows[size-16:], rowBytes, k/32, size, w.unit, 0)
		for u := range k / 32 {
			packFifth(units[u*w.unit+four:], rows[u*size+size-20:], rowBytes)
		}
	case tensor.IQ4_XS:
		simd.Weave(units, rows[size-128:], rowBytes, k/32, 16, w.unit, 0)
	case tensor.Q8_0:
		simd.Weave(units, rows[2:], rowBytes, k/32, size, w.unit, 128)
		simd.Weave(units[w.unit/2:], rows[18:], rowBytes, k/32, size, w.unit, 128)
	case tensor.Q4_K:
		simd.WeaveHalves(units, rows[size-128:], rowBytes, 4, 32, 2*w.unit, w.unit)
	case tensor.Q5_K:
		simd.WeaveHalves(units, rows[size-128:], rowBytes, 4, 32, 2*w.unit, w.unit)
		simd.WeaveBits(units[four:], rows[16:], rowBytes, w.unit, false)
	case tensor.Q6_K:
		for n := 0; n < 8; n += 4 {
			simd.WeaveHalves(units[n*w.unit:], rows[16*n:], rowBytes, 2, 32, w.unit, 2*w.unit)
			simd.WeaveBits(units[n*w.unit+four:], rows[128+8*n:], rowBytes, w.unit, true)
		}
	case tensor.Q2_K:
		simd.WeaveBits(units, rows[16:], rowBytes, w.unit, true)
		simd.WeaveBits(units[4*w.unit:], rows[48:], rowBytes, w.unit, true)
	case tensor.TQ2_0:
		simd.WeaveBits(units, rows, rowBytes, w.unit, true)
		simd.WeaveBits(units[4*w.unit:], rows[32:], rowBytes, w.unit, true)
	case tensor.Q2_0:
		for u := range k / 32 {
			packFours(units[u*w.unit:], rows[u/2*size+2+u%2*8:], rowBytes)
		}
	case tensor.Q1_0:
		for u := range k / 32 {
			packFifth(units[u*w.unit:], rows[u/4*size+2+u%4*4:], rowBytes)
		}
	case tensor.NVFP4:
		packNVFP4(units, k, rows, rowBytes)
	case tensor.Q3_K:
		simd.WeaveBits(units, rows[32:], rowBytes, w.unit, true)
		simd.WeaveBits(units[4*w.unit:], rows[64:], rowBytes, w.unit, true)
		simd.WeaveBits(units[two:], rows, rowBytes, w.unit, false)
	}
}

// packGrouped packs codes of a grouped type: the planes of their low bits and of their high bits.
func packGrouped(d tensor.DType, units []byte, k int, rows []byte, rowBytes int) {
	bits, _ := d.Groups()
	low, high := quant.SplitBits(bits)
	n, size, unit, plane := d.BlockSize()/32, d.BlockBytes(), 4*bits, codesOf(d).UnitBytes()
	for b := range k / d.BlockSize() {
		rows, units := rows[b*size+quant.GroupedHeader(d):], units[b*n*plane:]
		switch low {
		case 4:
			simd.Weave(units, rows, rowBytes, n, unit, plane, 0)
		case 8:
			simd.Weave(units, rows, rowBytes, n, unit, plane, 0)
			simd.Weave(units[plane/2:], rows[16:], rowBytes, n, unit, plane, 0)
		}
		for u := range n {
			from, to := rows[u*unit:], units[u*plane:]
			if low == 2 {
				packFours(to, from, rowBytes)
			}
			switch high {
			case 1:
				packFifth(to[4*low*Rows:], from[4*low:], rowBytes)
			case 2:
				packFours(to[4*low*Rows:], from[4*low:], rowBytes)
			}
		}
	}
}

// packFours packs a unit's plane of two bits: a vector's four codes of a row, in a byte of the file, go to four bytes.
func packFours(plane, rows []byte, rowBytes int) {
	for r := range Rows {
		v := binary.LittleEndian.Uint64(rows[r*rowBytes:])
		v = exchange(v, 28, 0x00000000f0f0f0f0)
		v = exchange(v, 14, 0x0000cccc0000cccc)
		v = exchange(v, 24, 0x00000000ff00ff00)
		v = exchange(v, 8, 0x0000ff000000ff00)
		binary.LittleEndian.PutUint32(plane[4*r:], uint32(v))
		binary.LittleEndian.PutUint32(plane[4*r+4*Rows:], uint32(v>>32))
	}
}

// exchange swaps the bits of v in the mask with the bits n higher.
func exchange(v uint64, n int, mask uint64) uint64 {
	t := (v ^ v>>n) & mask
	return v ^ t ^ t<<n
}

// packNVFP4 packs codes of four bits: weights 8 apart in a byte of the file, and 16 apart in a plane.
func packNVFP4(units []byte, k int, rows []byte, rowBytes int) {
	const low = 0x0f0f0f0f0f0f0f0f
	var codes [Rows * Chunk / 2]byte
	for r := range Rows {
		for u := range k / 32 {
			qs, to := rows[r*rowBytes+u/2*36+4+u%2*16:], codes[(r*k+32*u)/2:]
			a, b := binary.LittleEndian.Uint64(qs), binary.LittleEndian.Uint64(qs[8:])
			binary.LittleEndian.PutUint64(to, a&low|b&low<<4)
			binary.LittleEndian.PutUint64(to[8:], a>>4&low|b&^low)
		}
	}
	simd.Weave(units, codes[:], k/2, k/32, 16, 4*4*Rows, 0)
}

// packFifth makes a unit's plane of one bit of 32 bits of each row, in the order of
// columns: a row's 8 x 4 bits are transposed, two rows at a time.
func packFifth(plane, rows []byte, rowBytes int) {
	for r := 0; r < Rows; r += 2 {
		v := uint64(binary.LittleEndian.Uint32(rows[r*rowBytes:])) |
			uint64(binary.LittleEndian.Uint32(rows[(r+1)*rowBytes:]))<<32
		binary.LittleEndian.PutUint64(plane[4*r:], unshuffle(unshuffle(v)))
	}
}

// unshuffle puts the even bits of each half of v before the odd ones.
func unshuffle(v uint64) uint64 {
	for i, mask := range [...]uint64{0x2222222222222222, 0x0c0c0c0c0c0c0c0c, 0x00f000f000f000f0, 0x0000ff000000ff00} {
		v = exchange(v, 1<<i, mask)
	}
	return v
}

// packScales packs the scales of k columns of rows, rowBytes apart.
func (w *Weight) packScales(chunk []byte, k int, rows []byte, rowBytes int) {
	size, blocks := w.DType.BlockBytes(), k/w.DType.BlockSize()
	if isGrouped(w.DType) {
		packHeads(w.DType, chunk, blocks, rows, rowBytes)
		return
	}
	d, min, scales, _ := w.scales(chunk, k)
	switch w.DType {
	case tensor.Q4_K, tensor.Q5_K:
		simd.WeaveScales(chunk, rows, rowBytes)
	case tensor.Q6_K:
		simd.WeaveWords(d, rows[size-2:], rowBytes, 1, size)
		simd.WeaveBytes(bytes(scales), rows[size-18:], rowBytes)
	case tensor.Q2_K:
		simd.WeaveWords(d, rows[size-4:], rowBytes, 1, size)
		simd.WeaveWords(min, rows[size-2:], rowBytes, 1, size)
		for r := range min {
			min[r] ^= 1 << 15
		}
		simd.WeaveBytes(bytes(scales), rows, rowBytes)
	case tensor.Q3_K, tensor.IQ4_XS, tensor.IQ1_M:
		w.packHeaders(d, scales, rows, rowBytes)
	case tensor.TQ1_0, tensor.TQ2_0:
		simd.WeaveWords(d, rows[size-2:], rowBytes, blocks, size)
	case tensor.NVFP4:
		for i := range len(scales) / 4 {
			r, b := i%Rows, i/Rows
			for g, v := range rows[r*rowBytes+b*size:][:4] {
				scales[(4*b+g)*Rows+r] = int8(v)
			}
		}
	case tensor.MXFP4:
		for i := range d {
			d[i] = scalesMXFP4[rows[i%Rows*rowBytes+i/Rows*size]]
		}
	default:
		simd.WeaveWords(d, rows, rowBytes, blocks, size)
		if min != nil {
			simd.WeaveWords(min, rows[2:], rowBytes, blocks, size)
		}
	}
}

// packHeads packs the scales of blocks of a grouped type, and their zero points or minima.
func packHeads(d tensor.DType, chunk []byte, blocks int, rows []byte, rowBytes int) {
	size, stride := d.BlockBytes(), headBytes(d)
	for b := range blocks {
		rows, head := rows[b*size:], chunk[b*stride:]
		simd.WeaveWords(words(head[:2*Rows]), rows, rowBytes, 1, size)
		if quant.HasMin(d) {
			simd.WeaveWords(words(head[2*Rows:4*Rows]), rows[2:], rowBytes, 1, size)
			continue
		}
		for r := range Rows {
			head[2*Rows+r] = rows[r*rowBytes+2]
		}
	}
}

// scalesMXFP4 holds quant.Header's D by the first byte of a block.
var scalesMXFP4 = func() (d [256]uint16) {
	var h quant.Header
	block := make([]byte, tensor.MXFP4.BlockBytes())
	for i := range d {
		block[0] = byte(i)
		h.Read(tensor.MXFP4, block)
		d[i] = h.D
	}
	return d
}()

// packHeaders does packScales's work for types with scales in pieces of bits.
func (w *Weight) packHeaders(d []uint16, scales []int8, rows []byte, rowBytes int) {
	var h quant.Header
	for r := range Rows {
		h.Read(w.DType, rows[r*rowBytes:][:w.DType.BlockBytes()])
		d[r] = h.D
		for g := range len(scales) / Rows {
			scales[g*Rows+r] = h.Scales[g]
		}
	}
}
