package webgpu

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/graph"
)

// uneven is attention whose values have another size than keys, or lie in them.
func uneven(t *testing.T, heads int, kv *graph.KV) *graph.Graph {
	t.Helper()
	const hidden = 64
	return made(t, hidden, func(b graph.Builder, r *rand.Rand, x *graph.Node) *graph.Node {
		of := func(heads, dim int) *graph.Node {
			return b.Heads(b.Linear(floats(r, heads*dim, hidden), x, heads*dim), dim)
		}
		k := of(kv.Heads, kv.Dim)
		var v *graph.Node
		if !kv.Latent {
			v = of(kv.Heads, kv.Values())
		}
		b.StoreKV(kv, k, v)
		return b.Attention(of(heads, kv.Dim), kv, 0.1)
	})
}

// TestUneven: values of another size than keys, and values in keys, give a row the same bits in
// steps of many rows, of a few and of its own, where pages are divided, and by the kernels for
// programs that stand in for a GPU; and they are right. Latent values take no room of their own.
func TestUneven(t *testing.T) {
	d := device(t)
	tokens := make([]int32, 330) // of 6 pages
	for i := range tokens {
		tokens[i] = int32(i * 7 % 16)
	}
	type form struct {
		heads int
		kv    graph.KV
		f32   bool
	}
	for _, f := range golden.First(2, []form{
		{3, graph.KV{Heads: 1, Dim: 32, ValueDim: 80, Window: 300}, false},
		{4, graph.KV{Heads: 2, Dim: 24, ValueDim: 10, Latent: true, Window: 290}, true},
		{4, graph.KV{Heads: 2, Dim: 48, ValueDim: 32}, true},
		{4, graph.KV{Heads: 1, Dim: 96, ValueDim: 64, Latent: true}, false},
	}) {
		t.Run(fmt.Sprintf("%+v", f), func(t *testing.T) {
			g := uneven(t, f.heads, &f.kv)
			o := Options{F32KV: f.f32}
			once := start(t, New(d, o), g, len(tokens), nil).run(tokens...)
			near(t, once, start(t, reference.Backend{}, g, len(tokens), nil).run(tokens...), map[bool]float64{true: 1.5e-6, false: 2e-3}[f.f32])
			cut := start(t, New(d, o), g, len(tokens), nil)
			var pieces []float32
			for i, at := 0, 0; at < len(tokens); i++ {
				n := min([]int{1, 2, 33, 200, 7, 1, 1, 60, 1}[i%9], len(tokens)-at)
				pieces = append(pieces, cut.run(tokens[at:at+n]...)...)
				at += n
			}
			c := cut.c.(*cache)
			if c.parts == nil {
				t.Error("attention was not divided by pages")
			}
			if !same(once, pieces) {
				t.Error("other bits in other steps")
			}
			o.Software = true
			if !same(once, start(t, New(d, o), g, len(tokens), nil).run(tokens...)) {
				t.Error("other bits from the kernels for a program that stands in for a GPU")
			}
			size := f.kv.Heads * f.kv.Dim
			if !f.kv.Latent {
				size += f.kv.Heads * f.kv.ValueDim
			}
			if !f.f32 {
				size /= 2
			}
			if n := c.PageBytes(0); n != int64(64*4*size) {
				t.Errorf("a page has %d bytes, want %d", n, 64*4*size)
			}
		})
	}
}
