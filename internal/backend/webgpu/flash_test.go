package webgpu

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/graph"
)

// TestFlash: on matrix units attention is as near as weights in binary16 let it be, where
// queries, keys and values have no more bits; a row's bits do not depend on the step, as long
// as it has many rows, nor on other sequences in it; and NaNs that nothing sees do not show.
func TestFlash(t *testing.T) {
	d := matrices(t)
	type form struct{ dim, heads, kvHeads, window int }
	forms := []form{{64, 3, 1, 0}, {64, 4, 4, 41}}
	if golden.Slow() {
		forms = append(forms, form{32, 4, 4, 100}, form{96, 2, 2, 0}, form{128, 4, 1, 70}, form{256, 8, 1, 50}, form{512, 8, 1, 0})
	}
	for _, f := range forms {
		t.Run(fmt.Sprintf("%+v", f), func(t *testing.T) {
			g := attentive(t, f.dim, f.heads, &graph.KV{Heads: f.kvHeads, Dim: f.dim, Window: f.window})
			tokens := make([]int32, 150)
			r := rand.New(rand.NewPCG(7, 8))
			for i := range tokens {
				tokens[i] = int32(r.IntN(16))
			}
			whole := start(t, New(d, Options{Matrices: true}), g, len(tokens), nil)
			once := whole.run(tokens...)
			near(t, once, start(t, reference.Backend{}, g, len(tokens), nil).run(tokens...), 3e-4)
			if same(once, start(t, New(d, Options{}), g, len(tokens), nil).run(tokens...)) {
				t.Error("float32 has the bits of binary16")
			}
			poisonCache(t, whole.c.(*cache))
			whole.seq.Free()
			whole.seq = whole.pool.NewSequence()
			var pieces []float32
			for at, i := 0, 0; at < len(tokens); i++ {
				n := []int{16, 41, 17, 32, 44}[i]
				pieces = append(pieces, whole.run(tokens[at:at+n]...)...)
				at += n
			}
			if !same(once, pieces) {
				t.Error("other bits in other steps, behind NaNs")
			}
			besides(t, whole, tokens, once)
		})
	}
}

// besides computes tokens of two sequences together, and one token of some others.
func besides(t *testing.T, r *runner, tokens []int32, want []float32) {
	t.Helper()
	r.seq.Free()
	s := &backend.Step{Cache: r.c}
	width := len(want) / len(tokens)
	var starts []int
	for _, n := range []int{1, 70, 1, 1, 37, 1} {
		seq := r.pool.NewSequence()
		if err := seq.Grow(n); err != nil {
			t.Fatal(err)
		}
		defer seq.Free()
		starts = append(starts, len(s.Tokens))
		for i := range n {
			s.Outputs = append(s.Outputs, int32(len(s.Tokens)))
			s.Tokens, s.Pos, s.Seqs = append(s.Tokens, tokens[i]), append(s.Pos, int32(i)), append(s.Seqs, seq)
		}
	}
	all, err := r.plan.Run(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range []int{1, 70, 1, 1, 37, 1} {
		if !same(all[starts[i]*width:(starts[i]+n)*width], want[:n*width]) {
			t.Errorf("sequence %d of %d rows: other bits beside others", i, n)
		}
	}
}

// attentive attends to what embeddings are, of few bits.
func attentive(t *testing.T, dim, heads int, kv *graph.KV) *graph.Graph {
	t.Helper()
	return made(t, 3*heads*dim, func(b graph.Builder, _ *rand.Rand, x *graph.Node) *graph.Node {
		few := x.W[0]
		for i := 0; i < len(few.Data); i += 4 {
			v := math.Float32frombits(binary.LittleEndian.Uint32(few.Data[i:]))
			binary.LittleEndian.PutUint32(few.Data[i:], math.Float32bits(float32(math.Round(float64(v)*32))/32))
		}
		parts := b.Heads(x, heads*dim)
		of := func(i int) *graph.Node { return b.Heads(b.Head(b.Heads(b.Head(parts, i), kv.Heads*dim), 0), dim) }
		b.StoreKV(kv, of(1), of(2))
		return b.Attention(b.Heads(b.Head(parts, 0), dim), kv, 0.3)
	})
}

// poisonCache fills keys and values with NaNs.
func poisonCache(t *testing.T, c *cache) {
	t.Helper()
	var l gpu.List
	for _, s := range c.stores {
		for _, b := range []gpu.Buffer{s.keys, s.values} {
			l.Write(b, 0, bytes.Repeat([]byte{0xff}, b.Size()))
		}
	}
	if err := c.b.d.gpu.Run(&l); err != nil {
		t.Fatal(err)
	}
}

// TestFlashTiles: a GPU has a form for heads of each size that it has room for, and its invocations
// and matrices divide what they take.
func TestFlashTiles(t *testing.T) {
	for _, u := range []matrixUnit{{8, 8, 8, 8, true}, {8, 8, 8, 32, true}, {16, 16, 16, 16, true}, {16, 16, 16, 32, true}, {16, 16, 16, 64, true}} {
		for _, dim := range []int{32, 64, 96, 128, 256, 512, 80} {
			has := &gpu.Matrices{Invocations: 1024, WorkgroupBytes: 48 << 10}
			f, ok := u.flash(seenVariant{F16: true, Dim: dim}, has)
			if ok != (dim%32 == 0) {
				t.Errorf("%+v, heads of %d: %v", u, dim, ok)
			}
			if n := f.Threads(); ok && (dim%f.Chunk != 0 || 64*f.Chunk%(8*n) != 0 || f.Rows()*n != 32*f.BM ||
				f.BM*f.Across%(f.M*f.Subgroups) != 0 || f.Chunk%(f.N*f.Across) != 0 || 64%(f.N*f.Across) != 0) {
				t.Errorf("%+v, heads of %d: %+v does not divide", u, dim, f.flashTile)
			}
			has.WorkgroupBytes = 8 << 10
			if _, ok := u.flash(seenVariant{F16: true, Dim: dim}, has); ok && u.M == 16 {
				t.Errorf("%+v, heads of %d: without room for a tile", u, dim)
			}
		}
	}
}

// TestFlashSpeed prints how long attention of 512 rows takes, by tiles of several forms.
func TestFlashSpeed(t *testing.T) {
	if os.Getenv("KARAT_SPEED") == "" {
		t.Skip("KARAT_SPEED is not set")
	}
	d := matrices(t)
	defer func(f func(m, dim int) []flashTile) { flashTiles = f }(flashTiles)
	tokens := make([]int32, 512)
	for i := range tokens {
		tokens[i] = int32(i * 7 % 16)
	}
	for _, f := range []struct{ dim, heads, kvHeads, window int }{{64, 32, 8, 0}, {256, 8, 1, 512}, {512, 8, 1, 0}} {
		g := attentive(t, f.dim, f.heads, &graph.KV{Heads: f.kvHeads, Dim: f.dim, Window: f.window})
		var first []float32
		for _, tile := range []flashTile{{}, {64, 4, 2, 64}, {64, 8, 2, 64}, {64, 8, 4, 64}, {32, 4, 2, 64}, {32, 8, 4, 64}, {16, 4, 4, 64}} {
			b := New(d, Options{Matrices: tile.BM > 0})
			flashTiles = func(int, int) []flashTile { return []flashTile{tile} }
			v := seenVariant{F16: true, Dim: f.dim}
			if _, ok := b.unit.flash(v, d.Adapter().Matrices); !ok && tile.BM > 0 {
				continue
			}
			r := start(t, b, g, len(tokens), nil)
			best := time.Duration(1 << 62)
			var out []float32
			for range 12 {
				r.seq.Free()
				r.seq = r.pool.NewSequence()
				b.times = map[string]time.Duration{}
				out = r.run(tokens...)
				for name, s := range b.times {
					if strings.HasPrefix(name, "attention ") {
						best = min(best, s)
					}
				}
			}
			if first == nil {
				first = out
			}
			t.Logf("%+v, tile %+v: %v", f, tile, best)
			if tile.BM > 0 {
				near(t, out, first, 1e-3)
			}
		}
	}
}
