package webgpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// scales are where the binary16 scales of a type's blocks lie.
var scales = map[tensor.DType][]int{tensor.Q4_0: {0}, tensor.Q5_1: {0, 2}, tensor.Q8_0: {0}, tensor.Q2_K: {80, 82}, tensor.Q3_K: {108}, tensor.Q5_K: {0, 2}, tensor.Q6_K: {208}, tensor.IQ4_NL: {0}}

// TestSteps: a step of many rows, which has kernels of its own, gives each row the bits
// that it has in a step of a few, and in one of its own, and by the kernels for programs
// that stand in for a GPU; and they are right. Stacked
// products, gated ones, and sums are in it, heads that turn, and windows.
func TestSteps(t *testing.T) {
	d := device(t)
	types := []tensor.DType{tensor.Q4_0} // a program that stands in for a GPU compiles for seconds what others want
	if golden.Slow() {
		types = append(types, tensor.F32, tensor.F16)
		for dt := range scales {
			types = append(types, dt)
		}
		slices.Sort(types)
		types = slices.Compact(types)
	}
	for _, dt := range types {
		for _, dim := range []int{64, 80, 24} {
			if dim != 64 || len(types) > 1 { // else what has many rows, below, has it
				t.Run(fmt.Sprint(dt, "/", dim), func(t *testing.T) { sameSteps(t, d, dt, dim, 70) })
			}
		}
	}
	rows := 330
	if len(types) > 1 {
		rows = 513
	}
	t.Run(fmt.Sprint(rows), func(t *testing.T) { sameSteps(t, d, tensor.Q4_0, 64, rows) })
}

// block is a layer of heads of so many elements, with weights of one type.
func block(t *testing.T, dt tensor.DType, dim, window int) *graph.Graph {
	t.Helper()
	const hidden, heads, kvHeads, ff = 512, 3, 1, 256
	return made(t, hidden, func(b graph.Builder, r *rand.Rand, x *graph.Node) *graph.Node {
		weight := func(n, k int) *graph.Weight {
			if halves := scales[dt]; halves != nil {
				return weightOf(r, dt, 0x1400, halves, n, k) // scales of 2^-10
			}
			w := floats(r, n, k)
			if dt == tensor.F16 {
				w = weightOf(r, dt, 0, nil, n, k)
				for i := range w.Data {
					if i%2 == 1 {
						w.Data[i] = w.Data[i]&0x83 | 0x20 // from 2^-7 to 2^-6
					}
				}
			}
			return w
		}
		freqs := make([]float64, dim/2-1)
		for i := range freqs {
			freqs[i] = 1 / float64(1+3*i)
		}
		kv := &graph.KV{Heads: kvHeads, Dim: dim, Window: window}
		h := b.Normalize(x, 1e-6)
		q, k, v := b.Linear(weight(heads*dim, hidden), h, heads*dim), b.Linear(weight(kvHeads*dim, hidden), h, kvHeads*dim), b.Linear(weight(kvHeads*dim, hidden), h, kvHeads*dim)
		q = b.RoPE("q", b.Normalize(b.Heads(q, dim), 1e-6), graph.RoPEAttr{Freqs: freqs})
		k = b.RoPE("k", b.Normalize(b.Heads(k, dim), 1e-6), graph.RoPEAttr{Freqs: freqs})
		b.StoreKV(kv, k, b.Heads(b.Normalize(v, 1e-6), dim))
		a := b.Attention(q, kv, 0.3)
		y := b.Add(x, b.Linear(floats(r, hidden, heads*dim), a, hidden))
		h = b.Normalize(y, 1e-6)
		g := b.GLU(graph.SiLU, b.Linear(weight(ff, hidden), h, ff), b.Linear(weight(ff, hidden), h, ff))
		return b.Add(b.Linear(weight(hidden, ff), g, hidden), y)
	})
}

func sameSteps(t *testing.T, d *Device, dt tensor.DType, dim, rows int) {
	windows := []int{0, 41}
	if rows > 300 {
		windows = []int{0, 300} // of several pages
	}
	for _, window := range windows {
		g := block(t, dt, dim, window)
		tokens := make([]int32, rows)
		for i := range tokens {
			tokens[i] = int32(i * 7 % 16)
		}
		b := New(d, Options{F32KV: window > 0})
		once := start(t, b, g, rows, nil).run(tokens...)
		near(t, once, start(t, reference.Backend{}, g, rows, nil).run(tokens...), map[bool]float64{true: 1e-5, false: 2e-3}[window > 0])
		cut := start(t, New(d, Options{F32KV: window > 0}), g, rows, nil)
		var pieces []float32
		for i, at := 0, 0; at < rows; i++ {
			n := min([]int{1, 2, 7, 1, 3, 33, 200}[i%7], rows-at)
			pieces = append(pieces, cut.run(tokens[at:at+n]...)...)
			at += n
		}
		if rows > 300 && cut.c.(*cache).parts == nil {
			t.Error("attention was not divided by pages")
		}
		if !same(once, pieces) {
			t.Errorf("window %d: other bits in other steps", window)
		}
		if !same(once, start(t, New(d, Options{F32KV: window > 0, Software: true}), g, rows, nil).run(tokens...)) {
			t.Errorf("window %d: other bits from the kernels for a program that stands in for a GPU", window)
		}
	}
}

// second is a context that is cancelled when it is looked at for the second time.
type second struct {
	context.Context
	looks int
}

func (c *second) Err() error {
	if c.looks++; c.looks > 1 {
		return context.Canceled
	}
	return nil
}

// TestPause: a step of many rows that takes long is several lists, between which it can be
// stopped, and has the bits of one. What comes after one that was stopped is right.
func TestPause(t *testing.T) {
	tokens := make([]int32, 70)
	for i := range tokens {
		tokens[i] = int32(i * 5 % 16)
	}
	r := start(t, New(device(t), Options{}), block(t, tensor.Q4_0, 64, 0), len(tokens), nil)
	e := r.plan.(*executable)
	whole := r.run(tokens...)
	for _, choose := range []bool{false, true} {
		r.seq = r.pool.NewSequence()
		e.whole.recording.pace, e.part.recording.pace = time.Hour, time.Hour
		var err error
		if s := r.step(tokens); choose {
			s.Outputs = s.Outputs[:1]
			_, err = e.Choose(&second{Context: t.Context()}, s, 1, 1)
		} else {
			_, err = e.Run(&second{Context: t.Context()}, s, nil)
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a step that is stopped: %v", err)
		}
	}
	r.seq = r.pool.NewSequence()
	e.whole.recording.pace = time.Hour
	e.whole.b.Meter()
	if !same(whole, r.run(tokens...)) {
		t.Error("other bits in several lists")
	}
	if m := e.whole.b.Meter(); m.Steps != 1 {
		t.Errorf("%d steps in several lists", m.Steps)
	}
}

// TestPauseFirst: where a program stands in for a GPU, the first step can be stopped, too.
func TestPauseFirst(t *testing.T) {
	r := start(t, New(device(t), Options{Software: true}), block(t, tensor.Q4_0, 64, 0), 64, nil)
	if _, err := r.plan.Run(&second{Context: t.Context()}, r.step(make([]int32, 64)), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a first step that is stopped: %v", err)
	}
}

// TestPieces: weights that are read from their file piece by piece, as in a browser,
// give the bits of those that lie in memory; a file that ends is an error.
func TestPieces(t *testing.T) {
	d := device(t)
	g := block(t, tensor.Q4_0, 64, 0)
	tokens := []int32{3, 1, 4, 1, 5}
	whole := start(t, New(d, Options{}), g, len(tokens), nil).run(tokens...)
	var embed *graph.Weight
	for _, n := range g.Nodes {
		for _, w := range n.W {
			if n.Op == graph.Linear || n.Op == graph.Embed {
				w.Source, w.Data = bytes.NewReader(append(make([]byte, 7), w.Data...)), nil
				w.At = 7
			}
			if n.Op == graph.Embed {
				embed = w
			}
		}
	}
	if !same(whole, start(t, New(d, Options{}), g, len(tokens), nil).run(tokens...)) {
		t.Error("other bits from pieces")
	}
	r := start(t, New(d, Options{Software: true}), g, len(tokens), nil) // whose table stays in the file
	if !same(whole, r.run(tokens...)) {
		t.Error("other bits from a table in a file")
	}
	embed.Source = bytes.NewReader(nil)
	if _, err := r.plan.Run(t.Context(), r.step(tokens), nil); err == nil {
		t.Error("an embedding of a file that has ended passes")
	}
}
