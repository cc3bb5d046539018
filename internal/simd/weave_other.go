//go:build !amd64

package simd

func weave(dst, src []byte, stride, n, in, out int, flip byte) {
	weaveGeneric(dst, src, stride, n, in, out, flip)
}

func weaveHalves(dst, src []byte, stride, n, in, out, other int) {
	weaveHalvesGeneric(dst, src, stride, n, in, out, other)
}

func weaveBits(dst, src []byte, stride, out int, two bool) {
	weaveBitsGeneric(dst, src, stride, out, two)
}

func weaveWords(dst []uint16, src []byte, stride, n, in int) {
	weaveWordsGeneric(dst, src, stride, n, in)
}

func weaveBytes(dst, src []byte, stride int) { weaveBytesGeneric(dst, src, stride) }

func weaveScales(dst, src []byte, stride int) { weaveScalesGeneric(dst, src, stride) }
