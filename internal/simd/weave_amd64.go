package simd

//go:noescape
func weaveAVX512(dst, src *byte, stride, n, in, out int, flip byte)

//go:noescape
func weaveHalvesAVX512(dst, src *byte, stride, n, in, out, other int)

func weave(dst, src []byte, stride, n, in, out int, flip byte) {
	if tier < avx512 {
		weaveGeneric(dst, src, stride, n, in, out, flip)
		return
	}
	weaveAVX512(&dst[0], &src[0], stride, n, in, out, flip)
}

func weaveHalves(dst, src []byte, stride, n, in, out, other int) {
	if tier < avx512 {
		weaveHalvesGeneric(dst, src, stride, n, in, out, other)
		return
	}
	weaveHalvesAVX512(&dst[0], &src[0], stride, n, in, out, other)
}

//go:noescape
func weaveBitsAVX512(dst, src *byte, stride, out, two int)

func weaveBits(dst, src []byte, stride, out int, two bool) {
	switch {
	case tier < avx512:
		weaveBitsGeneric(dst, src, stride, out, two)
	case two:
		weaveBitsAVX512(&dst[0], &src[0], stride, out, 1)
	default:
		weaveBitsAVX512(&dst[0], &src[0], stride, out, 0)
	}
}
