package simd

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"
)

// FuzzTwins is TestTwins over arbitrary bits.
func FuzzTwins(f *testing.F) {
	all := slices.Concat(samples, twins)
	f.Add([]byte("\x00\x00\x80\x3f\x00\x00\x80\x7f"), uint8(0))
	f.Add(make([]byte, 8*33), uint8(3))
	f.Add(slices.Repeat([]byte{0xff, 0x7f, 1}, 8*17), uint8(9))
	f.Fuzz(func(t *testing.T, data []byte, kernel uint8) {
		n := min(len(data)/8, 1000)
		if n == 0 {
			return
		}
		x := make([]float32, 2*n)
		for i := range x {
			x[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		}
		s := all[int(kernel)%len(all)]
		if l, got, want := differ(s, x[:n], x[n:], func(n int) []float32 { return make([]float32, n) }); l != generic {
			t.Errorf("%s of %d elements at tier %s", s.name, n, levels[l])
			equal(t, "bits", got, want)
		}
	})
}

// A tape reads numbers of any bits from data, over and over.
type tape struct {
	data []byte
	at   int
}

func (p *tape) byte() byte {
	p.at++
	return p.data[p.at%len(p.data)]
}

// number returns bits of the tape and of where it is, lest all numbers are one.
func (p *tape) number() uint32 {
	v := uint32(p.byte()) | uint32(p.byte())<<8 | uint32(p.byte())<<16 | uint32(p.byte())<<24
	if p.at%3 == 0 {
		v ^= uint32(p.at) * 0x9e3779b9
	}
	return v
}

func (p *tape) floats(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = math.Float32frombits(p.number())
	}
	return x
}

// fuzzed are the results of the integer kernels over numbers from data, at the
// tier in use: floats, and bytes as floats.
func fuzzed(data []byte, shape uint32) (out []float32) {
	p := &tape{data: data}
	group, k, rows := int(16+shape&1*16), int(32+shape>>8%8*32), int(shape>>16%20)
	w := &Panel{Codes: make([]byte, k*PanelRows), Scale: p.floats(k / group * PanelRows), Group: group}
	for i := range w.Codes {
		w.Codes[i] = p.byte()
	}
	x := &Acts{Q: make([]int16, rows*k), DX: make([]float32, rows*k/ActGroup), Sums: make([]float32, rows*k/group)}
	Quantize(x.Q, x.DX, p.floats(len(x.Q)))
	if shape&2 != 0 {
		for i := range x.Q {
			x.Q[i] = int16(p.number())
		}
	}
	GroupSums(x.Sums, x.Q, x.DX, group)
	if shape&4 != 0 {
		w.Min = p.floats(len(w.Scale))
	}
	if shape&8 != 0 {
		x.Init = make([]int32, len(x.Sums))
		GroupInit(x.Init, x.Q, group, int32(shape>>24%129))
	}
	acc := p.floats(rows * PanelRows)
	AddPanel(acc, w, x)
	split := make([]uint16, 2*len(x.Q))
	Split(split, x.Q)
	w.Wide = make([]uint16, len(w.Codes))
	Widen(w.Wide, w.Codes, byte(shape>>24%129))
	AddTiles(acc, []*Panel{w}, x, split)
	out = slices.Concat(acc, x.DX, x.Sums, p.row(shape))
	for _, v := range slices.Concat(split, w.Wide) {
		out = append(out, float32(v))
	}

	unit, table := make([]byte, UnitSize), [16]byte(w.Codes)
	bytes := func() {
		for _, v := range unit {
			out = append(out, float32(v))
		}
	}
	for _, c := range packed {
		Unpack(unit, w.Codes, c, &table)
		bytes()
	}
	var d [PanelRows]uint16
	scale := make([]int8, 3*PanelRows)
	for i := range d {
		d[i] = uint16(p.number())
	}
	for i := range scale {
		scale[i] = int8(p.byte())
	}
	scales := make([]float32, len(scale))
	PanelScales(scales, d[:], scale)
	return append(out, scales...)
}

// row is the sums of AddRow.
func (p *tape) row(shape uint32) []float32 {
	s := stored(int(shape >> 16 & 31))
	data := make([]byte, (1+int(shape>>21&7))*s.Chunk) // of as many panels
	for i := range data {
		data[i] = p.byte()
	}
	x := &Acts{Q: make([]int16, StoredColumns), DX: make([]float32, StoredColumns/ActGroup), Sums: make([]float32, StoredColumns/s.Group), Init: make([]int32, StoredColumns/s.Group)}
	Quantize(x.Q, x.DX, p.floats(StoredColumns))
	GroupSums(x.Sums, x.Q, x.DX, s.Group)
	GroupInit(x.Init, x.Q, s.Group, int32(shape>>24%129))
	acc := p.floats(len(data) / s.Chunk * PanelRows)
	AddRow(acc, data, 1, 0, s.Chunk, s, x)
	return acc
}

// FuzzPanels compares the kernels of quantized weights at every tier with their
// generic twins.
func FuzzPanels(f *testing.F) {
	f.Add([]byte{1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233}, uint32(0x08070007))
	f.Add([]byte{255, 255, 127, 127, 0}, uint32(0x8004030f))
	f.Add([]byte{0, 0, 128, 255, 0, 0, 192, 127, 1}, uint32(0x00110708))
	f.Fuzz(func(t *testing.T, data []byte, shape uint32) {
		if len(data) == 0 {
			return
		}
		defer func(l level) { tier = l }(tier)
		tier = generic
		want := fuzzed(data, shape)
		for tier = range bestLevel() + 1 {
			equal(t, fmt.Sprintf("tier %s", Tier()), fuzzed(data, shape), want)
		}
	})
}
