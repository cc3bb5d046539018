package simd

import (
	"bytes"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
)

// panelCase is a random panel of k columns and rows of activations for it.
func panelCase(r *rand.Rand, k, group, rows int, min, init bool) (*Panel, *Acts) {
	groups := k / group
	w := &Panel{Codes: make([]byte, k*PanelRows), Scale: values(r, groups*PanelRows), Group: group}
	x := &Acts{Q: make([]int16, rows*k), DX: values(r, rows*k/ActGroup)}
	for i := range w.Codes {
		w.Codes[i] = byte(r.Uint32())
		if r.IntN(8) == 0 {
			w.Codes[i] = 255
		}
	}
	w.Wide = make([]uint16, len(w.Codes))
	widenGeneric(w.Wide, w.Codes, byte(rows))
	for i := range x.Q {
		x.Q[i] = int16(r.Uint32())
		if r.IntN(8) == 0 {
			x.Q[i] = -32768
		}
	}
	if init {
		x.Init = make([]int32, rows*groups)
		for i := range x.Init {
			x.Init[i] = int32(r.Uint32()) >> 4
		}
	}
	if min {
		w.Min, x.Sums = values(r, groups*PanelRows), values(r, rows*groups)
	}
	return w, x
}

// TestAddPanel compares every tier with the generic twin.
func TestAddPanel(t *testing.T) {
	eachTier(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 7))
		for _, k := range []int{32, 64, 96, 224, 256} {
			for _, group := range []int{16, 32} {
				for _, rows := range []int{0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 40} {
					for i := range 4 {
						w, x := panelCase(r, k, group, rows, i&1 == 1, i&2 == 2)
						acc := values(r, rows*PanelRows)
						want := slices.Clone(acc)
						addPanelGeneric(want, w, x)
						AddPanel(acc, w, x)
						equal(t, fmt.Sprintf("k %d group %d rows %d case %d", k, group, rows, i), acc, want)
					}
				}
			}
		}
	})
}

// stored is the i-th way to store a chunk.
func stored(i int) *Stored {
	if i%12 == 5 { // MXFP4 and NVFP4
		s := &Stored{Codes: CodesTable, Table: new([16]byte), Group: 32, Brain: true, Scales: 256, Chunk: 256 + 8*4*vector}
		if i%24 == 5 {
			s.Group, s.Brain, s.Small, s.Mul, s.Div = 16, false, true, 0.37, 1+float32(i%48)
			if i%48 == 5 {
				s.Mul, s.Div = 1, 1 // as GGUF has it
			}
		}
		return s
	}
	if i%32 == 19 {
		f := gridFormats[0]
		f.Codes = [16]byte{121, 129, 137, 0, 121, 129, 137, 0, 119, 127, 135, 0, 119, 127, 135}
		points, r := make([]byte, 2*2048), rng(3)
		for i := range points {
			points[i] = byte(r.Uint32())
			points[i] &^= points[i] & 0x55 << 1 // levels of 0 to 2
		}
		f.Points = string(points)
		g := NewGrid(&f)
		return &Stored{Codes: CodesPoints, Table: new([16]byte), Group: 32, Shared: 8, Grid: g, Scales: vector,
			Chunk: g.Bytes()}
	}
	if i%32 == 9 {
		return &Stored{Codes: CodesDigits, Table: new([16]byte), Group: 32, Shared: 8, Offset: 1, Scales: vector,
			Chunk: vector + DigitBytes}
	}
	if i%8 == 7 {
		shared := 2 << (i / 16 % 3)
		scales := max(StoredColumns/ActGroup/shared*2*PanelRows, vector)
		if i%16 == 7 {
			return &Stored{Codes: Codes2, Table: new([16]byte), Group: 32, Shared: shared, Scales: scales, Chunk: scales + 8*2*vector}
		}
		return &Stored{Codes: Codes1, Table: new([16]byte), Group: 32, Shared: shared, Scales: scales, Chunk: scales + 8*vector}
	}
	if i%8 == 3 { // grouped types
		c := []Codes{Codes4, Codes41, Codes42, Codes8, Codes2, Codes21}[i/8%6]
		s := &Stored{Codes: c, Table: new([16]byte), Group: 32, Shared: 1 << (i / 48 % 3), Min: i/144%2 == 0, Zero: i/144%2 == 1}
		s.Scales = (StoredColumns/ActGroup/s.Shared*s.head() + 63) &^ 63
		s.Chunk = s.Scales + 8*c.UnitBytes()
		return s
	}
	s := &Stored{Codes: Codes(i % 5), Table: new([16]byte), Group: 32, Bytes: i/5&1 == 1, Min: i/10&1 == 1}
	if s.Codes == Codes42 {
		s.Group, s.Bytes, s.Min = 16, true, false
	}
	s.Scales = StoredColumns / s.Group * PanelRows
	if s.Bytes {
		s.Scales += 2 * PanelRows
	} else {
		s.Scales *= 2
	}
	if s.Min {
		s.Scales *= 2
	}
	s.Scales = (s.Scales + 63) &^ 63
	s.Chunk = s.Scales + 8*[]int{4, 4, 5, 6, 8}[s.Codes]*vector
	return s
}

// TestAddRow compares every tier with the generic twin, over panels and activations
// that end where memory ends.
func TestAddRow(t *testing.T) {
	defer func(f func() bool) { gathers = f }(gathers)
	gathers = func() bool { return true }
	guard := guarded(t)
	eachTier(t, func(t *testing.T) {
		r := rng(8)
		for i := range 288 {
			s, chunks := stored(i), 1+i%3
			for j := range s.Table {
				s.Table[j] = byte(r.Uint32())
			}
			n, places := 1+i/3%2, 1+i/6%5/chunks
			_, x := panelCase(r, chunks*StoredColumns, s.Group, 1, s.Min, i/20&1 == 1)
			panel := chunks*s.Chunk + i%2*s.Chunk/2
			gap := n*panel + i%4*64
			data := as[byte](guard, (places-1)*gap+(n-1)*panel+chunks*s.Chunk)
			for j := range data {
				data[j] = byte(r.Uint32()) // exponents of all kinds, NaN and infinity too
			}
			q := as[int16](guard, len(x.Q))
			copy(q, x.Q)
			if i%7 == 6 { // the largest sums
				for j := range chunks {
					copy(data[j*s.Chunk+s.Scales:(j+1)*s.Chunk], bytes.Repeat([]byte{255}, s.Chunk))
				}
				copy(q, slices.Repeat([]int16{-32768}, len(q)))
			}
			x.Q = q
			if s.Zero {
				for j := range data {
					data[j] &= 127
				}
				x.Init = make([]int32, len(x.Q)/s.Group)
				GroupInit(x.Init, x.Q, s.Group, 128)
			}
			acc := values(r, places*n*PanelRows)
			want := slices.Clone(acc)
			addPanelsGeneric(want, data, n, panel, gap, s, x)
			AddRow(acc, data, n, panel, gap, s, x)
			equal(t, fmt.Sprintf("case %d: places %d panels %d chunks %d %+v", i, places, n, chunks, *s), acc, want)
		}
	})
}

// addPanelByHand states the contract with math/big.
func addPanelByHand(acc []float32, w *Panel, x *Acts) {
	groups := len(w.Scale) / PanelRows
	for i := range acc {
		t, r := i/PanelRows, i%PanelRows
		for g := range groups {
			at := t*groups + g
			dot := new(big.Int)
			if x.Init != nil {
				dot.SetInt64(int64(x.Init[at]))
			}
			for c := g * w.Group; c < (g+1)*w.Group; c++ {
				code, q := w.Codes[c/4*vector+4*r+c%4], x.Q[t*groups*w.Group+c&^3+order[c%4]]
				dot.Add(dot, big.NewInt(int64(code)*int64(q)))
			}
			f, _ := new(big.Float).SetInt(dot).Float32()
			acc[i] = bigFMA(f*x.DX[at*w.Group/ActGroup], w.Scale[g*PanelRows+r], acc[i])
			if w.Min != nil {
				acc[i] = bigFMA(x.Sums[at], w.Min[g*PanelRows+r], acc[i])
			}
		}
	}
}

// TestAddPanelByHand also has products that are all at their largest, and
// numbers of any bits.
func TestAddPanelByHand(t *testing.T) {
	eachTier(t, func(t *testing.T) {
		r := rng(7)
		for i := range 48 {
			k, rows := 32*(1+i%7), 1+i%5
			w, x := panelCase(r, k, 16+i&1*16, rows, i&2 == 2, i&4 == 4)
			if i%3 == 1 {
				w.Scale, x.DX = anything(r, len(w.Scale), i&8 == 8), anything(r, len(x.DX), i&8 == 8)
			}
			if i%3 == 2 {
				w.Codes = bytes.Repeat([]byte{255}, len(w.Codes))
				x.Q = slices.Repeat([]int16{-32768, 32767}[i>>3&1:][:1], len(x.Q))
			}
			got, want := make([]float32, rows*PanelRows), make([]float32, rows*PanelRows)
			addPanelByHand(want, w, x)
			AddPanel(got, w, x)
			equal(t, fmt.Sprintf("case %d", i), got, want)
		}
	})
}

// TestAddPanelTwins is TestAddPanel over slices that end where memory ends, and
// numbers of any bits.
func TestAddPanelTwins(t *testing.T) {
	guard := guarded(t)
	eachTier(t, func(t *testing.T) {
		r := rng(33)
		for i := range 1500 {
			group, rows, k := 16+i&1*16, r.IntN(20), 32*r.IntN(20)
			from, x := panelCase(r, k, group, rows, i&2 == 2, i&4 == 4)
			lend := func(s []float32) []float32 {
				if s == nil {
					return nil
				}
				if i%8 > 3 {
					s = anything(r, len(s), i%3 == 0)
				}
				dst := guard(len(s))
				copy(dst, s)
				return dst
			}
			w := &Panel{Codes: as[byte](guard, len(from.Codes)), Scale: lend(from.Scale), Min: lend(from.Min), Group: group}
			copy(w.Codes, from.Codes)
			q := as[int16](guard, len(x.Q))
			copy(q, x.Q)
			x.Q, x.DX, x.Sums = q, lend(x.DX), lend(x.Sums)
			if x.Init != nil {
				init := as[int32](guard, len(x.Init))
				copy(init, x.Init)
				x.Init = init
			}
			acc := lend(values(r, rows*PanelRows))
			want := slices.Clone(acc)
			addPanelGeneric(want, w, x)
			AddPanel(acc, w, x)
			equal(t, fmt.Sprintf("k %d group %d rows %d case %d", k, group, rows, i), acc, want)
		}
	})
}

// TestAddTiles compares every tier with the generic twin, over slices that end
// where memory ends. (There is memory for one panel of them.)
func TestAddTiles(t *testing.T) {
	guard := guarded(t)
	lend := func(s []float32) []float32 {
		if s == nil {
			return nil
		}
		dst := guard(len(s))
		copy(dst, s)
		return dst
	}
	eachTier(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(2, 7))
		for i, k := range []int{32, 64, 96, 128, 160, 224, 256} {
			for _, group := range []int{16, 32} {
				for _, rows := range []int{0, 1, 3, 4, 5, 8, 11, 12, 15, 16, 17, 22, 40, 49, 64} {
					last, x := panelCase(r, k, group, rows, rows&1 == 1, false)
					wide, parts := as[uint16](guard, len(last.Wide)), as[uint16](guard, 2*len(x.Q))
					copy(wide, last.Wide)
					Split(parts, x.Q)
					last.Wide, last.Scale, last.Min, x.DX, x.Sums = wide, lend(last.Scale), lend(last.Min), lend(x.DX), lend(x.Sums)
					var w []*Panel
					for range (i + rows) % min(18, 1+900/(rows+1)) {
						p, _ := panelCase(r, k, group, rows, last.Min != nil, false)
						w = append(w, p)
					}
					w = append(w, last)
					acc := lend(values(r, len(w)*rows*PanelRows))
					want := slices.Clone(acc)
					addTilesGeneric(want, w, x, parts)
					AddTiles(acc, w, x, parts)
					equal(t, fmt.Sprintf("k %d group %d rows %d panels %d", k, group, rows, len(w)), acc, want)
				}
			}
		}
	})
}

// TestTilesRound has sums of which float32 has about one in 16, among them those
// that are halfway between two, and the largest there are.
func TestTilesRound(t *testing.T) {
	const k, rows = 256, 64
	eachTier(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(5, 7))
		for i := range 200 {
			group, n := 16+i%2*16, byte(i%3*64)
			w, x := panelCase(r, k, group, rows, false, false)
			for j := range w.Codes {
				w.Codes[j] = 255 - byte(r.Uint32())&3
				if i%5 == 4 {
					w.Codes[j] = byte(r.IntN(2) * 255)
				}
			}
			for j := range x.Q {
				x.Q[j] = 32767 - int16(r.IntN(4))*int16(r.IntN(200))
				if i%7 == 6 {
					x.Q[j] = -32768
				}
			}
			widenGeneric(w.Wide, w.Codes, n)
			for j := range w.Scale {
				w.Scale[j] = 1
			}
			for j := range x.DX {
				x.DX[j] = 1
			}
			parts := make([]uint16, 2*len(x.Q))
			Split(parts, x.Q)
			for _, run := range []int{32, k} { // one group's sum or two, and those of all
				v := *w
				v.Scale = w.Scale[:run/group*PanelRows]
				rowsOf := func(from []uint16) (to []uint16) {
					for t := range rows {
						to = append(to, from[2*t*k:2*t*k+2*run]...)
					}
					return to
				}
				got, want := make([]float32, rows*PanelRows), make([]float32, rows*PanelRows)
				addTilesGeneric(want, []*Panel{&v}, x, rowsOf(parts))
				AddTiles(got, []*Panel{&v}, x, rowsOf(parts))
				equal(t, fmt.Sprintf("case %d of %d", i, run), got, want)
			}
		}
	})
}

// TestTilesArePanels holds the two contracts together: unsigned codes with
// Init, and those less an offset without.
func TestTilesArePanels(t *testing.T) {
	const k, rows, offset = 256, 20, 128
	eachTier(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(3, 7))
		for _, group := range []int{16, 32} {
			w, x := panelCase(r, k, group, rows, true, true)
			GroupInit(x.Init, x.Q, group, offset)
			acc := values(r, rows*PanelRows)
			want := slices.Clone(acc)
			AddPanel(want, w, x)
			parts := make([]uint16, 2*len(x.Q))
			Split(parts, x.Q)
			Widen(w.Wide, w.Codes, offset)
			AddTiles(acc, []*Panel{w}, x, parts)
			equal(t, "tiles", acc, want)
		}
	})
}

// TestUnpack compares every tier with the generic twins.
func TestUnpack(t *testing.T) {
	table := [16]byte{1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241}
	eachTier(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(4, 7))
		for _, units := range []int{0, 1, 2, 3, 8} {
			src := make([]byte, units*UnitSize)
			for i := range src {
				src[i] = byte(r.Uint32())
			}
			got, want := make([]byte, len(src)), make([]byte, len(src))
			for _, c := range packed {
				Unpack(got, src, c, &table)
				unpackGeneric(want, src, c, &table)
				if !bytes.Equal(got, want) {
					t.Errorf("codes %d: %d units differ", c, units)
				}
			}
			q := make([]int16, len(src)/2)
			for i := range q {
				q[i] = int16(src[2*i]) | int16(src[2*i+1])<<8
			}
			parts, twin := make([]uint16, len(src)), make([]uint16, len(src))
			for _, offset := range []byte{0, 8, 128} {
				Widen(parts, src, offset)
				widenGeneric(twin, src, offset)
				if !slices.Equal(parts, twin) {
					t.Errorf("Widen: %d units differ", units)
				}
			}
			Split(parts, q)
			if splitGeneric(twin, q); !slices.Equal(parts, twin) {
				t.Errorf("Split: %d units differ", units)
			}
		}
	})
}

// TestShift subtracts zero points, by the contract.
func TestShift(t *testing.T) {
	guard := guarded(t)
	eachTier(t, func(t *testing.T) {
		r := rng(12)
		for _, block := range []int{32, 64, 128} {
			codes, zeros := as[byte](guard, 256*PanelRows), make([]byte, 256/block*PanelRows)
			want := make([]byte, len(codes))
			for i := range zeros {
				zeros[i] = byte(r.IntN(128))
			}
			for i := range codes {
				codes[i] = byte(r.IntN(128))
				want[i] = codes[i] + 128 - zeros[i/PanelRows/block*PanelRows+i/4%PanelRows]
			}
			if Shift(codes, zeros, block); !bytes.Equal(codes, want) {
				t.Errorf("blocks of %d differ", block)
			}
		}
	})
}

// TestUnpackPart: less than a unit of codes is left.
func TestUnpackPart(t *testing.T) {
	guard := guarded(t)
	var table [16]byte
	eachTier(t, func(t *testing.T) {
		for _, c := range packed {
			for _, n := range []int{0, 1, UnitSize - 1, UnitSize + 64} {
				dst := as[byte](guard, n)
				for i := range dst {
					dst[i] = 99
				}
				Unpack(dst, as[byte](guard, n/UnitSize*6*vector), c, &table)
				for i, v := range dst {
					if (v == 99) != (i >= n/UnitSize*UnitSize) {
						t.Fatalf("%d of %d bytes: byte %d is %d", n/UnitSize*UnitSize, n, i, v)
					}
				}
			}
		}
	})
}

// TestPanelScales compares every tier with the generic twin, for all binary16.
func TestPanelScales(t *testing.T) {
	eachTier(t, func(t *testing.T) {
		var d [PanelRows]uint16
		scale := make([]int8, 16*PanelRows)
		for first := 0; first < 1<<16; first += PanelRows {
			for i := range d {
				d[i] = uint16(first + i)
			}
			for i := range scale {
				scale[i] = int8(first/PanelRows + i*37)
			}
			got, want := make([]float32, len(scale)), make([]float32, len(scale))
			PanelScales(got, d[:], scale)
			panelScalesGeneric(want, d[:], scale)
			equal(t, "scales", got, want)
		}
	})
}

// TestWeave compares every tier with the generic twins, over rows that end where
// memory ends.
func TestWeave(t *testing.T) {
	guard := guarded(t)
	eachTier(t, func(t *testing.T) {
		r := rng(9)
		for i := range 200 {
			n, in, out := 1+i%5, 16+r.IntN(20), 4*vector+r.IntN(3)*64
			last := (n - 1) * in
			stride := last + 32 + r.IntN(100)
			src := as[byte](guard, (PanelRows-1)*stride+last+16+i%2*16)
			for j := range src {
				src[j] = byte(r.Uint32())
			}
			got := as[byte](guard, (n-1)*out+4*vector)
			want := bytes.Repeat([]byte{7}, len(got))
			copy(got, want)
			weaveGeneric(want, src, stride, n, in, out, byte(i))
			Weave(got, src, stride, n, in, out, byte(i))
			if !bytes.Equal(got, want) {
				t.Fatalf("case %d: other vectors", i)
			}
			if i%2 == 0 {
				continue
			}
			got, want = as[byte](guard, len(got)+n*out), make([]byte, len(got)+n*out)
			clear(got)
			weaveHalvesGeneric(want, src, stride, n, in, out, n*out)
			WeaveHalves(got, src, stride, n, in, out, n*out)
			if !bytes.Equal(got, want) {
				t.Fatalf("case %d: other halves", i)
			}
			got, want = as[byte](guard, 7*out+2*vector), make([]byte, 7*out+2*vector)
			clear(got)
			weaveBitsGeneric(want, src[last:], stride, out, i&2 == 2)
			WeaveBits(got, src[last:], stride, out, i&2 == 2)
			if !bytes.Equal(got, want) {
				t.Fatalf("case %d: other bits", i)
			}
		}
	})
}

// TestWeaveScales is TestWeave for scales.
func TestWeaveScales(t *testing.T) {
	guard := guarded(t)
	eachTier(t, func(t *testing.T) {
		r := rng(11)
		for i := range 100 {
			n, in := 1+i%9, 2+r.IntN(40)
			for _, size := range []int{(n-1)*in + 2, 16} { // of a row
				stride := size + r.IntN(50)
				src := as[byte](guard, (PanelRows-1)*stride+size)
				for j := range src {
					src[j] = byte(r.Uint32())
				}
				if size != 16 {
					got, want := as[uint16](guard, n*PanelRows), make([]uint16, n*PanelRows)
					weaveWordsGeneric(want, src, stride, n, in)
					if WeaveWords(got, src, stride, n, in); !slices.Equal(got, want) {
						t.Fatalf("case %d: other words", i)
					}
					continue
				}
				got, want := as[byte](guard, 320), make([]byte, 320)
				weaveBytesGeneric(want[:256], src, stride)
				if WeaveBytes(got[:256], src, stride); !bytes.Equal(got[:256], want[:256]) {
					t.Fatalf("case %d: other bytes", i)
				}
				weaveScalesGeneric(want, src, stride)
				if WeaveScales(got, src, stride); !bytes.Equal(got, want) {
					t.Fatalf("case %d: other scales", i)
				}
			}
		}
	})
}

// TestWidenPlanes compares every tier with the generic twin, and that with Widen.
func TestWidenPlanes(t *testing.T) {
	guard := guarded(t)
	eachTier(t, func(t *testing.T) {
		r := rng(10)
		for i := range 60 {
			c, n, offset := Codes(i%4), i/4%5, i%33
			var table [64]uint16
			for j := range table {
				code := j
				if c < Codes41 {
					code &= 15
				}
				table[j] = bfloat(int32(code - offset))
			}
			src := as[byte](guard, n*planes[c]*vector)
			for j := range src {
				src[j] = byte(r.Uint32())
			}
			got, want, codes := as[uint16](guard, n*UnitSize), make([]uint16, n*UnitSize), make([]byte, n*UnitSize)
			if c == CodesTable {
				unpackGeneric(codes, src, Codes4, nil)
			} else {
				unpackGeneric(codes, src, c, nil)
			}
			widenGeneric(want, codes, byte(offset))
			WidenPlanes(got, src, c, &table)
			if !slices.Equal(got, want) {
				t.Fatalf("case %d: other numbers", i)
			}
		}
	})
}
