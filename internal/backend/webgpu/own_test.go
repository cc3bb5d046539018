package webgpu

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/graph"
)

// turning is attention whose queries and keys turn: that of a row is stored by the attention
// that reads it.
func turning(t *testing.T, dim, heads int, kv *graph.KV) *graph.Graph {
	t.Helper()
	const hidden = 64
	return made(t, hidden, func(b graph.Builder, r *rand.Rand, x *graph.Node) *graph.Node {
		of := func(heads int) *graph.Node {
			return b.Heads(b.Linear(floats(r, heads*dim, hidden), x, heads*dim), dim)
		}
		freqs := make([]float64, dim/2-1) // a pair stays
		for i := range freqs {
			freqs[i] = 1 / float64(1+3*i)
		}
		q, k := b.RoPE("q", of(heads), graph.RoPEAttr{Freqs: freqs}), b.RoPE("k", of(kv.Heads), graph.RoPEAttr{Freqs: freqs})
		b.StoreKV(kv, k, of(kv.Heads))
		return b.Add(x, b.Linear(floats(r, hidden, heads*dim), b.Attention(q, kv, 0.3), hidden))
	})
}

// TestOwn: in steps of one row, where attention stores the row's key and value, it has the
// bits that it has of a dispatch that stored them; later rows find the same there; and it is
// a dispatch less, wherever the row stands on its page and however pages are divided.
func TestOwn(t *testing.T) {
	d := device(t)
	steps := []int{1, 1, 13, 1, 1, 46, 1, 1, 1, 2, 1, 190, 1, 1, 60, 1, 1, 1} // pages begin at 64, 256 and 320
	type form struct {
		dim, heads, kvHeads, window int
		f32                         bool
		less                        int
	}
	for _, f := range golden.First(4, []form{{80, 3, 1, 70, false, 1}, {128, 4, 2, 0, false, 1}, {64, 3, 3, 0, true, 1}, {20, 2, 1, 0, false, 0}, // keys not read by 16 bytes
		{64, 4, 2, 0, false, 1}, {24, 4, 1, 0, false, 1}, {128, 2, 1, 0, true, 1}, {256, 2, 1, 300, false, 1}}) {
		t.Run(fmt.Sprintf("%+v", f), func(t *testing.T) {
			g := turning(t, f.dim, f.heads, &graph.KV{Heads: f.kvHeads, Dim: f.dim, Window: f.window})
			run := func(without ...string) (all [][]float32, dispatches []int) {
				b := New(d, Options{F32KV: f.f32, NoFuse: without})
				r, at := start(t, b, g, 330, nil), 0
				for _, n := range steps {
					tokens := make([]int32, n)
					for i := range tokens {
						tokens[i] = int32((at + i) * 7 % 16)
					}
					b.Meter()
					all, at = append(all, slices.Clone(r.run(tokens...))), at+n
					dispatches = append(dispatches, b.Meter().Dispatches)
				}
				return all, dispatches
			}
			got, few := run()
			want, more := run("own")
			for i, n := range steps {
				less := 0
				if n == 1 {
					less = f.less
				}
				if !same(got[i], want[i]) || more[i]-few[i] != less {
					t.Errorf("step %d, of %d rows: same bits: %v; %d dispatches, of %d", i, n, same(got[i], want[i]), few[i], more[i])
				}
			}
		})
	}
}
