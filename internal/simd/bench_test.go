package simd

import (
	"fmt"
	"slices"
	"testing"
)

// bench runs f at every tier of this machine.
func bench(b *testing.B, bytes int, f func()) {
	defer func(l level) { tier = l }(tier)
	for l := range bestLevel() + 1 {
		tier = l
		b.Run(Tier(), func(b *testing.B) {
			b.SetBytes(int64(bytes))
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
		})
	}
}

func BenchmarkDotF32(b *testing.B) {
	w, x := values(rng(1), 4096), values(rng(2), 4096)
	bench(b, 4*len(w), func() { dotF32(w, x) })
}

// BenchmarkDots multiplies 16 rows of weights by one and by many.
func BenchmarkDots(b *testing.B) {
	const n, k = 16, 2048
	w, h := values(rng(1), n*k), halves(n*k, 1, false)
	e := Eights{Codes: make([]byte, n*k), K: k, Group: 128, Scales: values(rng(3), k/128), At: make([]int, n)}
	for _, rows := range []int{1, 48} {
		x, dst := values(rng(2), rows*k), make([]float32, rows*n)
		b.Run(fmt.Sprintf("f32/rows%d", rows), func(b *testing.B) { bench(b, n*k*4*rows, func() { DotsF32(dst, n, w, x, k) }) })
		b.Run(fmt.Sprintf("f16/rows%d", rows), func(b *testing.B) { bench(b, n*k*2*rows, func() { DotsF16(dst, n, h, x, k) }) })
		b.Run(fmt.Sprintf("bf16/rows%d", rows), func(b *testing.B) { bench(b, n*k*2*rows, func() { DotsBF16(dst, n, h, x, k) }) })
		b.Run(fmt.Sprintf("e4m3/rows%d", rows), func(b *testing.B) { bench(b, n*k*rows, func() { DotsE4M3(dst, n, &e, 0, n, x) }) })
	}
}

func BenchmarkQuantize(b *testing.B) {
	x, q, dx := values(rng(1), 4096), make([]int16, 4096), make([]float32, 4096/ActGroup)
	bench(b, 4*len(x), func() { Quantize(q, dx, x) })
}

func BenchmarkGroupSums(b *testing.B) {
	q, dx, sums := integers(rng(1), 4096), make([]float32, 4096/ActGroup), make([]float32, 4096/16)
	bench(b, 2*len(q), func() { GroupSums(sums, q, dx, 16) })
}

func BenchmarkGroupInit(b *testing.B) {
	q, init := integers(rng(1), 4096), make([]int32, 4096/32)
	bench(b, 2*len(q), func() { GroupInit(init, q, 32, 8) })
}

func BenchmarkSwiGLU(b *testing.B) {
	x, y, dst := values(rng(1), 4096), values(rng(2), 4096), make([]float32, 4096)
	bench(b, 4*len(x), func() { SwiGLU(dst, x, y) })
}

func BenchmarkGeGLU(b *testing.B) {
	x, y, dst := values(rng(1), 4096), values(rng(2), 4096), make([]float32, 4096)
	bench(b, 4*len(x), func() { GeGLU(dst, x, y) })
}

func BenchmarkRMSNorm(b *testing.B) {
	x, w, dst := values(rng(1), 4096), values(rng(2), 4096), make([]float32, 4096)
	bench(b, 4*len(x), func() { RMSNorm(dst, x, w, 1, 1e-6) })
}

// BenchmarkAttention is four heads of 64 over 64 positions.
func BenchmarkAttention(b *testing.B) {
	const d = 64
	var a Attention
	a.Reset(Quad, d, d, 0)
	for i := range Quad {
		copy(a.Query(i), values(rng(1), d))
	}
	k, v := values(rng(2), d*BlockSlots), values(rng(3), d*BlockSlots)
	spans := slices.Repeat([]Span{{0, BlockSlots}}, Quad)
	bench(b, 4*2*len(k), func() { a.Add(k, v, spans, 0.1) })
}

// BenchmarkAddPanel multiplies a chunk of a panel, and BenchmarkUnpack unpacks
// one; GW/s is weights times rows.
func BenchmarkAddPanel(b *testing.B) {
	for _, rows := range []int{1, 4, 8, 64} {
		for _, group := range []int{16, 32} {
			b.Run(fmt.Sprintf("rows%d/group%d", rows, group), func(b *testing.B) {
				w, x := panelCase(rng(1), 256, group, rows, group == 32, group == 16)
				acc := make([]float32, rows*PanelRows)
				for b.Loop() {
					AddPanel(acc, w, x)
				}
				b.ReportMetric(float64(b.N)*float64(rows)*256*PanelRows/b.Elapsed().Seconds()/1e9, "GW/s")
			})
		}
	}
}

// BenchmarkAddTiles is the same with tiles, for eight panels.
func BenchmarkAddTiles(b *testing.B) {
	for _, rows := range []int{16, 17, 64, 256} {
		for _, group := range []int{16, 32} {
			for _, min := range []bool{false, true} {
				b.Run(fmt.Sprintf("rows%d/group%d/min=%t", rows, group, min), func(b *testing.B) {
					const panels = 8
					w, x := make([]*Panel, panels), (*Acts)(nil)
					for i := range w {
						w[i], x = panelCase(rng(1), 256, group, rows, min, false)
					}
					acc, parts := make([]float32, panels*rows*PanelRows), make([]uint16, 2*len(x.Q))
					Split(parts, x.Q)
					for b.Loop() {
						AddTiles(acc, w, x, parts)
					}
					b.ReportMetric(float64(b.N)*panels*float64(rows)*256*PanelRows/b.Elapsed().Seconds()/1e9, "GW/s")
				})
			}
		}
	}
}

func BenchmarkUnpack(b *testing.B) {
	src, dst, wide := make([]byte, 8*UnitSize), make([]byte, 8*UnitSize), make([]uint16, 8*UnitSize)
	for name, f := range map[string]func(dst, src []byte){
		"4":     func(dst, src []byte) { Unpack(dst, src, Codes4, nil) },
		"42":    func(dst, src []byte) { Unpack(dst, src, Codes42, nil) },
		"21":    func(dst, src []byte) { Unpack(dst, src, Codes21, nil) },
		"table": func(dst, src []byte) { Unpack(dst, src, CodesTable, new([16]byte)) },
		"wide":  func(dst, src []byte) { Widen(wide, dst, 8) },
		"wide4": func(_, src []byte) { WidenPlanes(wide, src, Codes4, new([64]uint16)) }, "wide42": func(_, src []byte) { WidenPlanes(wide, src, Codes42, new([64]uint16)) }} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				f(dst, src)
			}
			b.ReportMetric(float64(b.N)*float64(len(dst))/b.Elapsed().Seconds()/1e9, "GW/s")
		})
	}
}

// BenchmarkScan computes a head's row of the delta rule, of 128 keys and values.
func BenchmarkScan(b *testing.B) {
	const n, dim = 128, 128
	r := rng(5)
	c := chunkOf(r, n, dim, false)
	q, v, y, beta := values(r, ChunkRows*n), values(r, ChunkRows*dim), make([]float32, ChunkRows*dim), values(r, ChunkRows)
	var s Scan
	asks := c.asks(q, n, 0)
	run := func(from, to int) {
		s.Meet(c.Keys, asks[2*from*n:], n, 2, from, to)
		s.Delta(c, y, v, dim, asks[2*from*n:], n, beta[from:], from, to)
	}
	b.Run("decode", func(b *testing.B) {
		for i := range b.N {
			run(i%ChunkRows, i%ChunkRows+1)
		}
	})
	b.Run("prompt", func(b *testing.B) {
		for range b.N {
			run(0, ChunkRows)
		}
	})
}
