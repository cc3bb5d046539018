package simd

import "encoding/binary"

func addPanelsGeneric(acc []float32, data []byte, n, panel, gap int, s *Stored, x *Acts) {
	for i := range len(acc) / PanelRows {
		addRowGeneric(acc[i*PanelRows:], data[i/n*gap+i%n*panel:][:len(x.Q)/StoredColumns*s.Chunk], s, x)
	}
}

// addRowGeneric is addPanelsGeneric for one panel.
func addRowGeneric(acc []float32, data []byte, s *Stored, x *Acts) {
	groups := StoredColumns / s.Group
	w := Panel{Codes: make([]byte, StoredColumns*PanelRows), Scale: make([]float32, groups*PanelRows), Group: s.Group}
	if s.Min {
		w.Min = make([]float32, len(w.Scale))
	}
	for c := range len(data) / s.Chunk {
		from := data[c*s.Chunk:]
		s.scales(&w, from)
		s.codes(w.Codes, from[s.Scales:s.Chunk])
		a := Acts{Q: x.Q[c*StoredColumns:][:StoredColumns], DX: x.DX[c*StoredColumns/ActGroup:]}
		if x.Init != nil {
			a.Init = x.Init[c*groups:]
		}
		if s.Min {
			a.Sums = x.Sums[c*groups:]
		}
		addPanelGeneric(acc[:PanelRows], &w, &a)
	}
}

// codes unpacks a chunk's planes.
func (s *Stored) codes(dst, src []byte) {
	switch s.Codes {
	case Codes8:
		copy(dst, src)
	case CodesTable:
		unpackTableGeneric(dst, src, s.Table)
	default:
		unpackGeneric(dst, src, true, s.Codes == Codes42, s.Codes == Codes41)
	}
}

// scales makes a chunk's scales and minima.
func (s *Stored) scales(w *Panel, src []byte) {
	halves := func(n int) []uint16 {
		h := make([]uint16, n)
		for i := range h {
			h[i] = binary.NativeEndian.Uint16(src) // as package panel writes them
			src = src[2:]
		}
		return h
	}
	if !s.Bytes {
		loadF16Generic(w.Scale, halves(len(w.Scale)))
		loadF16Generic(w.Min, halves(len(w.Min)))
		return
	}
	d, min := halves(PanelRows), halves(len(w.Min)/len(w.Scale)*PanelRows)
	for _, dst := range []struct {
		f []float32
		d []uint16
	}{{w.Scale, d}, {w.Min, min}} {
		factors := make([]int8, len(dst.f))
		for i := range factors {
			factors[i] = int8(src[i])
		}
		panelScalesGeneric(dst.f, dst.d, factors)
		src = src[len(factors):]
	}
}
