package panel

import (
	"unsafe"

	"github.com/karat-run/karat/internal/simd"
	"github.com/karat-run/karat/internal/tensor"
)

// Scratch is an unpacked chunk, and the memory for it.
type Scratch struct {
	simd.Panel
	codes, halves []byte // halves are of Q2_K's scales, or those of a weight in place
	wide          []uint16
	scale, min    []float32
}

// allocate makes the memory, each part of which begins at a multiple of 64
// bytes: a vector that lies across two lines of the cache takes two loads.
func (s *Scratch) allocate() {
	const codes, floats = Chunk * Rows, Chunk / 16 * Rows
	b := make([]byte, 63+codes+2*codes+2*floats+2*4*floats)
	b = b[-uintptr(unsafe.Pointer(&b[0]))%64:]
	s.codes, b = b[:codes], b[codes:]
	s.wide, b = words(b[:2*codes]), b[2*codes:]
	s.halves, b = b[:2*floats], b[2*floats:]
	s.scale = unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), floats)
	s.min = unsafe.Slice((*float32)(unsafe.Pointer(&b[4*floats])), floats)
}

// ahead is how many bytes before its use memory is fetched: of the distances tried,
// from 3 to 11 KB, the best for eight bits as for four.
const ahead = 6 << 10

// Unpack makes s chunk c of panel p. If tiles is set it has what simd.AddTiles
// reads, else what simd.AddPanel does: codes that are what Offset says larger than
// the weights' integers.
func (w *Weight) Unpack(s *Scratch, p, c int, tiles bool) {
	src := w.open(s, p, c)
	n := len(s.Scale) * s.Group
	if !tiles || w.wide == nil {
		s.Codes = s.codes[:n]
		w.unpackCodes(s, src)
	}
	if !tiles {
		return
	}
	s.Wide, s.After = s.wide[:n], nil
	if c+1 < w.Chunks() && w.rows == nil {
		s.After, _ = w.chunk(p, c+1)
	}
	if w.wide != nil {
		simd.WidenPlanes(s.Wide, src, w.planes.codes(), w.wide)
	} else {
		simd.Widen(s.Wide, s.Codes, byte(w.Offset()))
	}
}

// open makes s chunk c of panel p but for the codes, and returns their planes.
func (w *Weight) open(s *Scratch, p, c int) []byte {
	if s.codes == nil {
		s.allocate()
	}
	s.Group = w.Group()
	if w.rows != nil {
		return w.weaveChunk(s, p, c)
	}
	data, k := w.chunk(p, c)
	size := w.scaleBytes
	if k < Chunk {
		size = scaleBytes(w.DType, k)
	}
	s.Next = &w.data[min(p*w.panelBytes+c*w.chunkBytes+ahead, len(w.data)-1)]
	w.unpackScales(s, data[:size], k)
	return data[size:]
}

// weaveChunk is open for a weight in place.
func (w *Weight) weaveChunk(s *Scratch, p, c int) []byte {
	stride, bytes := w.DType.RowBytes(w.K), w.DType.RowBytes(Chunk)
	rows := w.rows[p*Rows*stride+c*bytes:]
	s.Next = &w.rows[min((p+1)*Rows*stride+c*Rows*bytes, len(w.rows)-1)] // panels lie behind each other, if not chunks
	w.packScales(s.halves, Chunk, rows, stride)
	w.unpackScales(s, s.halves, Chunk)
	weave8(s.codes, Chunk, rows, stride)
	return s.codes
}

func (w *Weight) unpackCodes(s *Scratch, src []byte) {
	switch p := &w.planes; {
	case p.eight:
		s.Codes = src
	case w.table != nil:
		simd.UnpackTable(s.Codes, src, w.table)
	case p.four && p.two:
		simd.Unpack42(s.Codes, src)
	case p.four && p.one:
		simd.Unpack41(s.Codes, src)
	case p.four:
		simd.Unpack4(s.Codes, src)
	case p.one:
		simd.Unpack21(s.Codes, src)
	default:
		simd.Unpack2(s.Codes, src)
	}
}

func (w *Weight) unpackScales(s *Scratch, src []byte, k int) {
	d, min, scales, mins := w.scales(src, k)
	s.Scale, s.Min = s.scale[:k/s.Group*Rows], nil
	if min != nil {
		s.Min = s.min[:k/s.Group*Rows]
	}
	switch {
	case w.DType == tensor.Q2_K:
		simd.Unpack4(s.halves, bytes(scales))
		simd.PanelScales(s.Scale, d, integers(s.halves[:len(scales)]))
		simd.PanelScales(s.Min, min, integers(s.halves[len(scales):]))
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
