package simd

import (
	"encoding/binary"
	"unsafe"
)

// A panel is PanelRows rows of a quantized weight side by side, so that a lane of a vector register belongs to one row
// and sums run along the row in order. Its integers are unsigned codes; a format's offset enters the sum once a group,
// as Acts.Init.
//
// Codes smaller than a byte lie in planes. A unit is 32 codes of all rows: 8 vectors of 64 bytes, vector j holding
// codes 4j to 4j+3 of row 0, then of row 1, and so on. Each plane is whole vectors:
//
//	four bits  4 vectors; vector i holds the low bits of vector i of the unit in
//	           its low halves, the bits of vector i+4 in its high halves
//	two bits   2 vectors; vector i holds the bits of vector i+2c in bits 2c and 2c+1
//	one bit    1 vector, holding the bit of vector j in bit j
//
// A unit's planes follow each other, the lowest bits first.

// PanelRows is the number of rows in a panel.
const PanelRows = 16

// UnitSize is the number of codes in a unit of a panel.
const UnitSize = 32 * PanelRows

// Panel is a run of k columns of a panel, unpacked. The weight of row r at
// column c is Scale[g][r]*(code - offset) + Min[g][r], g being c/Group.
type Panel struct {
	Codes []byte    // [k/4][PanelRows][4]
	Scale []float32 // [k/Group][PanelRows]
	Min   []float32 // likewise, or nil where the format has none
	Group int       // 16 or 32
	Wide  []uint16  // for AddTiles instead of Codes, see Widen: [k/4][2][PanelRows][2]
	Next  *byte     // memory read next, to be fetched meanwhile; may be nil
	After []byte    // likewise, for AddTiles
}

// Acts are rows of quantized activations, k of each.
type Acts struct {
	Q    []int16   // [rows][k], in each four columns the order 0, 2, 1, 3
	DX   []float32 // [rows][k/ActGroup]
	Init []int32   // [rows][k/Group]: see AddPanel; nil is zeros
	Sums []float32 // [rows][k/Group], see GroupSums; unread where Panel.Min is nil
}

// AddPanel adds to acc [rows][PanelRows] the products of a panel's columns with
// rows of activations. For each group g in order
//
//	I = Init[g] + sum of Codes[c]*Q[c] over the group
//	acc = fma(float32(I)*DX, Scale[g], acc)
//	acc = fma(Sums[g], Min[g], acc)            // where Min is not nil
//
// I is exact and every partial sum fits an int32: activations are at most 32767,
// so the codes' sum is at most 32*255*32767 and Init, as GroupInit makes it, at
// most 32*128*32767. I's conversion rounds to nearest even, and so does its
// product with DX.
func AddPanel(acc []float32, w *Panel, x *Acts) {
	rows, groups := len(acc)/PanelRows, len(w.Scale)/PanelRows
	k := groups * w.Group
	if tier == generic || rows == 0 || groups == 0 || k%ActGroup != 0 || w.Group != 16 && w.Group != 32 {
		addPanelGeneric(acc, w, x)
		return
	}
	_, _, _ = w.Codes[:k*PanelRows], x.Q[:rows*k], x.DX[:rows*k/ActGroup]
	var min, sums *float32
	if w.Min != nil {
		min, sums = &w.Min[:groups*PanelRows][0], &x.Sums[:rows*groups][0]
	}
	var init *int32
	if x.Init != nil {
		init = &x.Init[:rows*groups][0]
	}
	addPanel(acc[:rows*PanelRows], w, x, min, sums, init)
}

// wideRows is the least number of rows for which codes are widened first: widening takes about as long as three rows.
const wideRows = 16

// addPanel adds the products of whole groups.
func addPanel(acc []float32, w *Panel, x *Acts, min, sums *float32, init *int32) {
	groups := len(w.Scale) / PanelRows
	k := groups * w.Group
	codes, scale, q, dx := &w.Codes[0], &w.Scale[0], &x.Q[0], &x.DX[0]
	switch {
	case tier >= avx512:
		addPanelAVX512(acc, codes, scale, min, q, dx, init, sums, w.Group, 4*groups, k/ActGroup*4, 4*groups, w.Next)
	case tier >= avx2 && len(acc) >= wideRows*PanelRows && k <= StoredColumns:
		addWide(acc, w, x, min, init, sums)
	case tier >= avx2:
		addPanelAVX2(acc, codes, scale, min, q, dx, init, sums, w.Group, 4*groups, k/ActGroup*4, 4*groups, w.Next)
	default:
		step := 4
		if init == nil {
			init, step = &noInit, 0
		}
		if tier >= sdot {
			addPanelSDOT(acc, codes, scale, min, q, dx, init, sums, w.Group, groups, step)
		} else {
			addPanelVec(acc, codes, scale, min, q, dx, init, sums, w.Group, groups, step)
		}
	}
}

var noInit int32

// addWide adds the products of addPanel, with codes widened, except for the last rows.
func addWide(acc []float32, w *Panel, x *Acts, min *float32, init *int32, sums *float32) {
	var codes [StoredColumns * PanelRows]uint16
	groups, n := len(w.Scale)/PanelRows, len(acc)/PanelRows&^3
	k := groups * w.Group
	widenCodesAVX2(&codes[0], &w.Codes[0], k/4)
	addWideAVX2(acc[:n*PanelRows], &codes[0], &w.Scale[0], min, &x.Q[0], &x.DX[0], init, sums,
		w.Group, 4*groups, k/ActGroup*4, 4*groups)
	rest := Acts{Q: x.Q[n*k:], DX: x.DX[n*k/ActGroup:]}
	if init != nil {
		rest.Init = x.Init[n*groups:]
	}
	if min != nil {
		rest.Sums = x.Sums[n*groups:]
	}
	AddPanel(acc[n*PanelRows:], w, &rest)
}

// TilePanels is the number of panels to give AddTiles at a time: the panels share the reading of the activations.
const TilePanels = 16

// AddTiles does AddPanel's work for several panels of equal shape, together through the activations: acc is
// [rows][panel][PanelRows]. Weights and activations are results of Widen and Split; Codes, Q and Init are not read, and
// offsets have been subtracted. The function is made for matrix units.
func AddTiles(acc []float32, w []*Panel, x *Acts, split []uint16) {
	if len(w) == 0 {
		return
	}
	k, group, rows := len(w[0].Scale)/PanelRows*w[0].Group, w[0].Group, len(acc)/PanelRows/len(w)
	if tier < amx || rows < 4 || k == 0 || k%ActGroup != 0 || group != 16 && group != 32 {
		addTilesGeneric(acc, w, x, split)
		return
	}
	stride := len(w) * PanelRows
	for ; len(w) > TilePanels; w = w[TilePanels:] {
		addTilesAMX(acc, stride, rows, w[:TilePanels], x, split)
		acc = acc[TilePanels*PanelRows:]
	}
	addTilesAMX(acc, stride, rows, w, x, split)
}

// HasTiles reports whether AddTiles is faster than AddPanel for a number of rows.
func HasTiles(rows int) bool { return tier >= amx && rows >= 12 }

// Split makes bfloat16 numbers of activations q, in the order of Acts.Q: for each ActGroup first the values with
// cleared low bytes, and then the low bytes, unsigned. The sums of both are q. len(dst) is 2*len(q).
func Split(dst []uint16, q []int16) {
	if tier < amx || len(q)%ActGroup != 0 {
		splitGeneric(dst, q)
		return
	}
	splitAVX512(dst[:2*len(q)], q)
}

// Widen makes bfloat16 numbers of codes less an offset of at most 128. In each vector of 64 bytes a row's four columns
// go to two: the first two in the order of Acts.Q, and the others. len(dst) is len(codes), a multiple of 64.
func Widen(dst []uint16, codes []byte, offset byte) {
	if tier < amx {
		widenGeneric(dst, codes, offset)
		return
	}
	widenAVX512(dst[:len(codes)], codes, offset)
}

// WidenPlanes unpacks and widens units of four bits and none, one or two more: each code is replaced by its entry in
// the table. Codes of four bits take the first 16 entries and the next 16, which must be equal.
func WidenPlanes(dst []uint16, src []byte, c Codes, table *[64]uint16) {
	n := len(dst) / UnitSize
	switch dst, src = dst[:n*UnitSize], src[:n*planes[c]*vector]; {
	case tier < amx:
		widenPlanesGeneric(dst, src, c, table)
	case c == Codes41:
		widen41AVX512(dst, src, table)
	case c == Codes42:
		widen42AVX512(dst, src, table)
	default:
		widen4AVX512(dst, src, table)
	}
}

// planes are the vectors of a unit.
var planes = [...]int{Codes4: 4, CodesTable: 4, Codes41: 5, Codes42: 6, Codes8: 8, Codes2: 2, Codes21: 3, Codes1: 1}

// UnitBytes returns the bytes of a unit of codes.
func (c Codes) UnitBytes() int { return planes[c] * vector }

// Unpack unpacks the units that fill dst, whole ones. A table replaces codes of CodesTable.
func Unpack(dst, src []byte, c Codes, table *[16]byte) {
	n := len(dst) / UnitSize
	dst, src = dst[:n*UnitSize], src[:n*planes[c]*vector]
	if tier == generic {
		unpackGeneric(dst, src, c, table)
		return
	}
	switch c {
	case Codes4:
		unpack4Vec(dst, src)
	case CodesTable:
		unpackTableVec(dst, src, table)
	case Codes41:
		unpack41Vec(dst, src)
	case Codes42:
		unpack42Vec(dst, src)
	case Codes2:
		unpack2Vec(dst, src)
	case Codes21:
		unpack21Vec(dst, src)
	case Codes1:
		unpack1Vec(dst, src)
	case Codes8:
		copy(dst, src)
	}
}

// Shift subtracts zero points [k/block][PanelRows] from codes of k columns, and adds 128. No result may be negative or
// above 255.
func Shift(codes, zeros []byte, block int) {
	var by [PanelRows]uint32
	for ; len(codes) > 0; zeros = zeros[PanelRows:] {
		for r, z := range zeros[:PanelRows] {
			by[r] = uint32(128-z) * 0x01010101
		}
		n := min(block/4, len(codes)/vector) * vector
		if tier >= avx2 {
			shiftAVX2(codes[:n], &by[0])
		} else {
			shiftGeneric(codes[:n], &by)
		}
		codes = codes[n:]
	}
}

func shiftGeneric(codes []byte, by *[PanelRows]uint32) {
	for i := 0; i < len(codes); i += 4 { // no byte of a sum carries
		v := codes[i : i+4]
		binary.LittleEndian.PutUint32(v, binary.LittleEndian.Uint32(v)+by[i/4%PanelRows])
	}
}

// PanelScales sets dst [groups][PanelRows] to d*scale, d [PanelRows] being
// binary16 and scale [groups][PanelRows] integers. Exact.
func PanelScales(dst []float32, d []uint16, scale []int8) {
	d, dst = d[:PanelRows], dst[:len(scale)]
	if tier > generic && len(scale)%PanelRows == 0 {
		panelScalesVec(dst, &d[0], scale)
		return
	}
	panelScalesGeneric(dst, d, scale)
}

// LoadE4M3 sets dst to half of floats of 8 bits, without their signs: 0 for the byte 127, as ggml's type NVFP4 has its
// scales. Binary16 has the bits at the same places, and a bias larger by 8.
func LoadE4M3(dst []float32, src []byte) {
	if dst = dst[:len(src)]; tier > generic && len(src)%16 == 0 {
		loadE4M3Vec(dst, src)
		return
	}
	loadE4M3Generic(dst, src)
}

// Fetch has memory to be read soon brought to the second cache.
func Fetch(b []byte) {
	if tier != generic && tier != wasm && len(b) > 0 { // machines without assembly have no instruction for it
		fetch(unsafe.Pointer(&b[0]), (len(b)+63)/64)
	}
}
