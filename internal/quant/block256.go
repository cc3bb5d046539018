package quant

import "encoding/binary"

// Formats with blocks of 256 weights in groups of 16 or 32, each with its own small integer scale under the block's
// float16 one.

// codesQ2_K reads
//
//	 0  scales [16]byte, of each 16 weights: scale in the low half, minimum in the high
//	16  qs     [64]byte, four weights each
//	80  d      float16
//	82  dmin   float16
//
// Each 32 bytes of qs are 128 weights: bits 0-1 of the 32 bytes are weights 0 to 31, bits 2-3 weights 32 to 63, and so
// on. weight = (d*scale)*qs - dmin*minimum.
func codesQ2_K(q, b []byte) { quarters(q, b[16:80]) }

// quarters reads four codes from each of 64 bytes.
func quarters(q, qs []byte) {
	for n := range 8 { // 32 weights each
		in, out, shift := qs[n/4*32:n/4*32+32], q[n*32:n*32+32], n%4*2
		for l := 0; l < 32; l += 8 {
			store8(out[l:], load8(in[l:])>>shift&(3*each))
		}
	}
}

func scalesQ2_K(h *Header, b []byte) {
	for i, x := range b[:16] {
		h.Scales[i], h.Mins[i] = int8(x&15), int8(x>>4)
	}
}

// codesQ3_K reads
//
//	  0  hmask  [32]byte, bit n of byte l is the third bit of weight 32n+l
//	 32  qs     [64]byte, the low two bits, in the order of Q2_K
//	 96  scales [12]byte, sixteen times six bits, less 32
//	108  d      float16
//
// Scale i of each 16 weights has its low four bits in half a byte (low halves of bytes 0 to 7, then their high halves)
// and its high two in bits 2*(i/4) of byte 8+i%4. weight = d*(scale-32) * ((hmask<<2 | qs) - 4).
func codesQ3_K(q, b []byte) {
	hmask := b[:32]
	quarters(q, b[32:96])
	for n := range 8 {
		out := q[n*32 : n*32+32]
		for l := 0; l < 32; l += 8 {
			store8(out[l:], load8(out[l:])|load8(hmask[l:])>>n&each<<2)
		}
	}
}

func scalesQ3_K(h *Header, b []byte) {
	for i := range h.Scales {
		low := b[96+i%8] >> (i / 8 * 4) & 15
		high := b[104+i%4] >> (i / 4 * 2) & 3
		h.Scales[i] = int8(low|high<<4) - 32
	}
}

// scalesK reads the scales and minima of Q4_K and Q5_K for each 32 weights, six bits each in 12 bytes: of groups 0 to 3
// the low six bits of bytes 0 to 3 (scale) and 4 to 7 (minimum); of groups 4 to 7 the low four bits are in the halves
// of bytes 8 to 11 (scale low, minimum high), the high two in the tops of bytes 0 to 3 (scale) and 4 to 7 (minimum).
// Their factors are d and dmin, the two float16 at the start of the block.
func scalesK(h *Header, b []byte) {
	s := b[4:16]
	for i := range 4 {
		h.Scales[i], h.Scales[i+4] = int8(s[i]&63), int8(s[i+8]&15|s[i]>>6<<4)
		h.Mins[i], h.Mins[i+4] = int8(s[i+4]&63), int8(s[i+8]>>4|s[i+4]>>6<<4)
	}
}

// codesQ4_K reads
//
//	 0  d      float16
//	 2  dmin   float16
//	 4  scales [12]byte, see scalesK
//	16  qs     [128]byte, two weights each
//
// Each 32 bytes of qs are 64 weights, the low halves before the high ones. weight = (d*scale)*qs - dmin*minimum.
func codesQ4_K(q, b []byte) { pairs(q, b[16:144]) }

// pairs reads two codes from each of 128 bytes.
func pairs(q, qs []byte) {
	for n := range 4 {
		in, out := qs[n*32:n*32+32], q[n*64:n*64+64]
		for l := 0; l < 32; l += 8 {
			x := load8(in[l:])
			store8(out[l:], x&(15*each))
			store8(out[l+32:], x>>4&(15*each))
		}
	}
}

// codesQ5_K reads
//
//	 0  d      float16
//	 2  dmin   float16
//	 4  scales [12]byte, see scalesK
//	16  qh     [32]byte, bit n of byte l is the fifth bit of weight 32n+l
//	48  qs     [128]byte, the low four bits, in the order of Q4_K
//
// weight = (d*scale)*(qh<<4 | qs) - dmin*minimum.
func codesQ5_K(q, b []byte) {
	pairs(q, b[48:176])
	qh := b[16:48]
	for n := range 8 {
		out := q[n*32 : n*32+32]
		for l := 0; l < 32; l += 8 {
			store8(out[l:], load8(out[l:])|load8(qh[l:])>>n&each<<4)
		}
	}
}

// codesQ6_K reads
//
//	  0  ql     [128]byte, the low four bits, two weights each
//	128  qh     [64]byte, the high two bits, four weights each
//	192  scales [16]int8, of each 16 weights
//	208  d      float16
//
// Each 64 bytes of ql and 32 bytes of qh are 128 weights: weights 0 to 63 in the low halves of ql, 64 to 127 in the
// high ones; weight 32n+l in bits 2n of qh[l]. weight = d*scale * ((qh<<4 | ql) - 32).
func codesQ6_K(q, b []byte) {
	for n := range 2 {
		ql, qh, out := b[n*64:n*64+64], b[128+n*32:128+n*32+32], q[n*128:n*128+128]
		for l := 0; l < 32; l += 8 {
			x, y, h := load8(ql[l:]), load8(ql[l+32:]), load8(qh[l:])
			store8(out[l:], x&(15*each)|h<<4&(48*each))
			store8(out[l+32:], y&(15*each)|h<<2&(48*each))
			store8(out[l+64:], x>>4&(15*each)|h&(48*each))
			store8(out[l+96:], y>>4&(15*each)|h>>2&(48*each))
		}
	}
}

func scalesQ6_K(h *Header, b []byte) {
	for i, s := range b[192:208] {
		h.Scales[i] = int8(s)
	}
}

// codesIQ4_XS reads
//
//	0  d        float16
//	2  scales_h uint16, the high two bits of eight scales, the first lowest
//	4  scales_l [4]byte, the low four bits, two scales each
//	8  qs       [128]byte, two indices each
//
// Each 16 bytes of qs are 32 weights in the order of IQ4_NL. weight = d*(scale-32) * iq4[qs].
func codesIQ4_XS(q, b []byte) {
	for i := range 8 {
		halves(q[i*32:], b[8+i*16:24+i*16])
	}
}

func scalesIQ4_XS(h *Header, b []byte) {
	high := binary.LittleEndian.Uint16(b[2:])
	for i := range 8 {
		low := b[4+i/2] >> (i % 2 * 4) & 15
		h.Scales[i] = int8(low|byte(high>>(2*i)&3)<<4) - 32
	}
}

// codesTQ1_0 reads
//
//	 0  qs [48]byte, five weights each
//	48  qh [4]byte, four weights each
//	52  d  float16
//
// A byte is a fraction of 256, whose digits to the base of 3 are the codes. The first 32 bytes have 160 weights, the
// next 16 have 80: all first digits, then all second ones, and so on. weight = d * (code - 1).
func codesTQ1_0(q, b []byte) {
	digits(q, b[:32], 5)
	digits(q[160:], b[32:48], 5)
	var last [8]byte
	var codes [4 * 8]byte
	copy(last[:], b[48:52])
	digits(codes[:], last[:], 4)
	for i := range 4 {
		copy(q[240+4*i:244+4*i], codes[8*i:])
	}
}

// digits reads count digits of each byte.
func digits(q, b []byte, count int) {
	const even = 0x00ff00ff00ff00ff
	for i := 0; i < len(b); i += 8 {
		x := load8(b[i:])
		y := x >> 8 & even
		x &= even
		for n := range count {
			x, y = x*3, y*3
			store8(q[n*len(b)+i:], x>>8&even|y&^even)
			x, y = x&even, y&even
		}
	}
}
