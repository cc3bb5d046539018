package cpu

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/tensor"
)

// TestEmbedResident: the pages of a file's table leave the process behind the rows that
// were looked up, unless products read them there.
func TestEmbedResident(t *testing.T) {
	const rows, d = 256, 1024
	data := mapped(t, rows*d*4)
	w := &graph.Weight{Tensor: tensor.Tensor{DType: tensor.F32, Shape: tensor.Shape{rows, d}, Data: data}}
	b := New(Options{Threads: 1})
	defer b.Close()
	step := &backend.Step{Tokens: make([]int32, rows)}
	for i := range step.Tokens {
		step.Tokens[i] = int32(i)
	}
	pages := rows * d * 4 / os.Getpagesize()
	for _, multiplied := range []bool{true, false} {
		n := &graph.Node{Op: graph.Embed, Shape: tensor.Shape{d}, Attr: graph.EmbedAttr{Scale: 1}, W: []*graph.Weight{w}}
		g := &graph.Graph{Nodes: []*graph.Node{n}}
		if multiplied {
			g.Nodes = append(g.Nodes, &graph.Node{Op: graph.Linear, W: []*graph.Weight{w}})
		}
		p := &planner{e: &executable{b: b, step: step}, g: g}
		if err := p.embed(n, make([]float32, rows*d))(0, rows); err != nil {
			t.Fatal(err)
		}
		if n := present(t, data); multiplied && n != pages || !multiplied && n != 0 {
			t.Errorf("multiplied %v: %d of %d pages are there", multiplied, n, pages)
		}
	}
}

// TestPlanResident: a plan for many rows takes memory for the rows that steps have, outside Go's heap.
func TestPlanResident(t *testing.T) {
	const rows, d, wide = 256, 1024, 16 << 10
	weight := func(d tensor.DType, n, k int) *graph.Weight {
		return &graph.Weight{Tensor: tensor.Tensor{DType: d, Shape: tensor.Shape{n, k}, Data: make([]byte, d.RowBytes(n*k))}}
	}
	embed := &graph.Node{ID: 0, Op: graph.Embed, Shape: tensor.Shape{d}, Attr: graph.EmbedAttr{Scale: 1}, W: []*graph.Weight{weight(tensor.F32, 1, d)}}
	up := &graph.Node{ID: 1, Op: graph.Linear, Shape: tensor.Shape{wide}, In: []*graph.Node{embed}, W: []*graph.Weight{weight(tensor.Q4_0, wide, d)}}
	down := &graph.Node{ID: 2, Op: graph.Linear, Shape: tensor.Shape{d}, In: []*graph.Node{up}, W: []*graph.Weight{weight(tensor.Q4_0, d, wide)}}
	g := &graph.Graph{Nodes: []*graph.Node{embed, up, down}}
	b := New(Options{Threads: 1})
	defer b.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	plan, err := b.Compile(g, backend.Options{Rows: rows})
	if err != nil {
		t.Fatal(err)
	}
	if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 1<<20 {
		t.Errorf("a plan takes %d bytes of the heap", after.TotalAlloc-before.TotalAlloc)
	}
	pool := kv.NewPool(kv.Options{Context: rows, Chunk: rows})
	cache, err := b.NewCache(g, pool)
	if err != nil {
		t.Fatal(err)
	}
	seq := pool.NewSequence()
	if err := seq.Grow(1); err != nil {
		t.Fatal(err)
	}
	s := &backend.Step{Tokens: []int32{0}, Pos: []int32{0}, Seqs: []*kv.Sequence{seq}, Outputs: []int32{0}, Cache: cache}
	if _, err := plan.Run(t.Context(), s, nil); err != nil {
		t.Fatal(err)
	}
	pages := 0
	for _, m := range b.buffers.parts {
		pages += present(t, m.Data())
	}
	if most := len(b.buffers.parts) + 4*(2*d+2*wide)/os.Getpagesize(); pages == 0 || pages > most {
		t.Errorf("%d pages for a row, want 1 to %d of %d", pages, most, b.buffers.bytes()/int64(os.Getpagesize()))
	}
}

// TestFirstToken: until the first token of a prompt, of two steps here, no page of panels
// is found; a few tokens later all weights are in panels, and the file's pages are let go.
func TestFirstToken(t *testing.T) {
	const d, rows = 512, 64
	for _, kind := range []tensor.DType{tensor.Q4_0, tensor.Q4_K, tensor.Q6_K, tensor.Q8_0} {
		embed := &graph.Node{ID: 0, Op: graph.Embed, Shape: tensor.Shape{d}, Attr: graph.EmbedAttr{Scale: 1},
			W: []*graph.Weight{{Tensor: tensor.Tensor{DType: tensor.F32, Shape: tensor.Shape{1, d}, Data: make([]byte, 4*d)}}}}
		g := &graph.Graph{Nodes: []*graph.Node{embed}}
		data := mapped(t, settleSteps*kind.RowBytes(d*d))
		for i := range settleSteps {
			n := kind.RowBytes(d * d)
			w := &graph.Weight{Tensor: tensor.Tensor{DType: kind, Shape: tensor.Shape{d, d}, Data: data[i*n : (i+1)*n]}}
			g.Nodes = append(g.Nodes, &graph.Node{ID: i + 1, Op: graph.Linear, Shape: tensor.Shape{d}, In: []*graph.Node{g.Nodes[i]}, W: []*graph.Weight{w}})
		}
		b := New(Options{Threads: 2})
		defer b.Close()
		plan, err := b.Compile(g, backend.Options{Rows: rows})
		if err != nil {
			t.Fatal(err)
		}
		pool := kv.NewPool(kv.Options{Context: 2 * rows, Chunk: rows})
		cache, err := b.NewCache(g, pool)
		if err != nil {
			t.Fatal(err)
		}
		seq := pool.NewSequence()
		pos := int32(0)
		run := func(n int, outputs ...int32) {
			t.Helper()
			s := &backend.Step{Tokens: make([]int32, n), Pos: make([]int32, n), Seqs: slices.Repeat([]*kv.Sequence{seq}, n), Outputs: outputs, Cache: cache}
			for i := range s.Pos {
				s.Pos[i] = pos
				pos++
			}
			if err := seq.Grow(n); err != nil {
				t.Fatal(err)
			}
			if _, err := plan.Run(t.Context(), s, nil); err != nil {
				t.Fatal(err)
			}
		}
		run(rows)
		run(rows/2, rows/2-1)
		if len(b.panels.parts) != 0 || b.Packed() != 0 {
			t.Errorf("%v: %d bytes are packed with the first token, %d reserved", kind, b.Packed(), b.panels.bytes())
		}
		for range settleSteps {
			run(1, 0)
		}
		if want := Repacked(g) + int64(len(data)); b.Packed() != want || b.panels.bytes() != want || len(b.inPlace) != 0 {
			t.Errorf("%v: %d bytes are packed after %d tokens, %d reserved, want %d", kind, b.Packed(), settleSteps+1, b.panels.bytes(), want)
		}
		if n := present(t, data); n > settleSteps { // a page that two weights share
			t.Errorf("%v: %d of the file's pages are there", kind, n)
		}
	}
}

// mapped is a file of zeros.
func mapped(t *testing.T, n int) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, n), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := mmap.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f.Data()
}

// present counts the pages of data that the process holds.
func present(t *testing.T, data []byte) (n int) {
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		golden.Lacking(t, err)
	}
	defer f.Close()
	page := os.Getpagesize()
	entries := make([]byte, len(data)/page*8)
	if _, err := f.ReadAt(entries, int64(uintptr(unsafe.Pointer(unsafe.SliceData(data))))/int64(page)*8); err != nil {
		golden.Lacking(t, err)
	}
	for e := range len(entries) / 8 {
		n += int(binary.LittleEndian.Uint64(entries[8*e:]) >> 63)
	}
	return n
}
