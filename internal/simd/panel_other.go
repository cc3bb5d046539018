//go:build !amd64 && !arm64

package simd

func addPanel(acc []float32, w *Panel, x *Acts) { addPanelGeneric(acc, w, x) }

func unpack4(dst, src []byte) { unpackGeneric(dst, src, true, false, false) }

func unpackTable(dst, src []byte, table *[16]byte) { unpackTableGeneric(dst, src, table) }

func unpack41(dst, src []byte) { unpackGeneric(dst, src, true, false, true) }

func unpack42(dst, src []byte) { unpackGeneric(dst, src, true, true, false) }

func unpack2(dst, src []byte) { unpackGeneric(dst, src, false, true, false) }

func unpack21(dst, src []byte) { unpackGeneric(dst, src, false, true, true) }

func panelScales(dst []float32, d []uint16, scale []int8) { panelScalesGeneric(dst, d, scale) }
