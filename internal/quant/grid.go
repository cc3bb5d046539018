package quant

import (
	_ "embed"
	"encoding/binary"
	"math/bits"

	"github.com/karat-run/karat/internal/tensor"
)

// Formats with codes for a grid: a table of points, each the magnitudes of 8 consecutive weights or 4. All have blocks
// of 256 weights, and an odd integer 2s+1 as a group's scale. A code here is the weight's integer with 128 added.

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

// Grid returns the points of d's grid, 16 bits each: 8 levels of 2 bits or 4 levels of 4, the first weight lowest. A
// code is at its level, or 8 later for a weight with a set bit of sign or shift. A type without a grid has no points.
func Grid(d tensor.DType) (points string, codes [16]byte) {
	switch d {
	case tensor.IQ1_S, tensor.IQ1_M:
		return grids[2*1792:][:2*2048], [16]byte{121, 129, 137, 0, 121, 129, 137, 0, 119, 127, 135, 0, 119, 127, 135}
	case tensor.IQ2_XXS:
		return grids[:2*256], bothCodes(8, 25, 43, 0, 8, 25, 43, 0)
	case tensor.IQ2_XS:
		return grids[2*256:][:2*512], bothCodes(8, 25, 43, 0, 8, 25, 43, 0)
	case tensor.IQ2_S:
		return grids[2*768:][:2*1024], bothCodes(8, 25, 43, 0, 8, 25, 43, 0)
	case tensor.IQ3_XXS:
		return grids[2*3840:][:2*256], bothCodes(4, 12, 20, 28, 36, 44, 52, 62)
	case tensor.IQ3_S:
		return grids[2*4096:][:2*512], bothCodes(1, 3, 5, 7, 9, 11, 13, 15)
	}
	return "", codes
}

// bothCodes returns the codes of 8 magnitudes, and of their negatives.
func bothCodes(magnitudes ...byte) (codes [16]byte) {
	for i, v := range magnitudes {
		codes[i], codes[i+8] = 128+v, 128-v
	}
	return codes
}

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

// signs has the bytes 255 for the set bits of its index. sevenSigns has the same for an index of seven bits, and an
// eighth bit, set for an odd number of bits.
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
	in, out := (*[64]byte)(b[2:]), (*[256]byte)(q)
	for g := range 8 {
		qs, q := (*[8]byte)(in[8*g:]), (*[32]byte)(out[32*g:])
		s := binary.LittleEndian.Uint32(qs[4:])
		store8(q[:], signed(gridIQ2_XXS[qs[0]], sevenSigns[s&127]))
		store8(q[8:], signed(gridIQ2_XXS[qs[1]], sevenSigns[s>>7&127]))
		store8(q[16:], signed(gridIQ2_XXS[qs[2]], sevenSigns[s>>14&127]))
		store8(q[24:], signed(gridIQ2_XXS[qs[3]], sevenSigns[s>>21&127]))
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
	in, out := (*[64]byte)(b[2:]), (*[256]byte)(q)
	for g := range 8 {
		x, q := load8(in[8*g:]), (*[32]byte)(out[32*g:])
		store8(q[:], signed(gridIQ2_XS[x&511], sevenSigns[x>>9&127]))
		store8(q[8:], signed(gridIQ2_XS[x>>16&511], sevenSigns[x>>25&127]))
		store8(q[16:], signed(gridIQ2_XS[x>>32&511], sevenSigns[x>>41&127]))
		store8(q[24:], signed(gridIQ2_XS[x>>48&511], sevenSigns[x>>57]))
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
	in, out := (*[72]byte)(b[2:]), (*[256]byte)(q)
	for g := range 8 {
		qs, sign, h := (*[4]byte)(in[4*g:]), (*[4]byte)(in[32+4*g:]), int(in[64+g])
		q := (*[32]byte)(out[32*g:])
		store8(q[:], signed(gridIQ2_S[int(qs[0])|h<<8&768], signs[sign[0]]))
		store8(q[8:], signed(gridIQ2_S[int(qs[1])|h<<6&768], signs[sign[1]]))
		store8(q[16:], signed(gridIQ2_S[int(qs[2])|h<<4&768], signs[sign[2]]))
		store8(q[24:], signed(gridIQ2_S[int(qs[3])|h<<2&768], signs[sign[3]]))
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
	in, out := (*[96]byte)(b[2:]), (*[256]byte)(q)
	for g := range 8 {
		qs, q := (*[8]byte)(in[8*g:]), (*[32]byte)(out[32*g:])
		s := binary.LittleEndian.Uint32(in[64+4*g:])
		store8(q[:], signed(gridIQ3_XXS[qs[0]]|gridIQ3_XXS[qs[1]]<<32, sevenSigns[s&127]))
		store8(q[8:], signed(gridIQ3_XXS[qs[2]]|gridIQ3_XXS[qs[3]]<<32, sevenSigns[s>>7&127]))
		store8(q[16:], signed(gridIQ3_XXS[qs[4]]|gridIQ3_XXS[qs[5]]<<32, sevenSigns[s>>14&127]))
		store8(q[24:], signed(gridIQ3_XXS[qs[6]]|gridIQ3_XXS[qs[7]]<<32, sevenSigns[s>>21&127]))
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
	in, out := (*[104]byte)(b[2:]), (*[256]byte)(q)
	for g := range 8 {
		qs, h, sign := (*[8]byte)(in[8*g:]), int(in[64+g]), (*[4]byte)(in[72+4*g:])
		q := (*[32]byte)(out[32*g:])
		store8(q[:], signed(pointIQ3_S(qs[0], qs[1], h), signs[sign[0]]))
		store8(q[8:], signed(pointIQ3_S(qs[2], qs[3], h>>2), signs[sign[1]]))
		store8(q[16:], signed(pointIQ3_S(qs[4], qs[5], h>>4), signs[sign[2]]))
		store8(q[24:], signed(pointIQ3_S(qs[6], qs[7], h>>6), signs[sign[3]]))
	}
}

// pointIQ3_S returns two points, side by side, by the low bits of their indices and two high bits.
func pointIQ3_S(a, b byte, high int) uint64 {
	return gridIQ3_S[int(a)|high<<8&256] | gridIQ3_S[int(b)|high<<7&256]<<32
}

// codesIQ1_S reads
//
//	 0  d  float16
//	 2  qs [32]byte, the low eight bits of indices, of 8 weights each
//	34  qh [8]uint16, of each 32 weights: the high three bits of four indices, the first lowest, s of three bits, and
//	      a bit for a grid shifted down instead of up
//
// weight = d*(2s+1) * (grid[index] ± 1/8).
func codesIQ1_S(q, b []byte) {
	in, out := (*[48]byte)(b[2:]), (*[256]byte)(q)
	for g := range 8 {
		qs, h := (*[4]byte)(in[4*g:]), int(binary.LittleEndian.Uint16(in[32+2*g:]))
		q, up := (*[32]byte)(out[32*g:]), uint64(1-h>>15)*(2*each)
		store8(q[:], gridIQ1[int(qs[0])|h<<8&0x700]+up)
		store8(q[8:], gridIQ1[int(qs[1])|h<<5&0x700]+up)
		store8(q[16:], gridIQ1[int(qs[2])|h<<2&0x700]+up)
		store8(q[24:], gridIQ1[int(qs[3])|h>>1&0x700]+up)
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
//	48  scales [4]uint16, s of four groups of 16, three bits each, the first lowest, and four bits of d,
//	      the lowest first
//
// weight = d*(2s+1) * (grid[index] ± 1/8).
func codesIQ1_M(q, b []byte) {
	in, out := (*[48]byte)(b), (*[256]byte)(q)
	for g := range 8 {
		qs, h := (*[4]byte)(in[4*g:]), int(binary.LittleEndian.Uint16(in[32+2*g:]))
		q := (*[32]byte)(out[32*g:])
		store8(q[:], gridIQ1[int(qs[0])|h<<8&0x700]+uint64(^h>>3&1)*(2*each))
		store8(q[8:], gridIQ1[int(qs[1])|h<<4&0x700]+uint64(^h>>7&1)*(2*each))
		store8(q[16:], gridIQ1[int(qs[2])|h&0x700]+uint64(^h>>11&1)*(2*each))
		store8(q[24:], gridIQ1[int(qs[3])|h>>4&0x700]+uint64(^h>>15&1)*(2*each))
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
