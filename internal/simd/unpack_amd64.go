package simd

//go:noescape
func unpack4AVX512(dst, src []byte)

//go:noescape
func unpack41AVX512(dst, src []byte)

//go:noescape
func unpack42AVX512(dst, src []byte)

//go:noescape
func unpack2AVX512(dst, src []byte)

//go:noescape
func unpack21AVX512(dst, src []byte)

//go:noescape
func unpackTableAVX512(dst, src []byte, table *[16]byte)

//go:noescape
func subtractAVX512(dst, src []byte, n byte)

//go:noescape
func panelScalesAVX512(dst []float32, d *uint16, scale []int8)

func unpack4(dst, src []byte) {
	src = src[:len(dst)/UnitSize*4*vector]
	if tier >= avx512 {
		unpack4AVX512(dst, src)
		return
	}
	unpackGeneric(dst, src, true, false, false)
}

func unpack41(dst, src []byte) {
	src = src[:len(dst)/UnitSize*5*vector]
	if tier >= avx512 {
		unpack41AVX512(dst, src)
		return
	}
	unpackGeneric(dst, src, true, false, true)
}

func unpack42(dst, src []byte) {
	src = src[:len(dst)/UnitSize*6*vector]
	if tier >= avx512 {
		unpack42AVX512(dst, src)
		return
	}
	unpackGeneric(dst, src, true, true, false)
}

func unpack2(dst, src []byte) {
	src = src[:len(dst)/UnitSize*2*vector]
	if tier >= avx512 {
		unpack2AVX512(dst, src)
		return
	}
	unpackGeneric(dst, src, false, true, false)
}

func unpack21(dst, src []byte) {
	src = src[:len(dst)/UnitSize*3*vector]
	if tier >= avx512 {
		unpack21AVX512(dst, src)
		return
	}
	unpackGeneric(dst, src, false, true, true)
}

func unpackTable(dst, src []byte, table *[16]byte) {
	src = src[:len(dst)/UnitSize*4*vector]
	if tier >= avx512 {
		unpackTableAVX512(dst, src, table)
		return
	}
	unpackTableGeneric(dst, src, table)
}

func subtract(dst, src []byte, n byte) {
	src = src[:len(dst)]
	if whole := len(dst) &^ 63; tier >= avx512 {
		subtractAVX512(dst[:whole], src, n)
		dst, src = dst[whole:], src[whole:]
	}
	subtractGeneric(dst, src, n)
}

func panelScales(dst []float32, d []uint16, scale []int8) {
	d, dst = d[:PanelRows], dst[:len(scale)]
	if tier >= avx512 && len(scale)%PanelRows == 0 {
		panelScalesAVX512(dst, &d[0], scale)
		return
	}
	panelScalesGeneric(dst, d, scale)
}
