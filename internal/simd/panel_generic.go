package simd

import (
	"math"

	"github.com/karat-run/karat/internal/float16"
)

// vector is the bytes of a vector of a panel.
const vector = 4 * PanelRows

func addPanelGeneric(acc []float32, w *Panel, x *Acts) {
	groups := len(w.Scale) / PanelRows
	k := groups * w.Group
	for t := range len(acc) / PanelRows {
		q, dx := x.Q[t*k:(t+1)*k], x.DX[t*k/ActGroup:]
		for g := range groups {
			var dot [PanelRows]int32
			if x.Init != nil {
				for r := range dot {
					dot[r] = x.Init[t*groups+g]
				}
			}
			for c := g * w.Group; c < (g+1)*w.Group; c += 4 {
				codes := (*[vector]byte)(w.Codes[c*PanelRows:])
				a, b, e, f := int32(q[c]), int32(q[c+2]), int32(q[c+1]), int32(q[c+3])
				for r := range dot {
					v := codes[4*r : 4*r+4]
					dot[r] += int32(v[0])*a + int32(v[1])*b + int32(v[2])*e + int32(v[3])*f
				}
			}
			addGroup(acc[t*PanelRows:], &dot, w, g, dx[g*w.Group/ActGroup], x.Sums, t*groups)
		}
	}
}

// addGroup adds a group's integer products to a row's sums.
func addGroup(acc []float32, dot *[PanelRows]int32, w *Panel, g int, dx float32, sums []float32, row int) {
	scale := w.Scale[g*PanelRows:]
	for r, i := range dot {
		acc[r] = fma32(float32(float32(i)*dx), scale[r], acc[r])
	}
	if w.Min == nil {
		return
	}
	for r, m := range w.Min[g*PanelRows:][:PanelRows] {
		acc[r] = fma32(sums[row+g], m, acc[r])
	}
}

func addTilesGeneric(acc []float32, w []*Panel, x *Acts, split []uint16) {
	for t := range len(acc) / PanelRows / max(len(w), 1) {
		for i, p := range w {
			addTileRow(acc[(t*len(w)+i)*PanelRows:], p, t, x, split)
		}
	}
}

// addTileRow does addTilesGeneric's work for row t of a single panel.
func addTileRow(acc []float32, w *Panel, t int, x *Acts, split []uint16) {
	groups := len(w.Scale) / PanelRows
	k := groups * w.Group
	parts, dx := split[2*t*k:], x.DX[t*k/ActGroup:]
	for g := range groups {
		var dot [PanelRows]int32
		for i := g * w.Group; i < (g+1)*w.Group; i++ { // in the order of Acts.Q
			at := i/ActGroup*2*ActGroup + i%ActGroup
			a, codes := integer(parts[at])+integer(parts[at+ActGroup]), w.Wide[i/2*2*PanelRows+i%2:]
			for r := range dot {
				dot[r] += integer(codes[2*r]) * a
			}
		}
		addGroup(acc, &dot, w, g, dx[g*w.Group/ActGroup], x.Sums, t*groups)
	}
}

// integer returns the integer value of a bfloat16 number.
func integer(v uint16) int32 { return int32(math.Float32frombits(uint32(v) << 16)) }

// bfloat returns an integer of at most 8 bits, shifted left or not, as bfloat16.
func bfloat(i int32) uint16 { return uint16(math.Float32bits(float32(i)) >> 16) }

func splitGeneric(dst []uint16, q []int16) {
	for i, v := range q {
		at, low := i/ActGroup*2*ActGroup+i%ActGroup, int32(v)&255
		dst[at], dst[at+ActGroup] = bfloat(int32(v)-low), bfloat(low)
	}
}

// order is where the columns of four stand in Acts.Q.
var order = [4]int{0, 2, 1, 3}

func widenGeneric(dst []uint16, codes []byte, offset byte) {
	for i, c := range codes {
		dst[wideIndex(i)] = bfloat(int32(c) - int32(offset))
	}
}

// wideIndex returns the place where Widen puts code i.
func wideIndex(i int) int {
	at := order[i%4]
	return i/vector*vector + at/2*vector/2 + i%vector/4*2 + at%2
}

func widenPlanesGeneric(dst []uint16, src []byte, c Codes, table *[64]uint16) {
	codes := make([]byte, len(dst))
	if c == CodesTable {
		c = Codes4 // the table is made of numbers
	}
	unpackGeneric(codes, src, c, nil)
	for i, c := range codes {
		dst[wideIndex(i)] = table[c]
	}
}

// unpackGeneric unpacks units, plane after plane: of four, two and one bits.
func unpackGeneric(dst, src []byte, c Codes, table *[16]byte) {
	if c == Codes8 {
		copy(dst, src)
		return
	}
	for len(dst) > 0 {
		unit, low := dst[:UnitSize], uint(0)
		clear(unit)
		if c != Codes2 && c != Codes21 && c != Codes1 {
			for i, v := range src[:4*vector] {
				unit[i], unit[i+4*vector] = v&15, v>>4
			}
			src, low = src[4*vector:], 4
		}
		if c == Codes42 || c == Codes2 || c == Codes21 {
			for i, v := range src[:2*vector] {
				for c := range 4 {
					unit[i+2*c*vector] |= v >> (2 * c) & 3 << low
				}
			}
			src, low = src[2*vector:], low+2
		}
		if c == Codes1 {
			low = 1
		}
		if c == Codes41 || c == Codes21 || c == Codes1 {
			for i, v := range src[:vector] {
				for j := range 8 {
					unit[i+j*vector] |= v >> j & 1 << low
				}
			}
			src = src[vector:]
		}
		for i := 0; c == CodesTable && i < len(unit); i++ {
			unit[i] = table[unit[i]]
		}
		dst = dst[UnitSize:]
	}
}

func panelScalesGeneric(dst []float32, d []uint16, scale []int8) {
	var f [PanelRows]float32
	loadF16Generic(f[:], d)
	for i, s := range scale {
		dst[i] = f[i%PanelRows] * float32(s)
	}
}

func loadE4M3Generic(dst []float32, src []byte) {
	for i, e := range src {
		if dst[i] = 0; e != 127 {
			dst[i] = float16.F16(uint16(e&127)<<7) * (1 << 7)
		}
	}
}
