package webgpu

import (
	"fmt"
	"testing"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/round"
)

// TestNarrow: with older pages in 8 bits a row has the same bits in steps of many rows, of a few and of its own, of full
// layers, windows and latents, and they are near to the interpreter's in the same form.
func TestNarrow(t *testing.T) {
	d := device(t)
	for i, f := range []struct {
		heads int
		kv    graph.KV
		rows  int
		most  float64
	}{
		{4, graph.KV{Heads: 2, Dim: 64}, 330, 2e-3},
		{2, graph.KV{Heads: 1, Dim: 32, ValueDim: 64, Window: 530}, 640, 2e-3},
		{2, graph.KV{Heads: 1, Dim: 96, ValueDim: 64, Latent: true}, 330, 5e-3}, // values have the scales of keys
	} {
		t.Run(fmt.Sprintf("%+v", f), func(t *testing.T) {
			tokens := make([]int32, f.rows)
			for i := range tokens {
				tokens[i] = int32(i * 7 % 16)
			}
			g := uneven(t, f.heads, &f.kv)
			o := Options{Narrow: true}
			once := start(t, New(d, o), g, len(tokens), nil).run(tokens...)
			near(t, once, start(t, reference.Backend{Class: round.Class{KV: round.KVPages}}, g, len(tokens), nil).run(tokens...), f.most)
			if (i == 0 || golden.Slow()) && same(once, start(t, New(d, Options{}), g, len(tokens), nil).run(tokens...)) {
				t.Error("the bits of binary16")
			}
			cut := start(t, New(d, o), g, len(tokens), nil)
			var pieces []float32
			for k, at := 0, 0; at < len(tokens); k++ {
				n := min([]int{1, 2, 33, 200, 7, 1, 1, 60, 1}[k%9], len(tokens)-at)
				pieces = append(pieces, cut.run(tokens[at:at+n]...)...)
				at += n
			}
			if !same(once, pieces) {
				t.Error("other bits in other steps")
			}
		})
	}
}
