package simd

import "encoding/binary"

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

// WeaveBytes writes bytes of rows, of which a word has 8, side by side: dst is
// [8 or 16][PanelRows].
func WeaveBytes(dst []byte, words *[2][PanelRows]uint64) {
	for n := 0; n < len(dst); n += 8 * PanelRows {
		for r := 0; r < PanelRows; r += 8 {
			x := (*[8]uint64)(words[n/(8*PanelRows)][r:])
			for s, mask := range [...]uint64{0x00ff00ff00ff00ff, 0x0000ffff0000ffff, 0x00000000ffffffff} {
				for j := range x {
					if j>>s&1 == 0 {
						exchange(&x[j], &x[j+1<<s], 8<<s, mask)
					}
				}
			}
			for g, v := range x {
				binary.LittleEndian.PutUint64(dst[n+g*PanelRows+r:], v)
			}
		}
	}
}
