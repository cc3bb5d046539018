package simd

import "encoding/binary"

// StoredColumns is the number of columns of a stored chunk.
const StoredColumns = 256

// Codes says which planes a unit of codes has.
type Codes uint8

const (
	Codes4     Codes = iota // four bits
	CodesTable              // likewise, which stand for the entries of a table
	Codes41                 // four bits and one
	Codes42                 // four bits and two
	Codes8                  // eight bits
	Codes2                  // two bits
	Codes21                 // two bits and one
)

// Stored is how the chunks of a panel lie in memory: Scales bytes, and then the
// planes of StoredColumns/32 units.
type Stored struct {
	Codes Codes
	Table *[16]byte // of CodesTable
	Group int       // 32; 16 with Codes42

	// If Bytes is set, scales are D [PanelRows], Min [PanelRows] where there are
	// minima, and then bytes [groups][PanelRows] that multiply D, and Min likewise.
	// Else they are D [groups][PanelRows] and Min. All but the bytes are binary16.
	Bytes, Min bool

	Scales, Chunk int // bytes: of the scales, and of all
}

// HasRow reports whether AddRow is faster than unpacking for AddPanel.
func (s *Stored) HasRow() bool { return s != nil && tier >= avx2 }

// RowPlaces is at how many places AddRow does best.
const RowPlaces = 4

// AddRow is AddPanel for one row and the whole chunks of panels, which are not unpacked
// to memory. Of one place alone a core reads less than memory gives, so there are
// several, gap bytes apart: at each n panels that begin so many bytes behind each
// other. acc is [place][n][PanelRows], and x has as many columns as a panel.
func AddRow(acc []float32, data []byte, n, panel, gap int, s *Stored, x *Acts) {
	panels, chunks := len(acc)/PanelRows, len(x.Q)/StoredColumns
	if tier < avx2 || panels == 0 || chunks == 0 {
		addPanelsGeneric(acc, data, n, panel, gap, s, x)
		return
	}
	for i := range n {
		addRowPlaces(acc[i*PanelRows:], data[i*panel:], 4*n*PanelRows, gap, panels/n, chunks, s, x)
	}
}

// addRowPlaces is AddRow for a panel at each of so many places, and their sums, so many
// bytes apart.
func addRowPlaces(acc []float32, data []byte, sumgap, gap, places, chunks int, s *Stored, x *Acts) {
	groups := chunks * StoredColumns / s.Group
	acc, data = acc[:(places-1)*sumgap/4+PanelRows], data[:(places-1)*gap+chunks*s.Chunk]
	q, dx := &x.Q[:chunks*StoredColumns][0], &x.DX[:chunks*StoredColumns/ActGroup][0]
	var init *int32
	if x.Init != nil {
		init = &x.Init[:groups][0]
	}
	var sums *float32
	if s.Min {
		sums = &x.Sums[:groups][0]
	}
	group := 2 * PanelRows
	if s.Bytes {
		group = PanelRows
	}
	addRowVec(&acc[0], &data[0], q, dx, init, sums, chunks, s.Scales, s.Chunk, group, s.Table, gap, sumgap, places*gap, int(s.Codes))
}

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
		unpackGeneric(w.Codes, from[s.Scales:s.Chunk], s.Codes, s.Table)
		a := x.chunk(c, s.Group)
		addPanelGeneric(acc[:PanelRows], &w, &a)
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
