package quant

import (
	_ "embed"
	"encoding/binary"
	"math/bits"
)

// Formats with codes for a grid: a table of points, each the magnitudes of 8 consecutive weights or 4.
// All have blocks of 256 weights, and an odd integer 2s+1 as a group's scale. A code here is the weight's integer with
// 128 added.

// grids holds the points of all grids, 16 bits each: 8 levels of 2 bits, or 4 levels of 4, the first weight lowest.
//
//go:embed grids.bin
var grids string

// The grids, in the order of the file. A point is a weight's byte after another.
var (
	gridIQ2_XXS = [256]uint64(points(0, 256, 2, 8, 25, 43))
	gridIQ2_XS  = [512]uint64(points(256, 512, 2, 8, 25, 43))
	gridIQ2_S   = [1024]uint64(points(768, 1024, 2, 8, 25, 43))
	gridIQ1     = [2048]uint64(points(1792, 2048, 2, 119, 127, 135)) // eight times -1, 0 and 1, as codes, less 1
	gridIQ3_XXS = [256]uint64(points(3840, 256, 4, 4, 12, 20, 28, 36, 44, 52, 62))
	gridIQ3_S   = [512]uint64(points(4096, 512, 4, 1, 3, 5, 7, 9, 11, 13, 15))
)

// The integers of weights, by grid.
var (
	levelsIQ1     = bothSigns(1, 7, 9)
	levelsIQ2     = bothSigns(8, 25, 43)
	levelsIQ3_XXS = bothSigns(4, 12, 20, 28, 36, 44, 52, 62)
	levelsIQ3_S   = bothSigns(1, 3, 5, 7, 9, 11, 13, 15)
)

// points returns count points of the file, the first at from, with levels of so many bits.
func points(from, count, bits int, levels ...byte) []uint64 {
	list := make([]uint64, count)
	for i := range list {
		at := 2 * (from + i)
		p := uint64(grids[at]) | uint64(grids[at+1])<<8
		for j := range 16 / bits {
			list[i] |= uint64(levels[p>>(bits*j)&(1<<bits-1)]) << (8 * j)
		}
	}
	return list
}

// signs has the bytes 255 for the set bits of its index. sevenSigns has the same for an index of seven bits, and an eighth
// bit, set for an odd number of bits.
var signs, sevenSigns = func() (all [256]uint64, seven [128]uint64) {
	for i := range all {
		all[i] = spread8(byte(i)) * 255
	}
	for i := range seven {
		seven[i] = all[i|bits.OnesCount8(byte(i))&1<<7]
	}
	return all, seven
}()

// signed returns the codes of a point's magnitudes, none of them 0, with signs.
func signed(point, sign uint64) uint64 { return (point ^ sign + sign&each) ^ 128*each }

// codesIQ2_XXS reads
//
//	0  d  float16
//	2  qs [64]byte, eight for each 32 weights: four indices, and a uint32 with seven bits of signs for each index, the
//	      first lowest, and the scale s in the top four bits
//
// weight = d*(2s+1)/8 * ±grid[index].
func codesIQ2_XXS(q, b []byte) {
	for qs := b[2:66]; len(qs) > 0; q, qs = q[32:], qs[8:] {
		s := binary.LittleEndian.Uint32(qs[4:])
		for l := range 4 {
			store8(q[8*l:], signed(gridIQ2_XXS[qs[l]], sevenSigns[s>>(7*l)&127]))
		}
	}
}

func scalesIQ2_XXS(h *Header, b []byte) {
	for i := range 8 {
		h.Scales[i] = odd(b[2+8*i+7] >> 4)
	}
}

// odd returns 2s+1.
func odd(s byte) int8 { return int8(2*s + 1) }

// codesIQ2_XS reads
//
//	 0  d      float16
//	 2  qs     [32]uint16, of each 8 weights: an index of nine bits, seven bits of signs
//	66  scales [8]byte, s of two groups of 16 each, the first in the low half
//
// weight = d*(2s+1)/8 * ±grid[index].
func codesIQ2_XS(q, b []byte) {
	qs, q := b[2:66], q[:256]
	for i := range 32 {
		x := binary.LittleEndian.Uint16(qs[2*i:])
		store8(q[8*i:], signed(gridIQ2_XS[x&511], sevenSigns[x>>9]))
	}
}

// oddHalves reads two scales from each byte.
func oddHalves(h *Header, b []byte) {
	for i, x := range b {
		h.Scales[2*i], h.Scales[2*i+1] = odd(x&15), odd(x>>4)
	}
}

// codesIQ2_S reads
//
//	 0  d      float16
//	 2  qs     [32]byte, the low eight bits of indices, of 8 weights each
//	34  signs  [32]byte
//	66  qh     [8]byte, the high two bits of four indices each, the first lowest
//	74  scales [8]byte, as in IQ2_XS
//
// weight = d*(2s+1)/8 * ±grid[index].
func codesIQ2_S(q, b []byte) {
	qs, sign, qh, q := b[2:34], b[34:66], b[66:74], q[:256]
	for i := range 32 {
		index := int(qs[i]) | int(qh[i/4])>>(i%4*2)&3<<8
		store8(q[8*i:], signed(gridIQ2_S[index&1023], signs[sign[i]]))
	}
}

// codesIQ3_XXS reads
//
//	 0  d     float16
//	 2  qs    [64]byte, indices, of 4 weights each
//	66  signs [8]uint32, of each 32 weights: signs and s, as in IQ2_XXS
//
// weight = d*(2s+1)/4 * ±grid[index].
func codesIQ3_XXS(q, b []byte) {
	qs := b[2:66]
	for i := range 8 {
		s := binary.LittleEndian.Uint32(b[66+4*i:])
		for l := range 4 {
			point := gridIQ3_XXS[qs[8*i+2*l]] | gridIQ3_XXS[qs[8*i+2*l+1]]<<32
			store8(q[32*i+8*l:], signed(point, sevenSigns[s>>(7*l)&127]))
		}
	}
}

func scalesIQ3_XXS(h *Header, b []byte) {
	for i := range 8 {
		h.Scales[i] = odd(b[66+4*i+3] >> 4)
	}
}

// codesIQ3_S reads
//
//	  0  d      float16
//	  2  qs     [64]byte, the low eight bits of indices, of 4 weights each
//	 66  qh     [8]byte, the ninth bit of eight indices each
//	 74  signs  [32]byte
//	106  scales [4]byte, s of two groups of 32 each, the first in the low half
//
// weight = d*(2s+1) * ±grid[index].
func codesIQ3_S(q, b []byte) {
	qs, qh, sign, q := b[2:66], b[66:74], b[74:106], q[:256]
	for i := range 32 {
		h := int(qh[i/4]) >> (i % 4 * 2)
		point := gridIQ3_S[(int(qs[2*i])|h&1<<8)&511] | gridIQ3_S[(int(qs[2*i+1])|h&2<<7)&511]<<32
		store8(q[8*i:], signed(point, signs[sign[i]]))
	}
}

// codesIQ1_S reads
//
//	 0  d  float16
//	 2  qs [32]byte, the low eight bits of indices, of 8 weights each
//	34  qh [8]uint16, of each 32 weights: the high three bits of four indices, the first lowest, s of three bits, and a
//	      bit for a grid shifted down instead of up
//
// weight = d*(2s+1) * (grid[index] ± 1/8).
func codesIQ1_S(q, b []byte) {
	qs, qh, q := b[2:34], b[34:50], q[:256]
	for i := range 8 {
		h := int(binary.LittleEndian.Uint16(qh[2*i:]))
		up := uint64(1-h>>15) * (2 * each)
		for l := range 4 {
			store8(q[32*i+8*l:], gridIQ1[(int(qs[4*i+l])|h>>(3*l)&7<<8)&2047]+up)
		}
	}
}

func scalesIQ1_S(h *Header, b []byte) {
	for i := range 8 {
		h.Scales[i] = odd(b[35+2*i] >> 4 & 7)
	}
}

// codesIQ1_M reads
//
//	 0  qs     [32]byte, the low eight bits of indices, of 8 weights each
//	32  qh     [16]byte, two halves each: the high three bits of an index, and the bit for a grid shifted down
//	48  scales [4]uint16, s of four groups of 16, three bits each, the first lowest, and four bits of d, the lowest first
//
// weight = d*(2s+1) * (grid[index] ± 1/8).
func codesIQ1_M(q, b []byte) {
	qs, qh, q := b[:32], b[32:48], q[:256]
	for i := range 32 {
		h := int(qh[i/2]) >> (i % 2 * 4) & 15
		store8(q[8*i:], gridIQ1[(int(qs[i])|h&7<<8)&2047]+uint64(1-h>>3)*(2*each))
	}
}

func scalesIQ1_M(h *Header, b []byte) {
	for i := range 4 {
		s := binary.LittleEndian.Uint16(b[48+2*i:])
		for g := range 4 {
			h.Scales[4*i+g] = odd(byte(s >> (3 * g) & 7))
		}
	}
}
