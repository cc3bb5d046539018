package simd

//go:noescape
func unpack4NEON(dst, src []byte)

//go:noescape
func unpack41NEON(dst, src []byte)

//go:noescape
func unpack42NEON(dst, src []byte)

//go:noescape
func unpack2NEON(dst, src []byte)

//go:noescape
func unpack21NEON(dst, src []byte)

//go:noescape
func unpackTableNEON(dst, src []byte, table *[16]byte)

//go:noescape
func panelScalesNEON(dst []float32, d *uint16, scale []int8)

func unpack4(dst, src []byte) {
	if tier > generic {
		unpack4NEON(dst, src)
		return
	}
	unpackGeneric(dst, src, true, false, false)
}

func unpack41(dst, src []byte) {
	if tier > generic {
		unpack41NEON(dst, src)
		return
	}
	unpackGeneric(dst, src, true, false, true)
}

func unpack42(dst, src []byte) {
	if tier > generic {
		unpack42NEON(dst, src)
		return
	}
	unpackGeneric(dst, src, true, true, false)
}

func unpack2(dst, src []byte) {
	if tier > generic {
		unpack2NEON(dst, src)
		return
	}
	unpackGeneric(dst, src, false, true, false)
}

func unpack21(dst, src []byte) {
	if tier > generic {
		unpack21NEON(dst, src)
		return
	}
	unpackGeneric(dst, src, false, true, true)
}

func unpackTable(dst, src []byte, table *[16]byte) {
	if tier > generic {
		unpackTableNEON(dst, src, table)
		return
	}
	unpackTableGeneric(dst, src, table)
}

func panelScales(dst []float32, d []uint16, scale []int8) {
	d, dst = d[:PanelRows], dst[:len(scale)]
	if tier > generic && len(scale)%PanelRows == 0 {
		panelScalesNEON(dst, &d[0], scale)
		return
	}
	panelScalesGeneric(dst, d, scale)
}
