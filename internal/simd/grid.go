package simd

import (
	"encoding/binary"
	"math/bits"

	"github.com/karat-run/karat/internal/float16"
)

// A Grid is a format of blocks of StoredColumns weights with codes for points: the levels of 8 weights or of 4. A block
// of a panel has a binary16 scale of each row, and then the file's bytes, 4 of each row in a vector.
type Grid struct {
	vectors int    // of a block
	index   int    // bits of a point's number
	points  []byte // of each 128, the low bytes and then the high bytes
	words   []byte // of more than 512, both bytes side by side
	spread  []byte // the levels, a byte each
	shape   gridShape
	steps   []gridStep
	octets  []gridOctet
	mask    uint32 // of a group's scale
	unit    float32
	scales  []gridPlace
}

// A Field is a number of Width bits in a block: at Bit in the first unit of 32 weights, and so many bits later in the
// next unit, and for the next point. A scale's Unit is the distance of four groups, and Point of groups.
type Field struct{ Bit, Width, Unit, Point int }

// A GridFormat is what makes a Grid: a block's fields, with the scale s of a group as 2s+1 times Unit.
type GridFormat struct {
	Points string // 16 bits each: levels of 2 bits of 8 weights, or levels of 4 bits of 4 weights, the first lowest
	Four   bool   // points of 4 weights
	Codes  [16]byte

	Low   Field // the low 8 bits of a point's number
	High  Field // the others
	Sign  Field // bits of 8 weights: 8; 7 and their parity; or 1 for all. A set bit takes codes from 8 on
	Scale Field

	Groups, Bytes int // of a block, without its scale
	Unit          float32
}

// gridShape is constant for a grid. Bytes of shifts are for two rows' dwords, in a register of 64 bits.
type gridShape struct {
	levels [4][8]byte  // shifts that bring the levels of a point to bytes
	signs  [8][8]byte  // shifts that bring the signs of 4 weights to bit 3
	matrix [8]byte     // of GF2P8AFFINEQB, which makes 8 signs of a field
	codes  [16]byte    // by level and sign
	halves [2][16]byte // 8 signs by the low half of a field, and by the high half: their exclusive or
}

// gridStep is four points of each row.
type gridStep struct{ low, high, sign gridPick }

// gridPick makes four bytes of each row's dwords at two places of a block, the first two bytes of the first.
type gridPick struct {
	from  [2]uint32
	shift [8]byte
}

// gridOctet is eight weights of each row, of a point or of two.
type gridOctet struct {
	low, high [2]gridPlace
	sign      gridPlace
}

// gridPlace is the place of a field in a block.
type gridPlace struct{ from, shift uint32 }

// NewGrid returns the grid of a format.
func NewGrid(f *GridFormat) *Grid {
	n := len(f.Points) / 2
	g := &Grid{vectors: f.Bytes / 4, index: bits.Len(uint(n - 1)), points: make([]byte, 2*n), unit: f.Unit,
		mask: 1<<f.Scale.Width - 1, scales: make([]gridPlace, f.Groups)}
	for i := range n {
		g.points[i&^127*2+i%128], g.points[i&^127*2+128+i%128] = f.Points[2*i], f.Points[2*i+1]
	}
	if n > 512 {
		g.words = append([]byte(f.Points), 0, 0) // the last is read with two bytes more
	}
	for i := range g.scales {
		g.scales[i] = f.Scale.place(i/4, i%4)
	}
	steps := 1
	if f.Four {
		steps = 2
	}
	for i := range 8 / steps * n {
		point := binary.LittleEndian.Uint16([]byte(f.Points[i/(8/steps)*2:][:2]))
		g.spread = append(g.spread, byte(point>>(i%(8/steps)*2*steps))&byte(1<<(2*steps)-1))
	}
	for i := range 32 {
		unit, point := i/4, i%4*steps
		last := point + steps - 1
		g.octets = append(g.octets, gridOctet{[2]gridPlace{f.Low.place(unit, point), f.Low.place(unit, last)},
			[2]gridPlace{f.High.place(unit, point), f.High.place(unit, last)}, f.Sign.place(unit, i%4)})
	}
	for i := range 8 * steps {
		unit, point := i/steps, i%steps*4
		g.steps = append(g.steps, gridStep{f.Low.pick(unit, point), f.High.pick(unit, point),
			f.Sign.pick(unit, point/2)})
	}
	g.shape.fill(f)
	return g
}

// place returns the place of a field of a point.
func (f Field) place(unit, point int) gridPlace {
	at := f.Bit + unit*f.Unit + point*f.Point
	return gridPlace{uint32(at / 32 * vector), uint32(at % 32)}
}

// pick returns the pick of a field's bytes of four points.
func (f Field) pick(unit, point int) (p gridPick) {
	for i := range 4 {
		at := f.place(unit, point+i)
		p.shift[i], p.shift[i+4] = byte(at.shift), byte(at.shift+32)
		if i%2 == 0 {
			p.from[i/2] = at.from
		}
	}
	return p
}

func (s *gridShape) fill(f *GridFormat) {
	s.codes = f.Codes
	for i := range 8 {
		for p := range s.levels {
			at := 8*p + 2*(i%4)
			if f.Four {
				at = 8*p + 4*(i%2)
			}
			s.levels[p][i] = byte(at + i/4*32)
		}
		for v := range s.signs {
			s.signs[v][i] = byte(4*v+i%4-3+i/4*32) & 63
		}
		s.matrix[7-i] = 1 << i
		switch {
		case f.Sign.Width == 1:
			s.matrix[7-i] = 1
		case i == 7 && f.Sign.Width == 7:
			s.matrix[0] = 127
		}
	}
	for i := range 16 {
		s.halves[0][i], s.halves[1][i] = s.sign(byte(i)), s.sign(byte(i<<4))
	}
}

// Bytes returns the bytes of a block of a panel.
func (g *Grid) Bytes() int { return vector + g.vectors*vector }

// Straight reports whether AddRow knows the grid as CodesPoints: points of 8 weights as IQ1_S has them, with a sign for
// 32 weights, and codes 8 apart.
func (g *Grid) Straight() bool {
	c := &g.shape.codes
	for i := range 2 {
		if c[i+1]-c[i] != 8 || c[i+9]-c[i+8] != 8 {
			return false
		}
	}
	return g.index == 11 && len(g.scales) == 8 && g.vectors == 12 && g.mask == 7
}

// HasGrids reports whether UnpackGrid is faster than reading blocks row by row.
func HasGrids() bool { return tier > generic }

// UnpackGrid unpacks a block of a panel to codes [StoredColumns/4][PanelRows][4], and scales [groups][PanelRows]. A
// scale is D*(Unit*(2s+1)), exactly.
func UnpackGrid(codes []byte, scales []float32, src []byte, g *Grid) {
	codes, scales, src = codes[:StoredColumns*PanelRows], scales[:len(g.scales)*PanelRows], src[:g.Bytes()]
	if !HasGrids() {
		unpackGridGeneric(codes, scales, src, g)
		return
	}
	gridScalesVec(&scales[0], &src[0], &g.scales[0], len(g.scales), g.mask, g.unit)
	four := 0
	if len(g.steps) > 8 {
		four = 1
	}
	if tier < avx512 || !hasVBMI {
		unpackGridVec(&codes[0], &src[vector], &g.octets[0], &g.shape, &g.spread[0], (1<<g.index-1)>>8, four)
		return
	}
	var words *byte
	if len(g.words) > 0 && gathers() {
		words = &g.words[0]
	}
	unpackGridAVX512(&codes[0], &src[vector], &g.steps[0], len(g.steps), &g.shape, &g.points[0], words, g.index, four)
}

// gathers reports whether gathering points takes less time than finding them in registers, as on Intel's processors
// with tiles.
var gathers = func() bool { return tier >= amx }

func unpackGridGeneric(codes []byte, scales []float32, src []byte, g *Grid) {
	per := 8 * 8 / len(g.steps) // weights of a point
	for r := range PanelRows {
		d := float16.F16(binary.NativeEndian.Uint16(src[2*r:]))
		row := src[vector+4*r:]
		for i, p := range g.scales {
			s := binary.LittleEndian.Uint32(row[p.from:]) >> p.shift & g.mask
			scales[i*PanelRows+r] = d * (g.unit * float32(2*s+1))
		}
		for i := range g.steps {
			s := &g.steps[i]
			var signs uint32
			for p := range 4 {
				signs |= uint32(g.shape.sign(s.sign.byte(row, p))) << (8 * p)
			}
			for p := range 4 {
				n := int(s.low.byte(row, p)) | int(s.high.byte(row, p))<<8&(1<<g.index-1)
				at := n&^127*2 + n%128
				levels := uint32(g.points[at]) | uint32(g.points[at+128])<<8
				for j := range per {
					c := (4*i+p)*per + j
					code := levels>>(16/per*j)&(1<<(16/per)-1) | signs>>(p*per+j)&1<<3
					codes[c/4*vector+4*r+c%4] = g.shape.codes[code]
				}
			}
		}
	}
}

// byte returns byte i of a row.
func (p *gridPick) byte(row []byte, i int) byte {
	return byte(binary.LittleEndian.Uint32(row[p.from[i/2]:]) >> p.shift[i])
}

// sign returns 8 signs of a field.
func (s *gridShape) sign(field byte) (all byte) {
	for i := range 8 {
		all |= byte(bits.OnesCount8(s.matrix[7-i]&field)&1) << i
	}
	return all
}

// DigitBytes is the bytes of a block in a panel for UnpackDigits.
const DigitBytes = 13 * vector

// UnpackDigits unpacks a block in a panel of StoredColumns codes of 0 to 2, of ggml's type TQ1_0, to codes
// [StoredColumns/4][PanelRows][4]. A vector has four bytes of each row: fractions of 256, whose digits to the base of 3
// are codes. Of 8 vectors, and of 4, the five digits make 8 and 4 vectors of codes each, and of the last four digits.
func UnpackDigits(codes, src []byte) {
	codes, src = codes[:StoredColumns*PanelRows], src[:DigitBytes]
	if tier > generic {
		unpackDigitsVec(&codes[0], &src[0])
		return
	}
	unpackDigitsGeneric(codes, src)
}

func unpackDigitsGeneric(codes, src []byte) {
	const even = 0x00ff00ff00ff00ff
	for _, part := range [...]struct{ vectors, digits int }{{8, 5}, {4, 5}, {1, 4}} {
		size := part.vectors * vector
		for i := 0; i < size; i += 8 {
			x := binary.LittleEndian.Uint64(src[i:])
			y := x >> 8 & even
			x &= even
			for n := range part.digits {
				x, y = x*3, y*3
				binary.LittleEndian.PutUint64(codes[n*size+i:], x>>8&even|y&^even)
				x, y = x&even, y&even
			}
		}
		codes, src = codes[part.digits*size:], src[size:]
	}
}
