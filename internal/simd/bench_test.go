package simd

import "testing"

// bench runs f at every tier of this machine.
func bench(b *testing.B, bytes int, f func()) {
	defer func(l level) { tier = l }(tier)
	for l := range best() + 1 {
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
	bench(b, 4*len(w), func() { DotF32(w, x) })
}

func BenchmarkDotRowsF32(b *testing.B) {
	w, x, dst := values(rng(1), 4096), values(rng(2), 8*4096), make([]float32, 8)
	bench(b, 4*len(w)*8, func() { DotRowsF32(dst, w, x) })
}

func BenchmarkDotF16(b *testing.B) {
	w, x := halves(4096, 1, false), values(rng(2), 4096)
	bench(b, 2*len(w), func() { DotF16(w, x) })
}

func BenchmarkDotRowsBF16(b *testing.B) {
	w, x, dst := halves(4096, 1, false), values(rng(2), 8*4096), make([]float32, 8)
	bench(b, 2*len(w)*8, func() { DotRowsBF16(dst, w, x) })
}

func BenchmarkDotQ(b *testing.B) { benchQ(b, 1, 32, false) }

func BenchmarkDotQ16Min(b *testing.B) { benchQ(b, 1, 16, true) }

func BenchmarkDotRowsQ(b *testing.B) { benchQ(b, 8, 32, false) }

func BenchmarkDotRowsQMin(b *testing.B) { benchQ(b, 8, 32, true) }

func BenchmarkDotRowsQ16Min(b *testing.B) { benchQ(b, 8, 16, true) }

// benchQ counts the bytes of the weights once for each row.
func benchQ(b *testing.B, rows, group int, mins bool) {
	const k = 4096
	w, x, dst := quantRow(rng(1), k, group, mins), integers(rng(2), rows*k), make([]float32, rows)
	dx, sums := values(rng(3), rows*k/ActGroup), values(rng(4), rows*k/group)
	bench(b, rows*k, func() { DotRowsQ(dst, w, x, dx, sums) })
}

func BenchmarkQuantize(b *testing.B) {
	x, q, dx := values(rng(1), 4096), make([]int16, 4096), make([]float32, 4096/ActGroup)
	bench(b, 4*len(x), func() { Quantize(q, dx, x) })
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

// BenchmarkAttention is one head of 128 over 64 positions.
func BenchmarkAttention(b *testing.B) {
	const d = 128
	q, acc := values(rng(1), d), make([]float32, d)
	k, v := halves(d*BlockSlots, 2, false), halves(d*BlockSlots, 3, false)
	bench(b, 4*len(k), func() {
		var a Attention
		a.Reset(acc)
		a.AddF16(q, k, v, BlockSlots, 0.1)
	})
}
