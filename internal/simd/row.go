package simd

import "encoding/binary"

// StoredColumns is the number of columns of a stored chunk.
const StoredColumns = 256

// Codes names the planes of a unit of codes.
type Codes uint8

const (
	Codes4      Codes = iota // four bits
	CodesTable               // four bits, standing for the entries of a table
	Codes41                  // four bits and one more
	Codes42                  // four bits and two
	Codes8                   // eight bits
	Codes2                   // two bits
	Codes21                  // two bits and one more
	Codes1                   // one bit, for the codes 0 and 2
	CodesDigits              // digits to the base of 3, see UnpackDigits; not of Unpack
	CodesPoints              // points of Grid, scales before them; not of Unpack
)

// Stored is how the chunks of a panel lie in memory: Scales bytes, and then the
// planes of StoredColumns/32 units.
type Stored struct {
	Codes Codes
	Table *[16]byte // of CodesTable
	Group int       // 32; 16 with Codes42 and Small

	// If Bytes is set, scales are D [PanelRows], Min [PanelRows] where there are minima, and then bytes
	// [groups][PanelRows], factors of D, and Min likewise. Else they are D [groups][PanelRows] and Min. All but the
	// bytes are binary16.
	Bytes, Min bool

	// Shared is the number of groups with the same D, for groups of 32 without Bytes: each D [PanelRows] is followed by
	// its Min, or where Zero is set by zero points, a byte for each row. A row's codes count from its zero point, and
	// Acts.Init is for an offset of 128, which AddPanel needs after Shift. 0 is D of each group, and then Min.
	Shared int
	Zero   bool

	// Brain is set where D is bfloat16, of CodesTable. Small is set for groups of 16 of CodesTable whose scales
	// [groups][PanelRows] have 8 bits as LoadE4M3 reads them, times Mul and divided by Div.
	Brain, Small bool
	Mul, Div     float32

	Offset byte // of the codes, as GroupInit takes it: 128 with a Table

	Grid *Grid // of CodesPoints, see Grid.Straight

	Scales, Chunk int // bytes: of the scales, and of all
}

// HasRow reports whether AddRow is faster than unpacking for AddPanel.
func (s *Stored) HasRow() bool {
	if s != nil && s.Codes >= CodesDigits {
		return tier >= avx512 && hasVBMI && (s.Codes == CodesDigits || gathers())
	}
	plain := s != nil && s.Codes <= Codes8 && s.Shared == 0 && (!s.Small || s.Mul == 1 && s.Div == 1)
	return s != nil && (tier >= avx2 || tier == wasm && plain)
}

// RowPlaces is at how many places AddRow does best.
const RowPlaces = 4

// AddRow does AddPanel's work for a single row and the whole chunks of panels, without unpacking to memory. From a
// single place a core reads less than memory gives, so there are several, gap bytes apart: at each, n panels, panel
// bytes apart. acc is [place][n][PanelRows], and x has as many columns as a panel.
func AddRow(acc []float32, data []byte, n, panel, gap int, s *Stored, x *Acts) {
	panels, chunks := len(acc)/PanelRows, len(x.Q)/StoredColumns
	if !s.HasRow() || panels == 0 || chunks == 0 {
		addPanelsGeneric(acc, data, n, panel, gap, s, x)
		return
	}
	for i := range n {
		addRowPlaces(acc[i*PanelRows:], data[i*panel:], 4*n*PanelRows, gap, panels/n, chunks, s, x)
	}
}

// addRowPlaces does AddRow's work for a panel at each place, gap bytes apart, with sums sumgap bytes apart.
func addRowPlaces(acc []float32, data []byte, sumgap, gap, places, chunks int, s *Stored, x *Acts) {
	groups := chunks * StoredColumns / s.Group
	acc, data = acc[:(places-1)*sumgap/4+PanelRows], data[:(places-1)*gap+chunks*s.Chunk]
	q, dx := &x.Q[:chunks*StoredColumns][0], &x.DX[:chunks*StoredColumns/ActGroup][0]
	var init *int32
	if x.Init != nil {
		init = &x.Init[:groups][0]
	}
	if s.Codes >= CodesDigits {
		step := StoredColumns / ActGroup * 4
		if init == nil {
			init, step = &new([StoredColumns / ActGroup]int32)[0], 0
		}
		if g := s.Grid; g != nil {
			first := int(g.shape.codes[0])
			addPointsAVX512(&acc[0], &data[0], q, dx, init, chunks, step, gap, sumgap, places*gap, &g.words[0], g.unit,
				first, int(g.shape.codes[8])-first)
			return
		}
		addDigitsAVX512(&acc[0], &data[0], q, dx, init, chunks, step, gap, sumgap, places*gap, &digitFields[0])
		return
	}
	var sums *float32
	if s.Min {
		sums = &x.Sums[:groups][0]
	}
	codes, group := s.form()
	table := struct {
		codes    [16]byte
		mul, div float32
	}{mul: s.Mul, div: s.Div}
	values := &table.codes
	if tier == wasm && s.Table != nil {
		values = s.Table // no memory of the stack, see Record
	} else if s.Table != nil {
		table.codes = *s.Table
	}
	addRowVec(&acc[0], &data[0], q, dx, init, sums, chunks, s.Scales, s.Chunk, group, values, gap, sumgap, places*gap,
		codes, max(s.Shared, 1)-1)
}

// form returns what kernels call the codes and the scales of a layout.
func (s *Stored) form() (codes, group int) {
	switch {
	case s.Brain:
		return rowBrain, 2 * PanelRows
	case s.Small:
		return rowSmall, PanelRows
	case s.Bytes:
		return int(s.Codes), PanelRows
	case s.Shared > 0:
		return int(s.Codes), s.head()
	}
	return int(s.Codes), 2 * PanelRows
}

// digitFields has the digits of each byte as fields of two bits: the first three in a byte, and then, 256 bytes
// further, the other two.
var digitFields = func() *[512]byte {
	t := new([512]byte)
	for i := range 256 {
		for n, x := 0, i; n < 5; n++ {
			x *= 3
			t[i+n/3*256] |= byte(x >> 8 << (2 * (n % 3)))
			x &= 255
		}
	}
	return t
}()

// Kernels of addRowVec beside codes' kernels.
const (
	rowBrain = int(Codes1) + 1 + iota
	rowSmall
)

// head returns the bytes of the scales of groups that share them.
func (s *Stored) head() int {
	switch {
	case s.Zero:
		return 3 * PanelRows
	case s.Min:
		return 4 * PanelRows
	}
	return 2 * PanelRows
}

func addPanelsGeneric(acc []float32, data []byte, n, panel, gap int, s *Stored, x *Acts) {
	for i := range len(acc) / PanelRows {
		addRowGeneric(acc[i*PanelRows:], data[i/n*gap+i%n*panel:][:len(x.Q)/StoredColumns*s.Chunk], s, x)
	}
}

// addRowGeneric does addPanelsGeneric's work for a single panel.
func addRowGeneric(acc []float32, data []byte, s *Stored, x *Acts) {
	groups := StoredColumns / s.Group
	w := Panel{Codes: make([]byte, StoredColumns*PanelRows), Scale: make([]float32, groups*PanelRows), Group: s.Group}
	if s.Min {
		w.Min = make([]float32, len(w.Scale))
	}
	for c := range len(data) / s.Chunk {
		from := data[c*s.Chunk:]
		if s.Grid == nil {
			s.scales(&w, from)
		}
		switch s.Codes {
		case CodesDigits:
			unpackDigitsGeneric(w.Codes, from[s.Scales:s.Chunk])
		case CodesPoints:
			unpackGridGeneric(w.Codes, w.Scale, from[:s.Chunk], s.Grid)
		default:
			unpackGeneric(w.Codes, from[s.Scales:s.Chunk], s.Codes, s.Table)
		}
		for g := 0; s.Zero && g < groups; g += s.Shared {
			n, zeros := s.Shared*s.Group, from[g/s.Shared*s.head()+2*PanelRows:]
			Shift(w.Codes[g*s.Group*PanelRows:][:n*PanelRows], zeros, n)
		}
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
	switch {
	case s.Brain:
		loadBF16Generic(w.Scale, halves(len(w.Scale)))
		return
	case s.Small:
		loadE4M3Generic(w.Scale, src[:len(w.Scale)])
		for i := range w.Scale {
			w.Scale[i] = float32(w.Scale[i]*s.Mul) / s.Div
		}
		return
	}
	if s.Shared > 0 {
		all := src
		for g := range len(w.Scale) / PanelRows {
			src = all[g/s.Shared*s.head():]
			loadF16Generic(w.Scale[g*PanelRows:][:PanelRows], halves(PanelRows))
			if s.Min {
				loadF16Generic(w.Min[g*PanelRows:][:PanelRows], halves(PanelRows))
			}
		}
		return
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

// HasChunks reports whether AddChunks is faster for a number of rows than AddPanel for each chunk: for codes without
// unpacking. Where HasRows holds, AddRows is faster.
func (s *Stored) HasChunks(rows int) bool {
	if tier == wasm {
		return rows > 1 && rows <= FewRows && s.HasRow()
	}
	return s.chunked() && tier >= avx512 && (rows == 4 || rows == 8)
}

// chunked reports whether kernels of AddChunks read this layout.
func (s *Stored) chunked() bool {
	return s != nil && s.Codes == Codes8 && s.Group == ActGroup && !s.Bytes && !s.Min && s.Shared == 0
}

// AddChunks does AddRow's work for several rows and for panels, panel bytes apart. acc is [panel][rows][PanelRows], and
// x has chunk after chunk: Q is [chunk][rows][StoredColumns], and the rest likewise.
func AddChunks(acc []float32, data []byte, panel int, s *Stored, x *Acts, rows int) {
	if rows <= 0 {
		return
	}
	panels, chunks := len(acc)/PanelRows/rows, len(x.Q)/rows/StoredColumns
	if !s.HasChunks(rows) || tier != wasm && x.Init == nil || panels == 0 || chunks == 0 {
		addChunksGeneric(acc, data, panel, s, x, rows)
		return
	}
	groups := rows * chunks * StoredColumns / s.Group
	q, dx, init := &x.Q[0], &x.DX[:rows*chunks*StoredColumns/ActGroup][0], (*int32)(nil)
	if x.Init != nil {
		init = &x.Init[:groups][0]
	}
	for i := range panels {
		if tier == wasm {
			var sums *float32
			if s.Min {
				sums = &x.Sums[:groups][0]
			}
			codes, group := s.form()
			addChunksVec(&acc[i*rows*PanelRows:][:rows*PanelRows][0], &data[i*panel:][:chunks*s.Chunk][0], q, dx, init,
				sums, chunks, s.Scales, s.Chunk, group, s.Table, rows, codes)
			continue
		}
		sums, codes := &acc[i*rows*PanelRows:][:rows*PanelRows][0], &data[i*panel:][:chunks*s.Chunk][0]
		if rows == 8 {
			addChunks8AVX512(sums, codes, q, dx, init, chunks, s.Scales, s.Chunk)
		} else {
			addChunks4AVX512(sums, codes, q, dx, init, chunks, s.Scales, s.Chunk)
		}
	}
}

func addChunksGeneric(acc []float32, data []byte, panel int, s *Stored, x *Acts, rows int) {
	for i := range len(acc) / PanelRows {
		for c := range len(x.Q) / rows / StoredColumns {
			a := x.chunk(c*rows+i%rows, s.Group)
			addRowGeneric(acc[i*PanelRows:], data[i/rows*panel+c*s.Chunk:][:s.Chunk], s, &a)
		}
	}
}

// chunk returns piece i, of StoredColumns columns.
func (x *Acts) chunk(i, group int) Acts {
	const n = StoredColumns
	a := Acts{Q: x.Q[i*n:][:n], DX: x.DX[i*n/ActGroup:]}
	if x.Init != nil {
		a.Init = x.Init[i*n/group:]
	}
	if x.Sums != nil {
		a.Sums = x.Sums[i*n/group:]
	}
	return a
}
