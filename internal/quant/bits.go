package quant

import (
	"encoding/binary"
	"slices"

	"github.com/karat-run/karat/internal/float16"
)

// iq4 is the table of the non-linear four-bit formats IQ4_NL and IQ4_XS.
var iq4 = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// e2m1 holds twice the values of a four-bit float with two exponent bits and one mantissa bit (0, 0.5, 1, 1.5, 2, 3, 4,
// 6 and their negatives): integers. Negative zero has no integer; like llama.cpp's, ours is 0.
var e2m1 = [16]int8{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// levelsE2M1 lists e2m1's integers.
var levelsE2M1 = bothSigns(0, 1, 2, 3, 4, 6, 8, 12)

// bothSigns lists integers, least first, and their negatives before them.
func bothSigns(positive ...int8) []int8 {
	var all []int8
	for _, v := range positive {
		if all = append(all, v); v != 0 {
			all = slices.Insert(all, 0, -v)
		}
	}
	return all
}

// halves reads two codes from each of 16 bytes.
func halves(q, qs []byte) {
	q, qs = q[:32], qs[:16]
	x, y := load8(qs), load8(qs[8:])
	store8(q, x&(15*each))
	store8(q[8:], y&(15*each))
	store8(q[16:], x>>4&(15*each))
	store8(q[24:], y>>4&(15*each))
}

// fifth reads the low four bits of 32 codes from qs, and their fifth from qh.
func fifth(q, qh, qs []byte) {
	halves(q, qs)
	for j := 0; j < 32; j += 8 {
		store8(q[j:], load8(q[j:])|spread8(qh[j/8])<<4)
	}
}

// halfE8M0 returns 2^(e-128), and NaN for 255.
func halfE8M0(e byte) float32 { return float16.E8M0(e) / 2 }

// codesNVFP4 reads
//
//	0  scales [4]byte, of each 16 weights, an unsigned E4M3 float
//	4  qs     [32]byte, two E2M1 floats each: of eight bytes the low halves are before the high ones
//
// weight = scale * E2M1(qs), here scale/2 * e2m1[qs], and the code is the integer with 128 added.
func codesNVFP4(q, b []byte) {
	for g := range 4 {
		q, qs := q[16*g:16*g+16], b[4+8*g:12+8*g]
		for i, v := range qs {
			q[i], q[i+8] = codesE2M1[v&15], codesE2M1[v>>4]
		}
	}
}

// codesE2M1 holds e2m1's integers with 128 added.
var codesE2M1 = func() (codes [16]byte) {
	for i, v := range e2m1 {
		codes[i] = byte(v) ^ 128
	}
	return codes
}()

// halfE4M3 returns half of an E4M3 float without its sign, as binary16, and 0 for 127. As in ggml, 255 is 480.
func halfE4M3(e byte) uint16 {
	switch {
	case e == 127:
		return 0
	case e>>3&15 == 0:
		return float16.ToF16(float32(e&7) / 1024)
	}
	return uint16(e&127)<<7 + 7<<10
}

// Eight bytes at a time, in a uint64: one operation where a loop over bytes has eight.

// each is 1 in every byte.
const each = 0x0101010101010101

// load8 reads b[:8].
func load8(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// store8 writes q[:8].
func store8(q []byte, v uint64) { binary.LittleEndian.PutUint64(q, v) }

// spread8 returns bit i of b as byte i, 0 or 1.
func spread8(b byte) uint64 {
	v := uint64(b) * each & 0x8040201008040201 // byte i has bit i of b, at its place
	return (v + 127*each) & (128 * each) >> 7
}
