package simd

//go:noescape
func weaveAVX512(dst, src *byte, stride, n, in, out int, flip byte)

//go:noescape
func weaveHalvesAVX512(dst, src *byte, stride, n, in, out, other int)

//go:noescape
func weaveBitsAVX512(dst, src *byte, stride, out, two int)

//go:noescape
func weaveAVX2(dst, src *byte, stride, n, in, out int, flip byte)

//go:noescape
func weaveHalvesAVX2(dst, src *byte, stride, n, in, out, other int)

//go:noescape
func weaveBitsAVX2(dst, src *byte, stride, out, two int)

//go:noescape
func weaveWordsAVX2(dst *uint16, src *byte, stride, n, in int)

//go:noescape
func weaveBytesAVX2(dst, src *byte, stride int)

//go:noescape
func weaveScalesAVX2(dst, src *byte, stride int)

func weave(dst, src []byte, stride, n, in, out int, flip byte) {
	switch {
	case tier >= avx512:
		weaveAVX512(&dst[0], &src[0], stride, n, in, out, flip)
	case tier >= avx2:
		weaveAVX2(&dst[0], &src[0], stride, n, in, out, flip)
	default:
		weaveGeneric(dst, src, stride, n, in, out, flip)
	}
}

func weaveHalves(dst, src []byte, stride, n, in, out, other int) {
	switch {
	case tier >= avx512:
		weaveHalvesAVX512(&dst[0], &src[0], stride, n, in, out, other)
	case tier >= avx2:
		weaveHalvesAVX2(&dst[0], &src[0], stride, n, in, out, other)
	default:
		weaveHalvesGeneric(dst, src, stride, n, in, out, other)
	}
}

func weaveBits(dst, src []byte, stride, out int, two bool) {
	n := 0
	if two {
		n = 1
	}
	switch {
	case tier >= avx512:
		weaveBitsAVX512(&dst[0], &src[0], stride, out, n)
	case tier >= avx2:
		weaveBitsAVX2(&dst[0], &src[0], stride, out, n)
	default:
		weaveBitsGeneric(dst, src, stride, out, two)
	}
}

func weaveWords(dst []uint16, src []byte, stride, n, in int) {
	if tier == generic {
		weaveWordsGeneric(dst, src, stride, n, in)
		return
	}
	weaveWordsAVX2(&dst[0], &src[0], stride, n, in)
}

func weaveBytes(dst, src []byte, stride int) {
	if tier == generic {
		weaveBytesGeneric(dst, src, stride)
		return
	}
	weaveBytesAVX2(&dst[0], &src[0], stride)
}

func weaveScales(dst, src []byte, stride int) {
	if tier == generic {
		weaveScalesGeneric(dst, src, stride)
		return
	}
	weaveScalesAVX2(&dst[0], &src[0], stride)
}
