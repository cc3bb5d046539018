package simd

// A panel is PanelRows rows of a quantized weight side by side, so that a lane
// of a vector register belongs to one row and sums run along the row in order.
// Its integers are unsigned codes; what a format subtracts from a code enters
// the sum once a group, as Acts.Init.
//
// Codes that take less than a byte lie in planes. A unit is 32 codes of all
// rows: 8 vectors of 64 bytes, vector j holding codes 4j to 4j+3 of row 0, then
// of row 1, and so on. Each plane is whole vectors, too:
//
//	four bits  4 vectors; vector i holds the low bits of vector i of the unit in
//	           its low halves, those of vector i+4 in its high halves
//	two bits   2 vectors; vector i holds those of vector i+2c in bits 2c and 2c+1
//	one bit    1 vector, which holds that of vector j in bit j
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
	Next  *byte     // what will be read after this, to be fetched meanwhile; may be nil
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
func AddPanel(acc []float32, w *Panel, x *Acts) { addPanel(acc, w, x) }

// TilePanels is how many panels AddTiles should be given at a time, which share
// what it costs to read the activations.
const TilePanels = 16

// AddTiles is AddPanel for several panels of one shape, which go through the
// activations together: acc is [rows][panel][PanelRows]. Weights and activations
// are as Widen and Split leave them; Codes, Q and Init are not read, and offsets
// have been subtracted. It is there for matrix units.
func AddTiles(acc []float32, w []*Panel, x *Acts, split []uint16) { addTiles(acc, w, x, split) }

// HasTiles reports whether AddTiles is faster than AddPanel for that many rows.
func HasTiles(rows int) bool { return hasTiles(rows) }

// Split makes bfloat16 numbers of activations q, in the order of Acts.Q: for each
// ActGroup of them first the values with their low bytes cleared, and then
// the low bytes, unsigned. Their sums are q. len(dst) is 2*len(q).
func Split(dst []uint16, q []int16) { split(dst, q) }

// Widen makes bfloat16 numbers of codes less an offset, which is at most 128. In
// each vector of 64 bytes a row's four columns go to two: the first two in the
// order of Acts.Q, and the others. len(dst) is len(codes), a multiple of 64.
func Widen(dst []uint16, codes []byte, offset byte) { widen(dst, codes, offset) }

// WidenPlanes is Widen of what the Unpack functions make of units of four bits and
// none, one or two more: each code is replaced by its entry in the table, of which
// codes of four bits take the first 16 and the next, which must be the same.
func WidenPlanes(dst []uint16, src []byte, c Codes, table *[64]uint16) {
	n := len(dst) / UnitSize
	widenPlanes(dst[:n*UnitSize], src[:n*planes[c]*vector], c, table)
}

// planes are the vectors of a unit.
var planes = [...]int{Codes4: 4, CodesTable: 4, Codes41: 5, Codes42: 6, Codes8: 8}

// units are the whole units of dst, and their planes, of so many vectors each.
func units(dst, src []byte, vectors int) (codes, planes []byte) {
	n := len(dst) / UnitSize
	return dst[:n*UnitSize], src[:n*vectors*vector]
}

// Unpack4 unpacks units of four bits. Each of the Unpack functions fills the whole
// units of dst.
func Unpack4(dst, src []byte) { unpack4(units(dst, src, 4)) }

// UnpackTable is Unpack4, each code replaced by its entry in the table.
func UnpackTable(dst, src []byte, table *[16]byte) {
	dst, src = units(dst, src, 4)
	unpackTable(dst, src, table)
}

// Unpack41 unpacks units of four bits and one.
func Unpack41(dst, src []byte) { unpack41(units(dst, src, 5)) }

// Unpack42 unpacks units of four bits and two.
func Unpack42(dst, src []byte) { unpack42(units(dst, src, 6)) }

// Unpack2 unpacks units of two bits.
func Unpack2(dst, src []byte) { unpack2(units(dst, src, 2)) }

// Unpack21 unpacks units of two bits and one.
func Unpack21(dst, src []byte) { unpack21(units(dst, src, 3)) }

// PanelScales sets dst [groups][PanelRows] to d*scale, d [PanelRows] being
// binary16 and scale [groups][PanelRows] integers. Exact.
func PanelScales(dst []float32, d []uint16, scale []int8) { panelScales(dst, d, scale) }
