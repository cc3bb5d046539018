package packing

import (
	"encoding/binary"
	"math"
)

// codes reads whole numbers of a few bits. The numbers of a line lie in 32-bit words in sequence, from the lowest bit
// up, across the ends of words.
type codes struct {
	data       []byte
	bits       int
	per        int      // codes of a word where none goes across words; 0 where codes do
	line, word int      // distances, in words, from a line to the next, and from a line's word to its next
	across     bool     // lines are columns, and places rows
	order      *[8]byte // places within a word of eight; nil for the natural order
	plus       uint32   // added to words by at
}

// awqOrder has the place of each of eight rows in a word (AWQ_REVERSE_ORDER in AutoAWQ's packing_utils.py).
var awqOrder = [8]byte{0, 4, 1, 5, 2, 6, 3, 7}

// words returns the number of words of a line of n codes.
func (c *codes) words(n int) int {
	if c.per > 0 {
		return upTo(n, c.per)
	}
	return upTo(n*c.bits, 32)
}

// at returns the code of a row and a column.
func (c *codes) at(row, column int) byte {
	line, place := row, column
	if c.across {
		line, place = column, row
	}
	if c.order != nil {
		place = place&^7 | int(c.order[place&7])
	}
	if c.per > 0 {
		return byte(c.load(line*c.line+place/c.per*c.word) >> (place % c.per * c.bits) & (1<<c.bits - 1))
	}
	bit := place * c.bits
	i, from := line*c.line+bit/32*c.word, bit%32
	v := uint64(c.load(i) + c.plus)
	if from+c.bits > 32 {
		v |= uint64(c.load(i+c.word)) << 32
	}
	return byte(v >> from & (1<<c.bits - 1))
}

// load returns a word.
func (c *codes) load(i int) uint32 { return binary.LittleEndian.Uint32(c.data[4*i:]) }

// read sets q to the codes of a row from a column on.
func (c *codes) read(q []byte, row, from int) {
	switch {
	case c.across:
		c.readAcross(q, row, from)
	case c.bits == 4 && from%8 == 0:
		i := row*c.line + from/8*c.word
		for ; len(q) >= 8; i, q = i+c.word, q[8:] {
			v := uint64(c.load(i)) // a half byte to each of eight bytes
			v = (v | v<<16) & 0x0000ffff0000ffff
			v = (v | v<<8) & 0x00ff00ff00ff00ff
			binary.LittleEndian.PutUint64(q, (v|v<<4)&0x0f0f0f0f0f0f0f0f)
		}
		for j := range q {
			q[j] = byte(c.load(i)>>(4*j)) & 15
		}
	case c.bits == 8 && from%4 == 0:
		i := row*c.line + from/4*c.word
		for ; len(q) >= 4; i, q = i+c.word, q[4:] {
			binary.LittleEndian.PutUint32(q, c.load(i))
		}
		for j := range q {
			q[j] = byte(c.load(i) >> (8 * j))
		}
	case c.word == 1 && c.per == 0: // in sequence, even where a line is as long as a word (GPTQ of one row)
		line, mask := c.data[4*row*c.line:], byte(1<<c.bits-1)
		for j := range q {
			bit := (from + j) * c.bits
			v := uint16(line[bit/8])
			if bit%8+c.bits > 8 {
				v |= uint16(line[bit/8+1]) << 8
			}
			q[j] = byte(v>>(bit%8)) & mask
		}
	default:
		for j := range q {
			q[j] = c.at(row, from+j)
		}
	}
}

// readAcross is read of codes of four bits whose lines are columns.
func (c *codes) readAcross(q []byte, row, from int) {
	place := row
	if c.order != nil {
		place = place&^7 | int(c.order[place&7])
	}
	at, shift, step := 4*(from*c.line+place/8*c.word), place%8*4, 4*c.line
	at, shift = at+shift/8, shift%8
	for j := range q {
		q[j] = c.data[at] >> shift & 15
		at += step
	}
}

// grid returns the codes of rows and groups as numbers, with plus added and cut to their bits. Plus is added to whole
// words where these have whole codes: GPTQModel subtracts as much (convert_gptq_v2_to_v1_format_module), and a code
// of 0 borrows from the next.
func (c *codes) grid(plus byte) grid {
	mask := byte(1<<c.bits - 1)
	if 32%c.bits == 0 {
		c.plus, plus = uint32(plus)*(math.MaxUint32/uint32(mask)), 0
	}
	return func(row, group int) float32 { return float32((c.at(row, group) + plus) & mask) }
}

// permuted reads codes with their columns in another order.
type permuted struct {
	*codes
	columns []int // place of each column in codes
}

func (p *permuted) read(q []byte, row, from int) {
	for j, column := range p.columns[from : from+len(q)] {
		q[j] = p.at(row, column)
	}
}

// octets are codes of a byte each, row after row.
type octets struct {
	data    []byte
	columns int
}

func (o *octets) read(q []byte, row, from int) { copy(q, o.data[row*o.columns+from:]) }

// upright reads codes of four bits or eight whose matrices lie as [columns, rows]: a byte holds codes of a row.
type upright struct {
	data                []byte
	bits, rows, columns int // of a matrix
}

func (u *upright) read(q []byte, row, from int) {
	per := 8 / u.bits // codes of a byte
	base := row/u.rows*(u.columns/per)*u.rows + row%u.rows
	for j := range q {
		c := from + j
		q[j] = u.data[base+c/per*u.rows] >> (c % per * u.bits) & byte(1<<u.bits-1)
	}
}
