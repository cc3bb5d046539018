package simd

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
func (s *Stored) HasRow() bool { return s != nil && hasRow() }

// RowPlaces is at how many places AddRow does best.
const RowPlaces = 4

// AddRow is AddPanel for one row and the whole chunks of panels, which are not unpacked
// to memory. Of one place alone a core reads less than memory gives, so there are
// several, gap bytes apart: at each n panels that begin so many bytes behind each
// other. acc is [place][n][PanelRows], and x has as many columns as a panel.
func AddRow(acc []float32, data []byte, n, panel, gap int, s *Stored, x *Acts) {
	addRow(acc, data, n, panel, gap, s, x)
}
