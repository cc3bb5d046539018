package engine_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/tensor"
)

// still is a backend that computes nothing: all logits are zero.
type still struct {
	vocab int
	see   func(*backend.Step)
}

func (still) Close() error                 { return nil }
func (still) Copy(int, int32, int32) error { return nil }
func (still) Bytes() int64                 { return 0 }
func (still) PageBytes(int) int64          { return 1 }

func (b still) Compile(*graph.Graph, backend.Options) (backend.Executable, error) { return b, nil }

func (b still) NewCache(*graph.Graph, *kv.Pool) (backend.Cache, error) { return b, nil }

func (b still) Run(_ context.Context, s *backend.Step, _ backend.Tap) ([]float32, error) {
	b.see(s)
	return make([]float32, len(s.Outputs)*b.vocab), nil
}

// billion is a layer of a model of a billion weights in Q4_0, and what a row's products with
// weights take, and with each position.
func billion(t *testing.T) (g *graph.Graph, weights, position float64) {
	t.Helper()
	const hidden, heads, few, dim, ff, vocab = 2048, 32, 8, 64, 8192, 8
	r := graph.New()
	linear := func(x *graph.Node, in, out int) *graph.Node {
		w := &graph.Weight{Tensor: tensor.Tensor{Name: "w", DType: tensor.Q4_0, Shape: []int{out, in}, Data: []byte{0}}}
		weights += float64(in * out)
		return r.Linear(w, x, out)
	}
	x := r.Embed(&graph.Weight{Tensor: tensor.Tensor{Name: "e", Shape: []int{vocab, hidden}, Data: []byte{0}}}, vocab, hidden, 1)
	store := &graph.KV{Heads: few, Dim: dim}
	r.StoreKV(store, r.Heads(linear(x, hidden, few*dim), dim), r.Heads(linear(x, hidden, few*dim), dim))
	y := linear(r.Attention(r.Heads(linear(x, hidden, heads*dim), dim), store, 0.125), heads*dim, hidden)
	y = linear(r.GLU(graph.SiLU, linear(y, hidden, ff), linear(y, hidden, ff)), ff, hidden)
	all := weights
	linear(r.Outputs(y), hidden, vocab)
	g, err := r.Graph()
	if err != nil {
		t.Fatal(err)
	}
	return g, all, 2 * heads * dim
}

// TestGap: while twelve sequences decode, a prompt is computed, of 4,096 tokens, and of many
// more. Between two tokens of a sequence lies one step, and the longest of these has at most
// half as much work again as the shortest that is full. Alone the prompt has steps of all rows.
func TestGap(t *testing.T) {
	const decoding, chunk = 12, 256
	g, weights, position := billion(t)
	for _, long := range []int{4096, 20000} {
		var steps [][]int32 // positions
		var left atomic.Int64
		e := newEngine(t, g, still{8, func(s *backend.Step) {
			if n := len(s.Tokens) - decoding; n > 0 && left.Load() > 0 {
				steps = append(steps, slices.Clone(s.Pos))
				left.Add(-int64(n))
			}
		}}, engine.Options{Context: long + 1000, Chunk: chunk})
		var wg sync.WaitGroup
		var all []*engine.Sequence
		for range decoding {
			s := e.NewSequence()
			defer s.Close()
			feed(t, s, make([]int32, 100), 1)
			all = append(all, s)
		}
		left.Store(int64(long))
		e.Cut(func(rows int) int {
			if left.Load() > 0 {
				e.WaitQueued(decoding + 1)
			}
			return rows
		})
		for _, s := range all {
			wg.Go(func() {
				for left.Load() > 0 {
					feed(t, s, []int32{1}, 1)
				}
			})
		}
		wg.Go(func() { scratch(t, e, make([]int32, long), 1) })
		wg.Wait()
		least, longest := 0.0, 0.0
		for i, at := range steps {
			work := 0.0
			for _, p := range at {
				work += weights + 4*position*float64(p+1) // measured: load.go
			}
			if longest = max(longest, work); i < len(steps)-1 && (least == 0 || work < least) {
				least = work
			}
			if !slices.IsSorted(at[decoding:]) || len(at) > chunk {
				t.Fatalf("step %d: positions %v", i, at)
			}
		}
		t.Logf("a prompt of %d tokens: %d steps, the longest has %.2f times the work of the shortest", long, len(steps), longest/least)
		if len(steps) < long/chunk || longest > 1.5*least {
			t.Errorf("a prompt of %d tokens: %d steps, the longest has %.2f times the work of the shortest, at most 1.5", long, len(steps), longest/least)
		}
	}
	rows := 0
	e := newEngine(t, g, still{8, func(s *backend.Step) { rows = max(rows, len(s.Tokens)) }}, engine.Options{Context: 20000, Chunk: chunk})
	s := e.NewSequence()
	defer s.Close()
	for range 60 {
		rows = 0
		if feed(t, s, make([]int32, chunk), 1); rows != chunk {
			t.Fatalf("alone: %d rows in a step of position %d", rows, s.Len())
		}
	}
}
