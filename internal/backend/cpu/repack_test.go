package cpu

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/panel"
	"github.com/karat-run/karat/internal/simd"
	"github.com/karat-run/karat/internal/tensor"
)

// TestRepack: a mapped weight whose pages are let go on the way becomes what one
// in memory does, with any number of threads, and takes what Repacked says.
func TestRepack(t *testing.T) {
	shape := tensor.Shape{3, 2 * dropAfter / 576 / 3, 1024} // twice dropAfter
	data := make([]byte, tensor.Q4_0.RowBytes(shape.Size()))
	rand.NewChaCha8([32]byte{}).Read(data)
	path := filepath.Join(t.TempDir(), "weight")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := mmap.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var want []byte
	for threads, from := range map[int][]byte{1: data, 2: f.Data(), 3: f.Data()} {
		w := &graph.Weight{Tensor: tensor.Tensor{DType: tensor.Q4_0, Shape: shape, Data: from}}
		g := &graph.Graph{Nodes: []*graph.Node{{Op: graph.Experts, W: []*graph.Weight{w}}, {Op: graph.Linear, W: []*graph.Weight{w}}}}
		b := New(Options{Threads: threads})
		defer b.Close()
		stopped := errors.New("stopped")
		if err := b.ready(g, func(int64, int64) error { return stopped }); err != stopped || len(b.packed) > 0 {
			t.Errorf("%d threads: error %v of progress, %d weights", threads, err, len(b.packed))
		}
		var said []int64
		if err := b.ready(g, func(done, total int64) error { said = append(said, done, total); return nil }); err != nil {
			t.Fatal(err)
		}
		if n := int64(len(data)); !slices.Equal(said, []int64{0, n, n, n}) {
			t.Errorf("%d threads: progress %d", threads, said)
		}
		got := b.packed[w].memory
		if more := Repacked(g); more != int64(len(got)-len(data)) {
			t.Errorf("Repacked is %d, panels take %d for %d", more, len(got), len(data))
		}
		if want == nil {
			want = bytes.Clone(got)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%d threads: other panels", threads)
		}
	}
}

// TestSettle: weights in place are repacked some at a time, after the first step of a
// few rows, and products have the same bits all along.
func TestSettle(t *testing.T) {
	const n, k, many = 48, 512, 20
	b := New(Options{Threads: 2})
	defer b.Close()
	e := &executable{b: b, rows: many, scratch: make([]scratch, 2)}
	random := rand.NewChaCha8([32]byte{})
	var products []*product
	for range settleSteps + 1 {
		w := &graph.Weight{Tensor: tensor.Tensor{DType: tensor.Q8_0, Shape: tensor.Shape{n, k}, Data: make([]byte, tensor.Q8_0.RowBytes(n*k))}}
		random.Read(w.Data)
		for i := 1; i < len(w.Data); i += 34 {
			w.Data[i] &= 0x3f // scales are finite
		}
		m, err := newInPlace(w)
		if err != nil {
			t.Fatal(err)
		}
		b.packed[w], b.later = m, append(b.later, w)
		products = append(products, e.newProduct(w, 0))
	}
	if err := e.x.start(&planner{e: e, g: &graph.Graph{Nodes: nodesOf(products)}}); err != nil {
		t.Fatal(err)
	}
	x := make([]float32, many*k)
	for i := range x {
		x[i] = float32(i%11) - 5.3
	}
	values := func() (all []float32) {
		for _, p := range products {
			for _, rows := range []int{1, 3, many} {
				out := make([]float32, rows*n)
				if err := p.run(nil, out, x, rows); err != nil {
					t.Fatal(err)
				}
				all = append(all, out...)
			}
		}
		return all
	}
	want := values()
	for step, left := range []int{9, 9, 7, 5, 3, 1, 0, 0} { // two of nine at a time
		rows := 1
		if step == 1 {
			rows = fewRows + 1
		}
		if b.settle(t.Context(), rows); len(b.later) != left {
			t.Fatalf("step %d: %d weights in place, want %d", step, len(b.later), left)
		}
		if got := values(); !slices.Equal(got, want) {
			t.Fatalf("step %d: other bits", step)
		}
	}
	for _, p := range products {
		if len(b.packed[p.w].memory) == 0 || p.panels.Stored() == nil {
			t.Error("a weight is still in place")
		}
	}
	if n := b.Packed(); n != Repacked(&graph.Graph{Nodes: nodesOf(products)})+int64(len(products)*len(products[0].w.Data)) {
		t.Errorf("%d bytes are packed", n)
	}
}

// TestJoin: what simd.AddRows gets has a weight's columns, not all for which there is room.
func TestJoin(t *testing.T) {
	b := New(Options{Threads: 1})
	defer b.Close()
	e := &executable{b: b, rows: 64}
	var products []*product
	for _, k := range []int{1024, 512, 1024} {
		w := &graph.Weight{Tensor: tensor.Tensor{DType: tensor.Q8_0, Shape: tensor.Shape{16, k}, Data: make([]byte, tensor.Q8_0.RowBytes(16*k))}}
		m, err := newInPlace(w)
		if err != nil {
			t.Fatal(err)
		}
		b.packed[w] = m
		products = append(products, e.newProduct(w, 0))
	}
	if err := e.x.start(&planner{e: e, g: &graph.Graph{Nodes: nodesOf(products)}}); err != nil {
		t.Fatal(err)
	}
	for _, p := range products {
		for _, rows := range []int{2, 8, 5} {
			k := p.panels.K
			if err := e.x.quantize(nil, make([]float32, rows*k), rows, p.panels, false, false); err != nil {
				t.Fatal(err)
			}
			e.x.cut(p.panels, false)
			if err := e.x.join(p.panels); err != nil {
				t.Fatal(err)
			}
			if got, want := len(e.x.joined), k/panel.Chunk*simd.Joined(rows, panel.Chunk); got != want {
				t.Errorf("%d rows of %d columns: %d bytes, want %d", rows, k, got, want)
			}
		}
	}
}

// nodesOf is a node for each product.
func nodesOf(products []*product) (nodes []*graph.Node) {
	for _, p := range products {
		nodes = append(nodes, &graph.Node{Op: graph.Linear, In: []*graph.Node{{}}, W: []*graph.Weight{p.w}})
	}
	return nodes
}

// TestSettleAtOnce: a step that has tiles repacks all; Ctrl-C leaves for later what it ends.
func TestSettleAtOnce(t *testing.T) {
	b := New(Options{Threads: 1})
	defer b.Close()
	for range 3 {
		w := &graph.Weight{Tensor: tensor.Tensor{DType: tensor.Q8_0, Shape: tensor.Shape{16, 256}, Data: make([]byte, tensor.Q8_0.RowBytes(16*256))}}
		m, err := newInPlace(w)
		if err != nil {
			t.Fatal(err)
		}
		b.packed[w], b.later = m, append(b.later, w)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	const many = 64
	b.portion = 3
	for _, rows := range []int{1, many} {
		if b.settle(canceled, rows); len(b.later) != 3 || b.Packed() != 0 {
			t.Errorf("interrupted before %d rows: %d weights in place, want 3, and %d bytes for panels", rows, len(b.later), b.Packed())
		}
	}
	want := 3
	if simd.HasTiles(many) {
		want = 0
	}
	if b.settle(t.Context(), many); len(b.later) != want {
		t.Errorf("%d weights in place, want %d", len(b.later), want)
	}
}

// TestSettleWithoutMemory: weights for which there is no memory stay in place.
func TestSettleWithoutMemory(t *testing.T) {
	b := New(Options{Threads: 1})
	defer b.Close()
	w := &graph.Weight{Tensor: tensor.Tensor{DType: tensor.Q8_0, Shape: tensor.Shape{16, 256}, Data: make([]byte, tensor.Q8_0.RowBytes(16*256))}}
	m, err := newInPlace(w)
	if err != nil {
		t.Fatal(err)
	}
	b.packed[w], b.later = m, []*graph.Weight{w}
	w.Shape[0] = 1 << 50
	for step, left := range []int{1, 0, 0} {
		if b.settle(t.Context(), 1); len(b.later) != left || b.packed[w].memory != nil || b.Packed() != 0 {
			t.Errorf("step %d: %d weights are to be repacked, want %d; %d bytes", step, len(b.later), left, b.Packed())
		}
	}
}
