package cpu

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/simd"
	"github.com/karat-run/karat/internal/tensor"
)

// attending is an attention node without a model around it.
type attending struct {
	e           *executable
	store       func() error
	attend      func() error
	q, k, v     []float32 // [rows, heads, dim] and twice [rows, kvHeads, dim]
	out         []float32
	pool        *kv.Pool
	seq         *kv.Sequence
	heads, rows int
}

// newAttending is of rows queries at most, to a sequence of at most context
// positions.
func newAttending(t testing.TB, o Options, heads int, s *graph.KV, rows, context int) *attending {
	b := New(o)
	t.Cleanup(func() { b.Close() })
	q := &graph.Node{Shape: tensor.Shape{heads, s.Dim}}
	write := &graph.Node{Op: graph.StoreKV, Attr: s}
	g := &graph.Graph{Nodes: []*graph.Node{q, write}}
	pool := kv.NewPool(kv.Options{Classes: backend.Classes(g, b), Context: context, Chunk: context})
	cache, err := b.NewCache(g, pool)
	if err != nil {
		t.Fatal(err)
	}
	a := &attending{e: &executable{b: b, rows: rows}, pool: pool, seq: pool.NewSequence(), heads: heads, rows: rows,
		q: make([]float32, rows*heads*s.Dim), out: make([]float32, rows*heads*s.Dim),
		k: make([]float32, rows*s.Heads*s.Dim), v: make([]float32, rows*s.Heads*s.Dim)}
	a.e.step = &backend.Step{Cache: cache}
	room, body, narrow := a.e.makePages(write), a.e.storeKV(write, a.k, a.v), a.e.narrow(write)
	a.store = func() error { return errors.Join(room(), body(0, len(a.e.step.Tokens)), narrow()) }
	a.attend = a.e.attention(&graph.Node{Op: graph.Attention, In: []*graph.Node{q}, Shape: q.Shape,
		Attr: graph.AttentionAttr{KV: s, Scale: 0.125}}, a.out, a.q, nil)
	if err := a.seq.Grow(context); err != nil {
		t.Fatal(err)
	}
	return a
}

// step sets the running step to n rows from position pos on.
func (a *attending) step(pos, n int) {
	s := a.e.step
	s.Tokens, s.Pos, s.Seqs = make([]int32, n), make([]int32, n), make([]*kv.Sequence, n)
	for i := range n {
		s.Pos[i], s.Seqs[i] = int32(pos+i), a.seq
	}
}

// BenchmarkAttention is one layer's attention: a token, or the last rows of a
// prompt, at some depth. It reports the time of a query head's position.
func BenchmarkAttention(b *testing.B) {
	for _, c := range []struct {
		name              string
		heads, kvs, dim   int
		depth, rows, from int
		window            int
	}{
		{name: "llama1b/decode", heads: 32, kvs: 8, dim: 64, depth: 4096, rows: 1},
		{name: "llama1b/prefill", heads: 32, kvs: 8, dim: 64, depth: 4096, rows: 64},
		{name: "llama1b/prefill512", heads: 32, kvs: 8, dim: 64, depth: 512, rows: 512},
		{name: "gemma/decode", heads: 8, kvs: 1, dim: 512, depth: 4096, rows: 1},
		{name: "gemma/window/prefill", heads: 8, kvs: 1, dim: 256, depth: 4096, rows: 64, window: 512},
		{name: "gemma/prefill", heads: 8, kvs: 1, dim: 512, depth: 4096, rows: 64},
	} {
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/%d", c.name, threads), func(b *testing.B) {
				const layers = 16 // of their own keys and values, as decoding finds them
				var all []*attending
				r := rand.New(rand.NewPCG(1, 2))
				n := 1
				if c.rows == 1 {
					n = layers
				}
				for range n {
					a := newAttending(b, Options{Threads: threads}, c.heads, &graph.KV{Heads: c.kvs, Dim: c.dim, Window: c.window}, c.rows, c.depth)
					for i := range a.k {
						a.k[i], a.v[i] = float32(r.NormFloat64()), float32(r.NormFloat64())
					}
					for i := range a.q {
						a.q[i] = float32(r.NormFloat64())
					}
					for pos := 0; pos < c.depth; pos += c.rows {
						a.step(pos, c.rows)
						if err := a.store(); err != nil {
							b.Fatal(err)
						}
					}
					all = append(all, a)
				}
				pairs := 0
				for _, p := range all[0].e.step.Pos {
					seen := int(p) + 1
					if c.window > 0 {
						seen = min(seen, c.window)
					}
					pairs += c.heads * seen
				}
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					if err := all[i%n].attend(); err != nil {
						b.Fatal(err)
					}
					i++
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(pairs), "ns/pair")
			})
		}
	}
}

// TestAttentionGroups computes each row's attention alone, by one thread, and
// wants the same bits of any number of rows in a step, by any number of threads,
// with another sequence's rows between them. simd's TestWasm runs it where there are threads for kernels.
func TestAttentionGroups(t *testing.T) {
	for _, c := range []struct {
		heads int
		store graph.KV
		kv    KVType
	}{
		{8, graph.KV{Heads: 2, Dim: 64}, KVF16},
		{8, graph.KV{Heads: 1, Dim: 48, Window: 70}, KVF32},
		{3, graph.KV{Heads: 3, Dim: 20}, KVF16},
		{7, graph.KV{Heads: 1, Dim: 16, Window: 5}, KVF16},
		{8, graph.KV{Heads: 2, Dim: 64}, KVQ8},
		{3, graph.KV{Heads: 3, Dim: 20}, KVQ8},
		{5, graph.KV{Heads: 1, Dim: 80, Window: 530}, KVQ8},
		{4, graph.KV{Heads: 1, Dim: 32, Window: 530, Chunked: true}, KVQ8},
	} {
		const context = 900 // four ranges
		s := c.store
		size, step := c.heads*s.Dim, s.Heads*s.Dim
		r := rand.New(rand.NewPCG(5, 6))
		numbers := func(n int) []float32 {
			x := make([]float32, n)
			for i := range x {
				x[i] = float32(r.NormFloat64())
			}
			return x
		}
		q, k, v := numbers(context*size), numbers(context*step), numbers(context*step)
		var want []float32
		for _, way := range []struct{ rows, threads int }{{1, 1}, {1, 8}, {3, 2}, {17, 1}, {64, 3}, {context, 2}} {
			a := newAttending(t, Options{Threads: way.threads, KV: c.kv}, c.heads, &s, 2*way.rows, context)
			if way.threads == 1 {
				a.e.b.pool.lanes = 0 // kernels run at once, see simd.Record
			}
			got := make([]float32, context*size)
			for pos := 0; pos < context; pos += way.rows {
				n := min(way.rows, context-pos)
				a.step(pos, n)
				copy(a.q, q[pos*size:(pos+n)*size])
				copy(a.k, k[pos*step:(pos+n)*step])
				copy(a.v, v[pos*step:(pos+n)*step])
				if way.threads == 3 { // another one's first rows, which only see themselves
					a.follow(n)
				}
				if err := errors.Join(a.store(), a.attend()); err != nil {
					t.Fatal(err)
				}
				copy(got[pos*size:], a.out[:n*size])
			}
			if want == nil {
				want = got
			}
			if !slices.Equal(got, want) {
				t.Errorf("%d heads, %+v: other bits from steps of %d rows by %d threads", c.heads, s, way.rows, way.threads)
			}
			if n := len(a.e.scores.parts); a.e.b.pool.lanes > 0 && c.kv != KVQ8 && simd.Records(s.Values()) && n > 0 {
				t.Errorf("%d heads, %+v: %d numbers are kept where pieces come in order", c.heads, s, n)
			}
		}
	}
}

// follow adds n rows of a new sequence to the running step.
func (a *attending) follow(n int) {
	s := a.e.step
	other := a.pool.NewSequence()
	if err := other.Grow(n); err != nil {
		panic(err)
	}
	for i := range n {
		s.Tokens, s.Pos, s.Seqs = append(s.Tokens, 0), append(s.Pos, int32(i)), append(s.Seqs, other)
	}
}
