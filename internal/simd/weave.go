package simd

import "encoding/binary"

// Weave makes vectors of a panel. PanelRows rows begin stride bytes apart in src. For
// each i below n, 4 vectors from dst[i*out] on hold the 16 bytes of each row from
// src[i*in] on: vector v holds bytes 4v to 4v+3 of row 0, then of row 1, and so on,
// each XORed with flip.
func Weave(dst, src []byte, stride, n, in, out int, flip byte) {
	if n > 0 {
		dst, src = dst[:(n-1)*out+4*vector], src[:(PanelRows-1)*stride+(n-1)*in+16]
		if hasWeave() {
			weaveVec(&dst[0], &src[0], stride, n, in, out, flip)
			return
		}
		weaveGeneric(dst, src, stride, n, in, out, flip)
	}
}

// WeaveHalves does Weave's work for 32 bytes of each row, the low halves being the codes of a unit and the high halves
// the codes of another: the planes of four bits are at dst[i*out] and at dst[i*out+other].
func WeaveHalves(dst, src []byte, stride, n, in, out, other int) {
	if n > 0 {
		dst, src = dst[:(n-1)*out+other+4*vector], src[:(PanelRows-1)*stride+(n-1)*in+32]
		if hasWeave() {
			weaveHalvesVec(&dst[0], &src[0], stride, n, in, out, other)
			return
		}
		weaveHalvesGeneric(dst, src, stride, n, in, out, other)
	}
}

// WeaveBits packs the planes of one bit of 8 units, or of two bits of 4 units. Unit u has bit u of 32 bytes of each
// row, or bits 2u and 2u+1 if two is set. The planes lie out bytes apart.
func WeaveBits(dst, src []byte, stride, out int, two bool) {
	last, bits := 7*out+vector, 0
	if two {
		last, bits = 3*out+2*vector, 1
	}
	if dst, src = dst[:last], src[:(PanelRows-1)*stride+32]; hasWeave() {
		weaveBitsVec(&dst[0], &src[0], stride, out, bits)
		return
	}
	weaveBitsGeneric(dst, src, stride, out, two)
}

// WeaveWords writes the 16 bits of each row from src[i*in] on side by side, for each i
// below n: dst is [n][PanelRows].
func WeaveWords(dst []uint16, src []byte, stride, n, in int) {
	if n > 0 {
		dst, src = dst[:n*PanelRows], src[:(PanelRows-1)*stride+(n-1)*in+2]
		if hasWeave() {
			weaveWordsVec(&dst[0], &src[0], stride, n, in)
			return
		}
		weaveWordsGeneric(dst, src, stride, n, in)
	}
}

// WeaveBytes writes the first 16 bytes of each row side by side: dst is [16][PanelRows].
func WeaveBytes(dst, src []byte, stride int) {
	if dst, src = dst[:16*PanelRows], src[:(PanelRows-1)*stride+16]; hasWeave() {
		weaveBytesVec(&dst[0], &src[0], stride)
		return
	}
	weaveBytesGeneric(dst, src, stride)
}

// WeaveScales makes of the first 16 bytes of blocks of Q4_K and Q5_K, a block in each row, the scales of Stored: two
// words, the second with its sign changed, and 8 scales and 8 minima of 6 bits. The first four scales and minima are
// the low bits of bytes 4 to 7 and of bytes 8 to 11; the others are the low and high halves of bytes 12 to 15, below
// the high bits of bytes 4 to 11.
func WeaveScales(dst, src []byte, stride int) {
	if dst, src = dst[:2*2*PanelRows+2*8*PanelRows], src[:(PanelRows-1)*stride+16]; hasWeave() {
		weaveScalesVec(&dst[0], &src[0], stride)
		return
	}
	weaveScalesGeneric(dst, src, stride)
}

// hasWeave reports whether the tier has the kernels.
func hasWeave() bool { return tier >= avx2 || tier == wasm }

func weaveGeneric(dst, src []byte, stride, n, in, out int, flip byte) {
	x := 0x01010101 * uint32(flip)
	for i := range n {
		for r := range PanelRows {
			from := src[i*in+r*stride:][:16]
			for v := range 4 {
				to := dst[i*out+v*vector+4*r:][:4]
				binary.LittleEndian.PutUint32(to, binary.LittleEndian.Uint32(from[4*v:])^x)
			}
		}
	}
}

func weaveHalvesGeneric(dst, src []byte, stride, n, in, out, other int) {
	const low = 0x0f0f0f0f0f0f0f0f
	var all [8 * vector]byte
	for i := range n {
		weaveGeneric(all[:], src[i*in:], stride, 2, 16, 4*vector, 0)
		for j := 0; j < 4*vector; j += 8 {
			x, y := binary.LittleEndian.Uint64(all[j:]), binary.LittleEndian.Uint64(all[j+4*vector:])
			binary.LittleEndian.PutUint64(dst[i*out+j:], x&low|y&low<<4)
			binary.LittleEndian.PutUint64(dst[i*out+other+j:], x>>4&low|y&^low)
		}
	}
}

// weaveBitsGeneric weaves the bytes, and then bits and vectors change places.
func weaveBitsGeneric(dst, src []byte, stride, out int, two bool) {
	var all [8 * vector]byte
	weaveGeneric(all[:], src, stride, 2, 16, 4*vector, 0)
	for i := 0; i < vector; i += 8 {
		var x [8]uint64
		for j := range x {
			x[j] = binary.LittleEndian.Uint64(all[j*vector+i:])
		}
		for j := 0; j < 8 && !two; j += 2 {
			exchange(&x[j], &x[j+1], 1, 0x5555555555555555)
		}
		for _, j := range [...]int{0, 1, 4, 5} {
			exchange(&x[j], &x[j+2], 2, 0x3333333333333333)
		}
		for j := range 4 {
			exchange(&x[j], &x[j+4], 4, 0x0f0f0f0f0f0f0f0f)
		}
		for j, v := range x {
			at := j*out + i
			if two {
				at = j/2*out + j%2*vector + i
			}
			binary.LittleEndian.PutUint64(dst[at:], v)
		}
	}
}

// exchange swaps the bits of a above the mask and the bits of b in the mask, n bits apart.
func exchange(a, b *uint64, n int, mask uint64) {
	t := (*a>>n ^ *b) & mask
	*b ^= t
	*a ^= t << n
}

func weaveWordsGeneric(dst []uint16, src []byte, stride, n, in int) {
	for i := range n {
		for r := range PanelRows {
			dst[i*PanelRows+r] = binary.LittleEndian.Uint16(src[i*in+r*stride:])
		}
	}
}

func weaveBytesGeneric(dst, src []byte, stride int) {
	for r := range PanelRows {
		for g, v := range src[r*stride:][:16] {
			dst[g*PanelRows+r] = v
		}
	}
}

func weaveScalesGeneric(dst, src []byte, stride int) {
	const words, groups = 2 * PanelRows, 8 * PanelRows
	scales, mins := dst[2*words:][:groups], dst[2*words+groups:][:groups]
	for r := range PanelRows {
		b := src[r*stride:][:16]
		binary.NativeEndian.PutUint16(dst[2*r:], binary.LittleEndian.Uint16(b))
		binary.NativeEndian.PutUint16(dst[words+2*r:], binary.LittleEndian.Uint16(b[2:])^1<<15)
		for g := range 4 {
			at := g*PanelRows + r
			scales[at], mins[at] = b[4+g]&63, b[8+g]&63
			scales[at+groups/2], mins[at+groups/2] = b[12+g]&15|b[4+g]>>6<<4, b[12+g]>>4|b[8+g]>>6<<4
		}
	}
}
