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
	for c := range w.Chunks() {
		data, k := w.chunk(p, c)
		size := w.DType.RowBytes(k)
		for r := range min(Rows, w.N-p*Rows) {
			at := (p*Rows+r)*rowBytes + c*w.DType.RowBytes(Chunk)
			if err := w.packRow(data, r, k, rows[at:at+size]); err != nil {
				return err
			}
		}
	}
	return nil
}

// packRow puts k columns of a row into row r of a chunk.
func (w *Weight) packRow(chunk []byte, r, k int, row []byte) error {
	var buf [Chunk]byte
	codes := buf[:k]
	if err := quant.Codes(w.DType, codes, row); err != nil {
		return err
	}
	w.packScales(chunk, r, k, row)
	chunk = chunk[scaleBytes(w.DType, k):]
	for u := 0; u < k; u += 32 {
		w.planes.put(chunk[u/32*w.unit+4*r:], codes[u:])
	}
	return nil
}

// packScales puts the scales of k columns of a row into row r of those of a chunk.
func (w *Weight) packScales(chunk []byte, r, k int, row []byte) {
	d, min, scales, mins := w.scales(chunk, k)
	var h quant.Header
	block := w.DType.BlockSize()
	for b := range k / block {
		h.Read(w.DType, row[b*w.DType.BlockBytes():])
		d[b*Rows+r] = h.D
		if block > 32 {
			h.Min ^= 1 << 15
		}
		if min != nil {
			min[b*Rows+r] = h.Min
		}
		for g := range len(scales) / Rows {
			scales[g*Rows+r] = h.Scales[g]
			if w.DType == tensor.Q2_K {
				scales[g*Rows+r] |= h.Mins[g] << 4
			}
		}
		for g := range len(mins) / Rows {
			mins[g*Rows+r] = h.Mins[g]
		}
	}
}

// put writes the 32 codes of one row, four of them at the start of every vector
// of the unit's planes.
func (p *planes) put(unit, codes []byte) {
	const vector = 4 * Rows
	codes = codes[:32]
	if p.eight {
		unit = unit[:7*vector+4]
		for j := range 8 {
			copy(unit[j*vector:j*vector+4], codes[4*j:])
		}
		return
	}
	var o [8]uint32
	for j := range o {
		o[j] = binary.LittleEndian.Uint32(codes[4*j:])
	}
	at, low := 0, 0
	if p.four {
		const mask = 0x0f0f0f0f
		for i := range 4 {
			binary.LittleEndian.PutUint32(unit[i*vector:], o[i]&mask|o[i+4]&mask<<4)
		}
		at, low = 4*vector, 4
	}
	if p.two {
		const mask = 0x03030303
		for i := range 2 {
			v := o[i]>>low&mask | o[i+2]>>low&mask<<2 | o[i+4]>>low&mask<<4 | o[i+6]>>low&mask<<6
			binary.LittleEndian.PutUint32(unit[at+i*vector:], v)
		}
		at, low = at+2*vector, low+2
	}
	if p.one {
		var v uint32
		for j := range o {
			v |= o[j] >> low & 0x01010101 << j
		}
		binary.LittleEndian.PutUint32(unit[at:], v)
	}
}
