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
func panelScalesAVX512(dst []float32, d *uint16, scale []int8)

//go:noescape
func unpack4AVX2(dst, src []byte)

//go:noescape
func unpack41AVX2(dst, src []byte)

//go:noescape
func unpack42AVX2(dst, src []byte)

//go:noescape
func unpack2AVX2(dst, src []byte)

//go:noescape
func unpack21AVX2(dst, src []byte)

//go:noescape
func unpackTableAVX2(dst, src []byte, table *[16]byte)

//go:noescape
func panelScalesAVX2(dst []float32, d *uint16, scale []int8)

func unpack4(dst, src []byte) {
	switch {
	case tier >= avx512:
		unpack4AVX512(dst, src)
	case tier >= avx2:
		unpack4AVX2(dst, src)
	default:
		unpackGeneric(dst, src, true, false, false)
	}
}

func unpack41(dst, src []byte) {
	switch {
	case tier >= avx512:
		unpack41AVX512(dst, src)
	case tier >= avx2:
		unpack41AVX2(dst, src)
	default:
		unpackGeneric(dst, src, true, false, true)
	}
}

func unpack42(dst, src []byte) {
	switch {
	case tier >= avx512:
		unpack42AVX512(dst, src)
	case tier >= avx2:
		unpack42AVX2(dst, src)
	default:
		unpackGeneric(dst, src, true, true, false)
	}
}

func unpack2(dst, src []byte) {
	switch {
	case tier >= avx512:
		unpack2AVX512(dst, src)
	case tier >= avx2:
		unpack2AVX2(dst, src)
	default:
		unpackGeneric(dst, src, false, true, false)
	}
}

func unpack21(dst, src []byte) {
	switch {
	case tier >= avx512:
		unpack21AVX512(dst, src)
	case tier >= avx2:
		unpack21AVX2(dst, src)
	default:
		unpackGeneric(dst, src, false, true, true)
	}
}

func unpackTable(dst, src []byte, table *[16]byte) {
	switch {
	case tier >= avx512:
		unpackTableAVX512(dst, src, table)
	case tier >= avx2:
		unpackTableAVX2(dst, src, table)
	default:
		unpackTableGeneric(dst, src, table)
	}
}

func panelScales(dst []float32, d []uint16, scale []int8) {
	d, dst = d[:PanelRows], dst[:len(scale)]
	switch {
	case tier == generic || len(scale)%PanelRows != 0:
		panelScalesGeneric(dst, d, scale)
	case tier >= avx512:
		panelScalesAVX512(dst, &d[0], scale)
	default:
		panelScalesAVX2(dst, &d[0], scale)
	}
}
