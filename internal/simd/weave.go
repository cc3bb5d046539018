package simd

// Weave makes vectors of a panel. PanelRows rows begin stride bytes apart in src. For
// each i below n, 4 vectors from dst[i*out] on hold the 16 bytes of each row from
// src[i*in] on: vector v holds bytes 4v to 4v+3 of row 0, then of row 1, and so on,
// each XORed with flip.
func Weave(dst, src []byte, stride, n, in, out int, flip byte) {
	if n > 0 {
		weave(dst[:(n-1)*out+4*vector], src[:(PanelRows-1)*stride+(n-1)*in+16], stride, n, in, out, flip)
	}
}

// WeaveHalves is Weave for 32 bytes of each row, whose low halves are the codes of one
// unit and whose high halves are those of another: the planes of four bits are at
// dst[i*out] and at dst[i*out+other].
func WeaveHalves(dst, src []byte, stride, n, in, out, other int) {
	if n > 0 {
		weaveHalves(dst[:(n-1)*out+other+4*vector], src[:(PanelRows-1)*stride+(n-1)*in+32], stride, n, in, out, other)
	}
}

// WeaveBits packs the planes of one bit of 8 units, or those of two bits of 4. Bit u of
// 32 bytes of each row is that of unit u; if two is set bits 2u and 2u+1 are. The
// planes lie out bytes apart.
func WeaveBits(dst, src []byte, stride, out int, two bool) {
	last := 7*out + vector
	if two {
		last = 3*out + 2*vector
	}
	weaveBits(dst[:last], src[:(PanelRows-1)*stride+32], stride, out, two)
}

// WeaveWords writes the 16 bits of each row from src[i*in] on side by side, for each i
// below n: dst is [n][PanelRows].
func WeaveWords(dst []uint16, src []byte, stride, n, in int) {
	if n > 0 {
		weaveWords(dst[:n*PanelRows], src[:(PanelRows-1)*stride+(n-1)*in+2], stride, n, in)
	}
}

// WeaveBytes writes the 16 bytes that each row begins with side by side: dst is
// [16][PanelRows].
func WeaveBytes(dst, src []byte, stride int) {
	weaveBytes(dst[:16*PanelRows], src[:(PanelRows-1)*stride+16], stride)
}

// WeaveScales makes of the 16 bytes that blocks of Q4_K and Q5_K begin with, one in each
// row, the scales of Stored: two words, the second with its sign changed, and 8 scales and
// 8 minima of 6 bits. Of the first four of each these are the low bits of bytes 4 to 7,
// and 8 to 11; of the others the low and high halves of bytes 12 to 15, with the high bits
// of bytes 4 to 11 above them.
func WeaveScales(dst, src []byte, stride int) {
	weaveScales(dst[:2*2*PanelRows+2*8*PanelRows], src[:(PanelRows-1)*stride+16], stride)
}
