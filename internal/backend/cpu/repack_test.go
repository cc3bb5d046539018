package cpu

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/panel"
	"github.com/karat-run/karat/internal/quant"
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
		if err := b.ready(g, nil); err != nil || b.Packed() != 0 || len(b.panels.parts) > 0 {
			t.Fatalf("%d threads: %v, %d bytes of panels before the first token", threads, err, b.Packed())
		}
		if err := b.repack(t.Context(), b.inPlace); err != nil {
			t.Fatal(err)
		}
		got := b.packed[w].memory
		if more := Repacked(g); more != int64(len(got)-len(data)) || more != b.Packed()-int64(len(data)) {
			t.Errorf("Repacked is %d, panels take %d for %d, Packed is %d", more, len(got), len(data), b.Packed())
		}
		if want == nil {
			want = bytes.Clone(got)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%d threads: other panels", threads)
		}
	}
}

// TestRepackAnother: the weights of a graph that comes later have room, too.
func TestRepackAnother(t *testing.T) {
	b := New(Options{Threads: 2})
	defer b.Close()
	e := &executable{b: b}
	for range 2 {
		newProducts(t, e, tensor.Q4_0, 16, 256, 2)
		if err := b.repack(t.Context(), b.inPlace[:1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.repack(t.Context(), b.inPlace); err != nil {
		t.Fatal(err)
	}
	for w, m := range b.packed {
		if m.memory == nil || len(b.inPlace) > 0 {
			t.Errorf("%s is in place", w.Name)
		}
	}
}

// TestBring: weights that lie in a file alone come into panels with the load, and floats as they are; a file that ends
// too early is an error.
func TestBring(t *testing.T) {
	data := make([]byte, tensor.Q4_0.RowBytes(40*256))
	rand.NewChaCha8([32]byte{}).Read(data)
	graphOf := func(in tensor.Tensor, lack int64) (*graph.Graph, *graph.Weight, *graph.Weight) {
		if in.Data == nil {
			in.Source = io.NewSectionReader(bytes.NewReader(data), 0, int64(len(data))-lack)
		}
		w, f := &graph.Weight{Tensor: in}, &graph.Weight{Tensor: in}
		w.DType, w.Shape, f.DType, f.Shape = tensor.Q4_0, tensor.Shape{40, 256}, tensor.F16, tensor.Shape{10, 256}
		if f.Data != nil {
			f.Data = f.Data[:10*512]
		}
		return &graph.Graph{Nodes: []*graph.Node{{Op: graph.Linear, W: []*graph.Weight{w}}, {Op: graph.Linear, W: []*graph.Weight{f}}}}, w, f
	}
	b := New(Options{Threads: 2})
	defer b.Close()
	g, near, _ := graphOf(tensor.Tensor{Data: data}, 0)
	if err := errors.Join(b.ready(g, nil), b.repack(t.Context(), b.inPlace)); err != nil {
		t.Fatal(err)
	}
	g, far, floats := graphOf(tensor.Tensor{}, 0)
	var said []int64
	if err := b.ready(g, func(done, total int64) error { said = append(said, done, total); return nil }); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b.packed[far].memory, b.packed[near].memory) || len(b.inPlace) > 0 || !bytes.Equal(floats.Data, data[:10*512]) {
		t.Errorf("other panels, %d weights in place, or other floats", len(b.inPlace))
	}
	if n := int64(len(data)); !slices.Equal(said, []int64{0, n, n, n}) {
		t.Errorf("progress %d of %d", said, n)
	}
	g, _, _ = graphOf(tensor.Tensor{}, 100)
	if err := guard(func() error { return b.ready(g, nil) }); err == nil || !strings.Contains(err.Error(), "EOF") {
		t.Errorf("error %v of a short file", err)
	}
}

// TestReady: loading tells how much of the weights it has read, and stops when it is told so.
func TestReady(t *testing.T) {
	b := New(Options{Threads: 2})
	defer b.Close()
	e := &executable{b: b}
	g := &graph.Graph{Nodes: nodesOf(newProducts(t, e, tensor.Q8_0, 16, 256, 3))}
	clear(b.packed)
	b.inPlace = nil
	stopped := errors.New("stopped")
	if err := b.ready(g, func(int64, int64) error { return stopped }); err != stopped {
		t.Errorf("error %v of progress", err)
	}
	clear(b.packed)
	b.inPlace = nil
	var said []int64
	if err := b.ready(g, func(done, total int64) error { said = append(said, done, total); return nil }); err != nil {
		t.Fatal(err)
	}
	if n := int64(16 * 8 * 34); !slices.Equal(said, []int64{0, 3 * n, n, 3 * n, 2 * n, 3 * n, 3 * n, 3 * n}) {
		t.Errorf("progress %d", said)
	}
}

// newProducts makes products with weights [n, k] in place, whose scales are finite.
func newProducts(t *testing.T, e *executable, d tensor.DType, n, k, count int) (products []*product) {
	t.Helper()
	random := rand.NewChaCha8([32]byte{byte(d)})
	for range count {
		w := &graph.Weight{Tensor: tensor.Tensor{Name: "weight", DType: d, Shape: tensor.Shape{n, k}}}
		x := make([]float32, n*k)
		for i := range x {
			x[i] = float32(random.Uint64()%2001)/1000 - 1
		}
		w.Data = make([]byte, d.RowBytes(n*k))
		if err := quant.Quantize(d, w.Data, x, k, nil); err != nil {
			t.Fatal(err)
		}
		m, err := newPacked(w)
		if err != nil {
			t.Fatal(err)
		}
		e.b.packed[w], e.b.inPlace = m, append(e.b.inPlace, w)
		products = append(products, newProduct(e, w, 0))
	}
	if err := e.x.start(&planner{e: e, g: &graph.Graph{Nodes: nodesOf(products)}}); err != nil {
		t.Fatal(err)
	}
	return products
}

// stepOf is a step of so many rows, some of whose logits are wanted.
func stepOf(rows, outputs int) *backend.Step {
	return &backend.Step{Tokens: make([]int32, rows), Outputs: make([]int32, outputs)}
}

// TestSettle: until the first token nothing is repacked, then some at each step of a few
// rows, and products have the same bits all along: of every type, and of one row, few
// and many.
func TestSettle(t *testing.T) {
	for d := tensor.Q4_0; d <= tensor.MXFP4; d++ {
		t.Run(d.String(), func(t *testing.T) { settles(t, d) })
	}
}

func settles(t *testing.T, d tensor.DType) {
	const k, many = 512, 64
	n := 16
	if d == tensor.Q4_0 || d == tensor.Q6_K {
		n = 21 // the last panel is not full
	}
	b := New(Options{Threads: 2})
	defer b.Close()
	e := &executable{b: b, rows: many, scratch: make([]scratch, 2)}
	products := newProducts(t, e, d, n, k, settleSteps)
	x := make([]float32, many*k)
	values := func() (all []float32) {
		for _, p := range products {
			for _, rows := range []int{1, 3, 8, 20, many} {
				for i := range x {
					x[i] = float32(i%11) - 5.3
				}
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
	for i, c := range []struct{ rows, outputs, left int }{{many, 0, 8}, {many, 0, 8}, {3, 1, 8}, {1, 1, 7}, {1, 0, 6}, {2, 2, 5}, {1, 1, 4}, {1, 1, 3}, {1, 1, 2}, {1, 1, 1}, {1, 1, 0}, {1, 1, 0}} {
		if b.settle(t.Context(), stepOf(c.rows, c.outputs)); len(b.inPlace) != c.left {
			t.Fatalf("step %d: %d weights in place, want %d", i, len(b.inPlace), c.left)
		}
		if n := int64(len(products)-c.left) * int64(panel.Size(d, n, k)); b.Packed() != n {
			t.Fatalf("step %d: %d bytes are packed, want %d", i, b.Packed(), n)
		}
		if i%4 == 3 && !slices.Equal(values(), want) {
			t.Fatalf("step %d: other bits", i)
		}
	}
	for _, p := range products {
		if p.panels.InPlace() || len(b.packed[p.w].memory) == 0 {
			t.Error("a weight is still in place")
		}
	}
	if len(b.room) > 0 || b.panels.bytes() != b.Packed() {
		t.Errorf("%d bytes are reserved, %d packed", b.panels.bytes(), b.Packed())
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
		m, err := newPacked(w)
		if err != nil {
			t.Fatal(err)
		}
		b.packed[w] = m
		products = append(products, newProduct(e, w, 0))
	}
	if err := e.x.start(&planner{e: e, g: &graph.Graph{Nodes: nodesOf(products)}}); err != nil {
		t.Fatal(err)
	}
	for _, p := range products {
		for _, rows := range []int{2, 8, 5} {
			k := p.panels.K
			p.x, p.rows, p.few = make([]float32, rows*k), rows, true
			if err := e.x.quantize(nil, p); err != nil {
				t.Fatal(err)
			}
			if got, want := len(e.x.joined), k/panel.Chunk*simd.Joined(rows, panel.Chunk); got != want {
				t.Errorf("%d rows of %d columns: %d bytes, want %d", rows, k, got, want)
			}
		}
	}
}

// TestParts: the parts that tiles multiply are those of the rounded rows, wherever they lie.
func TestParts(t *testing.T) {
	const rows, k = 37, 3*panel.Chunk + 64
	b := New(Options{Threads: 3})
	defer b.Close()
	e := &executable{b: b, rows: rows}
	w := &graph.Weight{Tensor: tensor.Tensor{DType: tensor.Q4_1, Shape: tensor.Shape{16, k}, Data: make([]byte, tensor.Q4_1.RowBytes(16*k))}}
	m, err := newPacked(w)
	if err != nil {
		t.Fatal(err)
	}
	b.packed[w] = m
	p := newProduct(e, w, 0)
	for _, spent := range []bool{false, true} {
		e.x = activations{}
		if err := e.x.start(&planner{e: e, g: &graph.Graph{Nodes: nodesOf([]*product{p})}}); err != nil {
			t.Fatal(err)
		}
		x := make([]float32, rows*k)
		for i := range x {
			x[i] = float32(i%977) - 488.25
		}
		if p.x, p.rows, p.tiles, p.spent = x, rows, true, spent; !spent {
			e.x.apart = make([]uint16, 2*rows*k)
		}
		if err := e.x.quantize(nil, p); err != nil {
			t.Fatal(err)
		}
		want := make([]uint16, 2*rows*k)
		simd.Split(want, e.x.q[:rows*k])
		if !slices.Equal(e.x.split, want) || slices.Max(want) == 0 {
			t.Errorf("spent %v: other parts", spent)
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

// TestSettleAtOnce: a step of many rows repacks all, behind the first token or where the
// prompt is long.
func TestSettleAtOnce(t *testing.T) {
	for _, answered := range []bool{true, false} {
		b := New(Options{Threads: 1})
		defer b.Close()
		newProducts(t, &executable{b: b}, tensor.Q4_K, 16, 256, 3)
		steps := patience
		if answered {
			steps = 1
		}
		for i := range steps {
			outputs := 0
			if answered {
				outputs = 1
			}
			if b.settle(t.Context(), stepOf(fewRows+1, outputs)); b.Packed() != 0 {
				t.Fatalf("answered %v: %d bytes are packed before step %d", answered, b.Packed(), i)
			}
		}
		if b.settle(t.Context(), stepOf(fewRows+1, 0)); len(b.inPlace) != 0 {
			t.Errorf("answered %v: %d weights in place", answered, len(b.inPlace))
		}
	}
}

// TestSettleJudged: steps with the logits of many rows, which judge a text, read weights in place for long, and a
// token ends that.
func TestSettleJudged(t *testing.T) {
	for _, token := range []bool{true, false} {
		b := New(Options{Threads: 1})
		defer b.Close()
		newProducts(t, &executable{b: b}, tensor.Q4_K, 16, 256, 3)
		for i := range patience * judgedSteps {
			if token && i == 2 {
				b.settle(t.Context(), stepOf(1, 1))
				break
			}
			if b.settle(t.Context(), stepOf(99, fewRows+1)); b.Packed() != 0 {
				t.Fatalf("token %v: %d bytes are packed before step %d", token, b.Packed(), i)
			}
		}
		if b.settle(t.Context(), stepOf(99, fewRows+1)); len(b.inPlace) != 0 {
			t.Errorf("token %v: %d weights in place", token, len(b.inPlace))
		}
	}
}

// canceled is a context that ends after so many looks at it.
type canceled struct {
	context.Context
	looks int
}

func (c *canceled) Err() error {
	if c.looks--; c.looks < 0 {
		return context.Canceled
	}
	return nil
}

// TestSettleCanceled: what Ctrl-C leaves in place keeps its room, which nothing has twice.
func TestSettleCanceled(t *testing.T) {
	b := New(Options{Threads: 1})
	defer b.Close()
	newProducts(t, &executable{b: b}, tensor.Q4_0, 16, 256, 5)
	b.answered = true
	one := int64(panel.Size(tensor.Q4_0, 16, 256))
	for _, c := range []struct {
		looks  int // one is settle's
		packed int64
		room   int64
	}{{0, 0, 0}, {1, 0, 5}, {3, 2, 5}, {2, 3, 5}, {10, 5, 5}} {
		b.settle(&canceled{t.Context(), c.looks}, stepOf(fewRows+1, 1))
		if b.Packed() != c.packed*one || int64(len(b.inPlace)) != 5-c.packed || b.panels.bytes() != c.room*one {
			t.Errorf("%d looks: %d bytes are packed of %d reserved, %d weights in place, want %d of %d, and %d", c.looks, b.Packed(), b.panels.bytes(), len(b.inPlace), c.packed*one, c.room*one, 5-c.packed)
		}
	}
}

// TestSettleWithoutMemory: weights for which there is no memory stay in place.
func TestSettleWithoutMemory(t *testing.T) {
	b := New(Options{Threads: 1})
	defer b.Close()
	w := newProducts(t, &executable{b: b}, tensor.Q8_0, 16, 256, 1)[0].w
	b.answered = true
	w.Shape[0] = 1 << 50
	for range 2 {
		if b.settle(t.Context(), stepOf(1, 1)); len(b.inPlace) != 0 || b.packed[w].memory != nil || b.Packed() != 0 {
			t.Errorf("%d weights are to be repacked; %d bytes", len(b.inPlace), b.Packed())
		}
	}
}

// TestSettleBehindFailure: where a weight cannot be repacked, those of a graph that is compiled later have room of their own.
func TestSettleBehindFailure(t *testing.T) {
	b := New(Options{Threads: 1})
	defer b.Close()
	broken := newProducts(t, &executable{b: b}, tensor.Q8_0, 16, 256, 2)[1]
	b.answered = true
	broken.panels.N++ // so that its panels have another size
	b.settle(t.Context(), stepOf(fewRows+1, 1))
	if one := int64(panel.Size(tensor.Q8_0, 16, 256)); b.Packed() != one || len(b.inPlace) != 0 || !broken.panels.InPlace() {
		t.Fatalf("%d bytes are packed, want %d; %d weights are to be repacked", b.Packed(), one, len(b.inPlace))
	}
	later := newProducts(t, &executable{b: b}, tensor.Q8_0, 64, 256, 1)[0]
	b.settle(t.Context(), stepOf(fewRows+1, 1))
	if later.panels.InPlace() {
		t.Error("a later graph's weight stays in place")
	}
}

// coded is the Source of a matrix of floats with codes behind its values.
type coded struct {
	*bytes.Reader
	is tensor.Coded
}

func (c coded) Coded(int, int) (tensor.Coded, bool) { return c.is, true }

func (c coded) Origin() [][]byte { return c.is.Tensor.Origin() }

// TestColumns: products with codes in another order of columns are products of activations in that order, in place and
// in panels, of one row, few and many, and leave the rounded rows of others alone.
func TestColumns(t *testing.T) {
	const n, k, rows = 40, panel.Chunk + 64, 33
	b := New(Options{Threads: 2})
	defer b.Close()
	e := &executable{b: b, rows: rows, scratch: make([]scratch, 2)}
	plain := newProducts(t, e, tensor.Q8_0, n, k, 1)[0]
	codes := plain.w.Tensor
	codes.Name = ""
	columns := rand.New(rand.NewPCG(1, 2)).Perm(k)
	w := &graph.Weight{Tensor: tensor.Tensor{Name: "coded", DType: tensor.F32, Shape: tensor.Shape{n, k},
		Source: coded{bytes.NewReader(nil), tensor.Coded{Tensor: codes, Mul: 1, Div: 1, Columns: columns}}}}
	node := &graph.Node{}
	g := &graph.Graph{Nodes: []*graph.Node{{Op: graph.Linear, W: []*graph.Weight{w}, In: []*graph.Node{node}}}}
	if err := b.ready(g, nil); err != nil {
		t.Fatal(err)
	}
	ordered := newProduct(e, w, 0)
	if err := e.x.start(&planner{e: e, g: &graph.Graph{Nodes: nodesOf([]*product{plain, ordered})}}); err != nil {
		t.Fatal(err)
	}
	x, moved := make([]float32, rows*k), make([]float32, rows*k)
	for i := range x {
		x[i] = float32(i%977) - 488.25
	}
	for i := range moved {
		moved[i] = x[i/k*k+columns[i%k]]
	}
	for range 2 {
		for _, rows := range []int{1, 2, 5, rows} {
			natural, want, got := make([]float32, rows*n), make([]float32, rows*n), make([]float32, rows*n)
			run := func(p *product, in *graph.Node, out, x []float32) {
				t.Helper()
				if err := p.run(in, out, slices.Clone(x[:rows*k]), rows); err != nil {
					t.Fatal(err)
				}
			}
			run(plain, nil, natural, x)
			run(plain, nil, want, moved)
			again := make([]float32, rows*n)
			e.x.node = nil
			run(plain, node, again, x)
			run(ordered, node, got, x)
			if !slices.Equal(got, want) || !slices.Equal(again, natural) {
				t.Errorf("%d rows, in place %v: other products", rows, ordered.panels.InPlace())
			}
			run(plain, node, again, x)
			if !slices.Equal(again, natural) {
				t.Errorf("%d rows: other products after those in an order", rows)
			}
		}
		if err := b.repack(t.Context(), slices.Clone(b.inPlace)); err != nil {
			t.Fatal(err)
		}
	}
	if plain.panels.InPlace() || ordered.panels.InPlace() {
		t.Error("weights are in place")
	}
}
