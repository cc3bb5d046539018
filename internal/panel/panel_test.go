package panel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/simd"
	"github.com/karat-run/karat/internal/tensor"
)

// TestPack packs random blocks of every type and compares what comes out with
// quant.Dequantize, and the memory with the file's.
func TestPack(t *testing.T) {
	for d := tensor.Q4_0; d <= tensor.MXFP4; d++ {
		for _, shape := range [][2]int{{1, 256}, {16, 512}, {35, 768}, {17, 32}, {5, 288}} {
			n, k := shape[0], shape[1]
			if k%d.BlockSize() != 0 {
				continue
			}
			t.Run(fmt.Sprintf("%v/%dx%d", d, n, k), func(t *testing.T) { roundTrip(t, d, n, k) })
		}
	}
}

func roundTrip(t *testing.T, d tensor.DType, n, k int) {
	r := rand.New(rand.NewPCG(1, uint64(d)))
	rows := make([]byte, n*d.RowBytes(k))
	for i := range rows {
		rows[i] = byte(r.Uint32())
	}
	want := make([]float32, n*k)
	if err := quant.Dequantize(d, want, rows); err != nil {
		t.Fatal(err)
	}
	w, err := New(d, n, k, make([]byte, Size(d, n, k)))
	if err != nil {
		t.Fatal(err)
	}
	var s Scratch
	for p := range w.Panels() {
		if err := w.Pack(p, rows[p*Rows*d.RowBytes(k):min((p+1)*Rows, n)*d.RowBytes(k)]); err != nil {
			t.Fatal(err)
		}
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
	if extra := float64(len(w.data)) / float64(len(rows)); n == 16 && extra > 1.06 {
		t.Errorf("panels take %.3f of the file's blocks", extra)
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
	w.AddRow(got[:], p, p+1, 0, &x)
	for c := range columns / Chunk {
		w.Unpack(s, p, c, false)
		g := Chunk / w.Group()
		simd.AddPanel(want[:], &s.Panel, &simd.Acts{Q: x.Q[c*Chunk:][:Chunk], DX: x.DX[c*Chunk/simd.ActGroup:], Init: x.Init[c*g:], Sums: x.Sums[c*g:]})
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

// TestInPlace: a weight in place unpacks to what one in panels does, and its rows'
// products have the same bits.
func TestInPlace(t *testing.T) {
	const n, k = 3 * Rows, 2 * Chunk
	r, stride := rand.New(rand.NewPCG(1, 3)), tensor.Q8_0.RowBytes(k)
	rows := make([]byte, n*stride)
	for i := range rows {
		rows[i] = byte(r.Uint32())
	}
	want := make([]float32, n*k)
	if err := quant.Dequantize(tensor.Q8_0, want, rows); err != nil {
		t.Fatal(err)
	}
	w, err := NewInPlace(tensor.Q8_0, n, k, rows)
	if err != nil || !w.HasRow() || w.Stored() != nil {
		t.Fatal(err, w.HasRow(), w.Stored())
	}
	var s Scratch
	for p := range w.Panels() {
		for c := range w.Chunks() {
			for _, tiles := range []bool{false, true} {
				w.Unpack(&s, p, c, tiles)
				compare(t, w, &s, p, c, tiles, want)
			}
		}
		sameRow(t, w, &s, p)
	}
	for d, can := range map[tensor.DType]bool{tensor.Q8_0: simd.HasBlockRow(), tensor.Q4_0: false, tensor.F16: false} {
		if got := InPlace(d, n, k); got != can {
			t.Errorf("%v in place: %v", d, got)
		}
	}
	if InPlace(tensor.Q8_0, n+1, k) || InPlace(tensor.Q8_0, n, k+32) {
		t.Error("a part of a panel is in place")
	}
	for _, bad := range [][2]int{{n, k + Chunk}, {n + Rows, k}, {n - 1, k}, {n, 32}} {
		if _, err := NewInPlace(tensor.Q8_0, bad[0], bad[1], rows); err == nil {
			t.Errorf("%v: no error", bad)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		d    tensor.DType
		n, k int
		size int
	}{{tensor.F16, 16, 32, 1024}, {tensor.Q4_K, 16, 128, 1 << 20}, {tensor.Q8_0, 16, 32, 10}, {tensor.Q8_0, -1, 32, 0}} {
		if _, err := New(c.d, c.n, c.k, make([]byte, c.size)); err == nil {
			t.Errorf("%v: no error", c)
		}
	}
	w, err := New(tensor.Q8_0, 16, 32, make([]byte, Size(tensor.Q8_0, 16, 32)))
	if err != nil || w.Pack(0, make([]byte, 33)) == nil || w.Pack(1, make([]byte, 16*34)) == nil {
		t.Errorf("%v, or Pack takes what does not fit", err)
	}
}

func BenchmarkPack(b *testing.B) {
	for _, d := range []tensor.DType{tensor.Q8_0, tensor.Q4_0, tensor.Q5_0, tensor.Q4_K, tensor.Q5_K, tensor.Q6_K, tensor.IQ4_XS} {
		b.Run(d.String(), func(b *testing.B) {
			const n, k = 16, 2048
			rows := make([]byte, n*d.RowBytes(k))
			w, err := New(d, n, k, make([]byte, Size(d, n, k)))
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(rows)))
			for b.Loop() {
				if err := w.Pack(0, rows); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRow multiplies one row of activations by panels in the cache and in memory, as
// they are stored and unpacked first.
func BenchmarkRow(b *testing.B) {
	const k = 2048
	for _, d := range []tensor.DType{tensor.Q8_0, tensor.Q4_0, tensor.Q4_K, tensor.Q5_K, tensor.Q6_K, tensor.IQ4_XS} {
		for _, panels := range []int{1, 256 << 20 / Size(d, Rows, k) &^ 3} {
			places := min(panels, 4)
			w, err := New(d, panels*Rows, k, make([]byte, panels*Size(d, Rows, k)))
			if err != nil {
				b.Fatal(err)
			}
			groups, acc := k/w.Group(), make([]float32, panels*Rows)
			x := simd.Acts{Q: make([]int16, k), DX: make([]float32, k/simd.ActGroup), Init: make([]int32, groups), Sums: make([]float32, groups)}
			var s Scratch
			b.Run(fmt.Sprintf("%v/%dKB/stored", d, len(w.data)>>10), func(b *testing.B) {
				b.SetBytes(int64(len(w.data)))
				for b.Loop() {
					w.AddRow(acc, 0, panels/places, panels/places, &x)
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
		}
	}
}
