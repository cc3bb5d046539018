package panel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/simd"
	"github.com/karat-run/karat/internal/tensor"
)

// TestPack packs random blocks of every type and compares what comes out with
// quant.Dequantize, and the memory with the file's.
func TestPack(t *testing.T) {
	for _, d := range tensor.QuantizedTypes() {
		for _, shape := range [][2]int{{1, 256}, {16, 512}, {35, 768}, {17, 32}, {5, 288}, {5, 320}, {33, 384}} {
			n, k := shape[0], shape[1]
			if k%d.BlockSize() != 0 {
				continue
			}
			t.Run(fmt.Sprintf("%v/%dx%d", d, n, k), func(t *testing.T) { roundTrip(t, d, n, k) })
		}
	}
}

// newWeight is a weight in place, and in panels.
func newWeight(t testing.TB, x tensor.Tensor) (place, panels *Weight) {
	t.Helper()
	place, err := New(x)
	if err != nil {
		t.Fatal(err)
	}
	if !HasPlanes(x.DType) {
		return place, place
	}
	panels, err = place.Move(make([]byte, Size(x.DType, place.N, place.K)))
	if err != nil {
		t.Fatal(err)
	}
	for p := range panels.Panels() {
		panels.Pack(new(Scratch), p)
	}
	return place, panels
}

func roundTrip(t *testing.T, d tensor.DType, n, k int) {
	r := rand.New(rand.NewPCG(1, uint64(d)))
	rows := make([]byte, n*d.RowBytes(k))
	for i := range rows {
		rows[i] = byte(r.Uint32())
	}
	bound(d, rows)
	want := make([]float32, n*k)
	if err := quant.Dequantize(d, want, rows); err != nil {
		t.Fatal(err)
	}
	place, w := newWeight(t, tensor.Tensor{DType: d, Shape: tensor.Shape{n, k}, Data: rows})
	for _, w := range []*Weight{w, place} {
		var s Scratch
		for p := range w.Panels() {
			for c := range w.Chunks() {
				for _, tiles := range []bool{false, true} {
					w.Unpack(&s, p, c, tiles)
					compare(t, w, &s, p, c, tiles, want)
				}
			}
			if w.Stored() != nil {
				sameRow(t, w, &s, p)
			}
		}
	}
	if extra := float64(len(w.data)) / float64(len(rows)); n == 16 && extra > 1.08 {
		t.Errorf("panels take %.3f of the file's blocks", extra)
	}
}

// bound makes zero points no larger than codes, and codes of 8 bits with zero points of 7.
func bound(d tensor.DType, rows []byte) {
	bits, zero := d.Groups()
	for i := range rows {
		if at := i % d.BlockBytes(); zero && (at == 2 || bits == 8) {
			rows[i] &= byte(1<<min(bits, 7) - 1)
		}
	}
}

// sameRow compares AddRow's products with those of what Unpack makes.
func sameRow(t *testing.T, w *Weight, s *Scratch, p int) {
	t.Helper()
	columns, groups := w.K/Chunk*Chunk, w.K/Chunk*Chunk/w.Group()
	x := simd.Acts{Q: make([]int16, columns), DX: make([]float32, columns/simd.ActGroup), Init: make([]int32, groups), Sums: make([]float32, groups)}
	values := make([]float32, columns)
	for i := range values {
		values[i] = float32(i%7) - 3.1
	}
	simd.Quantize(x.Q, x.DX, values)
	simd.GroupSums(x.Sums, x.Q, x.DX, w.Group())
	simd.GroupInit(x.Init, x.Q, w.Group(), w.Offset())
	var got, want [Rows]float32
	if !w.InPlace() {
		simd.AddRow(got[:], w.Whole(p, p+1), 1, w.Bytes(), 0, w.Stored(), &x)
	}
	for c := range columns / Chunk {
		g := Chunk / w.Group()
		x := simd.Acts{Q: x.Q[c*Chunk:][:Chunk], DX: x.DX[c*Chunk/simd.ActGroup:], Init: x.Init[c*g:], Sums: x.Sums[c*g:]}
		if w.InPlace() {
			simd.AddRow(got[:], w.Woven(s, p, c), 1, w.Bytes(), 0, w.Stored(), &x)
		}
		w.Unpack(s, p, c, false)
		simd.AddPanel(want[:], &s.Panel, &x)
	}
	for r, v := range got {
		if e := want[r]; math.Float32bits(v) != math.Float32bits(e) && (v == v || e == e) {
			t.Fatalf("panel %d row %d: AddRow has %v, AddPanel %v", p, r, v, e)
		}
	}
}

func compare(t *testing.T, w *Weight, s *Scratch, p, c int, tiles bool, want []float32) {
	t.Helper()
	for r := range min(Rows, w.N-p*Rows) {
		for i := range min(Chunk, w.K-c*Chunk) {
			q := float32(int32(s.Codes[i/4*4*Rows+4*r+i%4]) - w.Offset())
			if tiles {
				at := [4]int{0, 2 * Rows, 1, 2*Rows + 1}[i%4] // of a row's four columns
				q = math.Float32frombits(uint32(s.Wide[i/4*4*Rows+at+2*r]) << 16)
			}
			g := i / s.Group * Rows
			v := s.Scale[g+r] * q
			if s.Min != nil {
				v = float32(v) + s.Min[g+r]
			}
			if e := want[(p*Rows+r)*w.K+c*Chunk+i]; math.Float32bits(v) != math.Float32bits(e) && (v == v || e == e) {
				t.Fatalf("row %d column %d tiles %v: %v, want %v", p*Rows+r, c*Chunk+i, tiles, v, e)
			}
		}
	}
}

// TestInPlace: a chunk of a weight in place is, whatever its type and the order of its
// rows, what one in panels stores.
func TestInPlace(t *testing.T) {
	const n = 2*Rows + 3
	for _, d := range tensor.QuantizedTypes() {
		if !HasPlanes(d) {
			continue
		}
		for _, k := range []int{2 * Chunk, Chunk + d.BlockSize()} {
			rows := make([]byte, n*d.RowBytes(k))
			rand.NewChaCha8([32]byte{byte(d)}).Read(rows)
			for _, order := range []func(int) int{nil, func(row int) int { return n - 1 - row }} {
				place, w := newWeight(t, tensor.Tensor{DType: d, Shape: tensor.Shape{n, k}, Data: rows, Order: order})
				if !place.InPlace() || w.InPlace() {
					t.Error("place and panels are exchanged")
				}
				var s Scratch
				for i := range w.Panels() * k / Chunk {
					p, c := i%w.Panels(), i/w.Panels()
					if want, _ := w.chunk(p, c); !slices.Equal(place.Woven(&s, p, c), want) {
						t.Errorf("%v, %d columns, in order %v: other bytes in chunk %d of panel %d", d, k, order == nil, c, p)
					}
				}
			}
		}
	}
}

// TestInPlaceAllocates: once there is a Scratch, reading a weight in place takes no memory.
func TestInPlaceAllocates(t *testing.T) {
	const n, k = Rows + 1, Chunk
	w, err := New(tensor.Tensor{DType: tensor.Q4_K, Shape: tensor.Shape{n, k}, Data: make([]byte, tensor.Q4_K.RowBytes(n*k))})
	if err != nil {
		t.Fatal(err)
	}
	var s Scratch
	if n := testing.AllocsPerRun(10, func() {
		for p := range w.Panels() {
			w.Woven(&s, p, 0)
			w.Unpack(&s, p, 0, false)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		d     tensor.DType
		shape tensor.Shape
		size  int
	}{{tensor.F16, tensor.Shape{16, 32}, 1024}, {tensor.Q4_K, tensor.Shape{16, 128}, 16 * 72}, {tensor.Q8_0, tensor.Shape{16, 32}, 10}, {tensor.Q8_0, tensor.Shape{-1, 32}, 0},
		{tensor.Q8_0, tensor.Shape{1, 16, 32}, 16 * 34}, {tensor.Q8_0, tensor.Shape{32}, 34}, {tensor.Q8_0, tensor.Shape{1 << 40, 1 << 40}, 0}} {
		if _, err := New(tensor.Tensor{DType: c.d, Shape: c.shape, Data: make([]byte, c.size)}); err == nil {
			t.Errorf("%v: no error", c)
		}
	}
	place, _ := newWeight(t, tensor.Tensor{DType: tensor.Q8_0, Shape: tensor.Shape{16, 32}, Data: make([]byte, 16*34)})
	if _, err := place.Move(make([]byte, 16*34)); err == nil {
		t.Error("Move takes memory of another size")
	}
}

// TestFactors: scales of NVFP4 take their factors, a product and a quotient, rounded.
func TestFactors(t *testing.T) {
	const k = 2 * 64
	rows := make([]byte, tensor.NVFP4.RowBytes(Rows*k))
	for i := range rows {
		rows[i] = byte(i * 7 & 0x77)
	}
	for _, by := range [][2]float32{{1, 1}, {1.37, 1}, {1, 0.173}} {
		w, err := NewCoded(tensor.Coded{Tensor: tensor.Tensor{DType: tensor.NVFP4, Shape: tensor.Shape{Rows, k}, Data: rows},
			Mul: by[0], Div: by[1]})
		if err != nil {
			t.Fatal(err)
		}
		var s Scratch
		w.Unpack(&s, 0, 0, false)
		for g := range k / 16 {
			for r := range Rows {
				code := rows[r*w.DType.RowBytes(k)+g/4*36+g%4]
				if got, want := s.Scale[g*Rows+r], float16.E4M3(code)*by[0]/by[1]/2; got != want {
					t.Fatalf("factors %v: scale %d of row %d is %v, want %v", by, g, r, got, want)
				}
			}
		}
	}
}

func BenchmarkPack(b *testing.B) {
	for d := tensor.Q4_0; HasPlanes(d); d++ {
		b.Run(d.String(), func(b *testing.B) {
			const n, k = 16, 2048
			_, w := newWeight(b, tensor.Tensor{DType: d, Shape: tensor.Shape{n, k}, Data: make([]byte, n*d.RowBytes(k))})
			b.SetBytes(int64(n * d.RowBytes(k)))
			for b.Loop() {
				w.Pack(nil, 0)
			}
		})
	}
}

// BenchmarkRow multiplies one row of activations by panels in the cache and in memory, as
// they are stored, unpacked first, and in place.
func BenchmarkRow(b *testing.B) {
	const k = 2048
	for _, d := range []tensor.DType{tensor.Q8_0, tensor.Q4_0, tensor.Q4_K, tensor.Q5_K, tensor.Q6_K, tensor.IQ4_XS} {
		for _, panels := range []int{1, 256 << 20 / Size(d, Rows, k) &^ 3} {
			places := min(panels, 4)
			place, w := newWeight(b, tensor.Tensor{DType: d, Shape: tensor.Shape{panels * Rows, k}, Data: make([]byte, d.RowBytes(panels*Rows*k))})
			groups, acc := k/w.Group(), make([]float32, panels*Rows)
			x := simd.Acts{Q: make([]int16, k), DX: make([]float32, k/simd.ActGroup), Init: make([]int32, groups), Sums: make([]float32, groups)}
			var s Scratch
			b.Run(fmt.Sprintf("%v/%dKB/stored", d, len(w.data)>>10), func(b *testing.B) {
				b.SetBytes(int64(len(w.data)))
				for b.Loop() {
					simd.AddRow(acc, w.Whole(0, panels), panels/places, w.Bytes(), panels/places*w.Bytes(), w.Stored(), &x)
				}
			})
			b.Run(fmt.Sprintf("%v/%dKB/unpacked", d, len(w.data)>>10), func(b *testing.B) {
				b.SetBytes(int64(len(w.data)))
				for b.Loop() {
					for p := range panels * w.Chunks() {
						p, c, g := p/w.Chunks(), p%w.Chunks(), Chunk/w.Group()
						w.Unpack(&s, p, c, false)
						simd.AddPanel(acc[p*Rows:(p+1)*Rows], &s.Panel, &simd.Acts{Q: x.Q[c*Chunk:][:Chunk], DX: x.DX[c*Chunk/simd.ActGroup:], Init: x.Init[c*g:], Sums: x.Sums[c*g:]})
					}
				}
			})
			b.Run(fmt.Sprintf("%v/%dKB/place", d, len(w.data)>>10), func(b *testing.B) {
				b.SetBytes(int64(len(w.data)))
				for b.Loop() {
					for i := range panels * w.Chunks() {
						p, c, g := i/w.Chunks(), i%w.Chunks(), Chunk/w.Group()
						x := simd.Acts{Q: x.Q[c*Chunk:][:Chunk], DX: x.DX[c*Chunk/simd.ActGroup:], Init: x.Init[c*g:], Sums: x.Sums[c*g:]}
						simd.AddRow(acc[p*Rows:(p+1)*Rows], place.Woven(&s, p, c), 1, w.Bytes(), 0, w.Stored(), &x)
					}
				}
			})
		}
	}
}

// BenchmarkUnpack unpacks a panel in place and in panels, and multiplies one row by it.
func BenchmarkUnpack(b *testing.B) {
	const k = 2048
	for _, d := range tensor.QuantizedTypes() {
		rows := make([]byte, d.RowBytes(Rows*k))
		rand.NewChaCha8([32]byte{byte(d)}).Read(rows)
		place, w := newWeight(b, tensor.Tensor{DType: d, Shape: tensor.Shape{Rows, k}, Data: rows})
		g := Chunk / place.Group()
		x := simd.Acts{Q: make([]int16, Chunk), DX: make([]float32, Chunk/simd.ActGroup), Init: make([]int32, g), Sums: make([]float32, g)}
		row := simd.Acts{Q: make([]int16, k), DX: make([]float32, k/simd.ActGroup), Init: make([]int32, k/place.Group()), Sums: make([]float32, k/place.Group())}
		if w.Stored().HasRow() {
			b.Run(d.String()+"/stored", func(b *testing.B) {
				var acc [Rows]float32
				for b.Loop() {
					simd.AddRow(acc[:], w.Whole(0, 1), 1, w.Bytes(), 0, w.Stored(), &row)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/Rows/k*256, "ns/256")
			})
		}
		for name, w := range map[string]*Weight{"place": place, "panels": w} {
			b.Run(d.String()+"/"+name, func(b *testing.B) {
				var s Scratch
				var acc [Rows]float32
				for b.Loop() {
					for c := range w.Chunks() {
						w.Unpack(&s, 0, c, false)
						simd.AddPanel(acc[:], &s.Panel, &x)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/Rows/k*256, "ns/256")
			})
		}
	}
}

// TestMaximums holds maxChunk and maxRow against every quantized type.
func TestMaximums(t *testing.T) {
	for _, d := range tensor.QuantizedTypes() {
		if n := d.RowBytes(Chunk); n > maxRow {
			t.Errorf("%v: %d bytes of a row's part, maxRow is %d", d, n, maxRow)
		}
		if HasPlanes(d) && chunkBytes(d, Chunk) > maxChunk {
			t.Errorf("%v: %d bytes of a chunk, maxChunk is %d", d, chunkBytes(d, Chunk), maxChunk)
		}
	}
}
