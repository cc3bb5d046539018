package quant

import "encoding/binary"

// Eight bytes at a time, in a uint64: one operation where a loop over bytes has
// eight.

// each is 1 in every byte.
const each = 0x0101010101010101

// load8 reads b[:8].
func load8(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// store8 writes q[:8].
func store8(q []byte, v uint64) { binary.LittleEndian.PutUint64(q, v) }

// spread8 is bit i of b as byte i, 0 or 1.
func spread8(b byte) uint64 {
	v := uint64(b) * each & 0x8040201008040201 // byte i has bit i of b, at its place
	return (v + 127*each) & (128 * each) >> 7
}
