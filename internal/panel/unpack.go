package panel

import (
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/simd"
	"github.com/karat-run/karat/internal/tensor"
)

// ahead is how many bytes before its use memory is fetched: of the distances tried,
// from 3 to 11 KB, the best for eight bits as for four.
const ahead = 6 << 10

// Unpack makes s chunk c of panel p. With tiles, s has the codes for simd.AddTiles, otherwise for
// simd.AddPanel: codes larger than the weights' integers by Offset.
func (w *Weight) Unpack(s *Scratch, p, c int, tiles bool) {
	src := w.open(s, p, c)
	n := len(s.Scale) * s.Group
	if !tiles || w.wide == nil {
		if s.Codes = src; w.codes != simd.Codes8 || isZeros(w.DType) {
			s.Codes = s.codes[:n]
			simd.Unpack(s.Codes, src, w.codes, w.table)
		}
		if isZeros(w.DType) {
			simd.Shift(s.Codes, s.zeros[:], w.DType.BlockSize())
		}
	}
	if !tiles {
		return
	}
	s.Wide, s.After = s.wide[:n], nil
	if c+1 < w.Chunks() && !w.InPlace() {
		s.After, _ = w.chunk(p, c+1)
	}
	if w.wide != nil {
		simd.WidenPlanes(s.Wide, src, w.codes, w.wide)
	} else {
		simd.Widen(s.Wide, s.Codes, byte(w.Offset()))
	}
}

// open fills s with the scales of chunk c of panel p, and returns the planes of its codes.
func (w *Weight) open(s *Scratch, p, c int) []byte {
	if s.codes == nil {
		s.allocate()
	}
	s.Group = w.Group()
	var data []byte
	k := w.columns(c)
	if !HasPlanes(w.DType) {
		s.decode(w, p, c)
		return s.codes[:k*Rows]
	}
	if w.InPlace() {
		data, s.Next = w.Woven(s, p, c), nil
	} else {
		data, _ = w.chunk(p, c)
		s.Next = &w.data[min(p*w.panelBytes+c*w.chunkBytes+ahead, len(w.data)-1)]
	}
	if w.woven {
		s.unpackWoven(w, data)
		return s.codes
	}
	size := w.scaleBytes
	if k < Chunk {
		size = scaleBytes(w.DType, k)
	}
	w.unpackScales(s, data[:size], k)
	return data[size:]
}

// decode reads chunk c of panel p of a weight without planes from the file's blocks.
func (s *Scratch) decode(w *Weight, p, c int) {
	if s.woven == nil {
		s.woven = room(maxChunk)
	}
	w.fetch(p+1, c)
	k := w.columns(c)
	rows, stride := w.rows(s, p, c)
	s.Scale, s.Min, s.Next = s.scale[:k/s.Group*Rows], nil, nil
	for r := range Rows {
		quant.Unpack(w.DType, s.woven[r*k:(r+1)*k], s.Scale[r:], Rows, rows[r*stride:][:w.DType.RowBytes(k)])
	}
	simd.Weave(s.codes, s.woven, k, k/32, 32, simd.UnitSize, 0)
	simd.Weave(s.codes[simd.UnitSize/2:], s.woven[16:], k, k/32, 32, simd.UnitSize, 0)
}

// unpackWoven makes s the block of a panel with the file's bytes.
func (s *Scratch) unpackWoven(w *Weight, block []byte) {
	s.Scale, s.Min = s.scale[:Chunk/s.Group*Rows], nil
	if w.grid != nil {
		simd.UnpackGrid(s.codes, s.Scale, block, w.grid)
		return
	}
	simd.UnpackDigits(s.codes, block[4*Rows:])
	simd.LoadF16(s.Scale[:Rows], words(block[:2*Rows]))
	for n := Rows; n < len(s.Scale); n *= 2 {
		copy(s.Scale[n:], s.Scale[:n])
	}
}

func (w *Weight) unpackScales(s *Scratch, src []byte, k int) {
	if isGrouped(w.DType) {
		s.unpackHeads(w.DType, src, k)
		return
	}
	d, min, scales, mins := w.scales(src, k)
	s.Scale, s.Min = s.scale[:k/s.Group*Rows], nil
	if min != nil {
		s.Min = s.min[:k/s.Group*Rows]
	}
	switch {
	case w.DType == tensor.Q2_K:
		simd.Unpack(s.halves, bytes(scales), simd.Codes4, nil)
		simd.PanelScales(s.Scale, d, integers(s.halves[:len(scales)]))
		simd.PanelScales(s.Min, min, integers(s.halves[len(scales):]))
	case w.DType == tensor.NVFP4:
		if simd.LoadE4M3(s.Scale, bytes(scales)); w.mul != 1 || w.div != 1 {
			simd.Scale(s.Scale, s.Scale, w.mul)
			simd.Divide(s.Scale, s.Scale, w.div)
		}
	case w.DType == tensor.TQ2_0 || w.DType == tensor.Q2_0 || w.DType == tensor.Q1_0:
		var each [Chunk / 64 * Rows]float32
		simd.LoadF16(each[:len(d)], d)
		for at := 0; at < len(s.Scale); at += Rows {
			copy(s.Scale[at:at+Rows], each[at*w.Group()/w.DType.BlockSize()/Rows*Rows:])
		}
	case scales != nil:
		simd.PanelScales(s.Scale, d, scales)
		if mins != nil {
			simd.PanelScales(s.Min, min, mins)
		}
	case w.DType == tensor.MXFP4:
		simd.LoadBF16(s.Scale, d)
	default:
		simd.LoadF16(s.Scale, d)
		simd.LoadF16(s.Min, min)
	}
}

// unpackHeads unpacks the scales of a grouped type for each 32 columns, and zero points as they are stored.
func (s *Scratch) unpackHeads(d tensor.DType, src []byte, k int) {
	n := d.BlockSize() / s.Group * Rows
	s.Scale, s.Min = s.scale[:k/s.Group*Rows], nil
	if quant.HasMin(d) {
		s.Min = s.min[:len(s.Scale)]
	}
	for at := 0; at < len(s.Scale); at += n {
		head := src[at/n*headBytes(d):]
		load := func(dst []float32, head []byte) {
			simd.LoadF16(dst[:Rows], words(head[:2*Rows]))
			for i := Rows; i < n; i += Rows {
				copy(dst[i:i+Rows], dst[:Rows])
			}
		}
		if load(s.Scale[at:], head); s.Min != nil {
			load(s.Min[at:], head[2*Rows:])
		} else {
			copy(s.zeros[at/n*Rows:], head[2*Rows:3*Rows])
		}
	}
}
